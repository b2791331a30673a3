"""What the gateways say about themselves (GET /api/v1/status), gathered over the length of a run."""

import json
import urllib.error
import urllib.request

ANSWER_BYTES_MAX = 16 << 20


def fetch_status(port):
    """The status object, or None while the gateway does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/status", timeout=2) as answer:
            return json.loads(answer.read(ANSWER_BYTES_MAX))
    except (OSError, ValueError, urllib.error.URLError):
        return None


class RoundBook:
    """Every committed round that any site has reported, by number. A status only lists the last rounds, so add() is called often."""

    def __init__(self, site_names):
        self.site_names = site_names
        self.rounds = {}       # number -> site -> round object
        self.latest = {}       # site -> status

    def poll(self, ports):
        for name, port in zip(self.site_names, ports):
            status = fetch_status(port)
            if status is not None:
                self.add(name, status)

    def add(self, site, status):
        self.latest[site] = status
        for one in status.get("rounds", []):
            if one.get("outcome") == "committed":
                self.rounds.setdefault(one["round"], {})[site] = one

    def last_round_everywhere(self):
        return min((self.latest.get(name, {}).get("round", 0) for name in self.site_names), default=0)

    def is_complete(self, rounds):
        """True once every site has reported the last round with its digest."""
        sites = self.rounds.get(rounds, {})
        return all(sites.get(name, {}).get("state_digest") for name in self.site_names)

    def bytes_sent(self):
        return sum(self.latest.get(name, {}).get("wan", {}).get("sent_bytes", 0) for name in self.site_names)

    def bits_per_value(self, last=None):
        """Mean over the rounds (the last few of them), as the sites' contributions were coded."""
        numbers = sorted(self.rounds)[-last:] if last else sorted(self.rounds)
        bits = [one["bits_per_value"] for number in numbers for one in self.rounds[number].values() if one.get("bits_per_value")]
        return sum(bits) / len(bits) if bits else 0.0

    def problems(self, rounds):
        """What is wrong with the digests of rounds 1 .. `rounds`, in words; empty when every site reported the same for each."""
        found = []
        for number in range(1, rounds + 1):
            sites = self.rounds.get(number, {})
            missing = [name for name in self.site_names if name not in sites]
            if missing:
                found.append(f"round {number} was not reported by {', '.join(missing)}")
            for field in ("state_digest", "update_digest"):
                if len({one.get(field) for one in sites.values()}) > 1 or not all(one.get(field) for one in sites.values()):
                    seen = ", ".join(f"{name} {one.get(field)}" for name, one in sites.items())
                    found.append(f"round {number}: {field} is not the same everywhere: {seen}")
            left_out = [name for name in self.site_names if any(name not in one.get("sites", self.site_names) for one in sites.values())]
            if left_out:
                found.append(f"round {number} went without {', '.join(left_out)}")
        return found
