"""What becomes of the images of a batch before the network sees them: their layout, their size."""

from __future__ import annotations

from itertools import cycle

import torch

from harness.trial.loader import Fields
from harness.trial.step.plain import Step

LESS = 8
"""Pixels by which one size is smaller than the one before."""
SIZES = 4
"""Sizes in the cycle, at most."""


def channels_last(step: Step) -> Step:
    """Lay images out with the channel as the fastest dimension; the conversion is part of ``forward``."""

    def forward(fields: Fields) -> torch.Tensor:
        return step.forward(tuple(_laid_out(field) for field in fields[:2]))

    return step._replace(forward=forward)


def varied(step: Step, patch_size: int) -> Step:
    """Cut images to another size from step to step; the cut, a copy, is part of ``forward``.

    Args:
        step: sees all of a batch's samples, each the upper left part of its image.
        patch_size: height and width of the images as they come.
    """
    turns = cycle(sizes(patch_size))

    def forward(fields: Fields) -> torch.Tensor:
        size = next(turns)
        return step.forward(tuple(_cut(field, size) for field in fields[:2]))

    return step._replace(forward=forward)


def sizes(patch_size: int) -> list[int]:
    """The sizes that images have in turn: the whole, and up to three that are smaller by ``LESS`` pixels each."""
    return [patch_size - LESS * k for k in range(SIZES) if k == 0 or patch_size - LESS * k >= LESS]


def _laid_out(field: torch.Tensor) -> torch.Tensor:
    return field.contiguous(memory_format=torch.channels_last) if field.dim() == 4 else field


def _cut(field: torch.Tensor, size: int) -> torch.Tensor:
    return field[..., :size, :size].contiguous() if field.dim() == 4 else field
