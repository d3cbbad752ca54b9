"""``feedrate run --live``: the loop while it runs, twice a second, on the terminal behind stderr.

What the script prints goes above it. Without a terminal it is a line every ten seconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from feedrate.attach import records
from feedrate.attach.run import Watched
from feedrate.schema.words import number, percent

EVERY_S, LINES_EVERY_S = 0.5, 10.0
WINDOW_NS = 5_000_000_000
"""What the numbers are taken over: the last five seconds."""
_BAR = 32


class Tail:
    """The newest records of every process, read as its file grows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._read = folder, dict[Path, int]()
        self.newest: deque[np.ndarray[Any, np.dtype[np.int64]]] = deque(maxlen=200_000)

    def look(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """All records that ended in the last five seconds, with the process' id behind them; n × 11."""
        for path in self._folder.glob("*.records"):
            rows = records.read_from(path, self._read.get(path, 0))
            self._read[path] = self._read.get(path, 0) + len(rows)
            pid = int(path.stem.split("-")[0])
            self.newest.extend(np.append(row, pid) for row in rows)
        since = time.perf_counter_ns() - WINDOW_NS
        while self.newest and self.newest[0][2] < since:
            self.newest.popleft()
        return np.array(self.newest) if self.newest else np.empty((0, 11), np.int64)


class View:
    """Draws what was seen last; hand ``look`` to ``run``."""

    def __init__(self, console: Console) -> None:
        self._console, self._next = console, 0.0
        self._tail: Tail | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def look(self, watched: Watched) -> None:
        """Draw, if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (EVERY_S if self._live else LINES_EVERY_S)
        self._tail = self._tail or Tail(watched.folder)
        rows, sample = self._tail.look(), watched.samples[-1]
        if self._live:
            self._live.update(Group(*_drawn(rows, sample)), refresh=True)
        else:
            self._console.print(f"feedrate: {'; '.join(line.plain for line in _lines(rows, sample))}", highlight=False)


def _lines(rows: np.ndarray[Any, np.dtype[np.int64]], sample: dict[str, Any]) -> Iterator[Text]:
    """Pace, waits, queue and machine: a text each."""
    taken = rows[rows[:, 0] == records.NEXT]
    if len(taken) < 2:
        yield Text("no batch in the last five seconds")
    else:
        taken = taken[np.argsort(taken[:, 1])]
        span = taken[-1, 1] - taken[0, 1]
        wait = (taken[:-1, 2] - taken[:-1, 1]).sum() / max(1, span)
        yield Text(f"{number(1e9 * (len(taken) - 1) / max(1, span))} steps/s")
        full = round(_BAR * min(1.0, float(wait)))
        yield Text.assemble("waits ", ("█" * full, "yellow"), ("░" * (_BAR - full), "dim"), f" {percent(float(wait))}")
        if (lying := taken[-1, 5]) >= 0:
            yield Text(f"{lying} batches lie ready")
    shares = (("CPU", sample.get("cpu_util_pct")), ("GPU", sample.get("gpu_util_pct")))
    known = [f"{name} {value:.0f} %" for name, value in shares if value is not None]
    if memory := sample.get("gpu_mem_bytes"):
        known.append(f"{memory / 2**30:.1f} GiB on the GPU")
    yield Text(", ".join(known))


def _drawn(rows: np.ndarray[Any, np.dtype[np.int64]], sample: dict[str, Any]) -> Iterator[Any]:
    """The same in the terminal, and what each worker does."""
    yield from _lines(rows, sample)
    batches = rows[(rows[:, 0] == records.BATCH) & (rows[:, 3] >= 0)]
    if len(batches):
        table = Table(box=None, padding=(0, 2), header_style="bold")
        for name in ("worker", "busy", "computing", "batches/s"):
            table.add_column(name, justify="right")
        span = max(1, int(batches[:, 2].max() - batches[:, 1].min()))
        for pid, worker in sorted({(row[10], row[3]) for row in batches.tolist()}):
            own = batches[batches[:, 10] == pid]
            busy = float((own[:, 2] - own[:, 1]).sum()) / span
            table.add_row(
                str(worker), percent(busy), percent(float(own[:, 7].sum()) / span), number(1e9 * len(own) / span)
            )
        yield table
