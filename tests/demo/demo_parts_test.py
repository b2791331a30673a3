"""Goal: the demo's parts hold what docs/reference/demo.md says, without gateways. Method: the real training text where it is installed,
made-up status answers, and real child processes that end at once. Needs an interpreter with torch."""

import contextlib
import io
import os
import re
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "site-agent", "python"))

try:
    import torch
except ImportError:
    print("skipped: this interpreter has no torch; install python3-torch or set SLUICE_PYTHON")
    sys.exit(77)

from sluice_demo import __main__ as demo_main  # noqa: E402
from sluice_demo import children, demo_report, gateway_status, settings, site_files, text_data, tiny_gpt  # noqa: E402


def texts():
    """Made-up files of uneven length, so that the test needs no package."""
    return {f"file{index}": bytes((index * 7 + place) % 251 for place in range(300 + 97 * index)) for index in range(12)}


class TextIsDealtByFile(unittest.TestCase):
    def test_parts_and_held_out_text_are_the_whole(self):
        shared, parts, held_out = text_data.split_texts(texts(), 3)
        self.assertEqual(len(shared) + sum(map(len, parts)) + len(held_out), sum(map(len, texts().values())))
        self.assertLess(max(map(len, parts)), 1.3 * min(map(len, parts)))

    def test_both_arms_draw_the_same_batches(self):
        _, parts, _ = text_data.split_texts(texts(), 3)
        first, second = (text_data.BatchSource(parts[1], 1, seed=5, sequences=4, context=16) for _ in range(2))
        for _ in range(3):
            self.assertTrue(torch.equal(first.next()[0], second.next()[0]))

    def test_targets_are_the_next_bytes(self):
        inputs, targets = text_data.held_out_windows(text_data.to_tensor(bytes(range(100))), 5, 8)
        self.assertTrue(torch.equal(inputs + 1, targets))


class MistakesAreToldBeforeAnythingIsTrained(unittest.TestCase):
    def refusal(self, *words):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as text:
            demo_main.parse_arguments(words)
        return text.getvalue()

    def test_each_is_named(self):
        self.assertIn("--sites 1: 2 to 6", self.refusal("--sites", "1"))
        self.assertIn("--rounds 0: at least 1", self.refusal("--rounds", "0"))
        self.assertIn("--ranks 0: at least 1", self.refusal("--ranks", "0"))
        self.assertIn("--bits 0: 0.05 to 16", self.refusal("--bits", "0"))
        self.assertIn("--wan nonsense: there are us-eu-ap", self.refusal("--wan", "nonsense"))
        self.assertIn("us-eu-ap has 2 to 3 sites, not 4", self.refusal("--sites", "4"))
        self.assertIn("--json /nonexistent/x: its folder", self.refusal("--json", "/nonexistent/x"))

    def test_presets_are_those_of_the_relay(self):
        with open(os.path.join(ROOT, "tests", "support", "wan_presets.cc"), encoding="utf-8") as file:
            table = file.read().split("kEntries = {{")[1].split("}};")[0]
        self.assertEqual(re.findall(r'\{"([^"]+)"', table), list(settings.PRESETS))


class ModelIsSmall(unittest.TestCase):
    def test_default_has_about_a_million_parameters(self):
        defaults = {name: value for name, value, _ in settings.TRAINING_ARGUMENTS}
        model = tiny_gpt.TinyGpt(defaults["width"], defaults["layers"], defaults["heads"], defaults["context"], defaults["pairs"])
        count = sum(parameter.numel() for parameter in model.parameters())
        self.assertGreater(count, 800_000)
        self.assertLess(count, 1_200_000)

    def test_a_byte_sees_no_later_byte(self):
        torch.manual_seed(0)
        bias = tiny_gpt.attention_bias(2, 4)
        self.assertTrue(torch.isinf(bias[:, 0, 1:]).all())
        self.assertEqual(bias[0, 2, 0].item(), -8.0)
        self.assertEqual(bias[1, 2, 1].item(), -2.0)


class RoundsAreCheckedAtEverySite(unittest.TestCase):
    def status(self, digest, sites=("us", "eu")):
        return {"round": 1, "wan": {"sent_bytes": 10},
                "rounds": [{"round": 1, "outcome": "committed", "sites": list(sites), "bits_per_value": 1.5, "state_digest": digest,
                            "update_digest": "u"}]}

    def test_equal_digests_are_no_problem(self):
        book = gateway_status.RoundBook(["us", "eu"])
        book.add("us", self.status("a"))
        book.add("eu", self.status("a"))
        self.assertEqual(book.problems(1), [])
        self.assertEqual(book.bytes_sent(), 20)
        self.assertEqual(book.bits_per_value(), 1.5)

    def test_other_digest_missing_report_and_left_out_site_are_named(self):
        book = gateway_status.RoundBook(["us", "eu"])
        book.add("us", self.status("a"))
        self.assertIn("not reported by eu", book.problems(1)[0])
        book.add("eu", self.status("b", sites=["us"]))
        self.assertIn("state_digest is not the same", book.problems(1)[0])
        self.assertIn("went without eu", book.problems(1)[1])


