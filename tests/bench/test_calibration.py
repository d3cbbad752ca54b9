"""How planted cells are judged: by the worst trial or cell, verdicts by how many of them are wrong."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from fake_run import Fake, witnessed, write
from rich.console import Console

from feedrate.bench import accuracy, calibration
from feedrate.bench.session import Session
from feedrate.schema.axes import cell_id
from feedrate.store import runs


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_planted_cells_cover_what_a_loader_can_be(device: str) -> None:
    """24 distinct cells: every number of workers with every step, twice, and every plant with each of them."""
    cells = accuracy.cells(device)
    assert len({cell_id(cell) for cell in cells}) == len(cells) == 24
    pairs = [(cell["num_workers"], cell.get("step_ms")) for cell in cells]
    assert all(pairs.count((workers, step)) == 2 for workers in accuracy.WORKERS for step in accuracy.STEPS_MS)
    for axis, values in (("num_workers", accuracy.WORKERS), ("step_ms", accuracy.STEPS_MS)):
        seen = {(cell.get(axis), cell["read_us"], cell["decode_us"]) for cell in cells}
        assert seen == {(value, *plant) for value in values for plant in accuracy.PLANTS}
    assert {cell["batch_size"] for cell in cells} == set(accuracy.BATCHES)


def test_accuracy_is_judged_by_the_worst_trial() -> None:
    """One trial that is off by more than one per cent misses the target, however good the others are."""
    fine = accuracy.judge([witnessed(1_001_000_000), witnessed(995_000_000, "b")])
    assert fine.met
    assert "-0.500 %" in fine.measured
    assert "n = 2 measurements of 2 planted settings" in fine.measured
    assert not accuracy.judge([*[witnessed(1_001_000_000)] * 20, witnessed(985_000_000)]).met


def test_without_a_calibration_run_its_command_is_said(tmp_path: Path) -> None:
    """Runs of other suites, and other machines' calibration, are none: what to type is said, and nothing is judged."""
    write(tmp_path, Fake(run_id="20260102T030405Z-mine", cores=2))
    write(tmp_path, Fake(run_id="20260103T030405Z-other", cores=4, suites=("calibration",)))
    mine, other = (run.manifest.machine.machine_id for run in runs.runs(tmp_path))
    session = Session(Console(file=io.StringIO()), tmp_path, tmp_path, "cpu", mine)
    (figure,) = calibration.measure(session)
    assert figure.met is None
    assert "make sweep SUITE=calibration" in figure.measured
    newest = calibration.newest_calibration(runs.runs(tmp_path), other)
    assert newest is not None
    assert newest.manifest.run_id == "20260103T030405Z-other"


def test_the_worst_read_back_decides() -> None:
    """A quantity is read back only if its worst cell is, whatever the sign of its error."""
    rows = [("read", 40, 0.4, 1.2, 8), ("decode", 9, 0.5, -7.0, 8)]
    table = pd.DataFrame(rows, columns=["quantity", "cells", "median_pct", "worst_pct", "n"])
    read, decode = calibration.read_back(table)
    assert (read.met, decode.met) == (True, False)
    assert "-7.0 %" in decode.measured
    assert "9 settings, n ≥ 8" in decode.measured


def test_verdicts_on_planted_effects_are_counted() -> None:
    """Chance may take three of twenty intervals; a wrong verdict or bottleneck is one too many."""
    flags = {"different": [True] * 3 + [False] * 17, "inside": [False] * 4 + [True] * 16}
    frame = pd.DataFrame(flags | {"right": [True] * 19 + [False]}).astype(object)
    figures = [(figure.measured, figure.met) for figure in calibration.verdicts(frame, frame, frame.iloc[:19])]
    assert figures == [("3 of 20", True), ("4 of 20", False), ("1 of 20", False), ("0 of 19", True)]
