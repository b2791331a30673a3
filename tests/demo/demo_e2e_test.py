"""Goal: `python -m sluice_demo` starts everything, trains over three gateways, agrees in every round, writes its figures, and leaves
nothing running. Method: the real programs of this build, a few rounds without WAN delay; once to the end, once with a gateway killed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BINARY_DIR = os.environ.get("SLUICE_BINARY_DIR", "build/dev")
SHORT = ["--binary-dir", BINARY_DIR, "--wan", "none", "--warmup", "10", "--width", "32", "--pairs", "127", "--held-out-windows", "64",
         "--base-steps", "5"]


def demo(*arguments):
    command = [sys.executable, "-m", "sluice_demo", *SHORT, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def processes_naming(folder):
    """Pids of processes with the folder in their command line, read from /proc."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if folder.encode() in file.read() and int(pid) != os.getpid():
                    found.append(int(pid))
        except OSError:
            continue
    return found


class WholeDemo(unittest.TestCase):
    def test_figures_are_written_and_digests_agree(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = os.path.join(folder, "out.json")
            process = demo("--rounds", "3", "--inner-steps", "4", "--json", figures, "--output-dir", os.path.join(folder, "run"),
                           "--save-deltas", os.path.join(folder, "deltas"), "--with-fp32")
            output, _ = process.communicate(timeout=240)
            self.assertEqual(process.returncode, 0, output)
            with open(figures, encoding="ascii") as file:
                report = json.load(file)
            self.assertTrue(report["digests_equal"], output)
            self.assertEqual((report["sites"], report["ranks_per_site"], report["rounds"], report["inner_steps"]), (3, 2, 3, 4))
            self.assertGreater(report["wan"]["bytes_sent"], 0)
            self.assertLess(report["loss"]["sluice"], report["loss"]["start"])
            self.assertIn("fp32_exchange", report["loss"])
            delta = os.path.join(folder, "deltas", "seed-1", "site-2", "round-0003.f32")
            self.assertEqual(os.path.getsize(delta), 4 * report["parameters"])
            self.assertEqual(processes_naming(folder), [])

    def test_a_gateway_that_dies_ends_the_demo_with_its_name(self):
        with tempfile.TemporaryDirectory() as folder:
            process = demo("--rounds", "1000", "--output-dir", os.path.join(folder, "run"))
            config = "demo-eu-west.yaml"
            limit = time.monotonic() + 100
            victims = []
            while not victims and time.monotonic() < limit and process.poll() is None:
                victims = [pid for pid in children_of(process.pid) if config in command_line(pid)]
            self.assertTrue(victims, "the gateway was not started")
            os.kill(victims[0], signal.SIGKILL)
            output, _ = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 1)
            self.assertIn("gateway-eu-west ended with status -9", output)
            self.assertEqual(processes_naming(folder), [])


def children_of(parent):
    try:
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: this interpreter has no torch; install python3-torch or set SLUICE_PYTHON")
        sys.exit(77)
    unittest.main()
