"""The page Explore and its files: every cell once, small files, the same bytes, names that links can rely on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.measures import MEASURES
from feedrate.charts.figure import plain
from feedrate.pages.runs import RunView
from feedrate.pages.selection import select
from feedrate.questions.explore import page as explore_page
from feedrate.questions.explore.page import INDEX, LIMIT
from feedrate.schema.axes import AXES

Show = Callable[..., RunView]
MANY = 10_000


def stored(files: Any) -> list[dict[str, Any]]:
    """The shards of a page."""
    return [json.loads(text) for path, text in files.items() if path.startswith("explore/cells-")]


def held(shard: dict[str, Any], name: str, row: int) -> Any:
    """The value of an axis in a row of a shard, as the page's script reads it; None where it does not apply."""
    column = shard["dims"].get(name, {"codes": -1})
    code = column["codes"] if isinstance(column["codes"], int) else column["codes"][row]
    return None if code < 0 else column["values"][code]


@pytest.mark.slow
def test_shards_hold_every_cell_as_it_was_estimated(show: Show) -> None:
    """Every cell once, with its axes as in the records and every measure with its interval to five digits."""
    everyone = select([show(workers=(0, 1, 2)), show(run_id="gpu", device="cuda", cores=4)])
    found = explore_page.page(everyone)
    cells = everyone.cells[everyone.cells["n"].gt(0)].set_index(["run_id", "cell_id"])
    seen = []
    for shard in stored(found.files):
        for row, cell in enumerate(shard["cell"]):
            key = (held(shard, "run", row), cell)
            seen.append(key)
            truth = cells.loc[key]
            assert held(shard, "machine", row) == truth["machine_id"]
            assert held(shard, "tier", row) == "self-reported"
            for axis in AXES:
                assert held(shard, axis.name, row) == plain(truth[axis.name])
            for measure in MEASURES:
                _same(shard["measures"].get(measure.name), shard, row, truth, measure)
    assert sorted(seen) == sorted(cells.index.tolist())


def _same(column: Any, shard: Any, row: int, truth: Any, measure: Any) -> None:
    mean, low, high = (float(truth[f"{measure.name}{end}"]) for end in ("", "_lo", "_hi"))
    if column is None or column["mean"][row] is None:
        assert math.isnan(mean)
        return
    value, reach = column["mean"][row], column["reach"][row]
    assert value == pytest.approx(mean, rel=1e-4)
    assert (column.get("n") or shard["measures"]["samples_per_s"]["n"])[row] == truth[f"{measure.name}_n"]
    if reach is None:
        assert math.isnan(low)
        return
    ends = (value / reach, value * reach) if measure.logs else (max(0, value - reach), min(measure.most, value + reach))
    assert ends == (pytest.approx(low, rel=2e-4, abs=1e-3), pytest.approx(high, rel=2e-4, abs=1e-3))


def test_the_index_names_machines_with_their_shards(show: Show) -> None:
    """Each machine with its shards, a hash in each address, and the opening run; the same records, the same bytes."""
    found, again = (
        explore_page.page(select([show(workers=(0, 1, 2)), show(run_id="gpu", device="cuda", cores=4)])) for _ in "12"
    )
    assert found.files == again.files
    index = json.loads(str(found.files[INDEX]))
    for machine, places in zip(index["machines"]["id"], index["machines"]["shards"], strict=True):
        for place in places:
            path, _, mark = index["shards"][place].partition("?v=")
            assert len(mark) == 8
            assert machine in json.loads(str(found.files[path]))["dims"]["machine"]["values"]
    assert index["opening"]["machine"] in index["machines"]["id"]
    assert {measure["name"] for measure in index["measures"]} >= {"samples_per_s", "fetch_us", "gpu_util_pct"}


def _many(one: pd.DataFrame, machines: int, cells: int) -> pd.DataFrame:
    """As many machines as wanted, each with so many cells like those of a run."""
    times = -(-machines * cells // len(one))
    frame = pd.concat([one] * times, ignore_index=True).iloc[: machines * cells].reset_index(drop=True)
    place = pd.Series(range(len(frame)))
    frame["machine_id"] = "example-" + (place // cells).astype(str).str.zfill(5) + "-6314265d"
    frame["run_id"] = "20260102T030405Z-" + (place // cells).astype(str)
    frame["cell_id"] = place.map("{:012x}".format)
    return frame


@pytest.mark.slow
def test_ten_thousand_machines_share_few_small_files(show: Show) -> None:
    """10,000 machines of 4 cells: an index of at most a megabyte, and under a hundred shards, none of them larger."""
    one = select([show()]).cells
    cells = _many(one[one["n"].gt(0)], MANY, 4)
    runs = {run: {"machine": machine} for run, machine in zip(cells["run_id"], cells["machine_id"], strict=True)}
    written = explore_page.shards(cells, runs)
    assert len({shard.path for shard in written}) == len(written) < 100
    assert max(len(shard.text) for shard in written) <= LIMIT
    names = dict.fromkeys(cells["machine_id"], "Example 9000 8-Core, 16 cores")
    assert len(explore_page.shard_index(cells, written, names, {})) <= LIMIT
    assert sum(len(shard.machines) for shard in written) >= MANY


@pytest.mark.slow
def test_a_large_machine_is_cut(show: Show) -> None:
    """20,000 cells of one machine beside small ones: every shard at most a megabyte, every cell in one of them."""
    one = select([show()]).cells
    small = _many(one[one["n"].gt(0)], 3, 5)
    large = _many(one[one["n"].gt(0)], 1, 20_000).assign(machine_id="large", run_id="large")
    cells = pd.concat([small.iloc[:10], large, small.iloc[10:]], ignore_index=True)
    written = explore_page.shards(cells, {run: {} for run in cells["run_id"].unique()})
    assert max(len(shard.text) for shard in written) <= LIMIT
    assert sum(json.loads(shard.text)["count"] for shard in written) == len(cells)
    assert len(written) > 5


def test_without_results_the_page_says_so() -> None:
    """No runs, or none with a cell: a sentence and no files."""
    for everyone in (select([]), SimpleNamespace(cells=select([]).cells, machines={}, every=[], featured=[])):
        found = explore_page.page(everyone)  # type: ignore[arg-type]
        assert "nothing to explore yet" in found.body
        assert not found.files
        assert not found.figures
