"""Two runs beside each other: what the ratios of their cells come to, why, and which settings are best on either.

All of it rests on the cells that ``machines.matching`` lets pass; B is held against A throughout. The website computes
the same in a reader's browser (``site/scripts/compare/comparison.js``); a test holds the two together.

Why: cells of the modes load, copy and compute show what each stage can do alone. Inside the loader the workers' stamps
tell reading from decoding; they are taken where one process loads at a time, if any cell does: with more workers than
cores a stamp holds the wait for a core too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import Blocks, moments, successful
from feedrate.analysis.claims import NOT_TESTABLE
from feedrate.analysis.contrasts import filled, grouping_keys
from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.analysis.machines import CELL, Overall, compare, matching, overall, ratios, welch
from feedrate.analysis.storage import credible
from feedrate.analysis.summary import CONDITIONS, best_cells
from feedrate.schema import plugins
from feedrate.schema.axes import BY_NAME
from feedrate.schema.plugins import traits

ENDS = ("ratio", "lo", "hi")
CEILINGS = ("load_ceiling", "copy_ceiling", "compute_ceiling")
STAGE_COLUMNS = ("stage", "a", "b", *ENDS, "least", "most", "cells", "n_a", "n_b")
HELD_COLUMNS = (*CELL, *(f"{name}_{side}" for side in "ab" for name in ("bottleneck", *CEILINGS)), *AXIS_NAMES)
_TASK = ("device", *CONDITIONS)
_OF_SIDE = ("samples_per_s", "lo", "hi", "bottleneck", "candidates")
_REACHED = {"": "ratio", "_lo": "lo", "_hi": "hi", "_n": "n"}
"""End of a column's name to what it holds of ``Blocks.ratios``."""
BEST_COLUMNS = (
    *_TASK,
    *(f"{name}_{side}" for side in "ab" for name in ("cell", *_OF_SIDE)),
    *ENDS,
    "n_a",
    "n_b",
    "in_both",
    *(f"{name}{end}" for name in ("a_on_b", "b_on_a") for end in _REACHED),
)
KINDS = ("train", "emulated", "load", "copy", "compute")
"""What a cell runs: a real training step, an emulated one, or one stage alone."""
COUNTED = {"faster": "faster", "slower": "slower", "same": "no difference", "open": "inconclusive"}
"""Columns that count verdicts."""
KIND_COLUMNS = ("kind", *ENDS, "cells", *COUNTED)
_JUDGED = ("verdict", *ENDS, "n")
CLAIM_COLUMNS = ("claim", "suite", *(f"{name}_{side}" for side in "ab" for name in _JUDGED), "agree", "decided")
Task = tuple[Any, ...]
"""Values of ``device`` and ``CONDITIONS``: what a cell is measured for, settings left out."""
Run = tuple[pd.DataFrame, pd.DataFrame]
"""Trials of one run, and ``ceilings.cells_with_ceilings`` of them."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What is looked at alone."""

    name: str
    doc: str
    """What it is, as a row of a table."""
    mode: str
    """Of the cells in which it is looked at."""
    column: str = ""
    """Of ``records.TRIALS``: the workers' stamps that make its rate; empty where that is the cell's throughput."""
    page_cache: str = ""
    """The state of the page cache in these cells; empty for any."""
    encoded: bool = False
    """Whether only formats that store image files are looked at."""


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


@cache
def encoded_formats() -> tuple[str, ...]:
    """Name the formats that store image files, whose samples are decoded."""
    return tuple(name for name in plugins.names("feedrate.formats") if traits(name).encoded)


def _equal(column: pd.Series, value: str) -> npt.NDArray[np.bool_]:
    """Where a column has a value; null is no value."""
    return column.eq(value).fillna(False).to_numpy(dtype=np.bool_)


def _cells_of(stage: Stage, cells: pd.DataFrame) -> pd.DataFrame:
    """The cells in which a stage is looked at; with stamps those where one process loads, if there are any."""
    wanted = _equal(cells["mode"], stage.mode)
    if stage.page_cache:
        wanted = wanted & _equal(filled(cells, BY_NAME["page_cache"]), stage.page_cache)
    if stage.encoded:
        wanted = wanted & cells["storage_format"].isin(encoded_formats()).to_numpy(dtype=bool)
    chosen = cells[wanted]
    alone = chosen[(chosen["num_workers"].astype("float64").fillna(0) <= 1).to_numpy(dtype=bool)]
    return alone if stage.column and len(alone) else chosen


