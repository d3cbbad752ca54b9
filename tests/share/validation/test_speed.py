"""How validation's time and memory grow; how much that is on a machine, the bench says (``make bench ONLY=files``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside import times

from feedrate.bench import generated
from feedrate.bench import site as bench_site

ROWS = 1_000_000


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """The trials of a made-up run."""
    generated.write(tmp_path / "one", 1)
    (path,) = (tmp_path / "one").glob("*/*/trials.parquet")
    return path


@pytest.mark.slow
def test_time_grows_as_rows_do_and_memory_has_an_end(one: Path, tmp_path: Path) -> None:
    """A million trials take at most ten times as long as a hundred thousand (2.8 to 3.6 was seen), and below 1 GB."""
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    generated.write_repeated(one, ROWS // 10, small)
    generated.write_repeated(one, ROWS, large)
    peaks: list[int] = []

    def whole() -> float:
        ended = bench_site.validate(large, ROWS, memory=True)
        peaks.append(ended.peak_bytes or 0)
        return ended.took_s

    assert times(whole, lambda: bench_site.validate(small, ROWS // 10).took_s, 10) <= 10
    assert 1e8 < max(peaks) < 1e9
