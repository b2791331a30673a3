"""What the demo trains and how: the figures of docs/decisions/0003-demo-hyperparameters.md, in one place."""

SITES = 3
RANKS = 2
ROUNDS = 50
INNER_STEPS = 10
BITS = 1.0
OUTER_RATE = 0.8
OUTER_MOMENTUM = 0.5
SEQUENCES = 16           # per site and step, shared by the site's ranks
LEARNING_RATE = 4e-3
BASELINE_LEARNING_RATE = 4e-3
BASE_STEPS = 1000        # of the model that all sites begin with
BASE_SEQUENCES = 32
BASE_LEARNING_RATE = 5e-3
PRESET = "us-eu-ap"
# The emulated WANs of the program sluice_wan_relay and the most sites of each: a mistake is told before anything is trained.
PRESETS = {"us-eu-ap": 3, "global": 6, "200mbit": 16, "lan": 16, "none": 16}
BITS_MIN, BITS_MAX = 0.05, 16.0  # the gateway's limits

TRAINING_ARGUMENTS = (
    # name, default, help
    ("steps", ROUNDS * INNER_STEPS, "optimiser steps"),
    ("inner-steps", INNER_STEPS, "optimiser steps between two rounds; only --save-deltas looks at it"),
    ("sequences", SEQUENCES, "sequences per site and step"),
    ("context", 64, "bytes per sequence"),
    ("width", 128, "width of the model"),
    ("layers", 2, "layers of the model"),
    ("heads", 4, "attention heads"),
    ("pairs", 4093, "rows of the table of byte pairs; a prime"),
    ("learning-rate", LEARNING_RATE, "peak of AdamW's learning rate"),
    ("final-rate", 0.1, "end of the cosine as a share of the peak"),
    ("warmup", 40, "steps of linear warm-up"),
    ("weight-decay", 0.1, "AdamW's, on matrices"),
    ("beta2", 0.95, "AdamW's second beta"),
    ("clip", 1.0, "largest norm of a gradient"),
    ("held-out-windows", 2048, "windows of held-out text that the loss is taken over"),
)


def add_training_arguments(parser):
    for name, default, text in TRAINING_ARGUMENTS:
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} (default {default})")


def training_argv(options):
    """The same arguments for a training process, as words."""
    words = []
    for name, _, _ in TRAINING_ARGUMENTS:
        words += [f"--{name}", str(getattr(options, name.replace("-", "_")))]
    return words
