"""Every number in the tables of README and home page, computed anew from the raw records.

``tests/test_readme.py`` holds the README against the code that wrote it. Here its numbers are read from its text, and
nothing of ``feedrate.analysis`` takes part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from tests.recomputed import NUMBER, RESULTS, SPREAD, axes, committed, interval, logs, matching, number

from feedrate.analysis.summary import CONDITIONS
from feedrate.pages.verdicts import load_verdicts
from feedrate.plan import suite
from feedrate.questions.home import page as home_page
from feedrate.schema.axes import BY_NAME, Value
from feedrate.site import readme
from feedrate.store import runs as store_runs
from feedrate.store.runs import StoredRun


class Line(NamedTuple):
    """A row of the README's table."""

    task: dict[str, Value]
    setting: dict[str, Value]
    rate: str
    n: int
    held: str
    gain: str


def table() -> tuple[StoredRun, list[Line]]:
    """The README's table, and the run that it is of."""
    named = re.search(r"run `([^`]+)`", readme.view())
    assert named
    lines = []
    for row in readme.view().partition("|---|\n")[2].partition("\n\n")[0].splitlines():
        task, setting, rate, n, held, gain = row.removeprefix("| ").removesuffix(" |").split(" | ")
        ran, _, data = task.partition(": ")
        lines.append(line([*data.split(", "), *ran.split(", ")], setting, rate, n, held, gain))
    return store_runs.find(named[1], RESULTS), lines


def line(task: Sequence[str], setting: str, rate: str, n: str, held: str, gain: str) -> Line:
    """Take a row apart; its task is workload, pixels, what ran, and under which conditions."""
    workload, pixels, *ran = task
    what = axes(ran) | {"workload": workload, "patch_size": int(re.sub(r"\spx", "", pixels))}
    return Line(what, axes(setting.split(", ")), rate, int(n), held, gain)


def on_home() -> list[tuple[StoredRun, list[Line]]]:
    """The tables of the home page, one a machine, and their runs."""
    runs = committed()
    page = home_page.page(runs, [], load_verdicts([])).body
    found = []
    for section in re.split(r"\{ #numbers-", page)[1:]:
        (run,) = [view.run for view in runs if f">run {view.manifest.run_id}</a>" in section]
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", section)[1:]]
        cells = [[unescape(re.sub(r"<[^>]+>", "", cell.replace("<br>", ", "))) for cell in row] for row in rows]
        lines = [
            line(task.split(", "), setting, f"{rate} ({spread})", n, held, gain)
            for task, setting, rate, spread, n, held, gain in cells
        ]
        told = re.findall(rf"{NUMBER} times as many .*?{SPREAD} blocks", unescape(section))
        gains = [gain.groups() for each in lines if (gain := re.match(rf"× {NUMBER} \({SPREAD}\)", each.gain))]
        assert set(told) <= set(gains), "the sentences above a table tell gains of the table"
        found.append((run, lines))
    return found


@pytest.fixture(scope="module")
def tables() -> list[tuple[StoredRun, list[Line]]]:
    """The tables of README and home page, and their runs."""
    found = [table(), *on_home()]
    assert len(found) > 1
    assert all(lines for _, lines in found)
    return found


def test_tables_state_their_cells(tables: list[tuple[StoredRun, list[Line]]]) -> None:
    """Each row's rate, interval and n are those of the cell that it describes, and no cell of its task is faster."""
    for run, lines in tables:
        trials = run.table("trials")
        served = trials["role"].isin(["ceiling", "control"])
        for row in lines:
            found = logs(trials, row.task | row.setting) + np.log(1e9)
            stated = re.fullmatch(rf"{NUMBER} \({NUMBER}\s–\s{NUMBER}\)", row.rate)
            assert stated, row.rate
            assert [*map(number, stated.groups()), row.n] == interval(found)
            same = matching(trials, row.task, CONDITIONS)
            rates = np.log(same["samples"].astype(float) / same["wall_ns"].astype(float) * 1e9)
            means = rates.groupby([same["cell_id"], same["block"]]).mean().groupby("cell_id").mean()
            asked = means.index.isin(set(trials.loc[~served, "cell_id"]))
            assert means[asked].max() == pytest.approx(found.mean())


