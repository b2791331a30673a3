"""What runs without Sluice: the base model that all sites begin with, and the baseline, the same script on the same tokens by plain data
parallelism: one world, gradients averaged at every step."""

import os
import time

from sluice_demo import settings, site_files, sluice_arm
from sluice_demo.children import ChildFailed


def world_size(sequences):
    """As many processes as there are cores, if they share the step's sequences evenly: the tokens do not depend on it."""
    return max(count for count in range(1, min(os.cpu_count() or 1, 8) + 1) if sequences % count == 0)


def run_world(name, options, children, sequences, steps, words, environment, progress, time_limit):
    """One world of training processes; returns their results and the seconds it took."""
    started = time.monotonic()
    world = world_size(sequences)
    port = site_files.free_ports(1)[0]
    paths = [os.path.join(children.log_folder, f"result-{rank}.json") for rank in range(world)]
    trainers = []
    for rank in range(world):
        ranks = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLUICE_GATEWAY": ""}
        argv = [options.python, "-m", "sluice_demo.train", "--sites", options.sites, *settings.training_argv(options), *words,
                "--result", paths[rank]]
        trainers.append(children.start(f"train-{rank}", argv, {**environment, **ranks}))
    while not children.reap(trainers):
        if time.monotonic() - started > time_limit:
            raise ChildFailed(f"{name} took more than {time_limit:.0f} s; logs are in {children.log_folder}")
        step = sluice_arm.last_field(trainers[0].log_path, "step")
        loss = sluice_arm.last_field(trainers[0].log_path, "loss")
        progress.show(f"{name}: step {step or 0:4.0f}/{steps}   " + (f"loss {loss:.3f}" if loss else "starting"))
        time.sleep(0.5)
    return {"results": [sluice_arm.read_json(path) for path in paths], "seconds": time.monotonic() - started}


def run(options, children, seed, base, environment, progress, time_limit):
    words = ["--part", "all", "--seed", seed, "--load-model", base, "--learning-rate", options.baseline_learning_rate]
    return run_world("data parallel", options, children, options.sequences * options.sites, options.steps, words, environment, progress,
                     time_limit)


def make_base(options, children, seed, base, environment, progress, time_limit):
    """Writes the base model to the file `base`."""
    words = ["--part", "shared", "--seed", seed, "--save-model", base, "--steps", options.base_steps, "--sequences", options.base_sequences,
             "--learning-rate", options.base_learning_rate, "--final-rate", "0.02"]
    return run_world("base model", options, children, options.base_sequences, options.base_steps, words, environment, progress, time_limit)
