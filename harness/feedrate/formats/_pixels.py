"""What formats that store pixels share: a sample is the pixels of all its fields, one field after the other.

Such formats hold the same bytes in the same order and differ in their container alone. Nothing is left to decode:
cutting a sample into its fields makes views of the memory that it was read into.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from feedrate.formats import Reader, Sample
from feedrate.schema.errors import InputError

Buffer: TypeAlias = NDArray[np.uint8] | memoryview
"""Writable bytes, contiguous and one-dimensional."""
RawPixels = tuple[int, NDArray[np.uint8]]
"""A sample's index and its pixels."""


def flat(sample: Sample) -> memoryview:
    """Copy the pixels of all fields of a sample, one after the other."""
    return np.concatenate([field.reshape(-1) for field in sample]).data


def flattened(samples: Iterable[Sample]) -> tuple[int, Iterator[memoryview]]:
    """Give the size of a sample in bytes and all samples as ``flat`` makes them.

    Raises:
        InputError: there are no samples, and so no size, with which some files begin.
    """
    values = map(flat, samples)
    first = next(values, None)
    if first is None:
        raise InputError("there are no samples to pack")
    return len(first), chain((first,), values)


def batches(values: Iterator[memoryview], count: int) -> Iterator[tuple[int, bytes]]:
    """Join up to ``count`` samples at a time: how many there are, and their pixels."""
    while batch := list(islice(values, count)):
        yield len(batch), b"".join(batch)


def cut(pixels: NDArray[np.uint8], shapes: Sequence[tuple[int, ...]]) -> Sample:
    """Make fields of the given shapes out of the pixels of a sample: views, without a copy.

    Raises:
        ValueError: there are fewer pixels than the shapes hold, or more.
    """
    fields, start = [], 0
    for shape in shapes:
        end = start + math.prod(shape)
        fields.append(pixels[start:end].reshape(shape))
        start = end
    if start != len(pixels):
        raise ValueError(f"{len(pixels)} bytes, expected {start}")
    return tuple(fields)


class PixelReader(Reader):
    """Random access to samples that are stored as pixels."""

    size: int
    """Bytes of a sample."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.size = sum(map(math.prod, self.manifest.shapes))

    @abstractmethod
    def read_into(self, index: int, buffer: Buffer) -> None:
        """Copy every byte of sample ``index`` from storage into the caller's memory.

        Args:
            index: which sample, 0 to count - 1.
            buffer: ``size`` bytes, uint8, that are overwritten; where the read fails, with anything.

        Raises:
            DataError: the sample is missing, truncated, damaged or of another length than the buffer.
        """

    def read(self, index: int) -> RawPixels:
        """Read sample ``index`` into new memory."""
        pixels = np.empty(self.size, np.uint8)
        self.read_into(index, pixels)
        return index, pixels

    def decode(self, raw: RawPixels) -> Sample:
        """Cut pixels into fields, without a copy."""
        return cut(raw[1], self.manifest.shapes)