def test_tables_have_every_task(tables: list[tuple[StoredRun, list[Line]]]) -> None:
    """As many rows as the run has tasks: what was asked to train or to load, cross-checks of the timing aside."""
    for run, lines in tables:
        trials = run.table("trials")
        asked = trials[trials["outcome"].eq("ok") & ~trials["role"].isin(["ceiling", "control"])]
        asked = asked[asked["mode"].isin(["train", "load"]) & asked["timing"].ne("serialized").fillna(True)]
        asked = asked[asked["suite"].map(suite.for_machines)]
        given = {
            name: asked[name].astype(object).where(asked[name].notna(), BY_NAME[name].default) for name in CONDITIONS
        }
        assert len(pd.DataFrame(given).drop_duplicates()) == len(lines)


def test_what_holds_a_setting_back_is_its_smallest_stage(tables: list[tuple[StoredRun, list[Line]]]) -> None:
    """The stage that is slowest alone is named, with the share of it that is reached and the share of compute, paired.

    Two stages within a factor of 1.5 hold it back together. A CPU has no copies to make.
    """
    seen = 0
    for run, lines in tables:
        trials = run.table("trials")
        for row in [row for row in lines if row.task["mode"] == "train" and run.manifest.device == "cpu"]:
            reached, alone = logs(trials, row.task | row.setting) + np.log(1e9), stages_alone(trials, row)
            slowest, other = sorted(alone, key=lambda name: alone[name].mean())
            together = alone[other].mean() - alone[slowest].mean() <= np.log(1.5)
            named, *shares = row.held.split(", ")
            assert named == ("balanced" if together else f"{slowest}-bound")
            step = next(name for name in alone if name != "loader")
            expected = [100 * np.exp((reached - alone[stage]).mean()) for stage in (slowest, step)]
            if shares:
                assert shares == [f"efficiency\u00a0{expected[0]:.0f}\u00a0%", f"AU\u00a0{expected[1]:.0f}\u00a0%"]
                seen += 1
    assert seen


def stages_alone(trials: pd.DataFrame, row: Line) -> dict[str, pd.Series]:
    """Log of samples a second of a setting's loader and step alone, by block; an emulated step's is declared."""
    whole = row.task | row.setting
    shared = {name: value for name, value in whole.items() if name not in ("step", "step_ms")}
    found = {"loader": logs(trials, shared | {"mode": "load"}) + np.log(1e9)}
    if whole.get("step") == "emulated":
        declared = 1000 * float(whole["batch_size"]) / float(whole["step_ms"])
        return found | {"emulated-step": pd.Series(np.log(declared), index=found["loader"].index)}
    step = {name: shared[name] for name in ("workload", "patch_size", "batch_size")}
    return found | {"compute": logs(trials, step | {"mode": "compute"}) + np.log(1e9)}


def test_gains_in_tables_are_paired(tables: list[tuple[StoredRun, list[Line]]]) -> None:
    """Each gain is the mean of paired log ratios against the defaults at the same format and batch size."""
    for run, lines in tables:
        trials = run.table("trials")
        for row in [row for row in lines if row.gain.startswith("×")]:
            gain = re.fullmatch(rf"× {NUMBER} \({SPREAD}\), (\w+), (batch \d+): (.+)", row.gain)
            assert gain, row.gain
            data = row.task | axes([gain[5], gain[6]])
            ratios = logs(trials, data | axes(gain[7].split(", "))) - logs(trials, data)
            assert [number(gain[place]) for place in range(1, 5)] == interval(ratios)
