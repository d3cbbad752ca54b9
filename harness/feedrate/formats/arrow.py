"""An Arrow IPC file: record batches of one column of binary, memory-mapped: of fixed size, but for files.

The samples of a batch lie one after the other, as in a raw file: what Arrow costs is finding the batch and the place.

Pitfalls:

- a value that is taken out as a Python object is copied into ``bytes`` and once more into an array: here a batch's
  buffer is looked up and parsed once, and a sample is one copy out of it;
- a plain binary column has offsets of 32 bits and ends at 2 GiB: a batch of it, which holds few samples here;
- a file that is cut short has lost its footer and is refused at open, before a page fault can kill the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from feedrate.formats import FILE, MappedReader, Sample, batches, flat, flattened, peeked, shapes_of

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


class ArrowReader(MappedReader):
    """Holds a mapped file in each process, and those of its batches that were read."""

    file = _NAME
    failures = (OSError, ValueError, pa.ArrowException)

    def open_files(self) -> tuple[Any, dict[int, tuple[memoryview, memoryview]]]:
        """Map the file, and compare its batches and type with what was packed."""
        file = pa.ipc.open_file(pa.memory_map(os.fspath(self.root / _NAME)))
        batches, expected = file.num_record_batches, -(-len(self) // _per_batch(self.size))
        column = pa.binary(self.size or -1)
        if batches != expected or file.schema.types != [column]:
            raise ValueError(f"{batches} batches of {file.schema.types}, expected {expected} of [{column}]")
        return file, {}

    def _batch(self, batch: int) -> tuple[memoryview, memoryview]:
        """The pixels of a batch; where its first sample begins and each ends, which is empty where sizes are one."""
        file, batches = self.opened()
        if batch not in batches:
            read = file.get_batch(batch)
            read.validate()
            per_batch = _per_batch(self.size)
            expected = min(len(self) - batch * per_batch, per_batch)
            _, *offsets, data = (memoryview(buffer or b"").cast("B") for buffer in read.column(0).buffers())
            if read.num_rows != expected or len(data) < expected * self.size:
                raise ValueError(f"batch {batch}: {read.num_rows} rows, expected {expected}")
            batches[batch] = data, offsets[0].cast("i") if offsets else memoryview(b"")
        return batches[batch]  # type: ignore[no-any-return]

    def view(self, index: int) -> memoryview:
        """Find sample ``index`` in its batch."""
        batch, row = divmod(index, _per_batch(self.size))
        pixels, ends = self._batch(batch)
        return pixels[row * self.size : (row + 1) * self.size] if self.size else pixels[ends[row] : ends[row + 1]]


open = ArrowReader
