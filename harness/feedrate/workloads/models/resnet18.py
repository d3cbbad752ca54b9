"""ResNet-18, from torchvision, with random weights.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016 (arXiv 1512.03385); 11,195,493
parameters for 37 classes, 11,689,512 for 1,000. It halves an image five times: below 64 pixels little is left for its
last stages, and below 33 pixels its batch normalisation needs batches of two samples at least.
"""

from __future__ import annotations

from torch import nn
from torchvision import models

REQUIRES: dict[str, str] = {"torch": "torch", "torchvision": "torchvision"}
TASK: str = "classification"
KNOBS: tuple[str, ...] = ()
HALVED: bool = True
"""Whether batch norms stand behind five halvings of an image."""


def build(classes: int) -> nn.Module:
    """Make the network: from float images, batch × 3 × height × width, to scores, batch × classes."""
    network: nn.Module = models.resnet18(weights=None, num_classes=classes)
    return network
