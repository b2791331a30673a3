"""An ordinary data-parallel training script for one rank. Sluice enters it with one line: `sluice.attach`.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python -m sluice_demo.train --site 0 --result rank0.json

Without SLUICE_GATEWAY in the environment that line does nothing and the site trains alone. With --part all the same script is the baseline:
one world that trains on the batches of all sites together, gradients averaged at every step. With --part shared it makes the base model
that all sites begin with, from the text that everybody has.
Writes one JSON object a line to stdout while it runs, and its part of the held-out loss to --result at the end.
"""

import argparse
import hashlib
import json
import math
import os
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import sluice
from sluice_demo import settings, text_data, tiny_gpt
from sluice_demo.delta_recorder import DeltaRecorder


START_SECONDS = 300  # for the slowest site to be there


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=int, default=0, help="index of the site that this rank belongs to")
    parser.add_argument("--sites", type=int, default=settings.SITES, help="how many sites share the text")
    parser.add_argument("--part", choices=("site", "all", "shared"), default="site", help="whose text this world trains on")
    parser.add_argument("--load-model", metavar="FILE", help="begin with these parameters")
    parser.add_argument("--save-model", metavar="FILE", help="rank 0 writes the parameters there at the end")
    parser.add_argument("--text", default=text_data.FORTUNES, help="folder of text files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", required=True, help="JSON file to write at the end")
    parser.add_argument("--start-file", metavar="FILE", help="wait for this file before the first step, so that the sites begin together")
    parser.add_argument("--save-deltas", metavar="DIR", help="write what the site contributed to each round there")
    settings.add_training_arguments(parser)
    return parser.parse_args()


def learning_rate_factor(step, arguments):
    """Linear warm-up, then a cosine down to a fraction of the peak."""
    if step < arguments.warmup:
        return (step + 1) / arguments.warmup
    progress = (step - arguments.warmup) / max(1, arguments.steps - arguments.warmup)
    return arguments.final_rate + (1 - arguments.final_rate) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def make_optimizer(model, arguments):
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    groups = [{"params": matrices, "weight_decay": arguments.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=arguments.learning_rate, betas=(0.9, arguments.beta2))


def held_out_sums(model, text, arguments, part, parts):
    """(sum of nats, bytes) of every `parts`-th held-out window; the parts of all ranks together are the whole."""
    inputs, targets = text_data.held_out_windows(text, arguments.held_out_windows, arguments.context)
    inputs, targets = inputs[part::parts], targets[part::parts]
    total = 0.0
    with torch.no_grad():
        for first in range(0, len(inputs), 64):
            batch = inputs[first:first + 64]
            total += model(batch, targets[first:first + 64]).item() * batch.numel()
    return total, inputs.numel()


def parameter_hash(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def batch_sources(arguments, shared, shards):
    """One for each site whose batches this world trains on."""
    if arguments.part == "shared":
        return [text_data.BatchSource(shared, -1, arguments.seed, arguments.sequences, arguments.context)]
    sites = range(arguments.sites) if arguments.part == "all" else [arguments.site]
    return [text_data.BatchSource(shards[site], site, arguments.seed, arguments.sequences, arguments.context) for site in sites]


def wait_for_start(path):
    limit = time.monotonic() + START_SECONDS
    while not os.path.exists(path):
        if time.monotonic() > limit:
            raise SystemExit(f"train: no {path} after {START_SECONDS} s")
        time.sleep(0.05)


def say(**fields):
    print(json.dumps(fields), flush=True)


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        distributed.init_process_group("gloo")
    shared, shards, held_out = text_data.split_texts(text_data.read_texts(arguments.text), arguments.sites)
    torch.manual_seed(arguments.seed)  # every site starts from the same parameters
    model = tiny_gpt.TinyGpt(arguments.width, arguments.layers, arguments.heads, arguments.context, arguments.pairs)
    if arguments.load_model:
        model.load_state_dict(torch.load(arguments.load_model))
    trained = DistributedDataParallel(model) if world > 1 else model
    optimizer = make_optimizer(model, arguments)
    if arguments.save_deltas and rank == 0:
        DeltaRecorder(model, optimizer, arguments)
    sources = batch_sources(arguments, shared, shards)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, arguments))
    handle = sluice.attach(model, optimizer, tokens_per_step=arguments.sequences * arguments.context // world)

    part, parts = (arguments.site * world + rank, arguments.sites * world) if arguments.part == "site" else (rank, world)
    start_sum, _ = held_out_sums(model, held_out, arguments, part, parts)
    if arguments.start_file:
        wait_for_start(arguments.start_file)
    started = time.monotonic()
    for step in range(1, arguments.steps + 1):
        batches = [source.next() for source in sources]
        inputs, targets = (torch.cat(tensors)[rank::world] for tensors in zip(*batches))
        loss = trained(inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), arguments.clip)
        handle.report_loss(loss.item())  # for the dashboard
        optimizer.step()
        schedule.step()
        if step % 10 == 0 or step == arguments.steps:
            say(step=step, loss=round(loss.item(), 4), seconds=round(time.monotonic() - started, 2))
    seconds = time.monotonic() - started
    end_sum, count = held_out_sums(model, held_out, arguments, part, parts)
    result = {"site": arguments.site, "rank": rank, "parameters": sum(parameter.numel() for parameter in model.parameters()),
              "held_out_bytes": count, "loss_start_sum": start_sum, "loss_sum": end_sum, "seconds": seconds,
              "parameter_hash": parameter_hash(model), "rounds": handle.round}
    handle.close()
    if arguments.save_model and rank == 0:
        torch.save(model.state_dict(), arguments.save_model)
    with open(arguments.result, "w", encoding="ascii") as file:
        json.dump(result, file)
    if world > 1:
        distributed.barrier()  # rank 0 serves the rendezvous until all are done


if __name__ == "__main__":
    main()
