"""sluice.attach: finds the parameters, starts the agent, and hooks into optimizer.step on this one optimizer."""

import functools
import logging
import types
import weakref

from sluice import environment
from sluice.handle import Agent, Handle

logger = logging.getLogger("sluice")
_said = set()
_attached = []  # a weak reference to the handle of this process


def say_once(text):
    if text not in _said:
        _said.add(text)
        logger.warning(text)


def named_parameters(model):
    """The trained parameters with the names of the bare model: DistributedDataParallel and the like add one level, `module`."""
    while hasattr(model, "module") and hasattr(model.module, "named_parameters"):
        model = model.module
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def wrap_step(optimizer, handle):
    """optimizer.step stays a bound method of the same optimizer, with the attributes that learning-rate schedules look for."""
    inner_step = optimizer.step

    @functools.wraps(getattr(inner_step, "__func__", inner_step))
    def step(_, *args, **kwargs):
        result = inner_step(*args, **kwargs)
        handle.after_step(result)
        return result

    optimizer.step = types.MethodType(step, optimizer)
    return inner_step, optimizer.step


def attach(model, optimizer, tokens_per_step=None, state_file=None):
    """Makes this process a rank of its site. Call it once, after the model is on its device and the optimizer is made.

    tokens_per_step: what this rank sees in one step; weighs the site's contribution (default 1: sites weigh by steps).
    state_file: what Handle.save_state wrote beside the checkpoint that the script has just loaded.
    Returns a Handle; one that does nothing when SLUICE_GATEWAY is not set or Sluice cannot start.
    """
    gateway = environment.gateway_address()
    if not gateway:
        say_once("sluice: SLUICE_GATEWAY is not set: training without other sites")
        return Handle(None, None, 0)
    if _attached and _attached[0]() is not None and _attached[0]().is_attached:
        logger.error("sluice: attach was called again in this process while it is attached: the second model trains without other sites")
        return Handle(None, None, 0)
    try:
        rank, ranks = environment.rank_of_site()
        agent = Agent(gateway, rank, ranks, environment.agent_options(), named_parameters(model))
        if state_file:
            agent.load_state(state_file)
        agent.start()
    except Exception as problem:  # pylint: disable=broad-except  # training must go on whatever it is
        logger.error("sluice: not attached, training without other sites: %s", problem)
        return Handle(None, None, 0)
    handle = Handle(agent, optimizer, 1 if tokens_per_step is None else tokens_per_step)
    handle.inner_step, handle.wrapped_step = wrap_step(optimizer, handle)
    _attached[:] = [weakref.ref(handle)]
    return handle
