"""Patterns that cost next to nothing to make: (input, target) pairs for calibration and for machines without data.

Each is a sum of triangle waves, computed in integers from the sample's index alone, so that every machine makes the
same bytes; the input is the target, smoothed. Known costs are not planted here but by ``feedrate.trial.plants``.

It does *not* show what storing photographs costs: these patterns compress far better and decode at another speed.
"""

from __future__ import annotations

import numpy as np

from feedrate.formats import Image, Sample
from feedrate.workloads import DataSpec, Source
from feedrate.workloads._patches import loss, mix, normalize, transform

__all__ = ["REQUIRES", "TASK", "VERSION", "loss", "normalize", "samples", "transform"]

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy", "torch": "torch", "torchvision": "torchvision"}
TASK: str = "super-resolution"
VERSION: int = 1


def samples(spec: DataSpec) -> Source:
    """Make ``spec.n_samples`` pairs, each field uint8, patch_size × patch_size × 3; sample i is alike in every set."""
    return Source(_pair(index, spec.patch_size) for index in range(spec.n_samples))


def _pair(index: int, size: int) -> Sample:
    target = np.stack([_plane(mix(3 * index + channel), size) for channel in range(3)], axis=2)
    return _smooth(target), target


def _plane(seed: int, size: int) -> Image:
    """Mean of two triangle waves whose slopes (0 to 15 levels a pixel) and phases are bits of ``seed``; size × size."""
    rows, columns = np.ogrid[:size, :size]
    total = np.zeros((size, size), np.int64)
    for bits in (seed & 0xFFFFFFFF, seed >> 32):
        wave = rows * (bits & 15) + columns * (bits >> 4 & 15) + (bits >> 8 & 511)
        total += np.abs(wave % 512 - 256)
    return np.minimum(total // 2, 255).astype(np.uint8)


def _smooth(pixels: Image) -> Image:
    """Half the pixel and half the mean of its four neighbours (at a border the pixel stands in), rounded down."""
    wide = np.pad(pixels, ((1, 1), (1, 1), (0, 0)), mode="edge").astype(np.uint16)
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return ((4 * wide[1:-1, 1:-1] + around) // 8).astype(np.uint8)
