"""How far a download or a conversion is, how fast it goes and when it will be done.

On a terminal rich draws a bar; elsewhere a plain line comes now and then, so that a log tells that it is alive.
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

from harness import durations

REDRAW_S = 0.25
PLAIN_S = 15.0


class Meter:
    """Shows one piece of work; to be used in a ``with``."""

    def __init__(self, console: Console, label: str, total: int, done: int = 0, unit: str = "MB") -> None:
        """Describe the work.

        Args:
            console: where it is shown.
            label: what is being done.
            total: bytes, or pieces of ``unit``.
            done: what was there before; it does not count as speed.
            unit: ``MB`` if bytes are counted, else what is.
        """
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
            parts.append(f"{durations.show((self._total - done) / speed)} left")
        return ", ".join(parts)
