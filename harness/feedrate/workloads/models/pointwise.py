"""A chain of pointwise operations between two tiny convolutions: bound by memory, not by arithmetic.

Not from a paper: it stands for the activations, biases and residual additions between a network's large operations.
Each of its ``LINKS`` links is x + gelu(x) / ``LINKS``. Written out, GELU is five operations, each of which reads and
writes the whole tensor and, on a GPU, launches a kernel of its own; fused it is one. What it does *not* show: how large
the share of such operations is in a real network.
"""

from __future__ import annotations

import math

import torch
from torch import nn

REQUIRES: dict[str, str] = {"torch": "torch"}
TASK: str = "super-resolution"
KNOBS: tuple[str, ...] = ("fusion",)
CHANNELS = 16
LINKS = 4
"""Few, as every use of a value that PyTorch's compiler fuses is compiled anew, and a link uses its input three times:
compiling took 5 s of CPU time with 4 links, 15 s with 6, and minutes with 8 (torch 2.15, forward and backward)."""


class WrittenGelu(nn.Module):
    """GELU one operation at a time: x/2 · (1 + erf(x/√2)), Hendrycks and Gimpel 2016 (arXiv 1606.08415)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it to a tensor of any shape."""
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class Chain(nn.Module):
    """The links, one after the other."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        self.links = LINKS  # TorchScript knows no values of a module's file

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go through all links; the shape stays."""
        for _ in range(self.links):
            x = x + self.activation(x) / self.links
        return x


def build(*, fusion: str = "eager") -> nn.Module:
    """Make the network; ``fusion = functional`` takes PyTorch's own GELU, with any other value it is written out."""
    return nn.Sequential(
        nn.Conv2d(3, CHANNELS, kernel_size=3, padding=1),
        Chain(nn.GELU() if fusion == "functional" else WrittenGelu()),
        nn.Conv2d(CHANNELS, 3, kernel_size=3, padding=1),
    )