def _with_rate_of(stage: Stage, trials: pd.DataFrame) -> pd.DataFrame:
    """Trials that ended well, the stage's rate in the place of their throughput."""
    ended = successful(trials)
    if not stage.column:
        return ended
    samples, spent = (ended[name].astype("float64") for name in ("samples", stage.column))
    return ended.assign(samples_per_s=1e9 * (samples / spent))


def stages(trials_a: pd.DataFrame, trials_b: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Hold every stage of two machines side by side."""
    found = []
    for stage in STAGES:
        own = _cells_of(stage, cells)
        if not len(own):
            continue
        each = ratios(_with_rate_of(stage, trials_a), _with_rate_of(stage, trials_b), own).dropna(subset=["ratio"])
        if not len(each):
            continue
        row = {"stage": stage.name, "cells": len(each), "least": each["ratio"].min(), "most": each["ratio"].max()}
        row |= {side: float(np.exp(np.log(each[side]).mean())) for side in "ab"}
        if len(each) > 1:
            over = overall(each)
            row |= {end: getattr(over, end) for end in ENDS}
        else:  # the interval of a single cell is that of its blocks
            row |= {name: float(each[name].iloc[0]) for name in (*ENDS, "n_a", "n_b")}
        found.append(row)
    return pd.DataFrame(found, columns=list(STAGE_COLUMNS))


def held_back(judged_a: pd.DataFrame, judged_b: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Say what holds each compared training cell back on either machine."""
    training = cells.loc[_equal(cells["mode"], "train"), [*CELL, *AXIS_NAMES]]
    for side, judged in (("a", judged_a), ("b", judged_b)):
        names = {name: f"{name}_{side}" for name in ("bottleneck", *CEILINGS)}
        training = training.merge(judged[["cell_id", *names]].rename(columns=names), on="cell_id", how="left")
    return training[list(HELD_COLUMNS)].reset_index(drop=True)


def _tasks(frame: pd.DataFrame) -> list[Task]:
    """The task of each row."""
    return list(zip(*grouping_keys(frame, _TASK), strict=True))


def _best_sets(run: Run, unranked: Collection[str]) -> dict[Task, pd.DataFrame]:
    """Task to its best set, cheapest first."""
    trials, judged = run
    found = best_cells(trials, judged[~judged["suite"].isin(list(unranked)).to_numpy(dtype=bool)])
    members: dict[Task, list[int]] = {}
    for place, task in enumerate(_tasks(found)):
        members.setdefault(task, []).append(place)
    return {task: found.iloc[places] for task, places in members.items()}


def _reached(name: str, trials: pd.DataFrame, cell: str, best: str) -> dict[str, float]:
    """What a cell reaches of a best one of the same run, paired by block; NaN where it was not measured there."""
    if not trials["cell_id"].eq(cell).any():
        return {f"{name}{end}": float("nan") for end in _REACHED}
    found = Blocks(trials).ratios([trials["run_id"].iloc[0]], [best], [cell])
    return {f"{name}{end}": float(found[column].iloc[0]) for end, column in _REACHED.items()}


def _best_of_task(a: pd.DataFrame, b: pd.DataFrame, set_a: pd.DataFrame, set_b: pd.DataFrame) -> dict[str, Any]:
    """Hold the cheapest of either best set against each other."""
    cell_a, cell_b = (str(members["cell_id"].iloc[0]) for members in (set_a, set_b))
    logs = [moments(Blocks(of).logs([of["run_id"].iloc[0]], [cell])) for of, cell in ((a, cell_a), (b, cell_b))]
    ends = welch(*logs)
    row: dict[str, Any] = {name: float(getattr(ends, name)[0]) for name in ENDS}
    row |= {"cell_a": cell_a, "cell_b": cell_b, "n_a": int(logs[0].n[0]), "n_b": int(logs[1].n[0])}
    row["in_both"] = len(set(set_a["cell_id"]) & set(set_b["cell_id"]))
    row |= _reached("a_on_b", b, cell_a, cell_b) | _reached("b_on_a", a, cell_b, cell_a)
    return row | {f"{name}_{side}": of[name].iloc[0] for side, of in (("a", set_a), ("b", set_b)) for name in _OF_SIDE}


def best_of_both(a: Run, b: Run, cells: pd.DataFrame, unranked: Collection[str] = ()) -> pd.DataFrame:
    """Find the best settings of every task on either machine, and whether they are good on the other.

    Args:
        a: one run.
        b: another.
        cells: what can be compared; tasks without such a cell are left out.
        unranked: suites whose cells are no settings to choose from.
    """
    common = set(_tasks(cells))
    sets_a, sets_b = (_best_sets(run, unranked) for run in (a, b))
    found = [
        _best_of_task(a[0], b[0], set_a, sets_b[task]) | dict(zip(_TASK, task, strict=True))
        for task, set_a in sets_a.items()
        if task in sets_b and task in common
    ]
    return pd.DataFrame(found, columns=list(BEST_COLUMNS))


@dataclass(frozen=True, slots=True)
class Compared:
    """What the records of two runs say of each other; B is held against A throughout."""

    cells: pd.DataFrame
    """A row a cell that can be compared: ``machines.compare``."""
    unmatched: pd.DataFrame
    """A row a cell that cannot: ``cell_id``, ``device``, every axis, ``reason``."""
    overall: Overall
    """Over all cells."""
    kinds: pd.DataFrame
    """The same by what a cell runs: ``KIND_COLUMNS``."""
    stages: pd.DataFrame
    """Every stage of both machines: ``STAGE_COLUMNS``."""
    held: pd.DataFrame
    """What holds each compared training cell back: ``HELD_COLUMNS``."""
    best: pd.DataFrame
    """The best settings of every task of which both have a cell in common: ``BEST_COLUMNS``."""


def compared(a: Run, b: Run, unranked: Collection[str] = ()) -> Compared:
    """Compare two runs; ``unranked`` as of :func:`best_of_both`.

    Raises:
        ValueError: a side holds more than one run.
    """
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
    )


