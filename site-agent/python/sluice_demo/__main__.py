"""Three sites on this machine train one model together: the demo. `./run demo` builds what it needs and starts it."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from sluice_demo import baseline_arm, demo_report, settings
from sluice_demo.children import ChildFailed, Children
from sluice_demo.sluice_arm import SluiceArm

PYTHON_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHECKOUT = os.path.dirname(os.path.dirname(PYTHON_FOLDER))
ARM_SECONDS_MAX = 900  # of one arm and seed; the default settings take about two minutes


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--sites", type=int, default=settings.SITES, help="2 to 6 (default %(default)s)")
    parser.add_argument("--ranks", type=int, default=settings.RANKS, help="training processes per site (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=settings.ROUNDS, help="exchanges (default %(default)s)")
    parser.add_argument("--bits", type=float, default=settings.BITS, help="bits per value of a site's contribution (default %(default)s)")
    parser.add_argument("--wan", default=settings.PRESET, metavar="PRESET",
                        help=f"{', '.join(settings.PRESETS)} (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="repeat with this many seeds and average (default %(default)s)")
    parser.add_argument("--with-fp32", action="store_true", help="also run an exchange of fp32 deltas under the same outer rule")
    parser.add_argument("--save-deltas", metavar="DIR", help="write each site's delta of each round there (4 MB each)")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter with torch >= 1.13 (default %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the gateways running at the end, until Ctrl-C")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    parser.add_argument("--output-dir", metavar="DIR", help="logs, certificates and configuration files (default: var/demo-...)")
    parser.add_argument("--binary-dir", default="build/release", metavar="DIR", help="the build to use (default %(default)s)")
    parser.add_argument("--sluice", metavar="PATH", help="the program sluice (default: the build's)")
    parser.add_argument("--relay", metavar="PATH", help="the program sluice_wan_relay (default: the build's)")
    parser.add_argument("--configs", default=os.path.join(CHECKOUT, "configs"), metavar="DIR", help="the site files (default %(default)s)")
    group = parser.add_argument_group("training")
    group.add_argument("--outer-rate", type=float, default=settings.OUTER_RATE, help="outer learning rate (default %(default)s)")
    group.add_argument("--outer-momentum", type=float, default=settings.OUTER_MOMENTUM, help="outer momentum (default %(default)s)")
    group.add_argument("--baseline-learning-rate", type=float, default=settings.BASELINE_LEARNING_RATE,
                       help="learning rate of the data-parallel baseline (default %(default)s)")
    group.add_argument("--base-steps", type=int, default=settings.BASE_STEPS, help="steps of the base model (default %(default)s)")
    group.add_argument("--base-sequences", type=int, default=settings.BASE_SEQUENCES, help="its sequences a step (default %(default)s)")
    group.add_argument("--base-learning-rate", type=float, default=settings.BASE_LEARNING_RATE, help="default %(default)s")
    settings.add_training_arguments(group)
    options = parser.parse_args(argv)
    if not 2 <= options.sites <= 6:
        parser.error(f"--sites {options.sites}: 2 to 6")
    for name in ("rounds", "seeds", "ranks"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: at least 1")
    if not settings.BITS_MIN <= options.bits <= settings.BITS_MAX:
        parser.error(f"--bits {options.bits:g}: {settings.BITS_MIN:g} to {settings.BITS_MAX:g}")
    if options.wan not in settings.PRESETS:
        parser.error(f"--wan {options.wan}: there are {', '.join(settings.PRESETS)}")
    if options.sites > settings.PRESETS[options.wan]:
        parser.error(f"--wan {options.wan} has 2 to {settings.PRESETS[options.wan]} sites, not {options.sites}")
    if options.json and not os.access(os.path.dirname(os.path.abspath(options.json)), os.W_OK):
        parser.error(f"--json {options.json}: its folder does not exist or cannot be written")
    if options.sequences % options.ranks != 0:
        parser.error(f"--ranks must divide the {options.sequences} sequences of a site's step")
    options.steps = options.rounds * options.inner_steps
    return options


def find_programs(options):
    """Fills options.sluice and options.relay, and checks that the interpreter has torch, before anything is started."""
    places = {"sluice": ("gateway/sluice", "bin/sluice"), "relay": ("tests/support/sluice_wan_relay", "bin/sluice_wan_relay")}
    for name, candidates in places.items():
        given = getattr(options, name)
        paths = [given] if given else [os.path.join(options.binary_dir, candidate) for candidate in candidates]
        found = next((path for path in paths if os.access(path, os.X_OK)), None)
        if not found:
            raise ChildFailed(f"no program {name} at {' or '.join(paths)}; build it, or start the demo with ./run demo")
        setattr(options, name, os.path.abspath(found))
    if not shutil.which(options.python):
        raise ChildFailed(f"--python {options.python}: no such program")
    probe = subprocess.run([options.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise ChildFailed(f"{options.python} has no torch; install the package python3-torch and use /usr/bin/python3, "
                          "or give another interpreter with --python PATH")
    return probe.stdout.strip()


def child_environment(options):
    """What every training process is given."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, [PYTHON_FOLDER, os.environ.get("PYTHONPATH")])), "OMP_NUM_THREADS": "1",
                   "GLOO_SOCKET_IFNAME": "lo"}
    library = os.path.abspath(os.path.join(options.binary_dir, "site-agent", "libsluice_agent.so"))
    if "SLUICE_AGENT_LIBRARY" not in os.environ and os.path.exists(library):
        environment["SLUICE_AGENT_LIBRARY"] = library
    if "OPENBLAS_CORETYPE" not in os.environ:
        kernels = openblas_kernels()
        if kernels:
            environment["OPENBLAS_CORETYPE"] = kernels
    return environment


