"""Where downloads go: one process at a time, room for all of it, folders that are whole or absent, and progress."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

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
from feedrate.schema.errors import EnvironmentFault, InputError

PLAIN_S = 15.0
"""How often a line says how far it is, where there is no terminal, in seconds."""


@contextmanager
def workplace(data_root: Path, console: Console) -> Iterator[None]:
    """Hold a data folder while something is fetched into it, and say on Ctrl-C that nothing is lost."""
    with writing(data_root, "making the data folder"):
        data_root.mkdir(parents=True, exist_ok=True)
        lock = (data_root / ".downloads.lock").open("a")
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
            say(console, "Interrupted. What is there is kept: the same command continues.")
            raise


@contextmanager
def writing(place: Path, task: str) -> Iterator[None]:
    """Turn what the disk refuses into an ``EnvironmentFault`` that says where, and what to do about it."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename or place}: {error.strerror or error} while {task}; see to that disk, or choose another "
            "folder with DATA_ROOT=. What is there is kept: the same command continues"
        ) from error


def require(folder: Path, parts: Mapping[str, int]) -> None:
    """Make sure, before anything begins, that all of it will fit."""
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


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Give a folder to fill; at the end it is forced to disk, and only then gets its name."""
    temp = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temp, ignore_errors=True)  # an interrupted process may have left it
    temp.mkdir()
    try:
        yield temp
        linux.sync_tree(temp)
        temp.rename(folder)
        linux.sync(folder.parent)
    finally:
        shutil.rmtree(temp, ignore_errors=True)


class Meter:
    """Shows one piece of work, counted in bytes or in ``pieces`` of that name; to be used in a ``with``.

    On a terminal rich draws a bar; elsewhere a plain line comes now and then, so that a log shows that work goes on.
    """

    def __init__(self, console: Console, label: str, total: int, done: int = 0, pieces: str | None = None) -> None:
        self._console, self._label, self._total, self._pieces = console, label, total, pieces
        amount: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()]
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *([MofNCompleteColumn(), TextColumn(pieces)] if pieces else amount),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(label, total=total, completed=done)
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def at(self, done: int) -> None:
        """Say how much is done by now; cheap enough to be called for every block of bytes."""
        self._progress.update(self._task, completed=done)
        if self._console.is_terminal or (time.monotonic() - self._told < PLAIN_S and done < self._total):
            return
        self._told = time.monotonic()
        scale, unit = (1, self._pieces) if self._pieces else (10**6, "MB")
        say(self._console, f"{self._label}: {done / scale:,.0f} of {self._total / scale:,.0f} {unit}")


def say(console: Console, text: str) -> None:
    """Print a line as it is, however long and whatever brackets it has."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
