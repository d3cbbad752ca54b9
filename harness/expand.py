"""A matrix → a plan: which combinations are cells here, and why every other one is none.

Loads neither torch nor pandas: a plan is there in the time that it takes to read it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from harness import axes, registry
from harness.axes import AXES, Cell, Value, applicable, cell_id
from harness.errors import InputError
from harness.manifest import Counted
from harness.matrix import Matrix, SuiteSlice
from harness.plan import DIV2K_FOLDER, Place, Plan, PlannedCell

MOST_COMBINATIONS = 100_000
"""More than this need ``--yes``: nobody sweeps a million cells on purpose."""


def _combinations(part: SuiteSlice) -> Iterator[dict[str, Value]]:
    values = [part.axes.get(axis.name, (axis.default,)) for axis in AXES]
    for chosen in itertools.product(*values):
        yield dict(zip((axis.name for axis in AXES), chosen, strict=True))


def _substituted(part: SuiteSlice, place: Place, said: dict[str, None]) -> SuiteSlice:
    """Put the photographs that are at hand in div2k's place, and say so; never silently."""
    workloads = part.axes.get("workload", ())
    if "div2k" not in workloads:
        return part
    if place.data is not None:
        name, why = "folder", "the photographs that DATA= names"
    elif (place.data_root / DIV2K_FOLDER).is_dir():
        return part
    else:
        name = "div2k_standin"
        why = f"procedural images of its geometry, as the data folder holds no {DIV2K_FOLDER} with the real ones"
    said[f"workload div2k is replaced by {name}: {why}"] = None
    swapped = tuple(dict.fromkeys(name if workload == "div2k" else workload for workload in workloads))
    return SuiteSlice(part.suite, {**part.axes, "workload": swapped}, part.device)


def batch_bytes(cell: Cell) -> int:
    """Bytes of a batch on its way to the step: input and target, three channels, float32, and what is planted."""
    return int(cell["batch_size"]) * (2 * 3 * int(cell["patch_size"]) ** 2 * 4 + int(cell.get("payload_bytes", 0)))


def _impossible(cell: Cell, place: Place) -> str | None:
    """Why a cell cannot run here, or None."""
    for package, axis in (("harness.workloads", "workload"), ("harness.formats", "storage_format")):
        if axis in cell and (lacking := registry.missing(package, str(cell[axis]))):
            return f"{axis} {cell[axis]} needs {', '.join(lacking)} (pip install {' '.join(lacking.values())})"
    if cell["workload"] == "folder" and place.data is None:
        return "workload folder needs a folder of photographs (DATA=DIR)"
    if cell["mode"] == "copy" and place.device != "cuda":
        return "mode copy needs a CUDA device"
    if "n_samples" in cell and int(cell["batch_size"]) > int(cell["n_samples"]):
        return "batch_size above n_samples"
    workers = int(cell.get("num_workers", 0))
    if place.shm_bytes and workers * int(cell.get("prefetch_factor", 0)) * batch_bytes(cell) > place.shm_bytes:
        return "prefetched batches would not fit into /dev/shm (lower num_workers, prefetch_factor or batch_size)"
    return None


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
            elif why := _impossible(cell, place):
                excluded[why] += 1
            else:
                cells[key] = PlannedCell(key, cell, part.suite)
    if not cells:
        why_not = (
            "; ".join(f"{count} × {reason}" for reason, count in excluded.most_common()) or "no combination at all"
        )
        raise InputError(f"{matrix.path}: profile {matrix.profile}: no cell can run here: {why_not}")
    asked = tuple(cells.values())
    return Plan(matrix, place, total, asked, _ceilings(asked, place), _counted(merged), _counted(excluded), tuple(said))


def _ceilings(asked: Iterable[PlannedCell], place: Place) -> tuple[PlannedCell, ...]:
    """The cells that the asked ones are judged against and that nobody asked for, each once."""
    known = {cell.cell_id for cell in asked}
    found: dict[str, PlannedCell] = {}
    for cell in asked:
        for stage in axes.ceilings(cell.axes, place.device).values() if cell.axes["mode"] == "train" else ():
            key = cell_id(stage)
            if key not in known and not _impossible(stage, place):
                found.setdefault(key, PlannedCell(key, stage, cell.suite, "ceiling"))
    return tuple(found.values())


def free_shared_memory() -> int | None:
    """Bytes free under /dev/shm, or None where it is not mounted."""
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108 - asked, not written
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
