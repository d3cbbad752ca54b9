"""The page's statistics are Python's: the same records through both, held together to 1e-9."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Browser, Page
from scipy import special

from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.analysis.storage import believable
from feedrate.questions.compare.analysis import CEILINGS, OVERALL, Compared, compared, repeated
from feedrate.questions.compare.page import browser_rules, unranked_suites
from feedrate.schema.axes import AXES, applicable, cell_id
from feedrate.schema.columns import TRIALS
from feedrate.schema.plugins import ROOT
from feedrate.site.serve import served
from feedrate.store import runs

pytestmark = pytest.mark.slow

EXACT = 1e-9
TALLY = ("faster", "slower", "same", "open")
DEFAULTS = {axis.name: axis.default for axis in AXES}
NAMES = [axis.name for axis in AXES]
_ALL = """async ([a, b, rules]) => {
  const { compare, explain } = await import("/compare/comparison.js");
  const [A, B, given] = [a, b, rules].map(JSON.parse);
  const found = compare(A, B, given);
  return JSON.stringify({ ...found, ...explain(A, B, found.cells, given) });
}"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A page of the folder in which the scripts lie."""
    with served(ROOT / "site" / "scripts") as address:
        opened = browser.new_page()
        opened.goto(address)
        yield opened
        opened.close()


def near(got: Any, want: Any) -> bool:
    """Whether a number is what Python found; JSON has null for NaN."""
    if isinstance(want, float | int | np.number) and not isinstance(want, bool):
        return got is None if math.isnan(want) else got is not None and math.isclose(got, want, rel_tol=EXACT)
    return bool(got == (None if pd.isna(want) else want))


def test_students_t(page: Page) -> None:
    """The half-width of an interval in standard errors, from one degree of freedom on, agrees with SciPy's."""
    freedom = [1.0, 1.0001, 1.37, 2.0, 2.5, 3.0, 4.99, 7.0, 19.9, 20.1, 29.4, 58.0, 118.0, 1e3, 1e5, 1e7]
    levels = [0.02, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.99999]
    asked = [[df, level] for df in freedom for level in levels]
    found = page.evaluate(
        """async (asked) => {
          const { critical } = await import("/compare/statistics.js");
          return asked.map(([df, level]) => critical(level, df));
        }""",
        asked,
    )
    wanted = [float(special.stdtrit(df, 0.5 + level / 2)) for df, level in asked]
    assert [pair for pair, got, want in zip(asked, found, wanted, strict=True) if not near(got, want)] == []


def table(trials: pd.DataFrame) -> str:
    """A run as the scripts are given it: columns, null where Python has it."""
    names = [name for name in trials if not trials[name].isna().all()]
    columns = trials[names].astype(object).where(trials[names].notna(), None)
    return json.dumps({name: columns[name].tolist() for name in names}, allow_nan=False)


def both(page: Page, a: pd.DataFrame, b: pd.DataFrame) -> tuple[dict[str, Any], Compared]:
    """What the scripts and Python say of two runs."""
    got = json.loads(page.evaluate(_ALL, [table(a), table(b), json.dumps(browser_rules())]))
    sides = [(trials, cells_with_ceilings(trials)) for trials in map(believable, (a, b))]
    return got, compared(*sides, unranked=unranked_suites())


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
    """Everything in which scripts and Python differ."""
    numbers = ["samples_per_s_a", "samples_per_s_b", "ratio", "lo", "hi", "n_a", "n_b", "df"]
    found = rows_differ(got["cells"], want.cells, ["cell_id", "device", "verdict", *numbers])
    found += rows_differ(got["unmatched"], want.unmatched, ["cell_id", "device", "reason"])
    for mine, theirs in ((got["cells"], want.cells), (got["unmatched"], want.unmatched)):
        found += rows_differ([row["axes"] for row in mine], theirs, NAMES)
    found += rows_differ(got["kinds"], want.kinds, ["kind", "ratio", "lo", "hi", "cells", *TALLY])
    found += rows_differ(got["stages"], want.stages, list(want.stages.columns))
    again = asdict(repeated(want.cells)) if len(want.cells) else {}
    found += [name for name in again if not near(got["repeated"][name], again[name])]
    total = want.overall.row(OVERALL)
    found += [name for name in total if not near(got["overall"][name], total[name])]
    found += rows_differ(got["held"], want.held, ["cell_id", "bottleneck_a", "bottleneck_b"])
    for side in "ab":
        names = {f"{name}_{side}": name.removesuffix("_ceiling") for name in CEILINGS}
        ceilings = want.held[list(names)].rename(columns=names)
        found += rows_differ([row[f"ceilings_{side}"] for row in got["held"]], ceilings, list(ceilings))
    best = [
        {**row, **{f"{name}_{side}": row[side].get(name) for side in "ab" for name in ("samples_per_s", "bottleneck")}}
        | {f"cell_{side}": row[side]["cell_id"] for side in "ab"}
        for row in got["best"]
    ]
    wanted = ["cell_a", "cell_b", "samples_per_s_a", "samples_per_s_b", "bottleneck_a", "bottleneck_b", "ratio", "lo"]
    wanted += ["hi", "n_a", "n_b", "in_both", "a_on_b", "b_on_a", "candidates_a", "candidates_b"]
    changed = None if want.changed is None else [list(each) for each in want.changed]
    found += [] if got["changed"] == changed else [("changed", got["changed"], changed)]
    return found + rows_differ(best, want.best, wanted)


