"""Folders that are whole or absent, whenever a process is killed.

What belongs into a folder is written beside it, under a name that holds this machine and process, and renamed when it
is complete. What a killed process left is removed by the next one. Processes that want the same folder wait for each
other, so the second has to look again whether there is anything left to do.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from feedrate.formats import Manifest
from feedrate.machine import linux
from feedrate.schema.errors import EnvironmentFault

_CHUNK = 1 << 20


@contextmanager
def build(root: Path, task: str) -> Iterator[Path]:
    """Give an empty folder beside ``root`` to be filled and installed; whatever is left of it in the end is removed.

    It waits until no other process builds in the folder around ``root``.
    """
    prefix = f".{root.name}.{hashlib.sha256(platform.node().encode()).hexdigest()[:6]}."
    temp = root.parent / f"{prefix}{os.getpid()}.tmp"
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(root.parent, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # it ends with this process, however that ends
            _remove_stale(root.parent, prefix)
            temp.mkdir()
            yield temp
        finally:
            os.close(lock)
    except OSError as error:
        raise disk_fault(error, root, task) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _remove_stale(folder: Path, prefix: str) -> None:
    """Remove what processes of this machine left that are gone (or had our own number in an earlier life)."""
    for path in folder.glob(f"{prefix}*.tmp"):
        pid = path.name.removeprefix(prefix).split(".")[0]
        if pid == str(os.getpid()) or not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)


def disk_fault(error: OSError, root: Path, task: str) -> EnvironmentFault:
    """Make the error for a disk that refuses."""
    locked = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    advice = "make it writable" if locked else "free some space there"
    return EnvironmentFault(
        f"{root.parent}: {error.strerror or error} {task}; {advice}, or choose another folder with DATA_ROOT="
    )


def install(temp: Path, root: Path) -> None:
    """Rename a filled folder; an older one of that name is moved aside first and then removed."""
    aside = temp.with_suffix(".old.tmp")
    if root.exists():
        root.rename(aside)
    temp.rename(root)
    linux.sync(root.parent)
    shutil.rmtree(aside, ignore_errors=True)


def write_manifest(folder: Path, **fields: Any) -> Manifest:
    """Describe a filled folder in ``manifest.json`` and force that to disk; bytes and checksum are the files' own."""
    size, checksum = size_and_checksum(folder)
    manifest = Manifest(bytes=size, checksum=checksum, **fields)
    (folder / "manifest.json").write_text(json.dumps(asdict(manifest), indent=1), encoding="utf-8")
    linux.sync(folder / "manifest.json")
    linux.sync(folder)
    return manifest


def size_and_checksum(root: Path) -> tuple[int, str]:
    """Add up the bytes of all files but the manifest, and their checksum."""
    size = checksum = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path == root / "manifest.json":
                continue
            checksum = zlib.crc32(path.relative_to(root).as_posix().encode(), checksum)
            with path.open("rb", buffering=0) as file:
                while chunk := file.read(_CHUNK):
                    size += len(chunk)
                    checksum = zlib.crc32(chunk, checksum)
    return size, f"{checksum:08x}"
