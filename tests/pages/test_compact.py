"""The compact data set of real folders agrees with the same runs read in full."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from feedrate.analysis import estimates
from feedrate.analysis.storage import believable
from feedrate.pages.compact import update
from feedrate.share.validator import Admitted
from feedrate.store import compact, runs
from feedrate.store.compact import Appended


def plain(values: pd.Series) -> list[object]:
    """Values as plain ones, whatever stands for null."""
    return [None if pd.isna(value) else value for value in values]


@pytest.mark.slow
def test_rows_agree_with_the_runs_read_in_full(fake_run: ModuleType, tmp_path: Path) -> None:
    """Each cell's estimate, axis and fact of its machine is that of its run's own files; what is refused has no row."""
    fake_run.write(tmp_path, fake_run.Fake(blocks=3))
    fake_run.write(tmp_path, fake_run.Fake(run_id="20260203T030405Z-cuda", device="cuda", blocks=1, fails="all"))
    fake_run.write(tmp_path, fake_run.Fake(run_id="20260303T030405Z-form", formats=("png", "lmdb"), blocks=2))
    assert update(tmp_path, lambda _: Admitted((), ())) == Appended(0, 3, 0)
    assert update(tmp_path, lambda found: Admitted(tuple(found), ())) == Appended(3, 0, 0)
    for run in runs.runs(tmp_path):
        ask = "SELECT * FROM cells WHERE run_id = ?"
        rows = compact.query(ask, [run.manifest.run_id], tmp_path / compact.FOLDER).to_pandas()
        wanted = estimates.cells(believable(run.table("trials"))).set_index("cell_id")
        rows = rows.set_index("cell_id").loc[wanted.index]
        assert len(rows) == len(wanted) > 0
        assert rows["first"].sum() == 1
        for name in ("n", "failed", "samples_per_s", "lo", "hi"):
            np.testing.assert_array_equal(rows[name].to_numpy(), wanted[name].to_numpy(), err_msg=name)
        for name in (*estimates.AXIS_NAMES, "device", "suite", "machine_id"):
            assert plain(rows[name]) == plain(wanted[name]), name
        machine = run.manifest.machine
        assert set(rows["cpu"]) == {machine.cpu_model}
        assert set(rows["cores"]) == {machine.cores_logical}
        assert set(plain(rows["gpu"])) == {machine.gpu_name}