RATES: list[Callable[[np.random.Generator, int], Any]] = [
    lambda random, n: np.exp(random.normal(6, 0.03, n)),
    lambda random, n: np.exp(random.normal(6, 2.0, n)),
    lambda random, n: random.uniform(90, 110) * random.choice([1.0, 1.01], n),
    lambda random, n: np.full(n, random.uniform(90, 110)),
    lambda random, n: np.exp(random.normal(6, 1e-7, n)),
    lambda random, n: np.exp(random.normal(-8, 0.01, n)),
]


def made_up(random: np.random.Generator, run_id: str, spare: int) -> pd.DataFrame:
    """A run of cells with few or many blocks, gaps, failures, ties, no spread, controls, checks and odd data."""
    rows: list[dict[str, Any]] = []
    for place in range(26):
        if place == spare:
            continue
        mode = ("train", "load", "compute", "check")[place % 4]
        axes = {"mode": mode, "batch_size": 2 ** (place % 5), "num_workers": place % 3, "patch_size": 16 + place // 12}
        cell, _ = applicable({**DEFAULTS, **axes}, "cpu")
        n = 8 if place == 9 else int(random.choice([1, 1, 2, 3, 8, 60]))
        rates = RATES[random.integers(len(RATES))](random, n)
        same = {"cell_id": cell_id(cell), "run_id": run_id, "suite": "loader", "role": "cell", "device": "cpu", **cell}
        version = 1 + int(place == 9 and run_id == "b")
        same |= {"protocol_version": 1, "workload_version": version, "data_hash": f"{place}"}
        for block, rate in enumerate(rates):
            for _ in range(1 + int(random.random() < 0.1)):
                ended = random.random() > (1.0 if place == 5 else 0.1) and mode != "check"
                told = {"samples_per_s": float(rate), "samples": 640, "wall_ns": round(640e9 / rate)} if ended else {}
                failed = "ok" if ended or mode == "check" else "error"
                spent = {"host_fetch_ns": round(0.6 * told["wall_ns"])} if ended and mode == "train" else {}
                rows.append({**same, "block": block, "outcome": failed, **told, **spent})
    return pd.DataFrame(rows, columns=[column.name for column in TRIALS])


@pytest.mark.parametrize("seed", range(6))
def test_made_up_runs(page: Page, seed: int) -> None:
    """Cells, reasons, intervals, verdicts, stages and best settings are the same, however odd the blocks."""
    random = np.random.default_rng(seed)
    a, b = (made_up(random, run_id, spare) for run_id, spare in (("a", 1), ("b", 6)))
    got, want = both(page, a, b)
    assert differ(got, want) == []
    assert len(want.cells) > 5
    assert {"only in A", "only in B", "different workload_version: 1 in A, 2 in B"} <= set(want.unmatched["reason"])


def made_up_steps(random: np.random.Generator) -> pd.DataFrame:
    """Training on CUDA with and without ceilings, however copies and launches are: a trial of each of many settings."""
    rows: list[dict[str, Any]] = []
    choices: dict[str, list[Any]] = {
        "prefetcher": ["none", "next_batch", "stream"],
        "pin_memory": [True, False],
        "non_blocking": [True, False],
        "step": ["real", "real", "emulated", "spin"],
        "timing": ["events", "events", "serialized", "off"],
        "debug": ["off", "off", "nvtx"],
        "sync_every_step": [False, False, True],
    }
    for place in range(120):
        drawn = {name: options[random.integers(len(options))] for name, options in choices.items()}
        axes = {**DEFAULTS, **drawn, "batch_size": 1 + place, "step_ms": float(random.uniform(1, 50))}
        kept = random.random() < 0.7
        for mode in ("train", *(("load", "copy", "compute") if kept else ())):
            cell, _ = applicable({**axes, "mode": mode}, "cuda")
            rate = float(np.exp(random.normal(6, 0.5)))
            wall = round(640e9 / rate)
            told = {"samples_per_s": rate, "samples": 640, "wall_ns": wall, "steps": 20}
            told |= {"host_drain_ns": round(wall / 20 * random.uniform(0, 1.6))}
            shares = random.dirichlet([0.2, 1, 2, 2, 2, 1])
            phases = ("fetch", "h2d", "forward", "backward", "optimizer", "other")
            told |= {f"host_{phase}_ns": round(wall * share) for phase, share in zip(phases, shares, strict=True)}
            same = {
                "cell_id": cell_id(cell),
                "run_id": "a",
                "suite": "loader",
                "role": "cell",
                "device": "cuda",
                **cell,
            }
            rows.append({**same, "protocol_version": 1, "block": 0, "outcome": "ok", **told})
    return pd.DataFrame(rows, columns=[column.name for column in TRIALS]).drop_duplicates("cell_id")


def test_what_holds_a_step_back_is_the_same(page: Page) -> None:
    """Copies that take turns with their step, and launches, are told apart by the scripts as by Python."""
    frame = made_up_steps(np.random.default_rng(3))
    got, want = both(page, frame, frame.assign(run_id="b"))
    assert differ(got, want) == []
    assert {"launch-bound", "copy-bound", "compute-bound", "balanced"} <= set(want.held["bottleneck_a"])


SCRIPTS: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, Any, Any]] | None]] = {
    "more workers": ({}, {"workers": 4}, [("num_workers", 2, 4)]),
    "no workers, with ceilings": (
        {"headspace": True},
        {"workers": 0, "headspace": True},
        [("num_workers", 2, 0)],
    ),
    "the same again": ({"headspace": True}, {"hour": 5, "step_ms": 9.0}, []),
    "another script": ({}, {"name": "other.py"}, None),
}
"""Two runs of scripts, and how their settings differ."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_of_a_script_are_compared_alike(page: Page, fake_script: ModuleType, tmp_path: Path, name: str) -> None:
    """Runs of one script are compared whatever its settings are, here as there; of two scripts never."""
    *sides, changed = SCRIPTS[name]
    folders = [fake_script.write(tmp_path, fake_script.Script(**side)) for side in sides]
    got, want = both(page, *(runs.find(str(folder)).table("trials") for folder in folders))
    assert differ(got, want) == []
    assert (None if want.changed is None else list(want.changed)) == changed
    assert len(want.cells) == (0 if changed is None else 3 if name == "no workers, with ceilings" else 1)
    assert len(want.held) == min(1, len(want.cells))


def test_searches_are_compared_alike(
    page: Page, fake_script: ModuleType, fake_tuned: ModuleType, tmp_path: Path
) -> None:
    """A search and a script as it is, or another search, are compared in the settings of both, here as there."""
    folders = [fake_tuned.write(tmp_path / str(blocks), fake_tuned.Search(blocks=blocks)) for blocks in (3, 2)]
    folders.append(fake_script.write(tmp_path, fake_script.Script(workers=0)))
    search, *others = (runs.find(str(folder)).table("trials") for folder in folders)
    for other in others:
        got, want = both(page, search, other)
        assert differ(got, want) == []
        assert want.changed is None
        assert len(want.cells)


KINDS: dict[str, dict[str, Any]] = {
    "loader": {"workers": (0, 1, 2)},
    "one block": {"blocks": 1, "batches": (8,), "nulls": True},
    "cuda": {"device": "cuda", "busy": True},
    "storage": {"formats": ("png", "lmdb", "jpeg"), "suites": ("storage",)},
    "aged": {"batches": (8,), "asked_only": True},
}


@pytest.mark.parametrize("what", KINDS.values(), ids=KINDS)
def test_whole_runs(page: Page, show: Callable[..., Any], what: dict[str, Any]) -> None:
    """Runs with ceilings, stamps, device spans, cold reads and memory; B differs by a factor of each cell's own."""
    a = show(**what).trials
    random = np.random.default_rng(7)
    factors = {name: float(np.exp(random.normal(0, 0.5))) for name in a["cell_id"].unique()}
    factor = a["cell_id"].map(factors).astype("float64") * np.exp(random.normal(0, 0.02, len(a)))
    b = a.assign(run_id="b", samples_per_s=a["samples_per_s"] * factor, pss_peak_bytes=1e9 * random.random(len(a)))
    b["wall_ns"] = (a["wall_ns"] / factor).round().astype("Int64")
    b.loc[b["page_cache"].eq("cold").fillna(False) & b["block"].eq(0), "read_bytes"] = 0  # no proof of having been cold
    for stage in ("read", "decode", "transform", "collate"):
        b[f"worker_{stage}_ns"] = (a[f"worker_{stage}_ns"] / factor).round().astype("Int64")
    got, want = both(page, a, b)
    assert differ(got, want) == []
    assert len(want.cells)
    if not what.get("nulls"):
        assert len(want.stages) > 2
        assert len(want.best)
