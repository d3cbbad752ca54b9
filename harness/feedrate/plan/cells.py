"""A matrix → a plan: which combinations are cells here, and why every other one is none.

Loads neither torch nor pandas: a plan is there in the time that it takes to read it.

Why a cell cannot run on a machine: what is missing, what does not go together, what does not fit.

Every reason is a sentence that the plan prints and the run records; a cell is left out with it, never changed.
Loads neither torch nor pandas.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from feedrate.plan import claim_selection, suite
from feedrate.plan.matrix import Matrix, SuiteSlice
from feedrate.plan.schedule import PETS_FOLDER, Place, Plan, PlannedCell, div2k_folder
from feedrate.schema import axes, plugins, window
from feedrate.schema.axes import AXES, Cell, Value, applicable, cell_id
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import STREAM_SHARDS, traits
from feedrate.store.manifest import Counted, Protocol

CHECKS = "feedrate.trial.checks"
LARGEST_CHECKED = 8
"""Height and width of an image whose gradients are checked number by number."""
LEAST_VARIED = 16
"""Height and width of an image that is cut to several sizes."""
_PLUGINS = {
    "workload": "feedrate.workloads",
    "model": "feedrate.workloads.models",
    "storage_format": "feedrate.formats",
    "decoder": "feedrate.formats.decoders",
    "check": CHECKS,
}
"""Axes whose values are plug-ins, with their packages."""


def batch_bytes(cell: Cell) -> int:
    """Bytes of a batch on its way to the step: input and target, three channels, float32, and what is planted."""
    return int(cell["batch_size"]) * (2 * 3 * int(cell["patch_size"]) ** 2 * 4 + int(cell.get("payload_bytes", 0)))


def impossible(cell: Cell, place: Place, protocol: Protocol) -> str | None:
    """Why a cell cannot run here, or None."""
    return (
        _lacking(cell)
        or _no_source(cell, place)
        or _unfit(cell)
        or _needs_cuda(cell, place)
        or _no_step(cell, place)
        or _no_replicas(cell, place)
        or _no_room(cell, place)
        or _not_cold(cell, place, protocol)
    )


def _lacking(cell: Cell) -> str | None:
    """Which library a cell needs that is not installed."""
    for axis, package in _PLUGINS.items():
        if axis in cell and (lacking := plugins.missing(package, str(cell[axis]))):
            return f"{axis} {cell[axis]} needs {', '.join(lacking)} (pip install {' '.join(lacking.values())})"
    return None


def _needs_cuda(cell: Cell, place: Place) -> str | None:
    """What a cell is for that only a CUDA device can do."""
    if place.device == "cuda":
        return None
    if cell["mode"] == "copy":
        return "mode copy needs a CUDA device"
    for axis, value in (("amp", "fp16"), ("debug", "nvtx")):
        if cell.get(axis) == value:
            return f"{axis} {value} needs a CUDA device"
    check = str(cell.get("check", ""))
    return f"check {check} needs a CUDA device" if check and plugins.declared(CHECKS, check, "DEVICE") else None


def _no_source(cell: Cell, place: Place) -> str | None:
    if cell["workload"] == "folder" and place.data is None:
        return "workload folder needs a folder of photographs (DATA=DIR)"
    if cell["workload"] == "pets" and not (place.data_root / PETS_FOLDER / "annotations" / "trainval.txt").is_file():
        return "workload pets needs the Oxford-IIIT Pets (make pets)"
    return None


def _unfit(cell: Cell) -> str | None:
    """Why the values of a cell do not go together: model and task, format and access, format and decoder."""
    name, workload, model = str(cell.get("storage_format", "")), str(cell["workload"]), str(cell.get("model", ""))
    task = plugins.declared("feedrate.workloads", workload, "TASK")
    if model and task != (able := plugins.declared("feedrate.workloads.models", model, "TASK")):
        return f"model {model} is for {able}, workload {workload} for {task}"
    if name and cell["access"] not in traits(name).access:
        return f"storage_format {name} is streamed from shards: it has no {cell['access']} access"
    if decoder := str(cell.get("decoder", "")):
        codecs = plugins.declared("feedrate.formats.decoders", decoder, "CODECS")
        if traits(name).stores not in codecs:
            return f"decoder {decoder} cannot decode {traits(name).stores} (storage_format {name})"
    return None


def _no_step(cell: Cell, place: Place) -> str | None:
    """Why a training step cannot be made as a cell says."""
    if "model" not in cell:
        return None
    model, fusion, size = str(cell["model"]), cell["fusion"], int(cell["patch_size"])
    knobs = plugins.declared("feedrate.workloads.models", model, "KNOBS") or ()
    twice = cell["debug"] in ("gradcheck", "gradgradcheck")
    normed = model == "resnet18" or cell.get("norm") == "batch"
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    reasons = {
        f"model {model} has no function that PyTorch has fused: fusion functional changes nothing": (
            fusion == "functional" and "fusion" not in knobs
        ),
        "fusion script: TorchScript does not run on Python 3.14": fusion == "script" and sys.version_info >= (3, 14),
        "fusion compile needs a C++ compiler (g++)": fusion == "compile" and not compiler,
        "fusion compile on CUDA needs triton (pip install triton)": (
            fusion == "compile" and place.device == "cuda" and importlib.util.find_spec("triton") is None
        ),
        f"debug {cell['debug']} takes the loss twice for every number of the input (batch_size 1, patch_size ≤ 8)": (
            twice and (int(cell["batch_size"]) > 1 or size > LARGEST_CHECKED)
        ),
        f"debug {cell['debug']}: a batch norm needs two samples at this size": twice and normed,
        "vary_shapes: images below 16 pixels have one size only": bool(cell["vary_shapes"]) and size < LEAST_VARIED,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _no_replicas(cell: Cell, place: Place) -> str | None:
    """Why a model cannot be replicated as a cell says."""
    kind, world, fusion = str(cell.get("parallel", "none")), int(cell.get("world_size", 1)), str(cell.get("fusion"))
    if kind == "none":
        return None
    dp, cuda = kind == "dp", place.device == "cuda"
    held = cell.get("page_cache") == "cold" or cell.get("cache", "none") != "none"
    reasons = {
        f"parallel {kind} deals samples out one by one; storage_format {cell['storage_format']} is streamed": (
            _shards(cell)
        ),
        f"parallel {kind} with page_cache cold or a cache: a replica would evict or fill what the others read": held,
        "parallel dp with world_size 1 calls the model itself: there is nothing to compare": dp and world < 2,
        f"parallel dp with fusion {fusion}: DataParallel copies the model in every step, and not what was made of it": (
            dp and fusion in ("compile", "script")
        ),
        "parallel dp needs CUDA devices": dp and not cuda,
        "parallel dp with amp bf16: DataParallel's threads compute in float16 whatever autocast was told": (
            dp and cell.get("amp") == "bf16"
        ),
        f"world_size {world} needs {world} CUDA devices; {place.gpus} here": cuda and world > place.gpus,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _no_room(cell: Cell, place: Place) -> str | None:
    samples, workers = int(cell.get("n_samples", 0)), int(cell.get("num_workers", 0))
    world = int(cell.get("world_size", 1))
    if samples and int(cell["batch_size"]) * world > samples:
        return "batch_size (times world_size) above n_samples" if world > 1 else "batch_size above n_samples"
    if "index_entries" in cell and int(cell["batch_size"]) > int(cell["index_entries"]):
        return "batch_size above index_entries"
    if samples and workers > (shards := _shards(cell) or workers):
        return f"more workers than shards: storage_format {cell['storage_format']} has {shards} for {samples} samples"
    sharing = 0 if cell.get("worker_kind") == "thread" else workers
    if place.shm_bytes and sharing * int(cell.get("prefetch_factor", 0)) * batch_bytes(cell) * world > place.shm_bytes:
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
    if cell.get("prefetcher", "none") != "none":
        return "page_cache cold with a prefetcher: it is one batch ahead of those that may be read once"
    samples, size, workers = int(cell["n_samples"]), int(cell["batch_size"]), int(cell["num_workers"])
    ahead = int(cell.get("prefetch_factor", 0))
    batches = window.batches_once(samples, size, workers, _shards(cell))
    if window.steps_once(batches, workers, ahead) >= window.whole(protocol.min_steps, workers):
        return None
    least = window.samples_once(size, workers, ahead, protocol.min_steps)
    wanted = "more samples" if _shards(cell) else f"n_samples of {least:,} or more"
    return f"page_cache cold: too few samples to read each once only ({wanted}, or smaller batches)"


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
    claimed, untestable = claim_selection.plan(
        claim_selection.asked_by(part.suite for part in matrix.slices).values(),
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