class ReportHoldsTheStatedFigures(unittest.TestCase):
    def test_bytes_of_plain_data_parallel(self):
        self.assertEqual(demo_report.data_parallel_bytes(3, 10, 1000), 3 * 10 * 4000 * 4 // 3)

    def test_gap_and_reduction(self):
        def arm(loss):
            return {"results": [{"held_out_bytes": 100, "loss_sum": 100 * loss, "loss_start_sum": 550.0, "parameters": 1000}],
                    "bytes_sent": 8000, "bits_per_value": 1.25, "seconds": 1.0, "problems": []}
        options = types.SimpleNamespace(sites=2, ranks=2, rounds=10, inner_steps=10, sequences=4, context=64, wan="lan")
        report = demo_report.build_report(options, [{"seed": 1, "seconds": 3.0, "sluice": arm(2.02), "data_parallel": arm(2.0)}])
        self.assertEqual(report["loss"]["gap_percent"], 1.0)
        self.assertEqual(report["wan"]["reduction"], 100.0)
        self.assertEqual(report["tokens"], 100 * 4 * 2 * 64)
        self.assertIn("100 times less", demo_report.table(report))


class SiteFilesAreComplete(unittest.TestCase):
    def setUp(self):
        self.exchange = site_files.Exchange(settings.INNER_STEPS, settings.OUTER_RATE, settings.OUTER_MOMENTUM, settings.BITS,
                                            ranks=settings.RANKS)

    def sites(self, count):
        names = site_files.site_names(count)
        return [site_files.Site(name, 100 + index, 200 + index, {peer: 300 for peer in names if peer != name})
                for index, name in enumerate(names)]

    def shipped(self):
        for name in site_files.REGIONS:
            with open(os.path.join(ROOT, "configs", f"demo-{name}.yaml"), encoding="ascii") as file:
                yield file.read()

    def test_every_port_and_folder_of_the_shipped_files_is_filled_in(self):
        given = site_files.site_environment(self.sites(3), self.exchange, "/run/demo")
        for text in self.shipped():
            asked = set(re.findall(r"\$\{(SLUICE_DEMO_[A-Z0-9_]+)", text))
            self.assertEqual({name for name in asked - set(given) if re.search("PORT|ADMIN|RELAY|DIR", name)}, set())

    def test_defaults_of_the_shipped_files_are_the_demo_settings(self):
        given = site_files.site_environment([], self.exchange, "../var/demo")
        for text in self.shipped():
            for name, default in re.findall(r"\$\{(SLUICE_DEMO_[A-Z0-9_]+):-([^}]*)\}", text):
                self.assertEqual(given.get(name, default), default, name)

    def test_other_numbers_of_sites_get_files_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            path = site_files.config_path(self.sites(2), 1, self.exchange, folder, os.path.join(ROOT, "configs"))
            with open(path, encoding="ascii") as file:
                text = file.read()
        self.assertIn("site: site-2\n", text)
        self.assertIn("      site-1: 127.0.0.1:300", text)
        self.assertNotIn("      site-2: 127.0.0.1:300", text)


class ChildrenAreEnded(unittest.TestCase):
    def wait(self, group, child):
        limit = time.monotonic() + 20
        while not group.reap([child]):
            self.assertLess(time.monotonic(), limit)

    def test_a_child_that_fails_is_reported_with_its_log(self):
        with tempfile.TemporaryDirectory() as folder, children.Children(folder) as group:
            child = group.start("broken", ["/bin/sh", "-c", "echo what went wrong; exit 3"])
            with self.assertRaisesRegex(children.ChildFailed, "(?s)status 3.*what went wrong"):
                self.wait(group, child)

    def test_a_child_that_ends_well_between_two_looks_is_no_failure(self):
        """A look at all children takes time: one that ran when it was asked may have ended before the look is over."""
        with tempfile.TemporaryDirectory() as folder, children.Children(folder) as group:
            pair = [group.start(name, ["/bin/true"]) for name in ("first", "second")]
            for child in pair:
                child.process.wait()
            with mock.patch.object(pair[0].process, "poll", side_effect=[None, 0, 0, 0]):
                self.assertFalse(group.reap(pair))
                self.assertTrue(group.reap(pair))

    def test_the_end_of_a_child_that_others_need_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder, children.Children(folder) as group:
            gateway = group.start("gateway", ["/bin/true"])
            trainer = group.start("trainer", ["/bin/cat"], pipes=True)
            gateway.process.wait()
            with self.assertRaisesRegex(children.ChildFailed, "gateway ended with status 0"):
                group.reap([trainer])

    def test_leaving_ends_what_still_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            with children.Children(folder) as group:
                child = group.start("waiting", ["/bin/cat"], pipes=True)
            self.assertIsNotNone(child.process.returncode)

    def test_a_missing_program_is_named(self):
        with tempfile.TemporaryDirectory() as folder, children.Children(folder) as group:
            with self.assertRaisesRegex(children.ChildFailed, "/nowhere/sluice"):
                group.start("gateway", ["/nowhere/sluice"])


if __name__ == "__main__":
    unittest.main()
