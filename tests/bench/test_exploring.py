"""Explore among very many cells: a change of a filter is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.bench import exploring, generated
from harness.bench.site import CHANGE_MS
from harness.pages.featured import cast
from harness.pages.gathered import gather


@pytest.mark.slow
def test_a_filter_among_twenty_thousand_cells_is_quick(sites: dict[str, Any], tmp_path: Path, chromium: str) -> None:
    """At most 200 ms of CPU until all is drawn, the wall clock of an idle machine; no two of the cells are the same."""
    generated.write(tmp_path / "results", 1)
    crowd = exploring.crowd(cast(gather(tmp_path / "results")))
    assert crowd.cells["cell_id"].nunique() == exploring.CELLS
    told = ["storage_format", "num_workers", "replica", "read_us", "n_samples"]
    assert not crowd.cells[told].duplicated().any()
    seen = exploring.look(exploring.anew(sites["main"].folder, crowd, tmp_path / "site"), chromium)
    assert len(seen.drawn_ms) == exploring.TIMES
    assert 0 < seen.cpu_ms <= CHANGE_MS
    assert max(seen.drawn_ms) >= seen.cpu_ms
