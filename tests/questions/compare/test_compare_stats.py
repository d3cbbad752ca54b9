"""The page's comparison is Python's: the same records through both."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_cell
from playwright.sync_api import Page

from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.analysis.storage import believable
from feedrate.questions.compare.analysis import OVERALL, Compared, compared, repeated
from feedrate.questions.compare.page import rules
from feedrate.questions.explore.run_files import run_file
from feedrate.schema.axes import AXES, cell_id
from feedrate.schema.columns import TRIALS
from feedrate.store import runs

pytestmark = pytest.mark.slow

EXACT = 1e-6
"""jStat gives the quantiles of Student's t to some eight digits."""
TALLY = ("faster", "slower", "same", "open", "once")
NAMES = [axis.name for axis in AXES]
READ = """async ([trials, rules]) => {
  const { settings } = await import("/compare/worker.js");
  return JSON.stringify(settings(JSON.parse(trials), JSON.parse(rules)));
}"""
COMPARE = """async (given) => {
  const { compare } = await import("/compare/comparison.js");
  return JSON.stringify(compare(...given.map(JSON.parse)));
}"""


def near(got: Any, want: Any) -> bool:
    """Whether a number is what Python found; JSON has null for NaN."""
    if isinstance(want, float | int | np.number) and not isinstance(want, bool):
        return got is None if math.isnan(want) else got is not None and math.isclose(got, want, rel_tol=EXACT)
    return bool(got == (None if pd.isna(want) else want))


def read(scripts: Page, trials: pd.DataFrame) -> str:
    """What the Worker makes of the rows of a file."""
    rows = trials.astype(object).where(trials.notna(), None).to_dict("records")
    return str(scripts.evaluate(READ, [json.dumps(rows, allow_nan=False), json.dumps(rules())]))


def both(scripts: Page, a: pd.DataFrame, b: pd.DataFrame) -> tuple[dict[str, Any], Compared]:
    """What the scripts and Python say of two runs."""
    got = json.loads(scripts.evaluate(COMPARE, [*(read(scripts, trials) for trials in (a, b)), json.dumps(rules())]))
    sides = [(trials, cells_with_ceilings(trials)) for trials in map(believable, (a, b))]
    return got, compared(*sides)


def rows_differ(got: list[dict[str, Any]], want: pd.DataFrame, names: list[str]) -> list[Any]:
    """Every number and word in which rows differ; they must stand in one order."""
    assert len(got) == len(want)
    return [
        (place, name, row.get(name), wanted[name])
        for place, (row, wanted) in enumerate(zip(got, want.to_dict("records"), strict=True))
        for name in names
        if not near(row.get(name), wanted[name])
    ]


def differ(got: dict[str, Any], want: Compared) -> list[Any]:
    """Everything in which scripts and Python differ; checks, which time nothing, are no settings on the page."""
    numbers = ["samples_per_s_a", "samples_per_s_b", "ratio", "lo", "hi", "n_a", "n_b", "df"]
    unmatched = want.unmatched[want.unmatched["mode"].ne("check").fillna(True)]
    different = []
    for mine, theirs, names in (
        (got["cells"], want.cells, ["device", "verdict", *numbers, *NAMES]),
        (got["unmatched"], unmatched, ["device", "reason", *NAMES]),
    ):
        order = {"key": lambda row: str([str(row[name]) for name in ("device", "workload", *NAMES)])}
        ordered = theirs.astype(object).where(theirs.notna(), None).to_dict("records")
        wanted = pd.DataFrame(sorted(ordered, **order), columns=theirs.columns, dtype=object)
        different += rows_differ(sorted(mine, **order), wanted, names)
    kinds = want.kinds.set_index("kind") if len(want.kinds) else want.kinds
    assert {row["kind"] for row in got["kinds"]} == set(kinds.index)
    names = ["ratio", "lo", "hi", "cells", *TALLY]
    different += [
        (row, name) for row in got["kinds"] for name in names if not near(row[name], kinds.loc[row["kind"], name])
    ]
    again = repeated(want.cells)._asdict() if len(want.cells) else {}
    different += [name for name in again if not near(got["repeated"][name], again[name])]
    total = want.overall.row(OVERALL)
    different += [name for name in total if not near(got["overall"][name], total[name])]
    changed = None if want.changed is None else [list(each) for each in want.changed]
    return different + ([] if got["changed"] == changed else [("changed", got["changed"], changed)])


RATES: list[Callable[[np.random.Generator, int], Any]] = [
    lambda random, n: np.exp(random.normal(6, 0.03, n)),
    lambda random, n: np.exp(random.normal(6, 2.0, n)),
    lambda random, n: random.uniform(90, 110) * random.choice([1.0, 1.01], n),
    lambda random, n: np.full(n, random.uniform(90, 110)),
    lambda random, n: np.exp(random.normal(-8, 0.01, n)),
]
STILL = 10
"""The cell that has no spread in either run."""


