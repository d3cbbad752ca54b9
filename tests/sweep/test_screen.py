"""What the terminal says of a trial that is a check."""

from __future__ import annotations

import io

from rich.console import Console

from feedrate.plan.schedule import PlannedCell
from feedrate.sweep.screen import Progress, TerminalScreen, describe

CELL = {"workload": "synthetic", "mode": "check", "check": "termination", "ends_by": "sigkill", "batch_size": 32}


def test_a_check_is_named_by_what_it_looks_at() -> None:
    """Neither data nor batch size stand in its line: it has none."""
    assert describe(CELL) == "check · termination · ends_by=sigkill"


def test_one_worker_is_one() -> None:
    """A count agrees with its noun."""
    cell = {"workload": "synthetic", "mode": "load", "storage_format": "png", "batch_size": 32, "num_workers": 1}
    assert describe(cell) == "load · synthetic · png · batch 32 · 1 worker"


def test_a_check_has_no_throughput_to_show() -> None:
    """A check that ended changes nothing about the last throughput."""
    screen = TerminalScreen(Console(file=io.StringIO()))
    screen.trial(PlannedCell("id", CELL, "workers"), Progress(0, 3, 0, 2, 0, 9.0))
    screen.ended({"trial": {"outcome": "ok", "samples_per_s": 1234.0}})
    screen.ended({"trial": {"outcome": "ok", "fact": True}})
    assert "last 1,234 samples/s" in screen._plain()
