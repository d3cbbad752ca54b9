"""LMDB with raw pixels: one memory-mapped file, one value a sample, all of its fields one after the other.

Nothing is left to decode: what differs from a folder of PNG files is that pixels, not compressed files, are stored
(that is most of the effect), and that a read is a copy out of the page cache without a system call.

Pitfalls, each met on the way:

- the environment must not cross a fork or be pickled, and LMDB refuses to open a file twice in one process: it is
  opened at the first read in each process, and readers of the same file in one process share it;
- the map's size is a ceiling chosen in advance: here it starts small and doubles when LMDB says that it is full;
- ``readahead=False`` is common advice and 20 times slower for image-sized values on a cold cache: left at its default;
- a file that is shorter than its map kills the process (SIGBUS) instead of raising: its length is checked at open;
- the default table of readers needs a writable folder and costs a lock: ``lock=False``, as nobody writes once it is
  packed;
- a value takes whole pages of 4 KiB: a pair of 64-pixel patches takes a sixth more than its pixels.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb
import numpy as np

from harness.errors import DataError
from harness.formats import Reader, Sample

REQUIRES: dict[str, str] = {"lmdb": "lmdb", "numpy": "numpy"}
VERSION: int = 1
MAP_BYTES = 1 << 26
"""Size of the map when packing begins, in bytes; it doubles whenever it is full."""
BATCH_BYTES = 1 << 24
"""Bytes of values that are written in one transaction: what is kept in memory for another try in a larger map."""

_Raw = tuple[int, bytearray]


def _key(index: int) -> bytes:
    """Keys sort as the indices do: 8 bytes, big-endian."""
    return index.to_bytes(8, "big")


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as raw pixels into ``root/data.mdb``.

    Args:
        samples: tuples of uint8 arrays, height × width × channels.
        root: an empty folder.

    Raises:
        OSError: the disk is full, or LMDB cannot write there.
    """
    pending: list[tuple[bytes, bytes]] = []
    held = 0
    try:
        with lmdb.open(os.fspath(root), map_size=MAP_BYTES, lock=False, sync=False) as env:
            for index, sample in enumerate(samples):
                pending.append((_key(index), b"".join(field.tobytes() for field in sample)))
                held += len(pending[-1][1])
                if held >= BATCH_BYTES:
                    _write(env, pending)
                    pending, held = [], 0
            _write(env, pending)
            env.sync(True)
    except lmdb.Error as error:
        if isinstance(error, lmdb.DiskError) or shutil.disk_usage(root).free < BATCH_BYTES:  # a short write is an EIO
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(root)) from error
        raise OSError(errno.EIO, f"LMDB: {error}", os.fspath(root)) from error


def _write(env: lmdb.Environment, pending: list[tuple[bytes, bytes]]) -> None:
    """Write values in one transaction; where the map is full, double it and write them all again."""
    while True:
        try:
            with env.begin(write=True) as txn:
                for key, value in pending:
                    txn.put(key, value, append=True)
            return
        except lmdb.MapFullError:
            env.set_mapsize(env.info()["map_size"] * 2)


def open(root: Path) -> Reader:  # the name is the plug-in contract's
    """Give random access to what ``pack`` wrote into ``root``.

    Raises:
        DataError: there is no readable manifest.
    """
    return _LmdbReader(root)


class _Opened:
    """An environment and the process that opened it."""

    def __init__(self, path: Path) -> None:
        self.pid = os.getpid()
        self.env = lmdb.open(os.fspath(path.parent), readonly=True, create=False, lock=False)
        size, needed = path.stat().st_size, (self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"]
        if size < needed:
            self.env.close()
            raise DataError(f"{path}: truncated, {size} bytes of {needed}; delete {path.parent} and run again")


_OPENED: WeakValueDictionary[tuple[int, int], _Opened] = WeakValueDictionary()
"""By device and inode, as LMDB itself tells files apart. Weak: readers own what is in here, and it closes with them."""


def _opened(root: Path) -> _Opened:
    path = root / "data.mdb"
    try:
        stat = path.stat()
        held = _OPENED.get((stat.st_dev, stat.st_ino))
        if held is not None and held.pid == os.getpid():
            return held
        if held is not None:
            held.env.close()  # inherited by a fork; harmless to the parent, as there is no lock file
        fresh = _OPENED[stat.st_dev, stat.st_ino] = _Opened(path)
        return fresh
    except (OSError, lmdb.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not a readable LMDB file ({error})"
        raise DataError(f"{path}: {reason}; delete {root} and run again") from error


class _LmdbReader(Reader):
    """Shares one environment a process; created, forked and pickled without one."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._held: _Opened | None = None
        self._sizes = tuple(math.prod(shape) for shape in self.manifest.shapes)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_held": None}

    def read(self, index: int) -> _Raw:
        """Copy the value of sample ``index`` out of the map.

        Returns:
            The index and the pixels of all fields, in memory that the caller owns.

        Raises:
            DataError: the file is missing, truncated or damaged, or has no such sample.
        """
        if self._held is None or self._held.pid != os.getpid():
            self._held = _opened(self.root)
        try:
            with self._held.env.begin(buffers=True) as txn:
                value = txn.get(_key(index))
                if value is not None:
                    return index, bytearray(value)
        except lmdb.Error as error:
            raise self._damage(index, str(error)) from error
        raise self._damage(index, "missing")

    def decode(self, raw: _Raw) -> Sample:
        """Cut a value into its fields, without a copy.

        Args:
            raw: what ``read`` gave.

        Returns:
            uint8 arrays, height × width × channels, writable, over the memory in ``raw``.

        Raises:
            DataError: the value has another length than the manifest's shapes.
        """
        index, pixels = raw
        if len(pixels) != sum(self._sizes):
            raise self._damage(index, f"{len(pixels)} bytes, expected {sum(self._sizes)}")
        fields, start = [], 0
        for shape, size in zip(self.manifest.shapes, self._sizes, strict=True):
            fields.append(np.frombuffer(pixels, np.uint8, size, start).reshape(shape))
            start += size
        return tuple(fields)

    def _damage(self, index: int, problem: str) -> DataError:
        return DataError(f"{self.root / 'data.mdb'}: sample {index}: {problem}; delete {self.root} and run again")
