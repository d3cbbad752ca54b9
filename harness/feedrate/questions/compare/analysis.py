"""Two runs beside each other: how the ratios of their cells sum up, why they differ, and which settings are best.

All of it rests on the cells that ``machines.matching`` lets pass; B is held against A throughout. The website computes
the same in a reader's browser (``site/scripts/compare/comparison.js``); a test holds the two together.

Why: cells of the modes load, copy and compute show what each stage can do alone. Inside the loader the workers' stamps
tell reading from decoding. They are taken where one process loads at a time, if any cell does: with more workers than
cores a stamp holds the wait for a core too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import Blocks, successful
from feedrate.analysis.claims import NOT_TESTABLE
from feedrate.analysis.contrasts import filled, grouping_keys
from feedrate.analysis.estimate import Estimate, moments
from feedrate.analysis.machines import ONCE, compare, matching, one_setting, overall, ratios, welch
from feedrate.analysis.summary import best_cells
from feedrate.charts.figure import plain
from feedrate.schema import plugins
from feedrate.schema.axes import AXES, BY_NAME, CONDITIONS, EMULATED_STEPS, SCRIPT
from feedrate.schema.plugins import traits

ENDS = ("ratio", "lo", "hi")
OVERALL = (*ENDS, "cells")
KINDS = ("train", "emulated", "load", "copy", "compute")
"""What a cell runs: a real training step, an emulated one, or one stage alone."""
COUNTED = {"faster": "faster", "slower": "slower", "same": "no difference", "open": "inconclusive", "once": ONCE}
"""Columns that count verdicts."""
CAUTIONS = {
    "spread": "The interval is the spread over settings, not measurement error.",
    "emulated": "Emulated steps, the same everywhere, pull the ratio towards 1.",
    "apart": "Runs of one machine lie this far apart.",
}
"""What a reader of a ratio over many settings has to know, on the page and on the terminal."""
_STAGE_COLUMNS = ("stage", "a", "b", *ENDS, "cells", "n_a", "n_b")
_TASK = ("device", *CONDITIONS)
"""What a cell is measured for, settings left out."""
_OF_SIDE = ("samples_per_s", "lo", "hi", "bottleneck")
_REACHED = {"": "ratio", "_lo": "lo", "_hi": "hi", "_n": "n"}
"""End of a column's name to the column of ``Blocks.ratios``."""
Run = tuple[pd.DataFrame, pd.DataFrame]
"""Trials of one run, and ``ceilings.cells_with_ceilings`` of them."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the work that some cells show alone."""

    name: str
    doc: str
    mode: str
    """Of the cells that show it."""
    column: str = ""
    """The workers' stamps that make its rate; empty where the rate is the cell's throughput."""
    page_cache: str = ""
    """The state of the page cache in these cells; empty for any."""
    encoded: bool = False
    """Whether only formats that store image files show it."""


