"""A byte-level GPT of about one million parameters, written plainly.

Two things spare a run of a few minutes from spending its time on what is not its subject. Positions enter as a linear bias on the attention
scores (ALiBi, Press et al. 2022), so that the last bytes are seen from the first step on. Each byte also brings a vector of its own for the
pair that it forms with the byte before, from a hashed table: the statistics of pairs are learned at once, and the table's parameters cost
traffic but hardly any arithmetic.
"""

import math

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256
INITIAL_DEVIATION = 0.05  # of matrices; about 1 / sqrt(2 width)
PAIR_STRIDE = 257         # prime to the size of the table, so that pairs spread over it


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width, bias=False)
        self.mlp_out = nn.Linear(4 * width, width, bias=False)

    def forward(self, x, mask):
        batch, length, width = x.shape
        split = self.query_key_value(self.norm_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads) + mask
        mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.attention_out(mixed)
        return x + self.mlp_out(functional.relu(self.mlp_in(self.norm_mlp(x))))


def attention_bias(heads, context):
    """[heads, context, context]: minus infinity for what comes later, else minus slope times distance; slopes halve from 4 on."""
    slopes = 4.0 * 0.5 ** torch.arange(heads, dtype=torch.float32)
    place = torch.arange(context)
    distance = (place[:, None] - place).clamp(min=0)
    return torch.full((context, context), float("-inf")).triu(1) - slopes[:, None, None] * distance


class TinyGpt(nn.Module):
    """forward(inputs, targets) is the mean cross entropy in nats per byte."""

    def __init__(self, width, layers, heads, context, pairs):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.pair = nn.Embedding(pairs, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("mask", attention_bias(heads, context), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_residual = name.endswith(("attention_out.weight", "mlp_out.weight"))
                nn.init.normal_(parameter, 0.0, INITIAL_DEVIATION / math.sqrt(2 * layers) if is_residual else INITIAL_DEVIATION)

    def forward(self, inputs, targets):
        length = inputs.shape[1]
        before = functional.pad(inputs, (1, 0))[:, :-1]
        x = self.token(inputs) + self.pair((inputs + PAIR_STRIDE * before) % self.pair.num_embeddings)
        for block in self.blocks:
            x = block(x, self.mask[:, :length, :length])
        return functional.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY), targets.reshape(-1))
