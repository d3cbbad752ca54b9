"""What files of others may cost: figures are medians with their spread, judged against what is promised."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.bench import files, generated, repeated
from harness.bench.comparing import Shown
from harness.bench.watched import Ended
from harness.errors import FeedrateError

ROWS = 250


def ended(took_s: float, peak_bytes: int = 10**8) -> Ended:
    return Ended(0, took_s, peak_bytes, "", "")


def test_a_median_is_judged_and_its_spread_is_told() -> None:
    """One slow time of three decides nothing, and is seen in the range."""
    (usual,) = files.of_usual([ended(1.21), ended(1.99), ended(7)])
    assert (usual.met, usual.target, usual.measured) == (True, "≤ 2 s", "2.0 s (1.2–7.0, n = 3)")
    assert not files.of_usual([ended(1.21), ended(2.01), ended(2.02)])[0].met


def test_memory_is_judged_by_the_most() -> None:
    """A file of a million trials has a time and a memory to keep to, each for itself."""
    assert [promise.met for promise in files.of_large([ended(14.9), ended(15, 10**9)])] == [True, True]
    assert [promise.met for promise in files.of_large([ended(14.9), ended(15, 10**9 + 1)])] == [True, False]
    assert [promise.met for promise in files.of_large([ended(15.1)])] == [False, True]


def test_the_first_picture_and_standing_still_are_judged_apart() -> None:
    """A page that draws soon and yet answers nobody meanwhile misses one of the two."""
    fine, still = files.of_compared([Shown(999, 2000, 101)])
    assert (fine.met, still.met) == (True, False)
    late, free = files.of_compared([Shown(1001, 2000, 100)])
    assert (late.met, free.met) == (False, True)


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """The trials of a made-up run."""
    generated.write(tmp_path / "results", 1)
    (path,) = (tmp_path / "results").glob("*/*/trials.parquet")
    return path


def test_a_repeated_file_keeps_every_rule(one: Path, tmp_path: Path) -> None:
    """It has the rows that were asked for, no two alike, and is validated without a finding."""
    large = tmp_path / "trials.parquet"
    repeated.write(one, ROWS, large)
    table = pq.read_table(large)
    assert table.num_rows == ROWS == len(set(table["trial_id"].to_pylist())) == len(set(table["wall_ns"].to_pylist()))
    assert files.validated(large).status == 0


def test_a_file_that_is_refused_gives_no_figure(tmp_path: Path) -> None:
    """The time that a refusal takes is not that of a validation."""
    bad = tmp_path / "trials.parquet"
    bad.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(FeedrateError, match=r"bench: trials\.parquet was refused"):
        files.validated(bad)