def made_up(random: np.random.Generator, run_id: str, spare: int) -> pd.DataFrame:
    """A run of cells with few or many blocks, gaps, failures, ties, no spread, controls, checks and odd data."""
    rows: list[dict[str, Any]] = []
    for place in range(26):
        if place == spare:
            continue
        mode = ("train", "load", "compute", "check")[place % 4]
        axes = {"mode": mode, "batch_size": 2 ** (place % 5), "num_workers": place % 3, "patch_size": 16 + place // 12}
        cell = make_cell(axes)
        n = 8 if place in (9, STILL) else int(random.choice([1, 1, 2, 3, 8, 60]))
        rates = RATES[3 if place == STILL else random.integers(len(RATES))](random, n)
        same = {"cell_id": cell_id(cell), "run_id": run_id, "suite": "loader", "role": "cell", "device": "cpu", **cell}
        version = 1 + int(place == 9 and run_id == "b")
        same |= {"protocol_version": 1, "workload_version": version, "data_hash": f"{place}"}
        for block, rate in enumerate(rates):
            for _ in range(1 + int(random.random() < 0.1)):
                ended = random.random() > (1.0 if place == 5 else 0.1) and mode != "check"
                told = {"samples_per_s": float(rate), "samples": 640, "wall_ns": round(640e9 / rate)} if ended else {}
                failed = "ok" if ended or mode == "check" else "error"
                rows.append({**same, "block": block, "outcome": failed, **told})
    return pd.DataFrame(rows, columns=[column.name for column in TRIALS])


def test_made_up_runs(scripts: Page) -> None:
    """Settings, reasons, intervals and verdicts are the same, however odd the blocks."""
    random = np.random.default_rng(0)
    a, b = (made_up(random, run_id, spare) for run_id, spare in (("a", 1), ("b", 6)))
    got, want = both(scripts, a, b)
    assert differ(got, want) == []
    assert len(want.cells) > 5
    assert {"only in A", "only in B", "different workload_version: 1 in A, 2 in B"} <= set(want.unmatched["reason"])


SCRIPTS: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, Any, Any]] | None]] = {
    "more workers": ({}, {"workers": 4}, [("num_workers", 2, 4)]),
    "no workers, with ceilings": ({"headspace": True}, {"workers": 0, "headspace": True}, [("num_workers", 2, 0)]),
    "the same again": ({"headspace": True}, {"hour": 5, "step_ms": 9.0}, []),
    "another script": ({}, {"name": "other.py"}, None),
}
"""Two runs of scripts, and how their settings differ."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_of_a_script_are_compared_alike(scripts: Page, written: Callable[..., Path], name: str) -> None:
    """Runs of one script are compared whatever its settings are, here as there; of two scripts never."""
    *sides, changed = SCRIPTS[name]
    got, want = both(scripts, *(runs.find(str(written(**side))).table("trials") for side in sides))
    assert differ(got, want) == []
    assert (None if want.changed is None else list(want.changed)) == changed
    assert len(want.cells) == (0 if changed is None else 3 if name == "no workers, with ceilings" else 1)


def test_searches_are_compared_alike(scripts: Page, written: Callable[..., Path]) -> None:
    """A search and a script as it is are compared in the settings of both, here as there."""
    kinds: list[dict[str, Any]] = [{"blocks": 3}, {"workers": 0}]
    got, want = both(scripts, *(runs.find(str(written(**kind))).table("trials") for kind in kinds))
    assert differ(got, want) == []
    assert want.changed is None
    assert len(want.cells)


KINDS: dict[str, dict[str, Any]] = {
    "one repetition": {"blocks": 1, "batches": (8,), "device": "cuda", "nulls": True, "asked_only": True},
    "storage": {"formats": ("png", "jpeg"), "suites": ("storage",), "blocks": 3},
}


@pytest.mark.parametrize("what", KINDS.values(), ids=KINDS)
def test_whole_runs(scripts: Page, show: Callable[..., Any], what: dict[str, Any]) -> None:
    """Runs with cold reads that are and are not proved; B differs by a factor of each cell's own."""
    view = show(**what)
    a = view.trials
    random = np.random.default_rng(7)
    factors = {name: float(np.exp(random.normal(0, 0.5))) for name in a["cell_id"].unique()}
    factor = a["cell_id"].map(factors).astype("float64") * np.exp(random.normal(0, 0.02, len(a)))
    b = a.assign(run_id="b", samples_per_s=a["samples_per_s"] * factor)
    b.loc[b["page_cache"].eq("cold").fillna(False) & b["block"].eq(0), "read_bytes"] = 0  # no proof of having been cold
    got, want = both(scripts, a, b)
    assert differ(got, want) == []
    assert len(want.cells)
    # The file of the published run says the same as its trials, to the digits that it keeps.
    again = json.loads(scripts.evaluate(COMPARE, [run_file(view), read(scripts, b), json.dumps(rules())]))
    assert [cell["cell_id"] for cell in again["cells"]] == [cell["cell_id"] for cell in got["cells"]]
    assert rows_differ(again["cells"], pd.DataFrame(got["cells"]), ["ratio", "lo", "hi", "n_a", "n_b"]) == []
