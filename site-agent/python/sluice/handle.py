"""The agent of this process as Python objects: Agent wraps the C functions, Handle is what the script holds."""

import ctypes
import logging
import os

from sluice import library as abi

logger = logging.getLogger("sluice")


class SluiceError(RuntimeError):
    """A call of the agent library was refused; the text is the library's."""


class Agent:
    """Owns one sluice_agent. Parameters in CPU memory are registered in place; others through a host copy, kept in step at boundaries."""

    def __init__(self, gateway, rank, ranks, options, parameters):
        self.library = abi.load_library()
        self.process = os.getpid()
        texts = {name: options.get(name, "").encode() or None for name in ("certificate_file", "key_file", "authority_file", "listen")}
        native = abi.Options(struct_bytes=ctypes.sizeof(abi.Options), rank=rank, ranks=ranks, gateway=gateway.encode(),
                             start_timeout_us=options.get("start_timeout_us", 0), **texts)
        self.agent = self.library.sluice_agent_create(ctypes.byref(native))
        if not self.agent:
            raise SluiceError(self.library.sluice_agent_last_error(None).decode())
        self.in_place = []   # (parameter, address registered)
        self.copies = []     # (parameter, host tensor registered)
        try:
            for name, parameter in parameters:
                self.add_parameter(name, parameter)
        except Exception:
            self.close()
            raise

    def check(self, code):
        if code != 0:
            raise SluiceError(self.library.sluice_agent_last_error(self.agent).decode())

    def add_parameter(self, name, parameter):
        import torch  # pylint: disable=import-outside-toplevel  # the package itself needs no torch
        if parameter.dtype != torch.float32:
            raise SluiceError(f"parameter {name} is {parameter.dtype}; Sluice exchanges fp32 master parameters only")
        data = parameter.data
        if data.device.type == "cpu" and data.is_contiguous():
            self.in_place.append((parameter, data.data_ptr()))
        else:
            data = torch.empty(parameter.shape, dtype=torch.float32, pin_memory=data.device.type == "cuda")
            self.copies.append((parameter, data))
        shape = (ctypes.c_uint64 * max(1, data.dim()))(*data.shape)
        self.check(self.library.sluice_agent_add_tensor(self.agent, name.encode(), abi.FLOAT32, shape, data.dim(), data.data_ptr()))

    def copy_in(self):
        """Host copies = parameters. In-place memory must not have moved."""
        for parameter, address in self.in_place:
            if parameter.data.data_ptr() != address:
                raise SluiceError("a parameter's memory has moved since attach; attach after the model is in its final place")
        for parameter, host in self.copies:
            host.copy_(parameter.detach())

    def copy_out(self):
        import torch  # pylint: disable=import-outside-toplevel
        with torch.no_grad():
            for parameter, host in self.copies:
                parameter.copy_(host)

    def start(self):
        self.copy_in()
        self.check(self.library.sluice_agent_start(self.agent))
        self.copy_out()

    def step(self, tokens, loss):
        """Returns the StepResult."""
        if self.library.sluice_agent_next_is_boundary(self.agent):
            self.copy_in()
        result = abi.StepResult(struct_bytes=ctypes.sizeof(abi.StepResult))
        self.check(self.library.sluice_agent_step(self.agent, tokens, loss, ctypes.byref(result)))
        if result.tensors_written:
            self.copy_out()
        return result

    def exchange(self):
        self.copy_in()
        result = abi.StepResult(struct_bytes=ctypes.sizeof(abi.StepResult))
        self.check(self.library.sluice_agent_exchange(self.agent, ctypes.byref(result)))
        if result.tensors_written:
            self.copy_out()
        return result

    def stats(self):
        native = abi.Statistics(struct_bytes=ctypes.sizeof(abi.Statistics))
        self.check(self.library.sluice_agent_stats(self.agent, ctypes.byref(native)))
        return {name: getattr(native, name) for name, _ in abi.Statistics._fields_ if name != "struct_bytes"}

    def announcement(self):
        """(text, how many so far)"""
        count = ctypes.c_uint64()
        text = self.library.sluice_agent_announcement(self.agent, ctypes.byref(count))
        return text.decode(errors="replace"), count.value

    def save_state(self, path):
        self.check(self.library.sluice_agent_save_state(self.agent, os.fsencode(path)))

    def load_state(self, path):
        self.check(self.library.sluice_agent_load_state(self.agent, os.fsencode(path)))

    def close(self):
        """A forked child (a data loader) leaves its parent's agent alone."""
        if self.agent and os.getpid() == self.process:
            self.library.sluice_agent_destroy(self.agent)
        self.agent = None


class Handle:
    """What sluice.attach returns. A context manager. Without an agent every method does nothing.

    round: last round that the parameters include. last_outcome: what the last step did, one of library.OUTCOMES.
    announcements: texts that a person should read, in order.
    """

    def __init__(self, agent, optimizer, tokens_per_step):
        self.agent = agent
        self.optimizer = optimizer
        self.inner_step = self.wrapped_step = None
        self.tokens_per_step = tokens_per_step
        self.round = 0
        self.last_outcome = "inner"
        self.announcements = []
        self.announced = 0
        self.loss = float("nan")
        if agent is not None:
            self.guard(self.follow_up)

    @property
    def is_attached(self):
        return self.agent is not None

    def report_loss(self, loss):
        """The training loss of the last step, for the dashboard. Optional."""
        self.loss = float(loss)

    def guard(self, action, *args):
        """Runs a call of the agent; whatever goes wrong is logged, Sluice is switched off, and training goes on."""
        try:
            return action(*args)
        except Exception as problem:  # pylint: disable=broad-except
            logger.error("sluice: switched off, training goes on without other sites: %s", problem)
            self.close()
            return None

    def follow_up(self):
        self.round = self.agent.stats()["round"]
        text, count = self.agent.announcement()
        if count != self.announced:
            self.announced = count
            self.announcements.append(text)

    def take(self, result):
        self.last_outcome = abi.OUTCOMES[result.outcome] if result.outcome < len(abi.OUTCOMES) else "unknown"
        if result.outcome != 0:
            self.follow_up()

    def after_step(self, step_result=None):
        """Called by the wrapped optimizer.step."""
        if self.agent is None or os.getpid() != self.agent.process:
            return
        loss = self.loss
        if step_result is not None and loss != loss:  # a closure's loss
            try:
                loss = float(step_result)
            except (TypeError, ValueError):
                loss = float("nan")
        self.guard(lambda: self.take(self.agent.step(self.tokens_per_step, loss)))

    def exchange(self):
        """A boundary now; every rank of the site must call it at the same point. Returns the outcome's name."""
        if self.agent is not None:
            self.guard(lambda: self.take(self.agent.exchange()))
        return self.last_outcome

    def stats(self):
        """Counters of sluice_agent_statistics as a dict; empty without an agent."""
        return (self.guard(self.agent.stats) or {}) if self.agent is not None else {}

    def save_state(self, path):
        """Writes the agent's part of a checkpoint: one file for each rank. Raises SluiceError when it cannot."""
        if self.agent is not None:
            self.agent.save_state(path)

    def close(self):
        """Ends the agent and gives the optimizer its own step back. Safe to call twice."""
        if self.agent is None:
            return
        agent, self.agent = self.agent, None
        agent.close()
        if self.inner_step is not None and self.optimizer.step == self.wrapped_step:  # a schedule may have wrapped it since
            self.optimizer.step = self.inner_step

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        try:
            self.close()
        except Exception:  # pylint: disable=broad-except  # the interpreter may be going down
            pass
