"""Goal: one line attaches a script, changes nothing about its optimizer, and never stops training. Method: torch on the CPU, without a
gateway and with one that accepts and then goes away; the exchange itself is tested against real gateways elsewhere."""

import copy
import logging
import os
import socket
import struct
import sys
import tempfile
import threading
import unittest

try:
    import torch
except ImportError:
    print("skipped: this interpreter has no torch")
    sys.exit(77)

import sluice
from sluice import attaching, environment, library


def make_parts(dtype=torch.float32):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer


def train(model, optimizer, steps):
    for step in range(steps):
        inputs = torch.full((3, 4), float(step % 5) / 5, dtype=next(model.parameters()).dtype)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


class LoneGateway:
    """Reads an agent's hello, welcomes it with inner_steps 2, then closes the connection: everything after that is solo."""

    def __init__(self):
        self.path = os.path.join(tempfile.mkdtemp(prefix="sluice-"), "agent.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.greeted = threading.Event()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        connection, _ = self.listener.accept()
        size, _, _ = struct.unpack("<IHH", connection.recv(8, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)
        welcome = bytes([0x08, 1, 0x12, 1, ord("t"), 0x1A, 1, ord("s"), 0x20, 2, 0x35]) + struct.pack("<f", 1.0)
        payload = bytes([0x12, len(welcome)]) + welcome
        connection.sendall(struct.pack("<IHH", len(payload), 1, 0) + payload)
        self.greeted.wait(20)
        connection.close()
        self.listener.close()


class AttachTest(unittest.TestCase):
    def setUp(self):
        self.saved = dict(os.environ)
        for name in ("SLUICE_GATEWAY", "RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
            os.environ.pop(name, None)
        attaching._said.clear()

    def tearDown(self):
        os.environ.clear()
        os.environ.update(self.saved)

    def test_without_a_gateway_it_does_nothing_and_says_so_once(self):
        model, optimizer = make_parts()
        step = optimizer.step
        with self.assertLogs("sluice", logging.WARNING) as logs:
            handle = sluice.attach(model, optimizer)
            sluice.attach(model, optimizer)
        self.assertEqual(len(logs.output), 1)
        self.assertFalse(handle.is_attached)
        self.assertEqual(optimizer.step, step)
        self.assertEqual((handle.round, handle.stats(), handle.announcements), (0, {}, []))
        handle.close()

    def test_rank_comes_from_the_launcher(self):
        self.assertEqual(environment.rank_of_site(), (0, 1))
        os.environ.update(SLURM_PROCID="3", SLURM_NTASKS="4")
        self.assertEqual(environment.rank_of_site(), (3, 4))
        os.environ.update(RANK="1", WORLD_SIZE="2")
        self.assertEqual(environment.rank_of_site(), (1, 2))

    def test_names_are_those_of_the_bare_model(self):
        model, _ = make_parts()
        wrapped = torch.nn.Module()
        wrapped.module = model
        self.assertEqual([name for name, _ in attaching.named_parameters(wrapped)], [name for name, _ in model.named_parameters()])

    def test_an_optimizer_stays_what_it_was(self):
        model, optimizer = make_parts()
        state = copy.deepcopy(optimizer.state_dict())
        gateway = LoneGateway()
        os.environ["SLUICE_GATEWAY"] = "unix:" + gateway.path
        handle = sluice.attach(model, optimizer, tokens_per_step=12)
        self.assertTrue(handle.is_attached)
        with self.assertLogs("sluice", logging.ERROR) as second:  # it would take the first one's rank
            self.assertFalse(sluice.attach(*make_parts()).is_attached)
        self.assertIn("called again", second.output[0])
        self.assertIs(optimizer.step.__self__, optimizer)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        self.assertIsInstance(optimizer, torch.optim.SGD)
        self.assertEqual(optimizer.state_dict()["param_groups"][0]["momentum"], state["param_groups"][0]["momentum"])
        gateway.greeted.set()
        trained = train(model, optimizer, 6)
        schedule.step()
        alone, lone_optimizer = make_parts()
        for got, expected in zip(trained, train(alone, lone_optimizer, 6)):
            self.assertTrue(torch.equal(got, expected))
        self.assertEqual(handle.stats()["steps"], 6)
        self.assertEqual(handle.stats()["inner_steps"], 2)
        self.assertTrue(any("training alone" in text for text in handle.announcements), handle.announcements)
        with tempfile.TemporaryDirectory() as folder:
            handle.save_state(os.path.join(folder, "state"))
            self.assertTrue(os.path.exists(os.path.join(folder, "state")))
        handle.close()
        handle.close()
        train(model, optimizer, 1)

    def test_parameters_that_are_not_fp32_switch_sluice_off(self):
        model, optimizer = make_parts(torch.float64)
        os.environ["SLUICE_GATEWAY"] = "unix:/nowhere"
        with self.assertLogs("sluice", logging.ERROR) as logs:
            handle = sluice.attach(model, optimizer)
        self.assertFalse(handle.is_attached)
        self.assertIn("fp32", logs.output[0])
        train(model, optimizer, 1)

    def test_a_parameter_that_moves_switches_sluice_off_and_training_goes_on(self):
        model, optimizer = make_parts()
        os.environ.update(SLUICE_GATEWAY="unix:/nowhere", SLUICE_START_TIMEOUT="0.01")
        handle = sluice.attach(model, optimizer)
        self.assertTrue(handle.is_attached)
        model[0].weight.data = model[0].weight.data.clone()
        with self.assertLogs("sluice", logging.ERROR):
            handle.exchange()
        self.assertFalse(handle.is_attached)
        train(model, optimizer, 1)

    def test_a_missing_library_switches_sluice_off(self):
        model, optimizer = make_parts()
        os.environ.update(SLUICE_GATEWAY="unix:/nowhere", SLUICE_LIBRARY="/nowhere/libsluice_agent.so")
        with self.assertLogs("sluice", logging.ERROR):
            self.assertFalse(sluice.attach(model, optimizer).is_attached)

    def test_structs_have_the_sizes_of_the_header(self):
        self.assertEqual(library.ctypes.sizeof(library.Options), 72)
        self.assertEqual(library.ctypes.sizeof(library.StepResult), 32)
        self.assertEqual(library.ctypes.sizeof(library.Statistics), 160)


if __name__ == "__main__":
    unittest.main(verbosity=2)
