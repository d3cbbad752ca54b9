"""What a sweep tells whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from harness.plan import PlannedCell


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
