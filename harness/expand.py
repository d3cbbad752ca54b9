"""A matrix → a plan: which combinations are cells here, and why every other one is none.

Loads neither torch nor pandas: a plan is there in the time that it takes to read it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from harness import axes, claims, suite
from harness.axes import AXES, Value, applicable, cell_id
from harness.errors import InputError
from harness.impossible import impossible
from harness.manifest import Counted, Protocol
from harness.matrix import Matrix, SuiteSlice
from harness.plan import Place, Plan, PlannedCell, div2k_folder

MOST_COMBINATIONS = 100_000
"""More than this need ``--yes``: nobody sweeps a million cells on purpose."""


def _combinations(part: SuiteSlice) -> Iterator[dict[str, Value]]:
    values = [part.axes.get(axis.name, (axis.default,)) for axis in AXES]
    for chosen in itertools.product(*values):
        yield dict(zip((axis.name for axis in AXES), chosen, strict=True))


def photographs(place: Place) -> str:
    """The workload that stands in div2k's place: the real one where it is at hand."""
    if place.data is not None:
        return "folder"
    return "div2k" if div2k_folder(place.data_root) else "div2k_standin"


def _substituted(part: SuiteSlice, place: Place, said: dict[str, None]) -> SuiteSlice:
    """Put the photographs that are at hand in div2k's place, and say so; never silently."""
    workloads = part.axes.get("workload", ())
    name = photographs(place)
    if "div2k" not in workloads or name == "div2k":
        return part
    why = "procedural images of its geometry, as the real ones are not there (make div2k)"
    if place.data is not None:
        why = "the photographs that DATA= names"
    said[f"workload div2k is replaced by {name}: {why}"] = None
    swapped = tuple(dict.fromkeys(name if workload == "div2k" else workload for workload in workloads))
    return SuiteSlice(part.suite, {**part.axes, "workload": swapped}, part.device)


def _counted(counts: Counter[str]) -> tuple[Counted, ...]:
    return tuple(Counted(count=count, reason=reason) for reason, count in counts.most_common())


def _why_merged(part: SuiteSlice, reasons: Mapping[str, str]) -> str:
    """Name the swept axes that do not apply, grouped by reason; a repetition of another slice otherwise."""
    grouped: dict[str, list[str]] = {}
    for axis, reason in reasons.items():
        if len(part.axes.get(axis, ())) > 1:
            grouped.setdefault(reason, []).append(axis)
    if not grouped:
        return "the same cell stands in another slice"
    return "; ".join(f"{', '.join(axes)}: {reason}" for reason, axes in grouped.items())


def expand(matrix: Matrix, place: Place, *, yes: bool = False) -> Plan:
    """Expand a matrix on a machine.

    Args:
        matrix: what is wanted.
        place: device, data and memory of this machine.
        yes: do not refuse a matrix of more than ``MOST_COMBINATIONS``.

    Raises:
        InputError: too many combinations, or no cell that can run here.
    """
    total = sum(math.prod(len(values) for values in part.axes.values()) for part in matrix.slices)
    if total > MOST_COMBINATIONS and not yes:
        raise InputError(
            f"{matrix.path}: profile {matrix.profile} expands to {total:,} combinations; expected at most "
            f"{MOST_COMBINATIONS:,}. Leave values out, or say --yes (YES=1) if you mean it"
        )
    cells: dict[str, PlannedCell] = {}
    merged: Counter[str] = Counter()
    excluded: Counter[str] = Counter()
    said: dict[str, None] = {}
    for original in matrix.slices:
        part = _substituted(original, place, said)
        for combination in _combinations(part):
            cell, reasons = applicable(combination, place.device)
            key = cell_id(cell)
            if part.device not in (None, place.device):
                excluded[f"wanted on {part.device} only; this machine has {place.device}"] += 1
            elif key in cells:
                merged[_why_merged(part, reasons)] += 1
            elif why := impossible(cell, place, matrix.protocol):
                excluded[why] += 1
            else:
                cells[key] = PlannedCell(key, cell, part.suite)
    if not cells:
        why_not = (
            "; ".join(f"{count} × {reason}" for reason, count in excluded.most_common()) or "no combination at all"
        )
        raise InputError(f"{matrix.path}: profile {matrix.profile}: no cell can run here: {why_not}")
    asked = tuple(cells.values())
    added = _ceilings(asked, place, matrix.protocol)
    claimed, untestable = claims.plan(
        claims.asked_by(part.suite for part in matrix.slices).values(),
        cells,
        place.device,
        photographs(place),
        lambda cell: impossible(cell, place, matrix.protocol),
        place.cores,
    )
    counts = _counted(merged), _counted(excluded)
    return Plan(matrix, place, total, asked, added, *counts, tuple(said), claimed, untestable)


def _ceilings(asked: Iterable[PlannedCell], place: Place, protocol: Protocol) -> tuple[PlannedCell, ...]:
    """The cells that the asked ones are judged against and that nobody asked for, each once."""
    known = {cell.cell_id for cell in asked}
    found: dict[str, PlannedCell] = {}
    for cell in asked:
        if cell.axes["mode"] != "train" or suite.for_claims(cell.suite):
            continue
        for stage in axes.ceilings(cell.axes, place.device).values():
            key = cell_id(stage)
            if key not in known and not impossible(stage, place, protocol):
                found.setdefault(key, PlannedCell(key, stage, cell.suite, "ceiling"))
    return tuple(found.values())


def free_shared_memory() -> int | None:
    """Bytes free under /dev/shm, or None where it is not mounted."""
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108 - asked, not written
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
