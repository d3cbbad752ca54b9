"""ResNet-50, the network that most data loading is judged by, from torchvision, with random weights.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016 (arXiv 1512.03385), with the stride in
the 3 × 3 convolutions (v1.5); 25,557,032 parameters for 1,000 classes. It halves an image five times: below 64 pixels
little is left for its last stages.
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
    network: nn.Module = models.resnet50(weights=None, num_classes=classes)
    return network
