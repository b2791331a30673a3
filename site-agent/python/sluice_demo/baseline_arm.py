"""The baseline: the same script trains on the same tokens by plain data parallelism, one world, gradients averaged at every step."""

import os
import time

from sluice_demo import settings, site_files, sluice_arm
from sluice_demo.children import ChildFailed


def world_size(options):
    """As many processes as there are cores, if they share the step's sequences evenly: the tokens do not depend on it."""
    sequences = options.sequences * options.sites
    return max(count for count in range(1, min(os.cpu_count() or 1, 8) + 1) if sequences % count == 0)


def run(options, children, folder, seed, environment, progress, time_limit):
    started = time.monotonic()
    world = world_size(options)
    port = site_files.free_ports(1)[0]
    paths = [os.path.join(folder, f"result-baseline-{rank}.json") for rank in range(world)]
    argv = [options.python, "-m", "sluice_demo.train", "--all-sites", "--sites", options.sites, "--seed", seed,
            *settings.training_argv(options), "--learning-rate", options.baseline_learning_rate]
    trainers = []
    for rank in range(world):
        ranks = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLUICE_GATEWAY": ""}
        trainers.append(children.start(f"baseline-{rank}", [*argv, "--result", paths[rank]], {**environment, **ranks}))
    while not children.reap(trainers):
        if time.monotonic() - started > time_limit:
            raise ChildFailed(f"the data-parallel baseline took more than {time_limit:.0f} s; logs are in {folder}")
        step = sluice_arm.last_field(trainers[0].log_path, "step")
        loss = sluice_arm.last_field(trainers[0].log_path, "loss")
        steps = options.rounds * options.inner_steps
        progress.show(f"data parallel: step {step or 0:4.0f}/{steps}   " + (f"loss {loss:.3f}" if loss else "starting"))
        time.sleep(0.5)
    return {"results": [sluice_arm.read_json(path) for path in paths], "seconds": time.monotonic() - started}