STAGES = (
    Stage("load", "Loading alone, all workers", "load"),
    Stage("disk", "Reading, page cache cold (disk), one process", "load", "worker_read_ns", "cold"),
    Stage("cached", "Reading, page cache warm, one process", "load", "worker_read_ns", "warm"),
    Stage("decode", "Decoding image files, one process", "load", "worker_decode_ns", encoded=True),
    Stage("transform", "Transforming, one process", "load", "worker_transform_ns"),
    Stage("collate", "Collating, one process", "load", "worker_collate_ns"),
    Stage("copy", "Copying to the device alone", "copy"),
    Stage("compute", "The model's step alone", "compute"),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """What the records of two runs say of each other; B is held against A throughout."""

    cells: pd.DataFrame
    """A row a cell that can be compared: ``machines.compare``."""
    unmatched: pd.DataFrame
    """A row a cell that cannot: ``cell_id``, ``device``, every axis, ``reason``."""
    overall: Estimate
    """Over all cells, which n counts."""
    kinds: pd.DataFrame
    """The same by what a cell runs: ``kind``, ``ENDS``, ``cells``, ``COUNTED``."""
    stages: pd.DataFrame
    """A row a stage that both runs show alone: rates ``a`` and ``b``, ``ENDS``, what they rest on."""
    held: pd.DataFrame
    """How many compared training cells (``cells``) have which ``bottleneck_a`` and ``bottleneck_b``, most first."""
    best: pd.DataFrame
    """A row a task of which both have a cell in common: the cheapest of either's best settings."""
    changed: tuple[tuple[str, Any, Any], ...] | None
    """How the settings of a script differ, whose runs are compared whatever they are: axis, A's value and B's, None
    where it does not apply. None where none are, or the same settings are compared, as with a search."""


def compared(a: Run, b: Run, unranked: Collection[str] = ()) -> Compared:
    """Compare two runs; ``unranked`` as of :func:`best_of_both`."""
    pairs = ((a, b[0]), (b, a[0]))
    a, b = ((one_setting(trials, other), one_setting(judged, other)) for (trials, judged), other in pairs)
    matched = matching(a[0], b[0])
    cells = compare(a[0], b[0], matched)
    return Compared(
        cells,
        matched[matched["reason"].notna()].reset_index(drop=True),
        overall(cells),
        kinds(cells),
        stages(a[0], b[0], cells),
        held_back(a[1], b[1], cells),
        best_of_both(a, b, cells, unranked),
        changed(a[0], b[0], cells),
    )


def changed(
    trials_a: pd.DataFrame, trials_b: pd.DataFrame, cells: pd.DataFrame
) -> tuple[tuple[str, Any, Any], ...] | None:
    """Tell how the settings of a script's loop differ (``Compared.changed``); what does not apply is at its default."""
    scripts = cells[_equal(cells["workload"], SCRIPT)]
    loops = scripts.loc[scripts["cell_id"].eq(scripts["script"].astype("string") + ", train"), "cell_id"]
    if not len(loops):
        return None
    a, b = (trials[trials["cell_id"].eq(loops.iloc[0])].iloc[0] for trials in (trials_a, trials_b))
    differences = []
    for axis in AXES:
        values = plain(a[axis.name]), plain(b[axis.name])
        one, other = (axis.default if value is None else value for value in values)
        if one != other:
            differences.append((axis.name, *values))
    return tuple(differences)


def kinds(cells: pd.DataFrame) -> pd.DataFrame:
    """Sum up the cells of each kind."""
    emulated = _equal(cells["mode"], "train") & cells["step"].isin(EMULATED_STEPS).to_numpy(dtype=np.bool_)
    groups = []
    for kind in KINDS:
        of_kind = cells[emulated if kind == "emulated" else _equal(cells["mode"], kind) & ~emulated]
        if len(of_kind):
            counts = {name: int(of_kind["verdict"].eq(word).sum()) for name, word in COUNTED.items()}
            groups.append({"kind": kind, **overall(of_kind).row(OVERALL), **counts})
    return pd.DataFrame(groups)


def _equal(column: pd.Series, value: str) -> npt.NDArray[np.bool_]:
    """Where a column has a value; null is no value."""
    return column.eq(value).fillna(False).to_numpy(dtype=np.bool_)


@cache
def encoded_formats() -> tuple[str, ...]:
    """Name the formats that store image files, whose samples are decoded."""
    return tuple(name for name in plugins.names("feedrate.formats") if traits(name).encoded)


def stages(trials_a: pd.DataFrame, trials_b: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Compare every stage that both runs show alone."""
    compared = []
    for stage in STAGES:
        a, b = (with_rate_of(stage, trials) for trials in (trials_a, trials_b))
        stage_cells = cells_of(stage, cells)
        pairs = ratios(a, b, stage_cells).dropna(subset=["ratio"]) if len(stage_cells) else stage_cells
        if not len(pairs):
            continue
        row = {"stage": stage.name, "cells": len(pairs)}
        row |= {side: float(np.exp(np.log(pairs[side]).mean())) for side in "ab"}
        if len(pairs) > 1:
            row |= overall(pairs).row(OVERALL)
        else:  # the interval of a single cell is that of its blocks
            row |= {name: float(pairs[name].iloc[0]) for name in (*ENDS, "n_a", "n_b")}
        compared.append(row)
    return pd.DataFrame(compared, columns=list(_STAGE_COLUMNS))


def cells_of(stage: Stage, cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that show a stage; with stamps those where one process loads, if there are any."""
    wanted = _equal(cells["mode"], stage.mode)
    if stage.page_cache:
        wanted = wanted & _equal(filled(cells, BY_NAME["page_cache"]), stage.page_cache)
    if stage.encoded:
        wanted = wanted & cells["storage_format"].isin(encoded_formats()).to_numpy(dtype=bool)
    chosen = cells[wanted]
    alone = chosen[(chosen["num_workers"].astype("float64").fillna(0) <= 1).to_numpy(dtype=bool)]
    return alone if stage.column and len(alone) else chosen


def with_rate_of(stage: Stage, trials: pd.DataFrame) -> pd.DataFrame:
    """Trials that ended well, the stage's rate in the place of their throughput."""
    ended = successful(trials)
    if not stage.column:
        return ended
    samples, spent = (ended[name].astype("float64") for name in ("samples", stage.column))
    return ended.assign(samples_per_s=1e9 * (samples / spent))


def held_back(judged_a: pd.DataFrame, judged_b: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Count the compared training cells by what holds them back on either machine."""
    training = cells.loc[_equal(cells["mode"], "train"), ["cell_id"]]
    for side, judged in (("a", judged_a), ("b", judged_b)):
        bottlenecks = judged[["cell_id", "bottleneck"]].rename(columns={"bottleneck": f"bottleneck_{side}"})
        training = training.merge(bottlenecks, on="cell_id", how="left")
    return training[["bottleneck_a", "bottleneck_b"]].value_counts().reset_index(name="cells")


def best_of_both(a: Run, b: Run, cells: pd.DataFrame, unranked: Collection[str] = ()) -> pd.DataFrame:
    """Find the best settings of every task on either machine, and what they reach on the other.

    Tasks of which no cell can be compared are left out; cells of ``unranked`` suites are no settings to choose from.
    """
    common = set(zip(*grouping_keys(cells, _TASK), strict=True))
    sets_a, sets_b = (_best_sets(run, unranked) for run in (a, b))
    both = [task for task in sets_a if task in sets_b and task in common]
    compared = [_best_of_task(a[0], b[0], sets_a[task], sets_b[task]) for task in both]
    return pd.DataFrame([row | dict(zip(_TASK, task, strict=True)) for row, task in zip(compared, both, strict=True)])


def _best_sets(run: Run, unranked: Collection[str]) -> dict[Any, pd.DataFrame]:
    """Task to its best set, cheapest first."""
    trials, judged = run
    sets = best_cells(trials, judged[~judged["suite"].isin(list(unranked)).to_numpy(dtype=bool)])
    return dict(iter(sets.groupby(grouping_keys(sets, _TASK), sort=False)))


def _best_of_task(a: pd.DataFrame, b: pd.DataFrame, set_a: pd.DataFrame, set_b: pd.DataFrame) -> dict[str, Any]:
    """Compare the cheapest of either best set, here and there."""
    cell_a, cell_b = (str(members["cell_id"].iloc[0]) for members in (set_a, set_b))
    logs = [moments(Blocks(of).logs([of["run_id"].iloc[0]], [cell])) for of, cell in ((a, cell_a), (b, cell_b))]
    ends = welch(*logs)
    row: dict[str, Any] = {name: float(ends[name][0]) for name in ENDS}
    row |= {"cell_a": cell_a, "cell_b": cell_b, "n_a": int(logs[0].n[0]), "n_b": int(logs[1].n[0])}
    for side, members in (("a", set_a), ("b", set_b)):
        row |= {f"{name}_{side}": members[name].iloc[0] for name in _OF_SIDE}
    return row | _reached("a_on_b", b, cell_a, cell_b) | _reached("b_on_a", a, cell_b, cell_a)


def _reached(name: str, trials: pd.DataFrame, cell: str, best: str) -> dict[str, float]:
    """The share of a run's best cell that another of its cells reaches, by block; NaN where it was not measured."""
    if not trials["cell_id"].eq(cell).any():
        return {f"{name}{end}": float("nan") for end in _REACHED}
    ratio = Blocks(trials).ratios([trials["run_id"].iloc[0]], [best], [cell])
    return {f"{name}{end}": float(ratio[column].iloc[0]) for end, column in _REACHED.items()}


def claims(found_a: pd.DataFrame, found_b: pd.DataFrame) -> pd.DataFrame:
    """Compare the verdicts of two machines: those that differ first, and of them the decided ones."""
    a, b = (verdicts[verdicts["verdict"].ne(NOT_TESTABLE)] for verdicts in (found_a, found_b))
    both = a.merge(b, on="claim", suffixes=("_a", "_b"))
    decided = both["verdict_a"].ne("inconclusive") & both["verdict_b"].ne("inconclusive")
    both = both.assign(agree=both["verdict_a"].eq(both["verdict_b"]), decided=decided)
    return both.sort_values(["agree", "decided"], ascending=[True, False], kind="stable", ignore_index=True)


class Repeated(NamedTuple):
    """How well two runs of one machine agree."""

    half_within_pct: float
    """Half of the cells differ by no more than this."""
    hold: int
    """Cells whose interval holds a ratio of one."""
    cells: int
    """Cells with an interval."""


def repeated(cells: pd.DataFrame) -> Repeated:
    """Say how well two runs of one machine agree.

    Were the blocks of both runs drawn from the same, 95 % of the intervals would hold one; what changes from run to run
    and not from block to block makes it fewer.
    """
    off = np.abs(np.log(cells["ratio"].to_numpy(dtype=np.float64)))
    lo, hi = (cells[end].to_numpy(dtype=np.float64) for end in ("lo", "hi"))
    hold = (lo <= 1) & (hi >= 1)
    return Repeated(float(100 * np.expm1(np.median(off))), int(hold.sum()), int(np.isfinite(lo).sum()))
