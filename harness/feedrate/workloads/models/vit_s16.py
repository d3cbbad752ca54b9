"""ViT-S/16, a vision transformer of a ResNet-50's size, built of torchvision's, with random weights.

Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021 (arXiv 2010.11929), in the size of Touvron et al.,
"Training data-efficient image transformers", ICML 2021 (arXiv 2012.12877): 12 layers, 6 heads, width 384;
22,050,664 parameters for images of 224 pixels and 1,000 classes. An image's sides are whole multiples of 16 pixels and
always the same.
"""

from __future__ import annotations

from torch import nn
from torchvision import models

REQUIRES: dict[str, str] = {"torch": "torch", "torchvision": "torchvision"}
TASK: str = "classification"
KNOBS: tuple[str, ...] = ("patch_size",)
CELL: int = 16
"""Height and width of what becomes one token, in pixels."""


def build(classes: int, *, patch_size: int = 64) -> nn.Module:
    """Make the network: from float images, batch × 3 × patch_size × patch_size, to scores, batch × classes."""
    network: nn.Module = models.VisionTransformer(patch_size, CELL, 12, 6, 384, 1536, num_classes=classes)
    return network
