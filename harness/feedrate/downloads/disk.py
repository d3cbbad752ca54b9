"""Room on the disk, one process at a time, and files that are either whole or absent."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console

from feedrate.machine import linux
from feedrate.schema.errors import EnvironmentFault, InputError

_LOCK = ".downloads.lock"
_ADVICE = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.ENOENT), "put a folder there"),
}


@contextmanager
def workplace(data_root: Path, console: Console) -> Iterator[None]:
    """Hold a data folder while something is fetched into it, and say on Ctrl-C that nothing is lost.

    Raises:
        InputError: another process fetches into the same folder.
        EnvironmentFault: the folder cannot be made or written.
    """
    with writing(data_root, "making the data folder"):
        data_root.mkdir(parents=True, exist_ok=True)
        lock = (data_root / _LOCK).open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{data_root}: another process is fetching data into this folder; expected one at a time. "
                "Wait for it, or stop it"
            ) from None
        except OSError:  # a file system without locks: nobody is kept out
            pass
        try:
            yield
        except KeyboardInterrupt:
            console.print("Interrupted. What is there is kept: the same command continues.", markup=False)
            raise


@contextmanager
def writing(place: Path, task: str) -> Iterator[None]:
    """Turn what the disk refuses into an ``EnvironmentFault`` that says where, and what to do about it."""
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, (str, Path)) else place
        advice = _ADVICE.get(error.errno or 0, "free some space there or see to the disk")
        raise EnvironmentFault(
            f"{where}: {error.strerror or error} while {task}; {advice}, or choose another folder with DATA_ROOT=. "
            "What is there is kept: the same command continues"
        ) from error


def require(folder: Path, parts: Mapping[str, int]) -> None:
    """Make sure, before anything begins, that all of it will fit.

    Raises:
        EnvironmentFault: there is not enough room; the message says how much is needed, for what, and where.
    """
    with writing(folder, "asking for free space"):
        free = shutil.disk_usage(folder).free
    needed = sum(parts.values())
    if needed > free:
        listed = " and ".join(f"{gigabytes(size)} for {what}" for what, size in parts.items() if size)
        raise EnvironmentFault(
            f"{folder}: {gigabytes(needed)} are needed ({listed}), {gigabytes(free)} are free on its disk; "
            f"free {gigabytes(needed - free)} there, or choose a folder on another disk with DATA_ROOT="
        )


def gigabytes(size: int) -> str:
    """Write a number of bytes for people: ``3.53 GB``, ``449 MB``, ``12 kB``."""
    for unit, digits, name in ((10**9, 2, "GB"), (10**6, 0, "MB"), (10**3, 0, "kB")):
        if size >= unit:
            return f"{size / unit:.{digits}f} {name}"
    return f"{size} bytes"


def install(temp: Path, final: Path) -> None:
    """Force a finished folder and all that is in it to disk, and only then give it its name."""
    linux.sync_tree(temp)
    temp.rename(final)
    linux.sync(final.parent)


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that it is whole or absent, whenever the machine stops."""
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temp.write_text(text, encoding="utf-8")
        linux.sync(temp)
        temp.replace(path)
        linux.sync(path.parent)
    finally:
        with suppress(OSError):
            temp.unlink(missing_ok=True)


def remove_stale(folder: Path) -> None:
    """Remove what an interrupted process left half-written in a folder; the workplace must be held."""
    for path in folder.glob(".*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
