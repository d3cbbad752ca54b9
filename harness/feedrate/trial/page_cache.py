"""The system's page cache: whether packed samples lie in it, and seeing to it that all, none or as many as fit do.

Evicting needs no root: what is on disk already (``fsync``) is dropped from memory by ``posix_fadvise(DONTNEED)``,
unless it is mapped somewhere; so it is done before a trial opens anything. The result is not believed but counted, by
``cachestat`` (Linux 6.5) or ``mincore``.

It does *not* show what lies below the kernel: a disk's own cache, a storage server's, or the host's of a virtual
machine. Names and inodes of files stay cached too: dropping those needs root.
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from feedrate.schema.errors import DataError
from feedrate.schema.window import COLD, WARM

_CACHESTAT = 451
"""Number of the system call, on every architecture."""
_CHUNK = 1 << 20
_READS = 3
"""Times that files are read at most: of 1,265 trials of a run with 20 GB free, two lost 2 % of theirs after one."""
_libc = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently"))


def settle(root: Path, state: Literal["warm", "cold", "full"], fill_bytes: int = 0) -> float:
    """Bring the packed files below a folder into the page cache, or out of it; gives the cached share, 0 to 1.

    For ``full`` they are evicted, as a page counts for the memory group that reads it, and ``fill_bytes`` are read.
    """
    try:
        if state != "warm":
            _evict(root)
        if state == "full":
            _read(root, fill_bytes)
        share, reads = cached(root), 0
        while state == "warm" and share < 1 and reads < _READS:
            _read(root)
            share, reads = cached(root), reads + 1
    except OSError as error:
        raise DataError(f"{error.filename or root}: {error.strerror}; delete {root} and run again") from error
    stay = f"{root}: {share:.0%} of the samples stay in the page cache; expected"
    if state == "cold" and share > COLD:
        raise DataError(
            f"{stay} none for page_cache = cold. A file system in memory (tmpfs) cannot be cold, nor can files that "
            "another process has mapped: choose another folder with --data-root"
        )
    if state == "warm" and share < WARM:
        raise DataError(
            f"{stay} all for page_cache = warm. They need more memory than is free: lower n_samples, or ask for "
            "page_cache = cold"
        )
    return share


def cached(root: Path) -> float:
    """Give the share of the pages of all packed files below a folder that lies in the page cache, 0 to 1."""
    pages = present = 0
    for path, size in _files(root):
        with Path(path).open("rb", buffering=0) as file:
            present += _present(file.fileno(), size)
        pages += -(-size // mmap.PAGESIZE)
    return present / pages if pages else 1.0


def _files(root: Path) -> Iterator[tuple[str, int]]:
    """Packed files that are not empty, with their sizes in bytes; the manifest is not one of them."""
    folders = [os.fspath(root)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif (size := entry.stat().st_size) and entry.name != "manifest.json":
                    yield entry.path, size


def _present(descriptor: int, size: int) -> int:
    """Count the pages of a file that lie in the page cache."""
    stat = _Stat()
    whole_file = _Range(0, 0)  # a length of 0 means: to the end
    if _libc.syscall(_CACHESTAT, descriptor, ctypes.byref(whole_file), ctypes.byref(stat), 0) == 0:
        return int(stat.cached)
    if (code := ctypes.get_errno()) not in (errno.ENOSYS, errno.EPERM):
        raise OSError(code, f"cachestat: {os.strerror(code)}")
    # mincore, which the kernel answers only to a file's owner and to those who may write it.
    pages = -(-size // mmap.PAGESIZE)
    vector = (ctypes.c_ubyte * pages)()
    with mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)  # ctypes gives no address of memory that cannot be written
        status = _libc.mincore(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), vector)
        del view
    if status != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mincore: {os.strerror(code)}")
    return sum(page & 1 for page in vector)


def _evict(root: Path) -> None:
    for path, _ in _files(root):
        with Path(path).open("rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(root: Path, most: float = math.inf) -> None:
    """Read all files, or about so many bytes of them."""
    for path, _ in _files(root):
        with Path(path).open("rb", buffering=0) as file:
            while most > 0 and (data := file.read(_CHUNK)):
                most -= len(data)
