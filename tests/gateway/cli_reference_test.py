"""Goal: docs/reference/cli.md lists exactly the commands and options of the program `sluice`.
Method: walk `sluice COMMAND --help` from the top; compare each command's options with the rows below its heading; then the statuses."""

import os
import re
import resource
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.environ["SLUICE_BINARY_DIR"], "gateway", "sluice")
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "reference", "cli.md")
EVERYWHERE = {"-h", "--help", "--help-all"}


def help_of(command):
    return subprocess.run([PROGRAM, *command, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout


def parse_help(text):
    """Options and subcommands of one help page."""
    options, subcommands, section = set(), [], ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            section = line.rstrip(":").strip()
        elif re.match(r"  [^ ]", line):
            first = line.split()[0]
            if section == "Subcommands":
                subcommands.append(first)
            elif first.startswith("-"):
                options.update(re.findall(r"--?[a-z][a-z-]*", first))
    return options - EVERYWHERE, subcommands


def programs_commands():
    commands, waiting = {}, [()]
    while waiting:
        command = waiting.pop()
        options, subcommands = parse_help(help_of(command))
        commands[" ".join(("sluice", *command))] = options
        waiting += [(*command, name) for name in subcommands]
    return commands


def documented_commands():
    commands, current = {}, None
    with open(PAGE, encoding="utf-8") as page:
        for line in page:
            heading = re.match(r"## `(sluice[a-z ]*)`", line)
            if heading:
                current = commands.setdefault(heading.group(1), set())
            elif line.startswith("## "):
                current = None
            elif current is not None and line.startswith("| `-"):
                current.update(re.findall(r"--?[a-z][a-z-]*", line.split("|")[1]))
    return commands


def status_of(*arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    return subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=60, env=environment).returncode


def refused_writes():
    """What the system does not let it write is an error with a message, neither silence nor a signal."""
    wrong = []
    with open("/dev/full", "wb") as full:
        for command in (["config", "schema"], ["--help"]):
            done = subprocess.run([PROGRAM, *command], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
            if done.returncode != 1 or not done.stderr:
                wrong.append(f"sluice {' '.join(command)} on a full disk: exit status {done.returncode}, stderr {done.stderr!r}")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([PROGRAM, "certs", "--run", "r", "--domain", "d.test", "--out", folder, "a"], capture_output=True, timeout=60,
                              check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        if done.returncode != 1 or b"[kC" not in done.stderr and b"[kD" not in done.stderr:
            wrong.append(f"sluice certs under a file size limit: exit status {done.returncode}, stderr {done.stderr!r}")
    return wrong


def main():
    wrong = []
    real, written = programs_commands(), documented_commands()
    for command in sorted(set(real) | set(written)):
        if command not in written:
            wrong.append(f"docs/reference/cli.md has no heading `{command}`")
        elif command not in real:
            wrong.append(f"docs/reference/cli.md describes `{command}`, which the program does not have")
        elif real[command] != written[command]:
            wrong.append(f"{command}: only in the program {sorted(real[command] - written[command])}, "
                         f"only in the page {sorted(written[command] - real[command])}")
    root = os.path.join(os.path.dirname(PAGE), "..", "..")
    example = os.path.join(root, "configs", "production-example.yaml")
    broken = os.path.join(root, "tests", "testdata", "broken_config", "octal_number.yaml")
    for expected, arguments in [
            (0, ["--version"]), (0, ["--help"]), (0, ["config", "schema"]), (0, ["config", "check", "--skip-files", example]),
            (0, ["config", "show", example]), (1, ["config", "check", example]), (1, ["config", "check", "--skip-files", example, broken]),
            (1, ["config", "show", broken]), (1, ["config", "check", "/nowhere.yaml"]), (1, ["gateway", "--config", broken]), (2, []),
            (2, ["nonsense"]), (2, ["config"]), (2, ["config", "check"]), (2, ["gateway"]), (2, ["certs", "--days", "0"]),
            (2, ["status", "--output", "xml"]), (2, ["status", "--admin", "nonsense"]), (3, ["status", "--admin", "127.0.0.1:1"]),
            (3, ["links", "--admin", "127.0.0.1:1", "-o", "json"]), (3, ["rounds", "--admin", "127.0.0.1:1"])]:
        status = status_of(*arguments)
        if status != expected:
            wrong.append(f"sluice {' '.join(arguments)}: exit status {status}, expected {expected}")
    wrong += refused_writes()
    print("\n".join(wrong) or f"{len(real)} commands agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
