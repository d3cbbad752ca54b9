"""How long validation takes and how much memory: most of a usual run is the start, a large file costs by its rows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from beside import times

from harness.bench import files, generated, repeated, watched
from harness.incoming import check

ROWS = 1_000_000


@pytest.mark.slow
def test_a_usual_run_takes_little_more_than_the_start(run: Path) -> None:
    """A run of a few hundred trials is validated in a few times what it takes to start; 2.0 was seen."""
    assert times(lambda: files.validated(run).took_s, lambda: watched.harness("--help").took_s, 4) <= 4


@pytest.mark.slow
def test_time_and_memory_grow_no_faster_than_rows(tmp_path: Path) -> None:
    """A million trials take at most ten times as long as a hundred thousand (3.3 was seen), and less than 1 GB."""
    generated.write(tmp_path / "one", 1)
    (one,) = (tmp_path / "one").glob("*/*/trials.parquet")
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    repeated.write(one, ROWS // 10, small)
    repeated.write(one, ROWS, large)
    peaks = []

    def all_of_it() -> float:
        ended = files.validated(large)
        peaks.append(ended.peak_bytes)
        return ended.took_s

    assert times(all_of_it, lambda: files.validated(small).took_s, 10) <= 10
    assert max(peaks) < 1e9


@pytest.mark.slow
def test_a_site_of_many_runs_waits_little(tmp_path: Path) -> None:
    """Runs are let in at a few milliseconds each, and at next to nothing when they were looked at before."""
    count = 400
    generated.write(tmp_path / "results", count)
    folders = check.found_at(tmp_path / "results")
    begun = time.perf_counter()
    first = check.admitted(folders, tmp_path / "checked.json")
    again = time.perf_counter()
    second = check.admitted(folders, tmp_path / "checked.json")
    ended = time.perf_counter()
    print(f"{1e3 * (again - begun) / count:.2f} ms a run, then {1e3 * (ended - again) / count:.2f} ms")
    assert first.folders == second.folders == tuple(folders)
    assert ended - again < again - begun
