"""HDF5, uncompressed, one sample a chunk: what a random read of a well-made HDF5 file costs.

Samples arrive without being counted first, so the data set must be able to grow, and that takes chunks; with one
sample in each and no chunk cache, HDF5 reads a sample straight from the file into the caller's memory.

Pitfalls of the container, which ``hdf5_chunked`` shares:

- h5py's indexing builds a selection, a type and an array at every read: 35 µs a sample, whatever its size. The
  low-level call with a selection and a type that are kept takes 5, and fills the caller's memory;
- that call trusts the selection and writes beyond a buffer that is too short: its length is checked first;
- a chunk that does not fit into the chunk cache is read, and decompressed, anew for every sample in it;
- HDF5 has one global lock: threads read one at a time;
- HDF5 locks files also for reading, which fails on read-only and on many network disks: ``locking=False``, as nobody
  writes once it is packed. All that open a file in one process must ask for the same locking and the same ``swmr``;
- on a full disk the error comes as an OSError, or as a RuntimeError when the file is closed, with the system's number
  in its text at best: it is given back as the OSError that it was;
- ``swmr`` (single writer, multiple readers) needs a file of HDF5 1.10's layout, whose metadata have checksums; pixels
  have none, and a changed byte is another pixel, unless ``feedrate.trial.prepare`` finds it;
- opened with ``swmr``, metadata that make no sense are read again and again, as a writer might be about to finish them:
  practically without end. A file that lost its end is such a case: its length is compared with its superblock first.
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

from feedrate.formats import (
    Buffer,
    PerProcess,
    PixelReader,
    ReadOptions,
    Sample,
    batches,
    damaged,
    flattened,
    map_on_all_cores,
)

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
FAILURES = (OSError, RuntimeError, ValueError, KeyError)
"""What h5py raises on files that are damaged."""


def pack_chunks(
    samples: Iterable[Sample],
    root: Path,
    per_chunk: int,
    compress: Callable[[bytes], bytes] | None = None,
    **filters: Any,
) -> None:
    """Write samples as pixels into ``root/pixels.h5``, so many a chunk; the last one is filled with zeros.

    Chunks are compressed on all cores, and the data set says of its filters what is given.
    """
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


class _Opened:
    def __init__(self, root: Path, count: int, size: int, swmr: bool, cache_bytes: int) -> None:
        path = root / NAME
        try:
            check_length(path)
            self._file = h5py.File(path, "r", swmr=swmr, locking=False, rdcc_nbytes=cache_bytes)
            pixels = self._file["pixels"]
            stored = (pixels.shape, pixels.dtype)
        except FileNotFoundError as error:
            raise damaged(path, error, root) from error
        except FAILURES as error:
            raise damaged(path, f"not readable ({error})", root) from error
        if stored != ((count, size), np.uint8):
            raise damaged(path, f"holds {stored[1]} {stored[0]}, expected uint8 {(count, size)}", root)
        self._pixels = pixels.id
        self._stored = pixels.id.get_space()
        self._memory = h5py.h5s.create_simple((size,))
        self._one = (1, size)

    def read(self, index: int, pixels: np.ndarray[Any, Any]) -> None:
        self._stored.select_hyperslab((index, 0), self._one)
        self._pixels.read(self._memory, self._stored, pixels, h5py.h5t.NATIVE_UINT8)


def check_length(path: Path) -> None:
    """Compare a file's length with what its superblock says."""
    with path.open("rb") as file:
        head = file.read(_SUPERBLOCK_BYTES)
        size = file.seek(0, os.SEEK_END)
    expected = int.from_bytes(head[_END_OF_FILE], "little")
    if len(head) < _SUPERBLOCK_BYTES or size < expected:
        raise ValueError(f"truncated, {size} bytes of {max(expected, _SUPERBLOCK_BYTES)}")


class Hdf5Reader(PixelReader):
    """Holds an open file in each process, whose chunk cache has room for ``cached_samples``."""

    def __init__(self, root: Path, options: ReadOptions, cached_samples: int) -> None:
        super().__init__(root)
        self._opened = PerProcess(_Opened, root, len(self), self.size, options.swmr, cached_samples * self.size)

    def read_into(self, index: int, buffer: Buffer) -> None:
        """Let HDF5 read sample ``index``."""
        opened = self._opened()
        try:
            if len(buffer) != self.size:
                raise ValueError(f"{self.size} bytes, expected {len(buffer)}")
            opened.read(index, np.asarray(buffer))
        except FAILURES as error:
            raise damaged(self.root / NAME, str(error), self.root, index) from error


open = partial(Hdf5Reader, cached_samples=0)
