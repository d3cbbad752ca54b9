"""Which settings are best on either of two machines, and what either's are worth on the other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

from harness.analysis.blocks import Blocks, moments
from harness.analysis.contrasts import keys_of
from harness.analysis.machines import welch
from harness.analysis.summary import CONDITIONS, best_cells

_TASK = ("device", *CONDITIONS)
_ENDS = ("ratio", "lo", "hi")
_OF_SIDE = ("samples_per_s", "lo", "hi", "bottleneck", "candidates")
_REACHED = {"": "ratio", "_lo": "lo", "_hi": "hi", "_n": "n"}
"""End of a column's name to what it holds of ``Blocks.ratios``."""
COLUMNS = (
    *_TASK,
    *(f"{name}_{side}" for side in "ab" for name in ("cell", *_OF_SIDE)),
    *_ENDS,
    "n_a",
    "n_b",
    "in_both",
    *(f"{name}{end}" for name in ("a_on_b", "b_on_a") for end in _REACHED),
)
Task = tuple[Any, ...]
"""Values of ``device`` and ``CONDITIONS``: what a cell is measured for, settings left out."""
Run = tuple[pd.DataFrame, pd.DataFrame]
"""Rows of ``records.TRIALS`` of one run, and ``ceilings.judged`` of them."""


def _tasks(frame: pd.DataFrame) -> list[Task]:
    """The task of each row."""
    return list(zip(*keys_of(frame, _TASK), strict=True))


def _sets(run: Run, apart: Collection[str]) -> dict[Task, pd.DataFrame]:
    """Task to its best set, cheapest first."""
    trials, judged = run
    found = best_cells(trials, judged[~judged["suite"].isin(list(apart)).to_numpy(dtype=bool)])
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


def _pair(a: pd.DataFrame, b: pd.DataFrame, of_a: pd.DataFrame, of_b: pd.DataFrame) -> dict[str, Any]:
    """One task: the cheapest of either best set.

    Args:
        a: trials of one run.
        b: of the other.
        of_a: A's best set.
        of_b: B's.
    """
    ids = [str(members["cell_id"].iloc[0]) for members in (of_a, of_b)]
    known = [
        moments(Blocks(trials).logs([trials["run_id"].iloc[0]], [cell]))
        for trials, cell in zip((a, b), ids, strict=True)
    ]
    ends = welch(*known)
    row: dict[str, Any] = {name: float(getattr(ends, name)[0]) for name in _ENDS}
    row |= {"n_a": int(known[0].n[0]), "n_b": int(known[1].n[0])}
    row["in_both"] = len(set(of_a["cell_id"]) & set(of_b["cell_id"]))
    row |= _reached("a_on_b", b, ids[0], ids[1]) | _reached("b_on_a", a, ids[1], ids[0])
    for side, cell, members in zip("ab", ids, (of_a, of_b), strict=True):
        row |= {f"{name}_{side}": members[name].iloc[0] for name in _OF_SIDE} | {f"cell_{side}": cell}
    return row


def best_of_both(a: Run, b: Run, cells: pd.DataFrame, apart: Collection[str] = ()) -> pd.DataFrame:
    """Find the best settings of every task on either machine, and whether they are good on the other.

    Args:
        a: one run.
        b: another.
        cells: rows of ``machines.compare`` of both.
        apart: suites whose cells are no settings to choose from.

    Returns:
        A row a task of which both have a cell in common: ``device`` and ``CONDITIONS``; of either side the cheapest
        ``cell`` of its best set (``summary.best_cells``), its ``samples_per_s`` with ``lo`` and ``hi``, what holds it
        back (``bottleneck``) and of how many ``candidates`` it is; ``ratio`` (B's ÷ A's, Welch) with ``lo``, ``hi``,
        ``n_a`` and ``n_b``; how many cells are ``in_both`` sets; what A's setting reaches of B's on B (``a_on_b``, with
        ``_lo``, ``_hi`` and ``_n`` blocks; NaN where it was not measured there) and the other way round.
    """
    common = set(_tasks(cells))
    sets_a, sets_b = (_sets(run, apart) for run in (a, b))
    found = [
        _pair(a[0], b[0], of_a, sets_b[task]) | dict(zip(_TASK, task, strict=True))
        for task, of_a in sets_a.items()
        if task in sets_b and task in common
    ]
    return pd.DataFrame(found, columns=list(COLUMNS))
