"""An Arrow IPC file: record batches of one column of fixed-size binary, memory-mapped.

The samples of a batch lie one after the other, as in a raw file: what Arrow costs is finding the batch and the place.

Pitfalls:

- a value that is taken out as a Python object is copied into ``bytes`` and once more into an array: here a batch's
  buffer is looked up once, and a sample is one copy out of it;
- a batch is parsed each time it is asked for: what was found is kept, a few hundred bytes for each batch of some MiB;
- a plain binary column has offsets of 32 bits and ends at 2 GiB; all samples have one size, so there are none;
- a file that is cut short has lost its footer and is refused at open, before a page fault can kill the process;
- there is no checksum: a changed byte is another pixel, unless ``feedrate.trial.prepare`` finds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from feedrate.formats import Buffer, PerProcess, PixelReader, ReadOptions, Sample, batches, damaged, flattened

REQUIRES: dict[str, str] = {"pyarrow": "pyarrow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "arrow", "stores": "pixels", "mapped": True}
BATCH_BYTES = 1 << 22
"""Bytes of pixels in a record batch, about; a larger sample has one of its own."""
_NAME = "pixels.arrow"


def _per_batch(size: int) -> int:
    return max(1, BATCH_BYTES // size)


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as record batches into ``root/pixels.arrow``."""
    size, values = flattened(samples)
    column = pa.binary(size)
    with (root / _NAME).open("wb") as file, pa.ipc.new_file(file, pa.schema([("pixels", column)])) as writer:
        for count, pixels in batches(values, _per_batch(size)):
            array = pa.FixedSizeBinaryArray.from_buffers(column, count, [None, pa.py_buffer(pixels)])
            writer.write_batch(pa.record_batch([array], names=["pixels"]))


class _Mapped:
    """A mapped file and the pixels of those of its batches that were read."""

    def __init__(self, root: Path, count: int, size: int) -> None:
        self._batches: dict[int, memoryview] = {}
        self._root = root
        self._count = count
        self._size = size
        path = root / _NAME
        try:
            self._file = pa.ipc.open_file(pa.memory_map(os.fspath(path)))
        except (OSError, pa.ArrowInvalid) as error:
            raise damaged(path, error, root) from error
        found, expected = self._file.num_record_batches, -(-count // _per_batch(size))
        if found != expected or self._file.schema.types != [pa.binary(size)]:
            problem = f"{found} batches of {self._file.schema.types}, expected {expected} of [{pa.binary(size)}]"
            raise damaged(path, problem, root)

    def pixels(self, batch: int) -> memoryview:
        """All pixels of a batch, inside the map."""
        if batch in self._batches:
            return self._batches[batch]
        path, expected = self._root / _NAME, min(self._count - batch * _per_batch(self._size), _per_batch(self._size))
        try:
            found = self._file.get_batch(batch)
            found.validate()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise damaged(path, f"batch {batch}: {error}", self._root) from error
        pixels = memoryview(found.column(0).buffers()[1]).cast("B")
        if found.num_rows != expected or len(pixels) < expected * self._size:
            raise damaged(path, f"batch {batch}: {found.num_rows} rows, expected {expected}", self._root)
        self._batches[batch] = pixels
        return pixels


class ArrowReader(PixelReader):
    """Holds a mapped file in each process."""

    def __init__(self, root: Path, _options: ReadOptions) -> None:
        super().__init__(root)
        self._mapped = PerProcess(_Mapped, root, len(self), self.size)
        self._per_batch = _per_batch(self.size)

    def read_into(self, index: int, buffer: Buffer) -> None:
        """Copy sample ``index`` out of its batch."""
        batch, row = divmod(index, self._per_batch)
        size = self.size
        pixels = self._mapped().pixels(batch)[row * size : row * size + size]
        if len(pixels) != len(buffer):
            raise damaged(self.root / _NAME, f"{len(pixels)} bytes, expected {len(buffer)}", self.root, index)
        buffer[:] = pixels


open = ArrowReader
