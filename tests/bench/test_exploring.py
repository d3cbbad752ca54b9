"""Explore among very many cells: a filter costs what it costs among few; how long that is, the bench says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from beside import times

from harness.bench import exploring, generated
from harness.pages.featured import cast
from harness.pages.gathered import gather

FEW = exploring.CELLS // 10
MOST = 2
"""Times as long, for ten times as many cells: 0.7 to 1.4 was seen, as no more than a thousand marks are drawn."""


@pytest.mark.slow
def test_a_filter_among_many_cells_is_as_quick_as_among_few(
    sites: dict[str, Any], tmp_path: Path, chromium: str
) -> None:
    """Ten times as many cells cost less than twice as much, on any machine; no two of the cells are the same."""
    generated.write(tmp_path / "results", 1)
    everyone = cast(gather(tmp_path / "results"))
    crowds = {count: exploring.crowd(everyone, count) for count in (FEW, exploring.CELLS)}
    cells = crowds[exploring.CELLS].cells
    assert cells["cell_id"].nunique() == exploring.CELLS
    assert not cells[["storage_format", "num_workers", "replica", "read_us", "n_samples"]].duplicated().any()
    pages = {
        count: exploring.anew(sites["main"].folder, crowd, tmp_path / str(count)) for count, crowd in crowds.items()
    }

    def cpu_ms(count: int) -> float:
        seen = exploring.look(pages[count], chromium, count)
        assert len(seen.drawn_ms) == exploring.TIMES
        assert max(seen.drawn_ms) >= seen.cpu_ms > 0
        return seen.cpu_ms

    assert times(lambda: cpu_ms(exploring.CELLS), lambda: cpu_ms(FEW), MOST) <= MOST
