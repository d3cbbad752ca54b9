"""Trials → contrasts: every two cells of a run that differ in one axis, compared block by block.

A trial's number carries the weather of its block (heat, neighbours, clocks); the ratio of two cells of the same block
does not. A sweep makes thousands of contrasts: their intervals are single ones, without any correction for their
number. Claims are few, and corrected where they are judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import blocks_of, memoized
from feedrate.analysis.estimate import Floats, blocks_for
from feedrate.analysis.estimates import AXIS_NAMES, identities
from feedrate.schema.axes import ACTIVITIES, AXES, BY_NAME, Axis
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER, SAME

COLUMNS = (
    *("run_id", "machine_id", "device", "axis", "a_value", "b_value", "cell_a", "cell_b"),
    *("ratio", "lo", "hi", "n", "dropped", "sd_log", "verdict", "blocks_needed"),
)


def verdicts(ratio: Any, lo: Any, hi: Any) -> npt.NDArray[np.str_]:
    """Judge contrasts B ÷ A; the first rule that holds.

    ``no difference`` if the interval lies inside ±3 %; ``faster`` if its lower end is over 1.01; ``slower`` if its
    upper end is under 0.99; else, or where it is not known, ``inconclusive``.
    """
    ratio, lo, hi = (np.asarray(values, dtype=np.float64) for values in (ratio, lo, hi))
    finite = np.isfinite(ratio) & np.isfinite(lo) & np.isfinite(hi)
    rules = ((lo >= SAME[0]) & (hi <= SAME[1]), lo > CONFIRMED_OVER, hi < REFUTED_UNDER)
    judged = np.select([finite & rule for rule in rules], ("no difference", "faster", "slower"), "inconclusive")
    return np.asarray(judged, dtype=np.str_)


def room(ratio: Any) -> tuple[Floats, Floats]:
    """Half-widths in logs that an interval may have for ``no difference``, and for a difference in either direction.

    Negative where none is narrow enough. The margins overlap: around 1.02, half-widths of 1 % serve either verdict.
    """
    log = np.log(np.asarray(ratio, dtype=np.float64))
    same = np.minimum(log - np.log(SAME[0]), np.log(SAME[1]) - log)
    return same, np.maximum(log - np.log(CONFIRMED_OVER), np.log(REFUTED_UNDER) - log)


def blocks_needed(ratio: Any, sd_log: Any) -> Floats:
    """How many blocks a verdict takes, should estimate and spread stay as they are.

    An estimate that is a little off the truth makes this a guess: half of all contrasts will take more.
    """
    return blocks_for(np.maximum(*room(ratio)), sd_log)


def filled(cells: pd.DataFrame, axis: Axis) -> pd.Series:
    """An axis' column with its frozen default where it does not apply, as ``cell_id`` counts it."""
    column = cells[axis.name]
    values = column.to_numpy(dtype=object, copy=True)
    values[column.isna().to_numpy()] = axis.default
    return pd.Series(values, column.index, dtype=object, name=axis.name)


def off_default(cells: pd.DataFrame, axes: Iterable[Axis]) -> npt.NDArray[np.int64]:
    """Count, for each cell, the axes that are not at their frozen default; one that does not apply is."""
    off = [np.asarray(filled(cells, axis).to_numpy() != axis.default) for axis in axes]
    return np.asarray(np.sum(off, axis=0), dtype=np.int64)


def grouping_keys(table: pd.DataFrame, names: Sequence[str]) -> list[pd.Series]:
    """Columns to group by: an axis that does not apply stands at its default, any other null is a value of its own."""
    return [
        filled(table, BY_NAME[name]) if name in BY_NAME else table[name].astype(object).where(table[name].notna(), None)
        for name in names
    ]


def _ranks(axis: Axis, column: pd.Series) -> npt.NDArray[np.float64]:
    """Where each value stands among the axis' values: numbers ascending, names in the table's order, others after."""
    if axis.type is not str:
        return column.to_numpy(dtype=np.float64)
    choices = axis.choices() if axis.choices else ()
    names = [*choices, *sorted(set(column.astype(str)) - set(choices))]
    return np.array([names.index(str(name)) for name in column], dtype=np.float64)


def _pairs(cells: pd.DataFrame) -> list[tuple[str, int, int]]:
    """(axis, row of A, row of B) of every contrast.

    Cells are grouped by all axes but one, an axis that does not apply standing at its default. This is the rule that
    an axis null on one side is no difference if the other side is at the default: among cells whose other axes agree,
    only the axis that differs can have switched it off.
    """
    columns = {axis.name: filled(cells, axis) for axis in AXES}
    fixed = [pd.factorize(cells[name])[0] for name in ("run_id", "device")]
    codes = np.column_stack([*fixed, *(pd.factorize(column)[0] for column in columns.values())])
    pairs: list[tuple[str, int, int]] = []
    for position, axis in enumerate(AXES, start=len(fixed)):
        if axis.name in ACTIVITIES:
            continue
        rows = np.flatnonzero(cells[axis.name].notna().to_numpy())
        if not len(rows):
            continue
        _, group = np.unique(np.delete(codes[rows], position, axis=1), axis=0, return_inverse=True)
        order = np.lexsort((_ranks(axis, columns[axis.name].iloc[rows]), group))
        for members in np.split(rows[order], np.flatnonzero(np.diff(group[order])) + 1):
            first, second = np.triu_indices(len(members), 1)
            pairs.extend((axis.name, int(a), int(b)) for a, b in zip(members[first], members[second], strict=True))
    return pairs


@memoized
def contrasts(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare all pairs of cells of one run that differ in exactly one axis.

    ``num_workers`` 0 → 2 is such a pair although ``prefetch_factor`` applies on one side only, if it is at its default
    there. ``mode`` and ``step`` are never contrasted.

    Returns:
        A row a contrast, B being the later value (larger, or later in the axis table): ``COLUMNS``, of which ``ratio``
        and what follows are those of ``Blocks.ratios`` and ``blocks_needed`` the blocks that a verdict would take where
        it is ``inconclusive``; then every axis: what both sides share, null in the axis that differs.
    """
    cells = identities(trials)
    pairs = _pairs(cells)
    names = np.array([name for name, _, _ in pairs], dtype=object)
    rows_a, rows_b = [a for _, a, _ in pairs], [b for _, _, b in pairs]
    side_a, side_b = (cells.iloc[rows].reset_index(drop=True) for rows in (rows_a, rows_b))
    ratios = blocks_of(trials).ratios(list(side_a["run_id"]), list(side_a["cell_id"]), list(side_b["cell_id"]))
    ratios["verdict"] = verdicts(ratios["ratio"], ratios["lo"], ratios["hi"])
    undecided = ratios["verdict"] == "inconclusive"
    ratios["blocks_needed"] = np.where(undecided, blocks_needed(ratios["ratio"], ratios["sd_log"]), np.nan)
    for column in ("run_id", "machine_id", "device"):
        ratios[column] = side_a[column]
    ratios["axis"], ratios["cell_a"], ratios["cell_b"] = names, side_a["cell_id"], side_b["cell_id"]
    values = {axis.name: [None if pd.isna(value) else axis.type(value) for value in cells[axis.name]] for axis in AXES}
    for side, rows in (("a_value", rows_a), ("b_value", rows_b)):
        ratios[side] = pd.Series([values[name][row] for name, row in zip(names, rows, strict=True)], dtype=object)
    shared = {name: side_a[name].where(side_a[name].notna(), side_b[name]).mask(names == name) for name in AXIS_NAMES}
    return pd.concat([ratios[list(COLUMNS)], pd.DataFrame(shared)], axis=1)
