"""Writes a site's deltas as they are before any compression: data for studies of codecs and outer rules.

DIR/site-K/manifest.json names the tensors in order; DIR/site-K/round-NNNN.f32 is the flattened delta, global minus local parameters, as
little-endian float32.
"""

import json
import os
import types

import torch


class DeltaRecorder:
    """Wraps optimizer.step before sluice.attach does, and so sees the parameters between the inner step and the exchange."""

    def __init__(self, model, optimizer, arguments):
        self.model, self.inner_steps = model, arguments.inner_steps
        self.folder = os.path.join(arguments.save_deltas, f"site-{arguments.site}")
        os.makedirs(self.folder, exist_ok=True)
        tensors = [{"name": name, "shape": list(parameter.shape)} for name, parameter in model.named_parameters()]
        with open(os.path.join(self.folder, "manifest.json"), "w", encoding="ascii") as file:
            json.dump({"dtype": "float32", "order": "manifest", "tensors": tensors}, file, indent=1)
        self.steps = 0
        self.base = None
        self.inner_step = optimizer.step
        # A bound method like the one it replaces: learning-rate schedules look at __self__ and __func__.
        optimizer.step = types.MethodType(lambda _, *args, **kwargs: self.step(*args, **kwargs), optimizer)

    def step(self, *args, **kwargs):
        if self.steps % self.inner_steps == 0:
            self.base = self.flattened()
        result = self.inner_step(*args, **kwargs)
        self.steps += 1
        if self.steps % self.inner_steps == 0:
            path = os.path.join(self.folder, f"round-{self.steps // self.inner_steps:04d}.f32")
            (self.base - self.flattened()).numpy().astype("<f4").tofile(path)
        return result

    def flattened(self):
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.model.parameters()])
