"""A perceptron of large linear layers that sharpens a reduced image: many weights, little arithmetic with each.

Not from a paper: it stands for networks whose weights outweigh their activations, where clearing gradients and updating
weights are a large part of a step. Its 11,541,248 parameters do not depend on ``patch_size``: every image is averaged
to ``SIDE`` × ``SIDE`` pixels and goes through the layers as one vector; what comes out is enlarged (bilinear) and added
to the image. What it does *not* show: a good super-resolution.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

REQUIRES: dict[str, str] = {"torch": "torch"}
TASK: str = "super-resolution"
KNOBS: tuple[str, ...] = ()
SIDE = 16
WIDTH = 2048


class Perceptron(nn.Module):
    """Four linear layers over a reduced image, and a way around them."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3 * SIDE**2, WIDTH, WIDTH, WIDTH, 3 * SIDE**2)
        layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU(inplace=True))]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Sharpen images, batch × 3 × height × width."""
        reduced = functional.adaptive_avg_pool2d(images, SIDE)
        change = self.layers(reduced.flatten(1)).reshape(-1, 3, SIDE, SIDE)
        height, width = images.shape[2:]
        return images + functional.interpolate(change, [height, width], mode="bilinear", align_corners=False)


def build() -> nn.Module:
    """Make the network: from float images, batch × 3 × height × width in 0..1, to images of the same shape."""
    return Perceptron()
