"""HDF5, uncompressed, one sample a chunk: what a random read of a well-made HDF5 file costs.

Samples arrive without being counted first, so the data set must grow, and that takes chunks; with one sample in each
and no chunk cache, HDF5 reads a sample straight from the file into the caller's memory.

Pitfalls of the container, which ``hdf5_chunked`` shares:

- h5py's indexing builds a selection, a type and an array at every read: 35 µs a sample, whatever its size. The
  low-level call with a selection and a type that are kept takes 5. It writes beyond a buffer that is too short;
- a chunk that does not fit into the chunk cache is read, and decompressed, anew for every sample in it;
- HDF5 has one global lock: threads read one at a time;
- HDF5 locks files also for reading, which fails on many network disks: ``locking=False``, as nobody writes once it is
  packed. All that open a file in one process must ask for the same locking and the same ``swmr``;
- on a full disk the error is an OSError, or a RuntimeError when the file is closed, with the system's number in its
  text at best;
- ``swmr`` (single writer, multiple readers) needs a file of HDF5 1.10's layout, whose metadata have checksums. With it,
  metadata that make no sense are read again practically without end, as a writer might be about to finish them: a
  file's length is compared with its superblock first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from feedrate.formats import Buffer, PixelReader, ReadOptions, Sample, batches, flattened, map_on_all_cores

REQUIRES: dict[str, str] = {"h5py": "h5py", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "hdf5", "stores": "pixels", "knobs": ("swmr",)}
NAME = "pixels.h5"
_LIBVER = ("v110", "v110")
"""The oldest layout that ``swmr`` can read, so that no newer HDF5 is asked for than must be."""
_SUPERBLOCK_BYTES = 48
_END_OF_FILE = slice(28, 36)
"""Where a superblock of version 2 or 3 has it (HDF5 file format specification 3.0, section II.A)."""
_GROW_CHUNKS = 1024
"""The data set is extended by so many chunks at a time: each extension rewrites its header."""


def pack_chunks(
    samples: Iterable[Sample],
    root: Path,
    per_chunk: int,
    compress: Callable[[bytes], bytes] | None = None,
    **filters: Any,
) -> None:
    """Write samples as pixels into ``root/pixels.h5``, so many a chunk; the last one is filled with zeros."""
    size, values = flattened(samples)

    def chunk(batch: tuple[int, bytes]) -> tuple[int, bytes]:
        count, pixels = batch[0], batch[1].ljust(per_chunk * size, b"\0")
        return count, compress(pixels) if compress else pixels

    chunks = (map_on_all_cores if compress else map)(chunk, batches(values, per_chunk))
    path = root / NAME
    try:
        with h5py.File(path, "w", libver=_LIBVER, locking=False) as file:
            shapes = {"shape": (0, size), "maxshape": (None, size), "chunks": (per_chunk, size)}
            pixels = file.create_dataset("pixels", dtype=np.uint8, **shapes, **filters)
            end = room = 0
            for count, data in chunks:
                if end + count > room:
                    room += _GROW_CHUNKS * per_chunk
                    pixels.resize(room, axis=0)
                pixels.id.write_direct_chunk((end, 0), data)
                end += count
            pixels.resize(end, axis=0)
    except (OSError, RuntimeError) as error:  # h5py says what the system said only in words when a file is closed
        if (number := re.search(r"errno = (\d+)", str(error))) is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), os.fspath(path)) from error


pack = partial(pack_chunks, per_chunk=1)


class Hdf5Reader(PixelReader):
    """Holds an open file in each process, whose chunk cache has room for ``cached_samples``."""

    file = NAME
    failures = (OSError, RuntimeError, ValueError, KeyError)

    def __init__(self, root: Path, options: ReadOptions, cached_samples: int = 0) -> None:
        super().__init__(root, options)
        self._cached_samples = cached_samples

    def dataset(self, **options: Any) -> h5py.Dataset:
        """Open the data set, and compare it, and the length that the superblock says, with what is there."""
        path = self.root / NAME
        with path.open("rb") as file:
            head, size = file.read(_SUPERBLOCK_BYTES), file.seek(0, os.SEEK_END)
        needed = max(int.from_bytes(head[_END_OF_FILE], "little"), _SUPERBLOCK_BYTES)
        if size < needed:
            raise ValueError(f"truncated, {size} bytes of {needed}")
        pixels = h5py.File(path, "r", **options)["pixels"]
        stored, expected = (pixels.shape, pixels.dtype), ((len(self), self.size), np.uint8)
        if stored != expected:
            raise ValueError(f"holds {stored[1]} {stored[0]}, expected uint8 {expected[0]}")
        return pixels

    def open_files(self) -> tuple[Any, ...]:
        """Give the data set, the selection of a sample in it, which is moved, and that in the caller's memory."""
        cache_bytes = self._cached_samples * self.size
        pixels = self.dataset(swmr=self.options.swmr, locking=False, rdcc_nbytes=cache_bytes).id
        return pixels, pixels.get_space(), h5py.h5s.create_simple((self.size,))

    def copy(self, index: int, buffer: Buffer) -> None:
        """Let HDF5 read sample ``index``."""
        pixels, stored, memory = self.opened()
        stored.select_hyperslab((index, 0), (1, self.size))
        pixels.read(memory, stored, np.asarray(buffer), h5py.h5t.NATIVE_UINT8)


open = Hdf5Reader
