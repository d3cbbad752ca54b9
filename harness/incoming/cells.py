"""Cells of others: their ids are computed anew from their axes, which must be ones that a matrix could name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from harness.axes import AXES, BY_NAME, Axis, Value, applicable, cell_id
from harness.errors import InputError
from harness.incoming.findings import shown
from harness.incoming.offences import Offence, held
from harness.incoming.rows import Codes, Rows

Named = tuple[tuple[str, Value], ...]
"""Axes that a row sets, by name."""
Problem = tuple[str, str, str]
"""Column, what it holds, what was expected."""


def cells(rows: Rows) -> Iterator[Offence]:
    """Find rows whose axes are not those of their cell, and cells whose id or axes are wrong."""
    ids, device = rows.text("cell_id"), rows.text("device")
    keys = (rows.source * (len(ids.words) + 1) + ids.codes) * (len(device.words) + 1) + device.codes
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    like: Codes = first[inverse.reshape(-1)]
    there = [axis for axis in AXES if rows.holds(axis.name)]
    for axis in there:
        values = rows.text(axis.name).codes if axis.type is str else rows.number(axis.name)
        alike = (values == values[like]) | (np.isnan(values) & np.isnan(values[like]))
        yield Offence(axis.name, ~alike, held(rows, axis.name), "the value of the first row of its cell")
    wrong: dict[tuple[str, str], list[int]] = {}
    got: dict[int, str] = {}
    for row in first.tolist():
        if problem := problem_of(_set(rows, there, row), device.text(row) or "", ids.text(row) or ""):
            column, got[row], expected = problem
            wrong.setdefault((column, expected), []).append(row)
    for (column, expected), places in wrong.items():
        mask = np.zeros(len(rows), dtype=np.bool_)
        mask[places] = True
        yield Offence(column, mask, got.__getitem__, expected)


@lru_cache(maxsize=1 << 16)
def problem_of(cell: Named, device: str, said: str) -> Problem | None:
    """Say what is wrong with a cell.

    Args:
        cell: the axes that its rows set.
        device: ``cpu`` or ``cuda``.
        said: its id, as the file has it.

    Returns:
        None where nothing is.
    """
    axes = dict(cell)
    for name, value in cell:
        try:
            BY_NAME[name].checked(value, name)
        except InputError as error:
            return name, shown(value), str(error).rpartition("; expected ")[2]
    _, idle = applicable({axis.name: axis.default for axis in AXES} | axes, device)
    for name, value in cell:
        if name in idle and value != BY_NAME[name].default:
            return name, shown(value), f"nothing: {idle[name]}"
    wanted = cell_id(axes)
    return None if wanted == said else ("cell_id", shown(said), f"{wanted} by its axes")


def _set(rows: Rows, there: list[Axis], row: int) -> Named:
    """The axes that a row sets."""
    found: list[tuple[str, Value]] = []
    for axis in there:
        if axis.type is str:
            if (text := rows.text(axis.name).text(row)) is not None:
                found.append((axis.name, text))
        elif not np.isnan(number := rows.number(axis.name)[row]):
            found.append((axis.name, axis.type(number)))
    return tuple(found)
