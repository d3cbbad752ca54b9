"""An Arrow IPC file: record batches of one column of binary, memory-mapped: of fixed size, but for files.

The samples of a batch lie one after the other, as in a raw file: what Arrow costs is finding the batch and the place.

Pitfalls:

- a value that is taken out as a Python object is copied into ``bytes`` and once more into an array: here a batch's
  buffer is looked up once, and a sample is one copy out of it;
- a batch is parsed each time it is asked for: what was found is kept, a few hundred bytes for each batch of some MiB;
- a plain binary column has offsets of 32 bits and ends at 2 GiB: a batch of it, which holds few samples here. Pixels
  have one size, so there are none;
- a file that is cut short has lost its footer and is refused at open, before a page fault can kill the process;
- there is no checksum: a changed byte is another pixel, unless ``feedrate.trial.prepare`` finds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from feedrate.formats import (
    FILE,
    Buffer,
    PerProcess,
    PixelReader,
    RawPixels,
    ReadOptions,
    Sample,
    batches,
    damaged,
    flat,
    flattened,
    peeked,
    shapes_of,
)

REQUIRES: dict[str, str] = {"pyarrow": "pyarrow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {
    "container": "arrow",
    "stores": "pixels",
    "holds": ("images", "tokens", "files"),
    "mapped": True,
}
BATCH_BYTES = 1 << 22
"""Bytes of pixels in a record batch, about; a larger sample has one of its own."""
FILES_PER_BATCH = 32
"""Samples in a record batch, where they are files."""
_NAME = "pixels.arrow"


def _per_batch(size: int) -> int:
    return max(1, BATCH_BYTES // size) if size else FILES_PER_BATCH


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as record batches into ``root/pixels.arrow``."""
    first, samples = peeked(samples)
    if FILE in shapes_of(first):
        column, arrays = pa.binary(), _file_arrays(samples)
    else:
        size, values = flattened(samples)
        column = pa.binary(size)
        arrays = (
            pa.FixedSizeBinaryArray.from_buffers(column, count, [None, pa.py_buffer(pixels)])
            for count, pixels in batches(values, _per_batch(size))
        )
    with (root / _NAME).open("wb") as file, pa.ipc.new_file(file, pa.schema([("pixels", column)])) as writer:
        for array in arrays:
            writer.write_batch(pa.record_batch([array], names=["pixels"]))


def _file_arrays(samples: Iterable[Sample]) -> Iterator[pa.Array]:
    """Make the columns of samples that are files."""
    values = map(bytes, map(flat, samples))
    while batch := list(islice(values, FILES_PER_BATCH)):
        yield pa.array(batch, pa.binary())


class _Mapped:
    """A mapped file and those of its batches that were read.

    Of a batch: the pixels of its samples, one after the other; where the first begins and each ends, int32, which is
    empty where all have one size.
    """

    def __init__(self, root: Path, count: int, size: int) -> None:
        self._batches: dict[int, tuple[memoryview, memoryview]] = {}
        self._root = root
        self._count = count
        self._size = size
        path = root / _NAME
        try:
            self._file = pa.ipc.open_file(pa.memory_map(os.fspath(path)))
        except (OSError, pa.ArrowInvalid) as error:
            raise damaged(path, error, root) from error
        batches, expected = self._file.num_record_batches, -(-count // _per_batch(size))
        column = pa.binary(size or -1)
        if batches != expected or self._file.schema.types != [column]:
            problem = f"{batches} batches of {self._file.schema.types}, expected {expected} of [{column}]"
            raise damaged(path, problem, root)

    def batch(self, batch: int) -> tuple[memoryview, memoryview]:
        """Find a batch."""
        if batch in self._batches:
            return self._batches[batch]
        path, expected = self._root / _NAME, min(self._count - batch * _per_batch(self._size), _per_batch(self._size))
        try:
            read = self._file.get_batch(batch)
            read.validate()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise damaged(path, f"batch {batch}: {error}", self._root) from error
        _, *offsets, data = (memoryview(buffer or b"").cast("B") for buffer in read.column(0).buffers())
        if read.num_rows != expected or len(data) < expected * self._size:
            raise damaged(path, f"batch {batch}: {read.num_rows} rows, expected {expected}", self._root)
        self._batches[batch] = data, offsets[0].cast("i") if offsets else memoryview(b"")
        return self._batches[batch]


class ArrowReader(PixelReader):
    """Holds a mapped file in each process."""

    def __init__(self, root: Path, _options: ReadOptions) -> None:
        super().__init__(root)
        self._mapped = PerProcess(_Mapped, root, len(self), self.size)
        self._per_batch = _per_batch(self.size)

    def read(self, index: int) -> RawPixels:
        """Read sample ``index`` into new memory, as much as it takes where it is a file."""
        if self.size:
            return super().read(index)
        batch, row = divmod(index, self._per_batch)
        pixels, ends = self._mapped().batch(batch)
        return index, np.array(pixels[ends[row] : ends[row + 1]], np.uint8)

    def read_into(self, index: int, buffer: Buffer) -> None:
        """Copy sample ``index`` out of its batch."""
        batch, row = divmod(index, self._per_batch)
        size = self.size
        pixels = self._mapped().batch(batch)[0][row * size : row * size + size]
        if len(pixels) != len(buffer):
            raise damaged(self.root / _NAME, f"{len(pixels)} bytes, expected {len(buffer)}", self.root, index)
        buffer[:] = pixels


open = ArrowReader