def believable(trials: pd.DataFrame) -> pd.DataFrame:
    """Take the throughput from loading trials whose page cache was not as their cell says."""
    doubtful = trials["storage_format"].notna() & ~trials.index.isin(credible(trials).index)
    return trials.assign(samples_per_s=trials["samples_per_s"].mask(doubtful))


def kinds(cells: pd.DataFrame) -> pd.DataFrame:
    """Sum up the cells of each kind."""
    emulated = _equal(cells["mode"], "train") & _equal(cells["step"], "emulated")
    found = []
    for kind in KINDS:
        own = cells[emulated if kind == "emulated" else _equal(cells["mode"], kind) & ~emulated]
        if len(own):
            over = overall(own)
            counts = [int(own["verdict"].eq(word).sum()) for word in COUNTED.values()]
            found.append((kind, over.ratio, over.lo, over.hi, over.cells, *counts))
    return pd.DataFrame(found, columns=list(KIND_COLUMNS))


def claims(found_a: pd.DataFrame, found_b: pd.DataFrame) -> pd.DataFrame:
    """Hold the verdicts of two machines against each other: those that differ first, and of them the decided ones."""
    tested = [
        {str(row["claim"]): row for row in rows_of(found) if row["verdict"] != NOT_TESTABLE}
        for found in (found_a, found_b)
    ]
    rows = []
    for name, a in tested[0].items():
        if b := tested[1].get(name):
            row = {"claim": name, "suite": a["suite"], "agree": a["verdict"] == b["verdict"]}
            row["decided"] = "inconclusive" not in (a["verdict"], b["verdict"])
            rows.append(
                row | {f"{column}_{side}": of[column] for side, of in (("a", a), ("b", b)) for column in _JUDGED}
            )
    rows.sort(key=lambda row: (row["agree"], not row["decided"]))
    return pd.DataFrame(rows, columns=list(CLAIM_COLUMNS))


@dataclass(frozen=True, slots=True)
class Repeated:
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
