"""The page Explore and its files: every setting once, the same bytes, names that links can rely on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.measures import MEASURES, estimate_measures
from feedrate.charts.figure import plain
from feedrate.pages.runs import RunView
from feedrate.pages.selection import Selection, select
from feedrate.questions.explore import page as explore_page
from feedrate.questions.explore.page import INDEX
from feedrate.questions.explore.run_files import path_of, run_file
from feedrate.schema.axes import AXES

Show = Callable[..., RunView]


def files_of(everyone: Selection) -> dict[str, str]:
    """The files of some runs by their path, as the pages of runs bring them."""
    return {path_of(view): run_file(view) for view in everyone.every}


def held(file: dict[str, Any], name: str, row: int) -> Any:
    """The value of an axis in a row of a file, as the page's script reads it; None where it does not apply."""
    column = file["dims"].get(name, {"codes": -1})
    code = column["codes"] if isinstance(column["codes"], int) else column["codes"][row]
    return None if code < 0 else column["values"][code]


@pytest.mark.slow
def test_files_hold_every_setting_as_it_was_estimated(show: Show) -> None:
    """Every setting once, with its options as in the records and every measure with its interval to five digits."""
    everyone = select([show(workers=(0, 1, 2)), show(run_id="gpu", device="cuda", cores=4)])
    cells = pd.concat(estimate_measures(view.trials) for view in everyone.every).set_index(["run_id", "cell_id"])
    seen = []
    for view in everyone.every:
        file, run = json.loads(run_file(view)), view.manifest.run_id
        for row, cell in enumerate(file["cell"]):
            seen.append((run, cell))
            truth = cells.loc[(run, cell)]
            assert held(file, "run", row) == run
            assert held(file, "machine", row) == truth["machine_id"]
            assert held(file, "tier", row) == "self-reported"
            for axis in AXES:
                assert held(file, axis.name, row) == plain(truth[axis.name])
            for measure in MEASURES:
                _same(file["measures"].get(measure.name), file, row, truth, measure)
    assert sorted(seen) == sorted(cells.index.tolist())


def _same(column: Any, file: Any, row: int, truth: Any, measure: Any) -> None:
    mean, low, high = (float(truth[f"{measure.name}{end}"]) for end in ("", "_lo", "_hi"))
    if column is None or column["mean"][row] is None:
        assert math.isnan(mean)
        return
    value, reach = column["mean"][row], column["reach"][row]
    assert value == pytest.approx(mean, rel=1e-4)
    assert (column.get("n") or file["measures"]["samples_per_s"]["n"])[row] == truth[f"{measure.name}_n"]
    if reach is None:
        assert math.isnan(low)
        return
    ends = (value / reach, value * reach) if measure.logs else (max(0, value - reach), min(measure.most, value + reach))
    assert ends == (pytest.approx(low, rel=2e-4, abs=1e-3), pytest.approx(high, rel=2e-4, abs=1e-3))


def test_the_index_names_runs_with_their_files(show: Show) -> None:
    """Each run with its file, a hash in each address, and the opening run; the same records, the same bytes."""
    everyone = select([show(workers=(0, 1, 2)), show(run_id="gpu", device="cuda", cores=4)])
    texts = files_of(everyone)
    made, again = explore_page.page(everyone, texts), explore_page.page(everyone, files_of(everyone))
    assert made.files == again.files
    index = json.loads(str(made.files[INDEX]))
    for run in index["runs"]:
        path, _, mark = run["cells"].partition("?v=")
        assert len(mark) == 8
        assert json.loads(texts[path])["about"]["run"] == run["run"]
    assert index["opening"] in [run["run"] for run in index["runs"]]
    assert {measure["name"] for measure in index["measures"]} >= {"samples_per_s", "fetch_us", "gpu_util_pct"}


def test_without_results_the_page_says_so(show: Show) -> None:
    """No runs, or none of which a trial ended well: a sentence and no files, or nothing that breaks."""
    nothing = explore_page.page(select([]), {})
    assert "nothing to explore yet" in nothing.body
    assert not nothing.files
    assert not nothing.figures
    failed = select([show(fails="all", batches=(8,))])
    assert explore_page.page(failed, files_of(failed)).files
