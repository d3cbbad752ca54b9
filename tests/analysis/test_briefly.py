"""The best setting of each task, for very many runs at once."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from feedrate.analysis import summary
from feedrate.pages import selection
from feedrate.store import runs as store_runs


def test_the_fastest_is_what_the_summary_calls_best(tmp_path: Path, fake_run: ModuleType) -> None:
    """Of several runs at once: the same cells, with the same estimates, as looking at each run by itself."""
    fake_run.write(tmp_path, fake_run.Fake())
    fake_run.write(tmp_path, fake_run.Fake(run_id="20260103T030405Z-gpu", device="cuda"))
    fake_run.write(tmp_path, fake_run.Fake(run_id="20260104T030405Z-none", fails="all", cores=3))
    runs = store_runs.runs(tmp_path)
    found = summary.fastest_cells(selection.cells(runs))
    wanted = {}
    for run in runs:
        best = summary.best_cells(run.table("trials"))
        best = best[best["is_best"].astype(bool) & best["mode"].isin(["train", "load"])]
        wanted |= {(row["run_id"], row["cell_id"]): row for row in best.to_dict("records")}
    rows = {(row["run_id"], row["cell_id"]): row for row in found.to_dict("records")}
    assert set(rows) == set(wanted)
    assert len({run_id for run_id, _ in rows}) == 2
    for key, row in rows.items():
        assert row["samples_per_s"] == pytest.approx(wanted[key]["samples_per_s"])
        assert row["samples_per_s_lo"] == pytest.approx(wanted[key]["lo"])
        assert row["n"] == wanted[key]["n"]


def test_without_runs_there_is_none() -> None:
    """No run, no best: an empty frame, not an error."""
    assert len(summary.fastest_cells(selection.cells([]))) == 0
