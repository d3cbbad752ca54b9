"""Trials → contrasts: every two cells of a run that differ in one axis, compared block by block.

A trial's number carries the weather of its block (heat, neighbours, clocks); the ratio of two cells of the same block
does not. A sweep makes thousands of contrasts: their intervals are single ones, without any correction for their
number. Claims are few, and corrected where they are judged.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.analysis.blocks import Blocks
from harness.analysis.estimates import AXIS_NAMES, identities
from harness.axes import AXES, Axis

Direction = Literal["faster", "slower"]

SAME = (0.97, 1.03)
"""An interval inside is no difference."""
CONFIRMED_OVER = 1.01
"""An interval wholly above is a difference in the claimed direction: "above 1" confirms a true 1 % too often."""
REFUTED_UNDER = 0.99
"""An interval wholly below is one in the other direction."""
NO_KNOBS = frozenset(("mode", "step"))
"""Axes that say what a trial does rather than how: a loader alone against a training step is no contrast."""
COLUMNS = (
    "run_id",
    "machine_id",
    "device",
    "axis",
    "a_value",
    "b_value",
    "cell_a",
    "cell_b",
    "ratio",
    "lo",
    "hi",
    "n",
    "dropped",
    "sd_log",
    "verdict",
)


def verdict(ratio: float, lo: float, hi: float, direction: Direction | None = None) -> str:
    """Judge one contrast; the first rule that holds.

    ``no difference`` if the interval lies inside ±3 %; a difference if its lower end is over 1.01 in the direction
    asked about; the contrary if its upper end is under 0.99; else ``inconclusive``.

    Args:
        ratio: B ÷ A, the estimate; NaN where there is none.
        lo: lower end of its interval.
        hi: upper end.
        direction: what a claim says of B; None where nothing is claimed.

    Returns:
        With a claim ``confirmed`` or ``refuted``, without ``faster`` or ``slower`` (B), or one of the other two. An
        interval that is not known (fewer than two pairs) is ``inconclusive``.
    """
    if not np.isfinite([ratio, lo, hi]).all():
        return "inconclusive"
    if SAME[0] <= lo and hi <= SAME[1]:
        return "no difference"
    if direction == "slower":
        lo, hi = 1 / hi, 1 / lo
    if lo > CONFIRMED_OVER:
        return "confirmed" if direction else "faster"
    if hi < REFUTED_UNDER:
        return "refuted" if direction else "slower"
    return "inconclusive"


def filled(cells: pd.DataFrame, axis: Axis) -> pd.Series:
    """An axis' column with its frozen default where it does not apply, as ``cell_id`` counts it."""
    column = cells[axis.name].astype(object)
    return column.where(column.notna(), axis.default)


def _ranks(axis: Axis, column: pd.Series) -> npt.NDArray[np.float64]:
    """Where each value stands among the axis' values: numbers ascending, names in the table's order, others after."""
    if axis.type is not str:
        return column.to_numpy(dtype=np.float64)
    known = axis.choices() if axis.choices else ()
    names = [*known, *sorted(set(column.astype(str)) - set(known))]
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
    found: list[tuple[str, int, int]] = []
    for position, axis in enumerate(AXES, start=len(fixed)):
        if axis.name in NO_KNOBS:
            continue
        rows = np.flatnonzero(cells[axis.name].notna().to_numpy())
        if not len(rows):
            continue
        _, group = np.unique(np.delete(codes[rows], position, axis=1), axis=0, return_inverse=True)
        order = np.lexsort((_ranks(axis, columns[axis.name].iloc[rows]), group))
        for members in np.split(rows[order], np.flatnonzero(np.diff(group[order])) + 1):
            first, second = np.triu_indices(len(members), 1)
            found.extend((axis.name, int(a), int(b)) for a, b in zip(members[first], members[second], strict=True))
    return found


def contrasts(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare all pairs of cells of one run that differ in exactly one axis.

    ``num_workers`` 0 → 2 is such a pair although ``prefetch_factor`` applies on one side only, if it is at its default
    there. ``mode`` and ``step`` are never contrasted.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs.

    Returns:
        A row a contrast, B being the later value (larger, or later in the axis table): ``COLUMNS``, of which ``ratio``
        is B ÷ A with its 95 % interval ``lo``, ``hi`` (see ``Blocks.ratios``), then every axis: what both sides share,
        null in the axis that differs.
    """
    cells = identities(trials)
    pairs = _pairs(cells)
    rows_a = [a for _, a, _ in pairs]
    rows_b = [b for _, _, b in pairs]
    side_a, side_b = (cells.iloc[rows].reset_index(drop=True) for rows in (rows_a, rows_b))
    names = np.array([name for name, _, _ in pairs], dtype=object)
    found = Blocks(trials).ratios(list(side_a["run_id"]), list(side_a["cell_id"]), list(side_b["cell_id"]))
    found["verdict"] = [verdict(*row) for row in zip(found["ratio"], found["lo"], found["hi"], strict=True)]
    for column in ("run_id", "machine_id", "device"):
        found[column] = side_a[column]
    found["axis"], found["cell_a"], found["cell_b"] = names, side_a["cell_id"], side_b["cell_id"]
    values = {axis.name: [None if pd.isna(value) else axis.type(value) for value in cells[axis.name]] for axis in AXES}
    found["a_value"] = pd.Series([values[name][row] for name, row, _ in pairs], dtype=object)
    found["b_value"] = pd.Series([values[name][row] for name, _, row in pairs], dtype=object)
    shared = {name: side_a[name].where(side_a[name].notna(), side_b[name]).mask(names == name) for name in AXIS_NAMES}
    return pd.concat([found[list(COLUMNS)], pd.DataFrame(shared)], axis=1)
