"""Image files that the device decodes: what workers hand over in place of pixels, and what the device makes of it.

A worker reads files and draws their crops. The batch is all its files, one after the other, and a table: where each
ends, its crop, and its class. Decoding, cropping and resizing follow in the place of the copy, on its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from feedrate.formats import Image, decoders
from feedrate.loaders import Fields
from feedrate.schema import plugins
from feedrate.workloads._crops import resized

COLUMNS = ("end", "top", "left", "height", "width", "flipped", "label_low", "label_high")
"""Of the table, int64."""


def ship(file: bytes, _height: int, _width: int, _scale: int) -> Image:
    """Hand on the bytes of a file in the place of its pixels."""
    return np.frombuffer(file, np.uint8)


def collate(samples: Sequence[Any], empty: Callable[..., torch.Tensor]) -> Fields:
    """Make a batch of visits that were not decoded: bytes of all files, and the table, batch × ``COLUMNS``."""
    ends = np.cumsum([len(sample.pixels) for sample in samples])
    files = empty((int(ends[-1]),), dtype=torch.uint8)
    np.concatenate([sample.pixels for sample in samples], out=files.numpy())
    rows = [(end, *map(int, s.crop), *s.label.reshape(-1).tolist()) for end, s in zip(ends, samples, strict=True)]
    return files, torch.tensor(np.array(rows, np.int64))


@dataclass(frozen=True, slots=True)
class Decode:
    """Makes of such a batch, on the host, what ``transform`` gives for its samples, on a device."""

    decoder: str
    size: int
    """Height and width of the images."""
    normalize: Callable[..., Fields]
    """The workload's."""

    def __call__(self, fields: Fields, device: torch.device) -> Fields:
        """Decode, crop, resize and normalise: float32, batch × 3 × size × size, and int64 classes."""
        files, table = fields
        rows = table.tolist()
        ends = [row[0] for row in rows]
        parts = [files[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        decoded = plugins.load(decoders.__name__, self.decoder).decode_all(parts, device)
        images = torch.stack(
            [
                resized(image[:, top : top + height, left : left + width], self.size, bool(flipped))
                for image, (_, top, left, height, width, flipped, *_) in zip(decoded, rows, strict=True)
            ]
        )
        labels = table[:, -2:].to(torch.uint8).to(device)
        return self.normalize((images, labels[..., None, None]))
