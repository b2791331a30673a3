"""What a gateway reads: names, ports and the YAML file of each site.

Three sites use the files of configs/ as they are, filled in through the environment; for another number of sites files are written.
"""

import dataclasses
import itertools
import os
import socket

REGIONS = ["us-east", "eu-west", "ap-northeast"]  # the sites of configs/demo-*.yaml
DOMAIN = "demo.sluice"

_port_calls = itertools.count()

SITE_FILE = """\
# Site {name} of the demo: {count} sites on one machine, across an emulated WAN. Written by `./run demo --sites {count}`.
version: 1
run: {{name: demo, domain: {domain}}}
site: {name}
sites:
{sites}
coordination: {{store: local, site: {first}}}
tls:
  ca: {folder}/certs/ca.pem
  certificate: {folder}/certs/site-{name}.pem
  key: {folder}/certs/site-{name}.key
agents:
  socket: {folder}/{name}.sock
  ranks: {ranks}
training:
  mode: diloco
  inner_steps: {inner_steps}
  outer:
    rule: {rule}
    learning_rate: {outer_rate}
    momentum: {outer_momentum}
round:
  open_grace: 60 s      # the demo counts on every site in every round
  deadline: 60 s
compression:
  mode: fixed
  codec: {codec}
  bits: {bits}
  warmup_rounds: 0
wan:
  listen: 127.0.0.1:{wan_port}
  streams: {streams}
state:
  directory: {folder}/{name}
admin:
  listen: 127.0.0.1:{admin_port}
"""


@dataclasses.dataclass
class Site:
    name: str
    wan_port: int
    admin_port: int
    dial: dict         # peer name -> port on 127.0.0.1: the relay's


@dataclasses.dataclass
class Exchange:
    """What all sites share."""
    inner_steps: int
    outer_rate: float
    outer_momentum: float
    bits: float
    codec: str = "grid"
    ranks: int = 2
    streams: int = 1   # a round of the demo is smaller than one window of the WAN

    def outer_rule(self):
        return "average" if self.outer_rate == 1.0 and self.outer_momentum == 0.0 else "nesterov"


def site_names(count):
    return REGIONS if count == len(REGIONS) else [f"site-{index + 1}" for index in range(count)]


def free_ports(count):
    """Ports that were free a moment ago, below those that the system hands to outgoing connections: nobody takes them in between."""
    first, size = 10_000, 22_000
    ports = []
    for _ in range(size):
        port = first + (os.getpid() * 97 + next(_port_calls)) % size
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError("no free port on 127.0.0.1")


def site_environment(sites, exchange, folder):
    """The variables that configs/demo-*.yaml take, for all sites of the run."""
    values = {"DIR": folder, "RANKS": exchange.ranks, "INNER_STEPS": exchange.inner_steps, "OUTER_RULE": exchange.outer_rule(),
              "OUTER_RATE": exchange.outer_rate, "OUTER_MOMENTUM": exchange.outer_momentum, "CODEC": exchange.codec, "BITS": exchange.bits,
              "STREAMS": exchange.streams}
    for site in sites:
        values[f"PORT_{site.name}"] = site.wan_port
        values[f"ADMIN_{site.name}"] = site.admin_port
        for peer, port in site.dial.items():
            values[f"RELAY_{site.name}_{peer}"] = port
    return {"SLUICE_DEMO_" + key.upper().replace("-", "_"): str(value) for key, value in values.items()}


def site_yaml(sites, index, exchange, folder):
    """The same as text, for any number of sites."""
    site = sites[index]
    lines = []
    for other in sites:
        lines += [f"  - name: {other.name}", f"    address: 127.0.0.1:{other.wan_port}"]
        if other is site and site.dial:
            lines.append("    dial:             # through the emulated WAN")
            lines += [f"      {peer}: 127.0.0.1:{port}" for peer, port in site.dial.items()]
    return SITE_FILE.format(
        name=site.name, count=len(sites), domain=DOMAIN, sites="\n".join(lines), first=sites[0].name, folder=folder, ranks=exchange.ranks,
        inner_steps=exchange.inner_steps, rule=exchange.outer_rule(), outer_rate=exchange.outer_rate,
        outer_momentum=exchange.outer_momentum, codec=exchange.codec, bits=exchange.bits, wan_port=site.wan_port, streams=exchange.streams,
        admin_port=site.admin_port)


def config_path(sites, index, exchange, folder, shipped):
    """The file that the gateway of this site is started with; `shipped` is the checkout's configs/."""
    name = sites[index].name
    path = os.path.join(shipped, f"demo-{name}.yaml")
    if len(sites) == len(REGIONS) and os.path.exists(path):
        return path
    path = os.path.join(folder, f"{name}.yaml")
    with open(path, "w", encoding="ascii") as file:
        file.write(site_yaml(sites, index, exchange, folder))
    return path
