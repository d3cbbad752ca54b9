"""A small language model: GPT-2's decoder (Radford et al., 2019) with 6 layers, 6 heads and width 384.

30,339,456 parameters, 19,298,688 of them the table of tokens, which is the last layer's as well. Attention is PyTorch's
own (``scaled_dot_product_attention``). What it does *not* show: the sizes that language models are trained in; no
dropout.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from feedrate.workloads.tokens import CONTEXT, VOCABULARY

REQUIRES: dict[str, str] = {"torch": "torch"}
TASK: str = "language"
KNOBS: tuple[str, ...] = ()
LAYERS, HEADS, WIDTH = 6, 6, 384
SPREAD = 0.02
"""Standard deviation of the tables' first weights, as GPT-2 has it."""


class Block(nn.Module):
    """Attention to what came before, then two linear layers; a way around each."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_layers = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Change states, batch × tokens × ``WIDTH``."""
        projected = self.project(self.before_attention(x)).chunk(3, dim=-1)
        query, key, value = (third.unflatten(-1, (HEADS, -1)).transpose(1, 2) for third in projected)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(attended.transpose(1, 2).flatten(2))
        changed: torch.Tensor = x + self.layers(self.before_layers(x))
        return changed


class Transformer(nn.Module):
    """Tokens → blocks → scores of the token that follows each."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.last = nn.LayerNorm(WIDTH)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=SPREAD)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Give scores, batch × tokens × ``VOCABULARY``, for int64 tokens, batch × at most ``CONTEXT``."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return functional.linear(self.last(self.blocks(x)), self.tokens.weight)


def build() -> nn.Module:
    """Make the network."""
    return Transformer()
