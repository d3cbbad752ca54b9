"""``feedrate run --live``: the loop while it runs, twice a second, on the last lines of the terminal behind stderr.

What the script prints scrolls above them. Without a terminal it is a line every ten seconds.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from feedrate.attach import records
from feedrate.attach.records import Records
from feedrate.attach.run import Watched
from feedrate.schema.words import number, percent, plural

EVERY_S, LINES_EVERY_S = 0.5, 10.0
WINDOW_NS = 5_000_000_000
"""What the numbers are taken over: the last five seconds."""
IDLE_NS = 1_000_000_000
"""A worker that waits for work so long is idle."""
MOST_WORKERS = 16
"""Workers that have a line of their own."""
_BAR = 24
_PID = 12
"""The column behind a record's own: whose it is."""


class Tail:
    """The newest records of every process, read as its file grows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._read = folder, dict[Path, int]()
        self.recent: Records = np.empty((0, _PID + 1), np.int64)
        """Records that ended in the last five seconds, with the process' id behind them."""
        self.workers: dict[int, list[int]] = {}
        """By process: the last record of each worker that lives."""

    def look(self) -> None:
        """Read what was written since."""
        for path in self._folder.glob("*.records"):
            rows = records.read_from(path, self._read.get(path, 0))
            self._read[path] = self._read.get(path, 0) + len(rows)
            pid = int(path.stem.split("-")[0])
            rows = np.column_stack([rows, np.full(len(rows), pid)])
            self.recent = np.concatenate([self.recent, rows])
            batches = rows[np.isin(rows[:, 0], (records.BATCH, records.TAKEN)) & (rows[:, 3] >= 0)]
            if len(batches):
                self.workers[pid] = batches[-1].tolist()
        self.recent = self.recent[self.recent[:, 2] >= time.perf_counter_ns() - WINDOW_NS]
        self.workers = {pid: row for pid, row in self.workers.items() if Path(f"/proc/{pid}").exists()}


class Footer:
    """The last lines of a terminal, of which the script's output is kept clear (DECSTBM, as package managers do it)."""

    def __init__(self, console: Console) -> None:
        self._console, self._lines, self._height = console, 0, 0

    def draw(self, what: RenderableType) -> None:
        """Draw over what was drawn before; the script's cursor stays where it is."""
        with self._console.capture() as capture:
            self._console.print(what, no_wrap=True, crop=True)
        lines, height = capture.get().splitlines(), self._console.height
        most = max(self._lines, min(len(lines), height - 4))
        text = ""
        if (most, height) != (self._lines, self._height):
            text = "\x1bD" * most + f"\x1b[{most}A\x1b7\x1b[1;{height - most}r\x1b8"
            self._lines, self._height = most, height
        lines = [*lines, *[""] * most][:most]
        rows = (f"\x1b[{height - most + index};1H\x1b[2K{line}" for index, line in enumerate(lines, start=1))
        self._write(f"{text}\x1b7{''.join(rows)}\x1b8")

    def close(self) -> None:
        """Give the lines back."""
        if self._lines:
            rows = (f"\x1b[{self._height - index};1H\x1b[2K" for index in range(self._lines))
            self._write(f"\x1b7\x1b[r{''.join(rows)}\x1b8")

    def _write(self, text: str) -> None:
        """Write at once, so that nothing of the script's comes between."""
        self._console.file.write(text)
        self._console.file.flush()


