"""A sweep's progress on the terminal; without a terminal, one plain line now and then.

The screen is drawn twice a second at most: a parent that redraws all the time takes the CPU that is being measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from feedrate.plan.schedule import PlannedCell
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, EMULATED_STEPS, Cell


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


REDRAW_S = 0.5
PLAIN_S = 15.0
_BAR = 16


def describe(cell: Cell) -> str:
    """A cell in a line: what it does, on what, and the settings that differ from their defaults."""
    named = {"mode", "check", "step", "workload", "storage_format", "batch_size", "num_workers"}
    parts = ["emulated step" if cell.get("step") in EMULATED_STEPS else str(cell["mode"])]
    if "check" in cell:
        parts.append(str(cell["check"]))
    else:
        parts += [str(cell[name]) for name in ("workload", "storage_format") if name in cell]
        parts.append(f"batch {cell['batch_size']}")
    if "num_workers" in cell:
        parts.append(words.plural(int(cell["num_workers"]), "worker"))
    parts += [f"{name}={value}" for name, value in cell.items() if name not in named and value != BY_NAME[name].default]
    return " · ".join(parts)


class Screen(Protocol):
    """What a sweep tells of its progress; any of these may raise KeyboardInterrupt to end it."""

    def say(self, text: str) -> None:
        """Say something that stays."""

    def preparing(self, name: str, done: int, total: int) -> None:
        """Show how far a set is packed."""

    def trial(self, cell: PlannedCell, progress: Progress) -> None:
        """Show which trial begins."""

    def tick(self, sample: dict[str, Any]) -> None:
        """Show what the probes see, ten times a second."""

    def ended(self, trial: dict[str, Any]) -> None:
        """Show how a trial ended: its row."""


class TerminalScreen:
    """Shows a sweep on a console; use it as a context."""

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
        if done >= total or self._due():
            self._draw(done / max(1, total), [f"packing {name}", f"{done} of {total} samples"])

    def trial(self, cell: PlannedCell, progress: Progress) -> None:
        """Show which trial begins."""
        self._label, self._progress = describe(cell.axes), progress
        self._draw_progress(progress)

    def tick(self, sample: dict[str, Any]) -> None:
        """Show the GPU's utilization as it changes."""
        if sample.get("gpu_util_pct") is not None:
            self._gpu = f"GPU {sample['gpu_util_pct']:.0f} %"
        if self._live and self._progress:
            self._draw_progress(self._progress)

    def ended(self, trial: dict[str, Any]) -> None:
        """Remember the last throughput; say a failure at once."""
        if trial["outcome"] != "ok":
            self.say(f"{trial['outcome']}: {self._label}: {trial['error_kind']}: {trial['error_message']}")
        elif rate := trial.get("samples_per_s"):
            self._last = f"{rate:,.0f} samples/s"

    def _draw_progress(self, progress: Progress) -> None:
        if not self._due():
            return
        parts = [
            f"repetition {progress.block + 1} of ~{progress.blocks}",
            f"measurement {progress.position + 1} of {progress.cells}",
            f"{progress.done} settings are done" if progress.done else "",
            f"{words.show(progress.eta_s)} left",
            f"last {self._last or '–'}",
            self._gpu,
        ]
        share = (progress.block + progress.position / progress.cells) / progress.blocks
        self._draw(share, parts, self._label)

    def _due(self) -> bool:
        return time.monotonic() - self._drawn >= (REDRAW_S if self._live else PLAIN_S)

    def _draw(self, share: float, parts: list[str], label: str = "") -> None:
        if self._live:
            grid = Table.grid(padding=(0, 2))
            grid.add_row(ProgressBar(1, share, _BAR, complete_style="cyan"), *(Text(text) for text in parts if text))
            below = Text(label, style="dim", overflow="ellipsis", no_wrap=True)
            self._live.update(Group(grid, below), refresh=True)
        else:
            self._console.print(Text(" | ".join(filter(None, [*parts, label]))), soft_wrap=True)
        self._drawn = time.monotonic()
