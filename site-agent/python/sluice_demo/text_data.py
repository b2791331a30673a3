"""Training text: the files of Debian's `fortunes` package. The first quarter of each file is what everybody has, for the base model; the
rest is dealt to the sites by file; the end of each file is held out.

Pure functions of the files and the seed: every process computes the same parts, and both arms of the demo draw the same tokens.
"""

import os

import numpy
import torch

FORTUNES = "/usr/share/games/fortunes"
HELD_OUT_SHARE = 10  # the last tenth of each file is never trained on
SHARED_SHARE = 4     # the first quarter of each file is no site's own


def read_texts(folder=FORTUNES):
    """Name -> bytes of every text file. Names with a dot are the package's indices and links."""
    if not os.path.isdir(folder):
        raise SystemExit(f"sluice_demo: no training text in {folder}; install the package `fortunes` or give --text FOLDER")
    names = sorted(name for name in os.listdir(folder) if "." not in name and os.path.isfile(os.path.join(folder, name)))
    texts = {}
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            texts[name] = file.read()
    return texts


def split_texts(texts, sites):
    """(shared bytes, one byte tensor per site, held-out bytes). Whole files go to the site that has least so far, the longest first."""
    parts = [[] for _ in range(sites)]
    sizes = [0] * sites
    shared, held_out = [], []
    for name in sorted(texts, key=lambda name: (-len(texts[name]), name)):
        text = texts[name]
        first, last = len(text) // SHARED_SHARE, len(text) - len(text) // HELD_OUT_SHARE
        site = min(range(sites), key=lambda index: (sizes[index], index))
        parts[site].append(text[first:last])
        sizes[site] += last - first
        shared.append((name, text[:first]))
        held_out.append((name, text[last:]))
    if not texts or min(sizes) == 0:
        raise SystemExit(f"sluice_demo: {len(texts)} text files are too few for {sites} sites")
    return join(shared), [to_tensor(b"".join(part)) for part in parts], join(held_out)


def join(named):
    return to_tensor(b"".join(text for _, text in sorted(named)))


def to_tensor(data):
    return torch.from_numpy(numpy.frombuffer(data, dtype=numpy.uint8).astype(numpy.int64))


class BatchSource:
    """The batches of one site in their fixed order: step n of site k is the same whoever asks."""

    def __init__(self, text, site, seed, sequences, context):
        self.text, self.sequences, self.context = text, sequences, context
        self.generator = torch.Generator().manual_seed(1_000_003 * seed + site)

    def next(self):
        """(inputs, targets), each [sequences, context]."""
        starts = torch.randint(0, len(self.text) - self.context - 1, (self.sequences,), generator=self.generator)
        return windows(self.text, starts, self.context)


def windows(text, starts, context):
    rows = text[starts[:, None] + torch.arange(context + 1)]
    return rows[:, :-1], rows[:, 1:]


def held_out_windows(text, count, context):
    """`count` windows spread evenly over the held-out text."""
    starts = torch.linspace(0, len(text) - context - 2, count, dtype=torch.float64).long()
    return windows(text, starts, context)