class View:
    """Draws what was seen last; hand ``look`` to ``run``."""

    def __init__(self, console: Console) -> None:
        self._console, self._next = console, 0.0
        self._tail: Tail | None = None
        self._footer = Footer(console) if console.is_terminal and not console.is_dumb_terminal else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._footer:
            self._footer.close()

    def look(self, watched: Watched) -> None:
        """Draw, if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (EVERY_S if self._footer else LINES_EVERY_S)
        self._tail = self._tail or Tail(watched.folder)
        self._tail.look()
        lines = [*_loop(self._tail.recent), *_machine(watched.samples[-1])]
        if self._footer:
            took = (time.perf_counter_ns() - watched.began_ns) / 1e9
            title = Text(f"── feedrate  {shlex.join(watched.command)}  {took:.0f} s ──", style="bold cyan")
            workers = [_workers(self._tail)] if self._tail.workers else []
            self._footer.draw(Group(title, *lines, *workers))
        else:
            self._console.print(f"feedrate: {'; '.join(line.plain for line in lines)}", highlight=False, soft_wrap=True)


def _loop(recent: Records) -> Iterator[Text]:
    """Pace, waits and queue of the process that waits most."""
    taken = recent[recent[:, 0] == records.NEXT]
    loops = [rows for pid in np.unique(taken[:, _PID]) if len(rows := taken[taken[:, _PID] == pid]) > 1]
    if not loops:
        yield Text("no batch in the last five seconds")
        return
    wait, rows = max(((_wait(rows), rows) for rows in loops), key=lambda pair: pair[0])
    pace = Text(f"{number(1e9 * (len(rows) - 1) / (rows[-1, 1] - rows[0, 1]))} steps/s")
    if (lying := rows[-1, 5]) >= 0:
        pace.append(f", {lying} {'batch lies' if lying == 1 else 'batches lie'} ready")
    if len(loops) > 1:
        pace.append(f", the slowest of {len(loops)} processes")
    yield pace
    yield _bar("waits", wait, "yellow")


def _wait(rows: Records) -> float:
    """Share of the time between the first and the last of some batches that passed in waiting for them."""
    return float((rows[:-1, 2] - rows[:-1, 1]).sum() / (rows[-1, 1] - rows[0, 1]))


def _machine(sample: dict[str, Any]) -> Iterator[Text]:
    for name, color in (("cpu", "green"), ("gpu", "magenta")):
        if (share := sample.get(f"{name}_util_pct")) is not None:
            bar = _bar(name.upper(), share / 100, color)
            memory = sample.get("gpu_mem_bytes") if name == "gpu" else None
            yield bar.append(f", {memory / 2**30:.1f} GiB in use") if memory else bar


def _bar(name: str, share: float, color: str) -> Text:
    full = round(_BAR * min(1.0, share))
    return Text.assemble(f"{name:<6}", ("█" * full, color), ("░" * (_BAR - full), "dim"), f" {percent(share)}")


def _workers(tail: Tail) -> Table:
    """What each worker does, and did in the last five seconds."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("worker", "does", "busy", "computing", "batches/s"):
        table.add_column(name, justify="left" if name == "does" else "right")
    now = time.perf_counter_ns()
    order = sorted(tail.workers, key=lambda pid: (tail.workers[pid][3], pid))
    for pid in order[:MOST_WORKERS]:
        last = tail.workers[pid]
        rows = tail.recent[tail.recent[:, _PID] == pid]
        batches = rows[rows[:, 0] == records.BATCH]
        span = now - min([last[2], *batches[:, 1].tolist()])
        took = int((batches[:, 2] - batches[:, 1]).sum()) + (now - last[2] if last[0] == records.TAKEN else 0)
        shares = (percent(spent / span) for spent in (took, int(batches[:, 7].sum())))
        table.add_row(str(last[3]), _state(last, now), *shares, number(1e9 * len(batches) / span))
    if len(order) > MOST_WORKERS:
        table.add_row("", f"and {plural(len(order) - MOST_WORKERS, 'worker')} more")
    return table


def _state(last: list[int], now: int) -> str:
    """What a worker does, by its last record."""
    since = now - last[2]
    if last[0] == records.TAKEN:
        return f"prepares batch {last[4]}, for {since / 1e6:,.0f} ms"
    return "waits for work" if since < IDLE_NS else f"idle for {since / 1e9:.0f} s"
