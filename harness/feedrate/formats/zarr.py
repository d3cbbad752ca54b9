"""Zarr (version 3), uncompressed, one sample a chunk, many chunks in a file (a shard).

It shows the price of a library for arrays in the cloud: each read is a task on an event loop in another thread.

Pitfalls:

- without shards each chunk is a file of its own. With them, each read also reads the shard's index, 16 bytes a chunk,
  so a shard is kept to 256 of them; it is written whole, as appending would write it again and again;
- a shard that is missing, and a chunk of zeros when it was written, are read as zeros. Chunks of zeros are therefore
  written like all others, and a shard must be there before it is read: one system call in hundreds of microseconds;
- the thread and its loop do not survive a fork; Zarr starts them anew in the child.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from feedrate.formats import Buffer, PixelReader, Sample, batches, flattened

REQUIRES: dict[str, str] = {"zarr": "zarr>=3", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "zarr", "stores": "pixels"}
SHARD_BYTES = 1 << 24
"""Bytes of pixels in a shard, at most; a larger sample has one of its own."""
SHARD_SAMPLES = 256
"""Samples in a shard, at most."""
_NAME = "pixels.zarr"


def _per_shard(size: int) -> int:
    return max(1, min(SHARD_SAMPLES, SHARD_BYTES // size))


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as raw pixels into shards below ``root/pixels.zarr``."""
    size, values = flattened(samples)
    array = zarr.create_array(
        root / _NAME,
        shape=(0, size),
        shards=(_per_shard(size), size),
        chunks=(1, size),
        dtype=np.uint8,
        compressors=None,
        filters=None,
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    end = 0
    for count, pixels in batches(values, _per_shard(size)):
        array.resize((end + count, size))
        array[end:] = np.frombuffer(pixels, np.uint8).reshape(count, size)
        end += count


class ZarrReader(PixelReader):
    """Holds an open array in each process."""

    failures = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)

    def path(self, index: int, field: int) -> Path:  # noqa: ARG002 - all fields lie in one
        """Name the shard of a sample."""
        return self.root / _NAME / "c" / str(index // _per_shard(self.size)) / "0"

    def open_files(self) -> Any:
        """Open the array, and compare it with what was packed."""
        array = zarr.open_array(self.root / _NAME, mode="r")
        stored: tuple[object, ...] = (array.shape, array.shards, array.dtype)
        expected = ((len(self), self.size), (_per_shard(self.size), self.size), np.uint8)
        if stored != expected:
            raise ValueError(f"holds {stored}, expected {expected}")
        return array

    def copy(self, index: int, buffer: Buffer) -> None:
        """Let Zarr read sample ``index``, and copy what it gives."""
        array = self.opened()
        self.path(index, 0).stat()
        buffer[:] = array[index]


open = ZarrReader
