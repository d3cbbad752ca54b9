"""What classification of photographs shares: normalised images, classes, cross entropy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torchvision.transforms import functional

from feedrate.formats import Image, Sample
from feedrate.workloads import _patches

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's channels, as torchvision's models expect them."""


def transform(sample: Sample) -> tuple[torch.Tensor, ...]:
    """Make tensors of an image (float32, 3 × height × width, normalised as ImageNet's are) and its class (int64)."""
    image, label = sample
    return functional.normalize(functional.to_tensor(image), MEAN, STD), torch.tensor(number(label))


def number(label: Image) -> int:
    """The class that a label, 1 × 1 × bytes, little-endian, stands for."""
    return int.from_bytes(label.tobytes(), "little")


def normalize(
    fields: Sequence[torch.Tensor], empty: Callable[..., torch.Tensor] = torch.empty_like
) -> tuple[torch.Tensor, ...]:
    """Do to images and labels of a batch (uint8, batch × 3 × height × width, and batch × bytes × 1 × 1) the same."""
    images = _patches.normalize(fields[:1], empty)[0]
    # Channel by channel: a tensor of means would have to be copied to the device in every step.
    for channel, (mean, std) in enumerate(zip(MEAN, STD, strict=True)):
        images[:, channel].sub_(mean).div_(std)
    lowest, *higher = fields[1].flatten(1).T.clone(memory_format=torch.contiguous_format)
    classes = empty(lowest, dtype=torch.int64).copy_(lowest)
    for index, byte in enumerate(higher, start=1):
        classes += byte.to(torch.int64) << 8 * index
    return images, classes


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Give the cross entropy of scores (batch × classes) and classes (batch), as a scalar tensor."""
    return torch.nn.functional.cross_entropy(output, target)
