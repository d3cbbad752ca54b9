"""Explore among very many cells: a change of a filter is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.bench import browsed, exploring, generated
from harness.pages.featured import cast
from harness.pages.gathered import gather

KNOWN = """times => {
  const took = [];
  for (let time = 0; time < times; time++) {
    const begun = performance.now();
    const rows = Array.from({ length: 20000 }, (_, i) => ({ key: (i * 7919) % 20011, text: String(i) }));
    rows.sort((a, b) => a.key - b.key);
    JSON.parse(JSON.stringify(rows));
    took.push(performance.now() - begun);
  }
  return Math.min(...took.slice(times / 2));
}"""
"""Work of a known kind on as many rows: to make, sort, write and read them. It says how fast this machine is."""
MOST = 21
"""A change, in such work. It was seen to be 13 to 15, where it took 235 to 259 ms; half as much again is too much."""


def known_ms(chromium: str) -> float:
    with browsed.started(chromium) as browser, browsed.opened(browser, "about:blank") as page:
        return float(page.evaluate(KNOWN, 20))


@pytest.mark.slow
def test_a_filter_among_twenty_thousand_cells_is_quick(sites: dict[str, Any], tmp_path: Path, chromium: str) -> None:
    """It costs a few times what it takes to sort as many rows, on any machine; no two of the cells are the same."""
    generated.write(tmp_path / "results", 1)
    crowd = exploring.crowd(cast(gather(tmp_path / "results")))
    assert crowd.cells["cell_id"].nunique() == exploring.CELLS
    told = ["storage_format", "num_workers", "replica", "read_us", "n_samples"]
    assert not crowd.cells[told].duplicated().any()
    seen = exploring.look(exploring.anew(sites["main"].folder, crowd, tmp_path / "site"), chromium)
    assert len(seen.drawn_ms) == exploring.TIMES
    assert 0 < seen.cpu_ms / known_ms(chromium) <= MOST
    assert max(seen.drawn_ms) >= seen.cpu_ms
