"""LMDB with raw pixels: one memory-mapped file, one value a sample, all of its fields one after the other.

Of pixels nothing is left to decode: what differs from a folder of PNG files is that pixels are stored (that is most of
the effect), and that a read is a copy out of the page cache without a system call.

Pitfalls of the container, which ``lmdb_lz4`` and ``lmdb_png`` share:

- LMDB refuses to open a file twice in one process, and an environment must not cross a fork: it is opened at the first
  read in each process, and readers of the same file in one process share it, and the first one's ``readahead``;
- the map's size is a ceiling chosen in advance: here it starts small and doubles when LMDB says that it is full;
- ``readahead=False`` is common advice and 20 times slower for image-sized values on a cold cache: an axis, on by
  default;
- a file that is shorter than its map kills the process (SIGBUS): its length is checked at open. LMDB believes what it
  reads: a damaged page may point beyond the file. Only the checksum that ``feedrate.trial.prepare`` compares tells;
- the default table of readers needs a writable folder and costs a lock: ``lock=False``, as nobody writes any more;
- a value takes whole pages of 4 KiB: a pair of 64-pixel patches takes a sixth more than its pixels.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb

from feedrate.formats import MappedReader, Packed, Sample, flat

REQUIRES: dict[str, str] = {"lmdb": "lmdb", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {
    "container": "lmdb",
    "stores": "pixels",
    "holds": ("images", "tokens", "files"),
    "knobs": ("readahead",),
    "mapped": True,
}
MAP_BYTES = 1 << 26
"""Size of the map when packing begins, in bytes; it doubles whenever it is full."""
BATCH_BYTES = 1 << 24
"""Bytes of values that are written in one transaction: what is kept in memory for another try in a larger map."""

_Value = bytes | memoryview
_NAME = "data.mdb"


def _key(index: int) -> bytes:
    return index.to_bytes(8, "big")  # keys sort as the indices do


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as raw pixels into ``root/data.mdb``."""
    pack_values(map(flat, samples), root)


def pack_values(values: Iterable[_Value], root: Path) -> None:
    """Write values, one a sample, into ``root/data.mdb``; an OSError where LMDB cannot."""
    pending: list[tuple[bytes, _Value]] = []
    size = 0
    try:
        with lmdb.open(os.fspath(root), map_size=MAP_BYTES, lock=False, sync=False) as env:
            for index, value in enumerate(values):
                pending.append((_key(index), value))
                size += len(value)
                if size >= BATCH_BYTES:
                    _write(env, pending)
                    pending, size = [], 0
            _write(env, pending)
            env.sync(True)
    except lmdb.Error as error:
        if isinstance(error, lmdb.DiskError) or shutil.disk_usage(root).free < BATCH_BYTES:  # a short write is an EIO
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(root)) from error
        raise OSError(errno.EIO, f"LMDB: {error}", os.fspath(root)) from error


def _write(env: lmdb.Environment, pending: list[tuple[bytes, _Value]]) -> None:
    """Write values in one transaction; where the map is full, double it and write them all again."""
    while True:
        try:
            with env.begin(write=True) as txn:
                for key, value in pending:
                    txn.put(key, value, append=True)
            return
        except lmdb.MapFullError:
            env.set_mapsize(env.info()["map_size"] * 2)


class _Opened:
    """An environment, the process that opened it, and a transaction, which may stay open, as nobody writes."""

    def __init__(self, path: Path, readahead: bool) -> None:
        self.pid = os.getpid()
        self.env = lmdb.open(os.fspath(path.parent), readonly=True, create=False, lock=False, readahead=readahead)
        size, needed = path.stat().st_size, (self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"]
        if size < needed:
            self.env.close()
            raise ValueError(f"truncated, {size} bytes of {needed}")
        self.transaction = self.env.begin(buffers=True)


_OPENED: WeakValueDictionary[tuple[int, int], _Opened] = WeakValueDictionary()
"""By device and inode, as LMDB itself tells files apart. Weak: readers own what is in here, and it closes with them."""


class Values(Packed):
    """The values that ``pack_values`` wrote, by index; readers of a file share one environment a process."""

    file = _NAME
    failures: tuple[type[Exception], ...] = (OSError, ValueError, lmdb.Error)

    def open_files(self) -> _Opened:
        """Open the environment, unless another reader has."""
        path = self.root / _NAME
        stat = path.stat()
        shared = _OPENED.get((stat.st_dev, stat.st_ino))
        if shared is not None and shared.pid == os.getpid():
            return shared
        if shared is not None:
            shared.env.close()  # inherited by a fork; harmless to the parent, as there is no lock file
        fresh = _OPENED[stat.st_dev, stat.st_ino] = _Opened(path, self.options.readahead)
        return fresh

    def view(self, index: int) -> memoryview:
        """Look up the value of a sample: read-only bytes inside the map, to be copied at once."""
        value: memoryview | None = self.opened().transaction.get(_key(index))
        if value is None:
            raise ValueError("missing")
        return value


class LmdbReader(Values, MappedReader):
    """Values are pixels, or files."""


open = LmdbReader
