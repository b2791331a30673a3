"""The demo's child processes: each with its own log file, all ended by pid whatever happens to the parent."""

import ctypes
import os
import signal
import subprocess
import time

STOP_SECONDS = 10  # from SIGTERM to SIGKILL
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class ChildFailed(Exception):
    """A child ended early or badly; the text holds the end of its log."""


def die_with_parent():
    """Runs in the child before exec: the kernel ends it when the demo is killed outright."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def log_tail(path, lines=15):
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 8192))
            return "\n".join("    " + line for line in file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return "    (no log)"


class Child:
    def __init__(self, name, argv, log_path, environment, pipes):
        self.name, self.log_path = name, log_path
        self.log = open(log_path, "ab")
        try:
            self.process = subprocess.Popen(
                argv, env=environment, stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else self.log, stderr=self.log, start_new_session=True,
                preexec_fn=die_with_parent, text=pipes)
        except OSError as error:
            self.log.close()
            raise ChildFailed(f"{name} cannot be started: {argv[0]}: {error.strerror}") from error

    def failure(self):
        return ChildFailed(f"{self.name} ended with status {self.process.returncode}; its log {self.log_path} ends with\n"
                           + log_tail(self.log_path))


class Children:
    """Use as a context manager: leaving it ends every child that still runs."""

    def __init__(self, log_folder):
        self.log_folder = log_folder
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop(self.running)

    def start(self, name, argv, environment=None, pipes=False):
        """`pipes`: stdin and stdout are connected to the parent; otherwise stdout goes to the log."""
        child = Child(name, [str(word) for word in argv], os.path.join(self.log_folder, f"{name}.log"),
                      {**os.environ, **(environment or {})}, pipes)
        self.running.append(child)
        return child

    def check(self, may_end=()):
        """Raises ChildFailed when a child that should still run has ended; those in `may_end` are for `reap` to judge."""
        for child in self.running:
            if child not in may_end and child.process.poll() is not None:
                raise child.failure()

    def reap(self, children):
        """True once all of `children` have ended well; raises ChildFailed when one has not, or when another child is gone."""
        for child in list(children):
            status = child.process.poll()
            if status is None:
                continue
            if status != 0:
                raise child.failure()
            if child in self.running:
                self.running.remove(child)
                child.log.close()
        self.check(may_end=children)
        return not any(child in self.running for child in children)

    def stop(self, children):
        """SIGTERM to each by pid, SIGKILL to those that stay."""
        children = [child for child in children if child in self.running]
        for child in children:
            if child.process.poll() is None:
                child.process.terminate()
        limit = time.monotonic() + STOP_SECONDS
        for child in children:
            try:
                child.process.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            for stream in (child.process.stdin, child.process.stdout, child.log):
                if stream:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        pass
            self.running.remove(child)