def openblas_kernels():
    """OpenBLAS of Debian 12 does not know processors newer than itself and falls back to SSE kernels, five times slower."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = set(next(line for line in file if line.startswith("flags")).split())
    except (OSError, StopIteration):
        return None
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags:
        return "SkylakeX"
    return "Haswell" if {"avx2", "fma"} <= flags else None


class Progress:
    """One line that is rewritten on a terminal; a line every few seconds elsewhere."""

    PLAIN_SECONDS = 5.0

    def __init__(self):
        self.started = time.monotonic()
        self.shown = 0.0
        self.is_terminal = sys.stdout.isatty()

    def show(self, text, force=False):
        now = time.monotonic()
        if not force and not self.is_terminal and now - self.shown < self.PLAIN_SECONDS:
            return
        self.shown = now
        line = f"  {now - self.started:5.0f} s   {text}"
        if self.is_terminal:
            columns = shutil.get_terminal_size().columns
            print(f"\r\x1b[K{line[:columns - 1]}", end="\n" if force else "", flush=True)
        else:
            print(line, flush=True)

    def say(self, text):
        print(("\r\x1b[K" if self.is_terminal else "") + text, flush=True)


def run_seed(options, seed, folder, environment, progress, keep):
    """All arms of one seed. `keep`: the Children that own the gateways to be left running, or None."""
    run = {"seed": seed}
    started = time.monotonic()
    base = os.path.join(folder, "base.pt")
    with Children(make_folder(folder, "base")) as children:
        progress.say(f"seed {seed}: a base model from the text that all sites have; logs in {folder}")
        run["base"] = baseline_arm.make_base(options, children, seed, base, environment, progress, ARM_SECONDS_MAX)
    with contextlib.ExitStack() as stack:
        sluice_folder = make_folder(folder, "sluice")
        children = stack.enter_context(Children(sluice_folder)) if keep is None else keep
        children.log_folder = sluice_folder
        arm = SluiceArm(options, children, sluice_folder, base)
        progress.say(f"seed {seed}: {options.sites} sites x {options.ranks} ranks train it on through their gateways, each on its own text")
        run["sluice"] = arm.run(seed, environment, progress, ARM_SECONDS_MAX)
        for problem in run["sluice"]["problems"][:10]:
            progress.say(f"  problem: {problem}")
        if keep is None:
            arm.stop()
        with Children(make_folder(folder, "data-parallel")) as baseline:
            tokens = options.steps * options.sequences * options.sites * options.context
            progress.say(f"seed {seed}: the same {tokens:,} tokens by plain data parallel")
            run["data_parallel"] = baseline_arm.run(options, baseline, seed, base, environment, progress, ARM_SECONDS_MAX)
    run["seconds"] = time.monotonic() - started
    if options.with_fp32:
        with Children(make_folder(folder, "fp32")) as children:
            progress.say(f"seed {seed}: fp32 exchange, same outer rule, without the WAN's delay")
            reference = SluiceArm(options, children, children.log_folder, base, codec="raw32", preset="none")
            run["fp32_exchange"] = reference.run(seed, environment, progress, ARM_SECONDS_MAX)
    return run, arm


def make_folder(parent, name):
    path = os.path.join(parent, name)
    os.makedirs(path, exist_ok=True)
    return path


def run_demo(options):
    torch_version = find_programs(options)
    folder = os.path.abspath(options.output_dir or default_folder())
    os.makedirs(folder, exist_ok=True)
    environment = child_environment(options)
    progress = Progress()
    progress.say(f"Sluice demo: torch {torch_version} in {options.python}, WAN {options.wan}, {options.rounds} rounds of "
                 f"{options.inner_steps} steps, {options.bits} bits a value")
    with Children(folder) as kept:
        runs, arm = [], None
        for seed in range(1, options.seeds + 1):
            is_last = seed == options.seeds
            run, arm = run_seed(options, seed, make_folder(folder, f"seed-{seed}"), environment, progress,
                                kept if options.keep and is_last else None)
            runs.append(run)
        report = demo_report.build_report(options, runs)
        print("\n" + demo_report.table(report) + "\n", flush=True)
        if options.json:
            with open(options.json, "w", encoding="ascii") as file:
                json.dump(report, file, indent=1)
                file.write("\n")
        if options.keep:
            print("dashboards: " + "  ".join(arm.dashboards()) + "\nCtrl-C ends the gateways.", flush=True)
            while True:
                kept.check()
                time.sleep(1)
    return 0 if report["digests_equal"] else 1


def default_folder():
    root = os.path.abspath("var")
    os.makedirs(root, exist_ok=True)
    return tempfile.mkdtemp(prefix=time.strftime("demo-%Y%m%d-%H%M%S-"), dir=root)


def main(argv=None):
    options = parse_arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that the children are ended
    try:
        return run_demo(options)
    except ChildFailed as failure:
        print(f"\nsluice_demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nended by Ctrl-C", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
