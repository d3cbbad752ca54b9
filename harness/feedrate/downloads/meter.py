"""How far a download or a conversion is, how fast it goes and when it will be done.

On a terminal rich draws a bar; elsewhere a plain line comes now and then, so that a log shows that work goes on.
"""

from __future__ import annotations

import time
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

from feedrate.schema import words

REDRAW_S = 0.25
PLAIN_S = 15.0


class Meter:
    """Shows one piece of work, counted in bytes or in ``pieces`` of that name; to be used in a ``with``."""

    def __init__(self, console: Console, label: str, total: int, done: int = 0, pieces: str | None = None) -> None:
        self._console, self._label, self._total, self._pieces = console, label, total, pieces
        amount: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()]
        # Drawn by whoever counts: a thread that redraws all the time takes CPU, and makes processes unsafe to fork.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *([MofNCompleteColumn(), TextColumn(pieces)] if pieces else amount),
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
        if self._console.is_terminal:
            return
        task = self._progress.tasks[0]
        speed = task.finished_speed if task.finished else task.speed
        scale, unit = (1, self._pieces) if self._pieces else (10**6, "MB")
        parts = [f"{self._label}: {done / scale:,.0f} of {self._total / scale:,.0f} {unit}"]
        if speed and not self._pieces:
            parts.append(f"{speed / scale:,.1f} MB/s")
        if speed and not task.finished:
            parts.append(f"{words.show((self._total - done) / speed)} left")
        self.say(", ".join(parts))

    def say(self, text: str) -> None:
        """Print a line that stays."""
        say(self._console, text)


def say(console: Console, text: str) -> None:
    """Print a line as it is, however long and whatever brackets it has."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
