"""Samples that tell their number, without torch or torchvision, which Grain would import in every process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from feedrate.formats import Manifest, Reader, Sample
from feedrate.schema.errors import DataError

if TYPE_CHECKING:
    from feedrate.loaders import Fields

COUNT = 48


class Numbers:
    """A data set of numbers, of which one may be broken."""

    def __init__(self, broken: int | None) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        if index == self.broken:
            raise ValueError("broken")
        return index

    def batch(self, indices: list[int]) -> np.ndarray:
        return np.array([self[index] for index in indices])


class Pictures(Reader):
    """Samples of two shapes that tell their number; some take longer, and one may be damaged."""

    def __init__(self, damaged: int | None = None) -> None:
        self.root = Path("pictures")
        self.manifest = Manifest(60, ((2, 3, 1), (1,)), 0, "", 1, 1, 0.0)
        self._damaged = damaged

    def read(self, index: int) -> int:
        time.sleep(0.004 * (index % 7 == 0))
        return index

    def decode(self, raw: int) -> Sample:
        if raw == self._damaged:
            raise DataError("pixels.bin: damaged")
        return np.full((2, 3, 1), raw, np.uint8), np.full(1, raw, np.uint8)


def fields(sample: Sample) -> Fields:
    import torch

    return torch.from_numpy(sample[0]).float() / 255, torch.from_numpy(sample[1]).long()[0]
