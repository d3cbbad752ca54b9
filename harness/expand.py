"""A matrix → a plan: which combinations are cells here, and why every other one is none.

Loads neither torch nor pandas: a plan is there in the time that it takes to read it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from harness import axes, registry, window
from harness.axes import AXES, Cell, Value, applicable, cell_id
from harness.errors import InputError
from harness.manifest import Counted, Protocol
from harness.matrix import Matrix, SuiteSlice
from harness.plan import PETS_FOLDER, Place, Plan, PlannedCell, div2k_folder
from harness.traits import STREAM_SHARDS, traits

MOST_COMBINATIONS = 100_000
"""More than this need ``--yes``: nobody sweeps a million cells on purpose."""

_PLUGINS = {
    "workload": "harness.workloads",
    "model": "harness.workloads.models",
    "storage_format": "harness.formats",
    "decoder": "harness.formats.decoders",
}
"""Axes whose values are plug-ins, with their packages."""


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
    elif div2k_folder(place.data_root):
        return part
    else:
        name, why = "div2k_standin", "procedural images of its geometry, as the real ones are not there (make div2k)"
    said[f"workload div2k is replaced by {name}: {why}"] = None
    swapped = tuple(dict.fromkeys(name if workload == "div2k" else workload for workload in workloads))
    return SuiteSlice(part.suite, {**part.axes, "workload": swapped}, part.device)


def batch_bytes(cell: Cell) -> int:
    """Bytes of a batch on its way to the step: input and target, three channels, float32, and what is planted."""
    return int(cell["batch_size"]) * (2 * 3 * int(cell["patch_size"]) ** 2 * 4 + int(cell.get("payload_bytes", 0)))


def _impossible(cell: Cell, place: Place, protocol: Protocol) -> str | None:
    """Why a cell cannot run here, or None."""
    return (
        _lacking(cell)
        or _no_source(cell, place)
        or _unfit(cell)
        or ("mode copy needs a CUDA device" if cell["mode"] == "copy" and place.device != "cuda" else None)
        or _no_room(cell, place)
        or _not_cold(cell, place, protocol)
    )


def _lacking(cell: Cell) -> str | None:
    """Which library a cell needs that is not installed."""
    for axis, package in _PLUGINS.items():
        if axis in cell and (lacking := registry.missing(package, str(cell[axis]))):
            return f"{axis} {cell[axis]} needs {', '.join(lacking)} (pip install {' '.join(lacking.values())})"
    return None


def _no_source(cell: Cell, place: Place) -> str | None:
    if cell["workload"] == "folder" and place.data is None:
        return "workload folder needs a folder of photographs (DATA=DIR)"
    if cell["workload"] == "pets" and not (place.data_root / PETS_FOLDER / "annotations" / "trainval.txt").is_file():
        return "workload pets needs the Oxford-IIIT Pets (make pets)"
    return None


def _unfit(cell: Cell) -> str | None:
    """Why the values of a cell do not go together: model and task, format and access, format and decoder."""
    name, workload, model = str(cell.get("storage_format", "")), str(cell["workload"]), str(cell.get("model", ""))
    task = registry.declared("harness.workloads", workload, "TASK")
    if model and task != (able := registry.declared("harness.workloads.models", model, "TASK")):
        return f"model {model} is for {able}, workload {workload} for {task}"
    if name and cell["access"] not in traits(name).access:
        return f"storage_format {name} is streamed from shards: it has no {cell['access']} access"
    if decoder := str(cell.get("decoder", "")):
        codecs = registry.declared("harness.formats.decoders", decoder, "CODECS")
        if traits(name).stores not in codecs:
            return f"decoder {decoder} cannot decode {traits(name).stores} (storage_format {name})"
    return None


def _no_room(cell: Cell, place: Place) -> str | None:
    samples, workers = int(cell.get("n_samples", 0)), int(cell.get("num_workers", 0))
    if samples and int(cell["batch_size"]) > samples:
        return "batch_size above n_samples"
    if samples and workers > (shards := _shards(cell) or workers):
        return f"more workers than shards: storage_format {cell['storage_format']} has {shards} for {samples} samples"
    if place.shm_bytes and workers * int(cell.get("prefetch_factor", 0)) * batch_bytes(cell) > place.shm_bytes:
        return "prefetched batches would not fit into /dev/shm (lower num_workers, prefetch_factor or batch_size)"
    return None


def _shards(cell: Cell) -> int | None:
    """Files of a streamed set; None where samples are read one by one."""
    streamed = traits(str(cell["storage_format"])).streamed
    return min(STREAM_SHARDS, int(cell["n_samples"])) if streamed else None


def _not_cold(cell: Cell, place: Place, protocol: Protocol) -> str | None:
    """Why a trial that reads each sample at most once cannot be had."""
    if cell.get("page_cache") != "cold":
        return None
    if place.in_memory:
        return "page_cache cold: the data folder lies in memory (choose a disk with DATA_ROOT=)"
    samples, size, workers = int(cell["n_samples"]), int(cell["batch_size"]), int(cell["num_workers"])
    ahead = int(cell.get("prefetch_factor", 0))
    batches = window.batches_once(samples, size, workers, _shards(cell))
    if window.steps_once(batches, workers, ahead) >= window.whole(protocol.min_steps, workers):
        return None
    least = window.samples_once(size, workers, ahead, protocol.min_steps)
    wanted = "more samples" if _shards(cell) else f"n_samples of {least:,} or more"
    return f"page_cache cold: too few samples to read each once only ({wanted}, or smaller batches)"


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
            elif why := _impossible(cell, place, matrix.protocol):
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
    return Plan(matrix, place, total, asked, added, _counted(merged), _counted(excluded), tuple(said))


def _ceilings(asked: Iterable[PlannedCell], place: Place, protocol: Protocol) -> tuple[PlannedCell, ...]:
    """The cells that the asked ones are judged against and that nobody asked for, each once."""
    known = {cell.cell_id for cell in asked}
    found: dict[str, PlannedCell] = {}
    for cell in asked:
        for stage in axes.ceilings(cell.axes, place.device).values() if cell.axes["mode"] == "train" else ():
            key = cell_id(stage)
            if key not in known and not _impossible(stage, place, protocol):
                found.setdefault(key, PlannedCell(key, stage, cell.suite, "ceiling"))
    return tuple(found.values())


def free_shared_memory() -> int | None:
    """Bytes free under /dev/shm, or None where it is not mounted."""
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108 - asked, not written
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
