"""Two runs beside each other: what the ratios of their cells come to, why, and which settings are best on either.

All of it rests on the cells that ``machines.matching`` lets pass. The website computes the same in a reader's browser
(``site/assets/compare_all.js``); a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.analysis.claimed import NOT_TESTABLE
from harness.analysis.compared_best import Run, best_of_both
from harness.analysis.compared_stages import ENDS, equal, held_back, stages
from harness.analysis.machines import Overall, compare, matching, overall
from harness.analysis.rows import rows_of
from harness.analysis.storage import believed

KINDS = ("train", "emulated", "load", "copy", "compute")
"""What a cell runs: a real training step, an emulated one, or one stage alone."""
COUNTED = {"faster": "faster", "slower": "slower", "same": "no difference", "open": "inconclusive"}
"""Columns that count verdicts."""
KIND_COLUMNS = ("kind", *ENDS, "cells", *COUNTED)
_FOUND = ("verdict", *ENDS, "n")
CLAIM_COLUMNS = ("claim", "suite", *(f"{name}_{side}" for side in "ab" for name in _FOUND), "agree", "decided")


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
    """Every stage of both machines: ``compared_stages.STAGE_COLUMNS``."""
    held: pd.DataFrame
    """What holds each compared training cell back: ``compared_stages.HELD_COLUMNS``."""
    best: pd.DataFrame
    """The best settings of every task of which both have a cell in common: ``compared_best.COLUMNS``."""


def compared(a: Run, b: Run, apart: Collection[str] = ()) -> Compared:
    """Compare two runs.

    Args:
        a: rows of ``records.TRIALS`` of one run, as ``believable`` returns them, and ``ceilings.judged`` of them.
        b: of another.
        apart: suites whose cells are no settings to choose from.

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
        best_of_both(a, b, cells, apart),
    )


def believable(trials: pd.DataFrame) -> pd.DataFrame:
    """Take the throughput from loading trials whose page cache was not as their cell says: cold reads that were warm.

    Args:
        trials: rows of ``records.TRIALS``.

    Returns:
        The same rows; ``samples_per_s`` is null where ``storage.believed`` does not believe it.
    """
    doubtful = trials["storage_format"].notna() & ~trials.index.isin(believed(trials).index)
    return trials.assign(samples_per_s=trials["samples_per_s"].mask(doubtful))


def kinds(cells: pd.DataFrame) -> pd.DataFrame:
    """Sum up the cells of each kind.

    Args:
        cells: rows of ``machines.compare``.

    Returns:
        A row a kind that has cells, in the order of ``KINDS``: ``kind``, ``ratio`` (geometric mean) with ``lo`` and
        ``hi`` (``machines.overall``), ``cells``, and how many of them are ``faster`` and ``slower`` in B, the ``same``
        (no difference) and ``open`` (inconclusive).
    """
    emulated = equal(cells["mode"], "train") & equal(cells["step"], "emulated")
    found = []
    for kind in KINDS:
        own = cells[emulated if kind == "emulated" else equal(cells["mode"], kind) & ~emulated]
        if len(own):
            over = overall(own)
            counts = [int(own["verdict"].eq(word).sum()) for word in COUNTED.values()]
            found.append((kind, over.ratio, over.lo, over.hi, over.cells, *counts))
    return pd.DataFrame(found, columns=list(KIND_COLUMNS))


def claims(found_a: pd.DataFrame, found_b: pd.DataFrame) -> pd.DataFrame:
    """Hold the verdicts of two machines against each other.

    Args:
        found_a: ``claimed.Judged.claims`` of one run.
        found_b: of another.

    Returns:
        A row a claim that both tested: ``claim``, ``suite``, of either side its ``verdict``, ``ratio``, ``lo``, ``hi``
        and ``n``; whether the verdicts ``agree``, and whether both are ``decided`` (neither is inconclusive). Those
        that disagree and are decided come first, then the others that disagree.
    """
    mine, others = (
        {str(row["claim"]): row for row in rows_of(found) if row["verdict"] != NOT_TESTABLE}
        for found in (found_a, found_b)
    )
    rows = []
    for name in (name for name in mine if name in others):
        pair = {"a": mine[name], "b": others[name]}
        told = {f"{column}_{side}": row[column] for side, row in pair.items() for column in _FOUND}
        verdicts = [row["verdict"] for row in pair.values()]
        told |= {"agree": verdicts[0] == verdicts[1], "decided": "inconclusive" not in verdicts}
        rows.append({"claim": name, "suite": mine[name]["suite"], **told})
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

    Args:
        cells: rows of ``machines.compare``; at least one.
    """
    off = np.abs(np.log(cells["ratio"].to_numpy(dtype=np.float64)))
    lo, hi = (cells[end].to_numpy(dtype=np.float64) for end in ("lo", "hi"))
    hold = (lo <= 1) & (hi >= 1)
    return Repeated(float(100 * np.expm1(np.median(off))), int(hold.sum()), int(np.isfinite(lo).sum()))
