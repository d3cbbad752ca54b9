"""What the terminal shows of a trial."""

from __future__ import annotations

import pytest

from feedrate.sweep.screen import describe

CHECK = {"workload": "synthetic", "mode": "check", "check": "termination", "ends_by": "sigkill", "batch_size": 32}
LOAD = {"workload": "synthetic", "mode": "load", "storage_format": "png", "batch_size": 32, "num_workers": 1}


@pytest.mark.parametrize(
    ("cell", "line"),
    [(CHECK, "check · termination · ends_by=sigkill"), (LOAD, "load · synthetic · png · batch 32 · 1 worker")],
)
def test_a_cell_is_described_in_a_line(cell: dict, line: str) -> None:
    """A check is named by what it looks at, without data and batch size; one worker is no workers."""
    assert describe(cell) == line
