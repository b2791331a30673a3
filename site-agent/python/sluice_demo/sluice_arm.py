"""One run of three sites through their gateways: certificates, relay, gateways, training processes, progress, checks."""

import json
import os
import subprocess
import tempfile
import time

from sluice_demo import gateway_status, settings, site_files
from sluice_demo.children import ChildFailed

READY_SECONDS = 120         # for the gateways to reach each other, and then for the training processes to reach them
LAST_ROUND_SECONDS = 20     # for the last commit to be seen everywhere
SOCKET_PATH_MAX = 107       # sockaddr_un


class SluiceArm:
    def __init__(self, options, children, folder, base, codec="grid", preset=None):
        self.options, self.children, self.folder, self.base = options, children, folder, base
        self.codec, self.preset = codec, preset or options.wan
        self.short_folder = short_name(folder)
        self.names = site_files.site_names(options.sites)
        self.gateways, self.trainers, self.sites = [], [], []
        self.relay = None
        self.book = gateway_status.RoundBook(self.names)
        self.wan_rate = RateMeter()

    def prepare(self):
        """Certificates, ports and relay."""
        self.run_tool("certs", "--run", "demo", "--domain", site_files.DOMAIN, "--out", os.path.join(self.folder, "certs"), *self.names)
        ports = site_files.free_ports(2 * len(self.names))
        self.sites = [site_files.Site(name, ports[2 * index], ports[2 * index + 1], {}) for index, name in enumerate(self.names)]
        self.start_relay()

    def socket_path(self, site):
        return os.path.join(self.short_folder, f"{site.name}.sock")

    def run_tool(self, *words):
        """A command of `sluice` that ends by itself."""
        done = subprocess.run([self.options.sluice, *words], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise ChildFailed(f"sluice {' '.join(words)} ended with status {done.returncode}:\n{done.stderr or done.stdout}")

    def start_relay(self):
        count = len(self.sites)
        routes = [{"from": i, "to": j, "target": self.sites[j].wan_port} for i in range(count) for j in range(count) if i != j]
        path = os.path.join(self.folder, "relay.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump({"sites": count, "preset": self.preset, "routes": routes}, file, indent=1)
        self.relay = self.children.start("relay", [self.options.relay, path], pipes=True)
        line = self.relay.process.stdout.readline()
        if not line:
            self.relay.process.wait(5)
            raise self.relay.failure()
        answer = json.loads(line)
        for one in answer["ports"]:
            self.sites[one["from"]].dial[self.names[one["to"]]] = one["port"]

    def start_gateways(self):
        exchange = site_files.Exchange(self.options.inner_steps, self.options.outer_rate, self.options.outer_momentum, self.options.bits,
                                       self.codec, self.options.ranks)
        environment = site_files.site_environment(self.sites, exchange, self.short_folder)
        for index, site in enumerate(self.sites):
            config = site_files.config_path(self.sites, index, exchange, self.short_folder, self.options.configs)
            argv = [self.options.sluice, "gateway", "--config", config]
            self.gateways.append(self.children.start(f"gateway-{site.name}", argv, environment))
        wait_for(self.all_linked, READY_SECONDS, self.children, "the gateways to reach each other")

    def all_linked(self):
        self.poll()
        for name in self.names:
            links = self.book.latest.get(name, {}).get("links", [])
            if sum(1 for link in links if link.get("up")) < len(self.names) - 1:
                return False
        return True

    def poll(self):
        self.book.poll([site.admin_port for site in self.sites])

    def start_trainers(self, seed, environment):
        for index, site in enumerate(self.sites):
            port = site_files.free_ports(1)[0]
            for rank in range(self.options.ranks):
                argv = [self.options.python, "-m", "sluice_demo.train", "--site", index, "--sites", len(self.sites), "--seed", seed,
                        "--result", self.result_path(site, rank), "--start-file", self.start_file(), "--load-model", self.base,
                        *settings.training_argv(self.options)]
                if self.options.save_deltas and self.codec == "grid":
                    argv += ["--save-deltas", os.path.join(self.options.save_deltas, f"seed-{seed}")]
                ranks = {"RANK": str(rank), "WORLD_SIZE": str(self.options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                self.trainers.append(self.children.start(
                    f"train-{site.name}-{rank}", argv, {**environment, **ranks, "SLUICE_GATEWAY": f"unix:{self.socket_path(site)}"}))

    def start_file(self):
        return os.path.join(self.folder, "start")

    def all_attached(self):
        """A site without agents is not waited for in a round: every rank is to be there before the first step."""
        self.poll()
        return all(sum(1 for agent in self.book.latest.get(name, {}).get("agents", []) if agent.get("connected")) == self.options.ranks
                   for name in self.names)

    def result_path(self, site, rank):
        return os.path.join(self.folder, f"result-{site.name}-{rank}.json")

    def run(self, seed, environment, progress, time_limit):
        started = time.monotonic()
        self.prepare()
        self.start_gateways()
        self.start_trainers(seed, environment)
        wait_for(self.all_attached, READY_SECONDS, self.children, "the training processes to reach their gateways")
        with open(self.start_file(), "w", encoding="ascii"):
            pass
        while not self.children.reap(self.trainers):
            if time.monotonic() - started > time_limit:
                raise ChildFailed(f"training through the gateways took more than {time_limit:.0f} s; logs are in {self.folder}")
            self.poll()
            self.wan_rate.add(self.book.bytes_sent(), time.monotonic())
            progress.show(self.describe())
            time.sleep(0.5)
        limit = time.monotonic() + LAST_ROUND_SECONDS
        while not self.book.is_complete(self.options.rounds) and time.monotonic() < limit:
            self.poll()
            time.sleep(0.2)
        self.poll()
        progress.show(self.describe(), force=True)
        return self.outcome(time.monotonic() - started)

    def outcome(self, seconds):
        results = [read_json(self.result_path(site, rank)) for site in self.sites for rank in range(self.options.ranks)]
        problems = self.book.problems(self.options.rounds)
        if len({one["parameter_hash"] for one in results}) != 1:
            problems.append("the ranks' parameters differ at the end")
        return {"results": results, "bytes_sent": self.book.bytes_sent(), "bits_per_value": self.book.bits_per_value(), "seconds": seconds,
                "problems": problems, "bytes_relayed": self.bytes_relayed()}

    def bytes_relayed(self):
        """What the emulated WAN has seen, to compare with what the gateways say."""
        self.relay.process.stdin.write('{"counters":true}\n')
        self.relay.process.stdin.flush()
        return sum(one["bytes_entered"] for one in json.loads(self.relay.process.stdout.readline())["counters"])

    def describe(self):
        losses = [last_field(child.log_path, "loss") for child in self.trainers]
        losses = [loss for loss in losses if loss is not None]
        words = [f"round {self.book.last_round_everywhere():3d}/{self.options.rounds}"]
        words.append(f"loss {sum(losses) / len(losses):.3f}" if losses else "starting")
        if self.book.rounds:
            words.append(f"{self.book.bits_per_value(10):.2f} bits a value")
            words.append(f"WAN {self.wan_rate.megabits():5.2f} Mbit/s, {self.book.bytes_sent() / 1e6:.1f} MB so far")
        return "   ".join(words)

    def dashboards(self):
        return [f"http://127.0.0.1:{site.admin_port}/" for site in self.sites]

    def stop(self):
        self.children.stop(self.trainers + self.gateways + ([self.relay] if self.relay else []))


class RateMeter:
    """Mean rate over the last few seconds."""

    WINDOW_SECONDS = 10.0

    def __init__(self):
        self.samples = []

    def add(self, count, now):
        self.samples = [one for one in self.samples if now - one[0] < self.WINDOW_SECONDS] + [(now, count)]

    def megabits(self):
        if len(self.samples) < 2:
            return 0.0
        (first, before), (last, after) = self.samples[0], self.samples[-1]
        return max(0.0, (after - before) * 8e-6 / max(1e-3, last - first))


def short_name(folder):
    """The folder, or a link to it short enough for the Unix sockets in it."""
    if len(os.path.join(folder, "a-long-site-name.sock")) <= SOCKET_PATH_MAX:
        return folder
    link = os.path.join(tempfile.mkdtemp(prefix="sluice-demo-"), "run")
    os.symlink(folder, link)
    return link


def wait_for(condition, seconds, children, what):
    limit = time.monotonic() + seconds
    while not condition():
        children.check()
        if time.monotonic() > limit:
            raise ChildFailed(f"waited {seconds} s for {what}; logs are in {children.log_folder}")
        time.sleep(0.1)


def read_json(path):
    with open(path, encoding="ascii") as file:
        return json.load(file)


def last_field(log_path, field):
    """A number from the last progress line of a training process's log; None before there is one."""
    try:
        with open(log_path, "rb") as file:
            file.seek(max(0, os.path.getsize(log_path) - 512))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            return float(json.loads(line)[field])
        except (ValueError, KeyError, TypeError):
            continue
    return None
