"""THE table of axes: every knob, its type, frozen default, unit, meaning, and when it applies.

An axis is spelled as PyTorch spells it. Its default is frozen: it takes part in ``cell_id`` (an axis at its default is
left out of the hash), so that a new axis keeps the ids of all earlier cells. An axis that cannot matter in a cell is
*not applicable* there and recorded as null; it is never coerced to another value. The parts of the table are files of
this package; whether an axis applies depends on those before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from feedrate.schema.axes._axis import NO_CUDA, Axis, Cell, Value
from feedrate.schema.axes.loading import LOADING
from feedrate.schema.axes.planted import PLANTED
from feedrate.schema.axes.stored import STORED
from feedrate.schema.axes.task import TASK
from feedrate.schema.axes.training import TRAINING
from feedrate.schema.axes.transfer import TRANSFER

__all__ = [
    "AXES",
    "BY_NAME",
    "CEILINGS",
    "NO_CUDA",
    "NO_KNOBS",
    "Axis",
    "Cell",
    "Value",
    "applicable",
    "ceilings",
    "cell_id",
]

AXES: tuple[Axis, ...] = (*TASK, *STORED, *PLANTED, *LOADING, *TRANSFER, *TRAINING)
NO_KNOBS = frozenset(("mode", "step", "check"))
"""Axes that say what a trial does rather than how: a loader alone against a training step is no contrast."""
CEILINGS = ("load", "copy", "compute")
"""Values of ``mode`` that run one stage of a training cell alone."""
BY_NAME: Mapping[str, Axis] = {axis.name: axis for axis in AXES}


def applicable(combination: Cell, device: str) -> tuple[dict[str, Value], dict[str, str]]:
    """Split a combination of values into the axes that matter on a device and those that do not.

    Args:
        combination: a value for every axis, by name.
        device: ``cpu`` or ``cuda``.

    Returns:
        The cell (axes that apply, in the table's order), and for each axis that does not, the reason.
    """
    cell: dict[str, Value] = {}
    reasons: dict[str, str] = {}
    for axis in AXES:
        if reason := axis.idle(cell, device):
            reasons[axis.name] = reason
        else:
            cell[axis.name] = combination[axis.name]
    return cell, reasons


def ceilings(cell: Cell, device: str) -> dict[str, dict[str, Value]]:
    """Find the cells that a training cell's stages make when each runs alone; unrelated axes do not apply there.

    Args:
        cell: a cell of mode train: the axes that apply.
        device: ``cpu`` or ``cuda``.

    Returns:
        Stage to its cell. On a CPU there is nothing to copy; an emulated step's ceiling is declared, not measured.
        Several replicas have none: a stage alone is one replica's.
    """
    if cell.get("parallel", "none") != "none":
        return {}
    whole = {axis.name: axis.default for axis in AXES} | dict(cell)
    left_out = {"copy"} if device == "cpu" else set()
    left_out |= {"compute"} if cell["step"] == "emulated" else set()
    return {stage: applicable({**whole, "mode": stage}, device)[0] for stage in CEILINGS if stage not in left_out}


def cell_id(cell: Cell) -> str:
    """Identify a cell: 12 hex digits of sha256 over the sorted JSON of the axes that differ from their frozen default.

    Args:
        cell: the axes that apply, by name; an axis at its default and one that does not apply count the same.
    """
    telling = {name: value for name, value in cell.items() if value != BY_NAME[name].default}
    text = json.dumps(telling, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
