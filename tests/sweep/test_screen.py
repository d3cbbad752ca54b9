"""What the terminal shows of a trial."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from feedrate.plan.schedule import PlannedCell
from feedrate.sweep import screen
from feedrate.sweep.screen import Progress, TerminalScreen, describe

CHECK = {"workload": "synthetic", "mode": "check", "check": "termination", "ends_by": "sigkill", "batch_size": 32}
LOAD = {"workload": "synthetic", "mode": "load", "storage_format": "png", "batch_size": 32, "num_workers": 1}


@pytest.mark.parametrize(
    ("cell", "line"),
    [(CHECK, "check · termination · ends_by=sigkill"), (LOAD, "load · synthetic · png · batch 32 · 1 worker")],
)
def test_a_cell_is_described_in_a_line(cell: dict, line: str) -> None:
    """A check is named by what it looks at, without data and batch size; one worker is no workers."""
    assert describe(cell) == line


def test_a_check_has_no_throughput_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that ended changes nothing about the last throughput."""
    monkeypatch.setattr(screen, "PLAIN_S", 0)
    terminal = TerminalScreen(Console(file=(printed := io.StringIO())))
    terminal.ended({"outcome": "ok", "samples_per_s": 1234.0})
    terminal.ended({"outcome": "ok", "fact": True})
    terminal.trial(PlannedCell("id", CHECK, "workers"), Progress(0, 3, 0, 2, 0, 9.0))
    assert "last 1,234 samples/s" in printed.getvalue()
