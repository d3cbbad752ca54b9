"""Room on the disk, one process at a time, and files that are either whole or absent.

What came so far of a file, and under which version of it.

Beside ``FILE`` lie ``FILE.part``, its first bytes, and ``FILE.part.json``, which names the address and the validator
(RFC 9110, 8.8: a strong ETag, else the time of the last change) that the server gave with them. Both go when the file
is whole.

How far a download or a conversion is, how fast it goes and when it will be done.

On a terminal rich draws a bar; elsewhere a plain line comes now and then, so that a log tells that it is alive.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from feedrate.machine import linux
from feedrate.schema import words
from feedrate.schema.errors import EnvironmentFault, InputError

if TYPE_CHECKING:
    from rich.console import Console


_LOCK = ".downloads.lock"
_LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.ENOENT)


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
    """Turn what the disk refuses into an error that says what to do.

    Raises:
        EnvironmentFault: the disk is full, or cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise fault(error, place, task) from error


def fault(error: OSError, place: Path, task: str) -> EnvironmentFault:
    """Say what the disk refused, where, and what to do about it."""
    where = error.filename if isinstance(error.filename, (str, Path)) else place
    if error.errno in _LOCKED:
        advice = "make it writable"
    elif error.errno in _NO_FOLDER:
        advice = "put a folder there"
    else:
        advice = "free some space there or see to the disk"
    return EnvironmentFault(
        f"{where}: {error.strerror or error} while {task}; {advice}, or choose another folder with DATA_ROOT=. "
        "What is there is kept: the same command continues"
    )


def require(folder: Path, parts: Mapping[str, int]) -> None:
    """Make sure, before anything begins, that all of it will fit.

    Raises:
        EnvironmentFault: there is not enough room; the message says how much is needed, for what, and where.
    """
    with writing(folder, "asking for free space"):
        free = shutil.disk_usage(folder).free
    if sum(parts.values()) <= free:
        return
    listed = " and ".join(f"{gigabytes(size)} for {what}" for what, size in parts.items() if size)
    raise EnvironmentFault(
        f"{folder}: {gigabytes(sum(parts.values()))} are needed ({listed}), {gigabytes(free)} are free on its disk; "
        f"free {gigabytes(sum(parts.values()) - free)} there, or choose a folder on another disk with DATA_ROOT="
    )


def gigabytes(size: int) -> str:
    """Write a number of bytes for people: ``3.53 GB``, ``449 MB``, ``12 kB``."""
    for unit, digits, limit in ((10**9, 2, "GB"), (10**6, 0, "MB"), (10**3, 0, "kB")):
        if size >= unit:
            return f"{size / unit:.{digits}f} {limit}"
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


def validator_of(headers: Mapping[str, str]) -> str | None:
    """What names the version of a file in ``If-Range``: a strong ETag, else Last-Modified, else nothing."""
    etag = headers.get("ETag")
    if etag and not etag.startswith("W/"):  # a weak one may not be used there: RFC 9110, 13.1.5
        return etag
    return headers.get("Last-Modified")


class PartialFile:
    """The part of a file that is on disk."""

    def __init__(self, destination: Path, url: str) -> None:
        """Look at what an earlier process left; what came from another address is not used."""
        self.path = destination.with_name(destination.name + ".part")
        self._note = destination.with_name(destination.name + ".part.json")
        self._url = url
        self.validator: str | None = None
        """The server's name for the version of which this is a part."""
        try:
            said = json.loads(self._note.read_text(encoding="utf-8"))
            known, self.validator = said["url"] == url, said["validator"]
        except (OSError, ValueError, TypeError, KeyError):
            known = False
        if not known:
            self.discard()
        self.have = self.path.stat().st_size if self.path.exists() else 0
        """Bytes."""

    def begin(self, validator: str | None) -> None:
        """Start from nothing with a version of the file."""
        self.discard()
        write_whole(self._note, json.dumps({"url": self._url, "validator": validator}))
        self.validator = validator

    def discard(self) -> None:
        """Forget all of it."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.have, self.validator = 0, None

    def finish(self, destination: Path) -> None:
        """Give the whole file its name."""
        linux.sync(self.path)
        self.path.replace(destination)
        self._note.unlink(missing_ok=True)
        linux.sync(destination.parent)


REDRAW_S = 0.25
PLAIN_S = 15.0


class Meter:
    """Shows one piece of work; to be used in a ``with``."""

    def __init__(self, console: Console, label: str, total: int, done: int = 0, unit: str = "MB") -> None:
        """Describe the work."""
        self._console, self._label, self._total, self._unit = console, label, total, unit
        self._bytes = unit == "MB"
        amount: list[ProgressColumn] = (
            [DownloadColumn(), TransferSpeedColumn()] if self._bytes else [MofNCompleteColumn(), TextColumn(unit)]
        )
        # Drawn by whoever counts: a thread that redraws all the time takes CPU, and makes processes unsafe to fork.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *amount,
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(label, total=total, completed=done)
        self._shown = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def at(self, done: int) -> None:
        """Say how much is done by now; cheap enough to be called for every block of bytes."""
        now = time.monotonic()
        if now - self._shown < (REDRAW_S if self._console.is_terminal else PLAIN_S) and done < self._total:
            return
        self._shown = now
        self._progress.update(self._task, completed=done, refresh=self._console.is_terminal)
        if not self._console.is_terminal:
            self.say(self._plain(done))

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _plain(self, done: int) -> str:
        task = self._progress.tasks[0]
        scale = 10**6 if self._bytes else 1
        parts = [f"{self._label}: {done / scale:,.0f} of {self._total / scale:,.0f} {self._unit}"]
        speed = task.finished_speed if task.finished else task.speed
        if speed and self._bytes:
            parts.append(f"{speed / scale:,.1f} MB/s")
        if speed and not task.finished:
            parts.append(f"{words.show((self._total - done) / speed)} left")
        return ", ".join(parts)
