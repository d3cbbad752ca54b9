"""Summaries of real folders agree with the same runs read in full."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from feedrate.analysis import estimates
from feedrate.analysis.blocks import half_width
from feedrate.analysis.storage import believable
from feedrate.pages import summaries as pages_summaries
from feedrate.share.validation.admission import Admitted
from feedrate.store import runs, summaries

NUMBERS = ["n", "failed", "samples_per_s", "lo", "hi"]


def known(values: pd.Series) -> list[object]:
    """Values as plain ones, whatever stands for null."""
    return [None if pd.isna(value) else value for value in values]


@pytest.fixture(scope="module")
def results(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two machines: of the loader, with trials that failed, of a GPU, and of formats, some pages not cold."""
    folder = tmp_path_factory.mktemp("store")
    fake_run.write(folder, fake_run.Fake(blocks=3))
    fake_run.write(folder, fake_run.Fake(run_id="20260203T030405Z-cuda", device="cuda", blocks=1, fails="all"))
    fake_run.write(folder, fake_run.Fake(run_id="20260303T030405Z-form", formats=("png", "lmdb"), blocks=2))
    pages_summaries.update(folder, lambda found: Admitted(tuple(found), ()))
    return folder


def test_a_query_agrees_with_the_runs_read_in_full(results: Path) -> None:
    """Each cell's estimate, every axis and every fact of its machine is that of its run's own files, bit by bit."""
    for run in runs.runs(results):
        found = summaries.query("SELECT * FROM cells WHERE run_id = ?", [run.manifest.run_id], results).to_pandas()
        wanted = estimates.cells(believable(run.table("trials"))).set_index("cell_id")
        found = found.set_index("cell_id").loc[wanted.index]
        assert len(found) == len(wanted) > 0
        for name in NUMBERS:
            np.testing.assert_array_equal(found[name].to_numpy(), wanted[name].to_numpy(), err_msg=name)
        np.testing.assert_allclose(np.exp(found["mean_log"]), wanted["samples_per_s"])
        for name in (*estimates.AXIS_NAMES, "device", "suite", "machine_id"):
            assert known(found[name]) == known(wanted[name]), name
        machine = run.manifest.machine
        assert set(found["cpu"]) == {machine.cpu_model}
        assert set(found["cores"]) == {machine.cores_logical}
        assert set(known(found["gpu"])) == {machine.gpu_name}


def test_the_interval_follows_from_what_is_kept(results: Path) -> None:
    """Mean, variance and n of the logs give the interval: cells of many runs can be pooled without their trials."""
    found = summaries.query("SELECT * FROM cells WHERE n > 1", results=results).to_pandas()
    half = half_width(np.sqrt(found["var_log"]), found["n"])
    np.testing.assert_allclose(np.exp(found["mean_log"] + half), found["hi"])
    np.testing.assert_allclose(np.exp(found["mean_log"] - half), found["lo"])


def test_refused_runs_have_no_rows(results: Path, tmp_path: Path) -> None:
    """What admission refuses is left out, and said."""
    copy = tmp_path / "results"
    (folder,) = (folder for folder in runs.folders(results) if folder.name.endswith("fake"))
    target = copy / folder.parent.name / folder.name
    target.mkdir(parents=True)
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    assert pages_summaries.update(copy, lambda _: Admitted((), ())).left_out == 1
    assert summaries.query("SELECT * FROM runs", results=copy).num_rows == 0
