"""What files of others may cost: figures are medians with their spread, judged against what is promised."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.bench import files, generated, repeated
from harness.bench.comparing import Shown
from harness.errors import FeedrateError

ROWS = 250


def test_a_median_is_judged_and_its_spread_is_told() -> None:
    """One slow time of three decides nothing, and is seen in the range."""
    usual = files.of_times(500, 2, [1.21, 1.994, 7])
    assert (usual.met, usual.target, usual.measured) == (True, "≤ 2 s", "1.99 s (1.21–7.00, n = 3)")
    assert not files.of_times(500, 2, [1.21, 2.01, 2.02]).met


def test_memory_is_judged() -> None:
    """A gigabyte is enough for a file of a million trials, and one byte more is too much."""
    assert files.of_memory(10**9).met
    assert not files.of_memory(10**9 + 1).met


def test_the_first_picture_and_answering_nobody_are_judged_apart() -> None:
    """A page that draws soon and yet answers nobody meanwhile misses one of the two; when all stands is told."""
    fine, still = files.of_compared([Shown(999, 2000, 101)])
    assert (fine.met, still.met) == (True, False)
    assert "all of it after 2000 ms" in fine.measured
    late, free = files.of_compared([Shown(1001, 2000, 100)])
    assert (late.met, free.met) == (False, True)


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """The trials of a made-up run."""
    generated.write(tmp_path / "results", 1)
    (path,) = (tmp_path / "results").glob("*/*/trials.parquet")
    return path


@pytest.mark.slow
def test_a_repeated_file_keeps_every_rule(one: Path, tmp_path: Path) -> None:
    """It has as many rows as were asked for, no two alike, in groups as a sweep writes them; nothing is found in it."""
    large = tmp_path / "trials.parquet"
    repeated.write(one, ROWS, large)
    table = pq.read_table(large)
    assert table.num_rows == ROWS == len(set(table["trial_id"].to_pylist())) == len(set(table["wall_ns"].to_pylist()))
    assert pq.ParquetFile(large).num_row_groups == 1
    assert files.validated(large, ROWS).peak_bytes is None
    with pytest.raises(FeedrateError, match="was not read to its end"):
        files.validated(large, ROWS + 1)


def test_a_file_that_is_refused_gives_no_figure(tmp_path: Path) -> None:
    """The time that a refusal takes is not that of a validation."""
    bad = tmp_path / "trials.parquet"
    bad.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(FeedrateError, match=r"trials\.parquet is not valid: .*expected a parquet file"):
        files.validated(bad, ROWS)
