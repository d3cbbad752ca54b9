"""A sweep's progress on the terminal; without a terminal, one plain line now and then.

The screen is drawn twice a second at most: a parent that redraws all the time takes the CPU that is being measured.

What a sweep tells whoever shows it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from feedrate.plan.schedule import PlannedCell
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, Cell


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a sweep stands."""

    block: int
    blocks: int
    """How many are expected."""
    position: int
    cells: int
    """Trials in this block."""
    done: int
    """Cells that this block leaves out: measured well enough, given up, or waiting for time."""
    eta_s: float


class Screen(Protocol):
    """Where a sweep shows what it does."""

    def say(self, text: str) -> None:
        """Print a line that stays."""

    def preparing(self, name: str, done: int, total: int) -> None:
        """Samples of a set were packed."""

    def trial(self, cell: PlannedCell, progress: Progress) -> None:
        """A trial begins."""

    def tick(self, sample: dict[str, Any]) -> None:
        """Telemetry came in."""

    def ended(self, entry: dict[str, Any]) -> None:
        """A trial ended."""


REDRAW_S = 0.5
PLAIN_S = 15.0
_BAR = 16


def describe(cell: Cell) -> str:
    """A cell in a line: what it does, on what, and the settings that differ from their defaults."""
    kind = "emulated step" if cell.get("step") == "emulated" else str(cell["mode"])
    shown = {"mode", "check", "step", "workload", "storage_format", "batch_size", "num_workers"}
    if "check" in cell:
        parts = [kind, str(cell["check"])]
    else:
        parts = [kind, str(cell["workload"])]
        if "storage_format" in cell:
            parts.append(str(cell["storage_format"]))
        parts.append(f"batch {cell['batch_size']}")
    if "num_workers" in cell:
        parts.append(words.plural(int(cell["num_workers"]), "worker"))
    parts += [f"{name}={value}" for name, value in cell.items() if name not in shown and value != BY_NAME[name].default]
    return " · ".join(parts)


class TerminalScreen:
    """Implements ``progress.Screen`` on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._drawn = 0.0
        self._label = ""
        self._progress: Progress | None = None
        self._last = ""
        self._gpu = ""

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        (self._live.console if self._live else self._console).print(Text(text))

    def preparing(self, name: str, done: int, total: int) -> None:
        """Show how far a set is packed."""
        self._draw(
            f"packing {name}: {done} of {total} samples", done == total, lambda: self._packing(name, done, total)
        )

    def trial(self, cell: PlannedCell, progress: Progress) -> None:
        """Show which trial begins."""
        self._label, self._progress = describe(cell.axes), progress
        self._draw(self._plain(), False, self._table)

    def tick(self, sample: dict[str, Any]) -> None:
        """Show the GPU's utilization as it changes."""
        if sample.get("gpu_util_pct") is not None:
            self._gpu = f"GPU {sample['gpu_util_pct']:.0f} %"
        if self._live and self._progress:
            self._draw("", False, self._table)

    def ended(self, entry: dict[str, Any]) -> None:
        """Remember the last throughput; say a failure at once."""
        row = entry["trial"]
        if row["outcome"] == "ok":
            rate = row.get("samples_per_s")
            self._last = f"{rate:,.0f} samples/s" if rate else self._last
        else:
            self.say(f"{row['outcome']}: {self._label}: {row['error_kind']}: {row['error_message']}")

    def _plain(self) -> str:
        p = self._progress
        assert p is not None  # noqa: S101 - set by trial(), which calls this
        parts = [
            f"block {p.block + 1} of ~{p.blocks}",
            f"trial {p.position + 1} of {p.cells}",
            f"{p.done} cells rest" if p.done else "",
            f"{words.show(p.eta_s)} left",
            f"last {self._last or '–'}",
            self._gpu,
            self._label,
        ]
        return " | ".join(part for part in parts if part)

    def _bar(self, share: float) -> Text:
        full = round(_BAR * min(1.0, share))
        return Text("━" * full, style="cyan") + Text("━" * (_BAR - full), style="bright_black")

    def _packing(self, name: str, done: int, total: int) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_row(self._bar(done / max(1, total)), Text(f"packing {name}"), Text(f"{done} of {total} samples"))
        return grid

    def _table(self) -> Table:
        p = self._progress
        assert p is not None  # noqa: S101 - set by trial(), which calls this
        grid = Table.grid(padding=(0, 2))
        share = (p.block + p.position / p.cells) / p.blocks
        grid.add_row(
            self._bar(share),
            Text(f"block {p.block + 1} of ~{p.blocks}"),
            Text(f"trial {p.position + 1}/{p.cells}" + (f", {p.done} cells rest" if p.done else "")),
            Text(f"{words.show(p.eta_s)} left"),
            Text(self._last, style="bold"),
            Text(self._gpu),
        )
        frame = Table.grid()
        frame.add_row(grid)
        frame.add_row(Text(self._label, style="dim", overflow="ellipsis", no_wrap=True))
        return frame

    def _draw(self, plain: str, last: bool, table: Any) -> None:
        now = time.monotonic()
        if not last and now - self._drawn < (REDRAW_S if self._live else PLAIN_S):
            return
        if self._live:
            self._live.update(table(), refresh=True)
        else:
            self._console.print(Text(plain), soft_wrap=True)
        self._drawn = now
