"""THE table of axes: every knob, its type, frozen default, unit, meaning, and when it applies.

An axis is spelled as PyTorch spells it. Its default is frozen: it takes part in ``cell_id`` (an axis at its default is
left out of the hash), so that a new axis keeps the ids of all earlier cells. An axis that cannot matter in a cell is
*not applicable* there and recorded as null; it is never coerced to another value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.registry import names
from harness.traits import traits

Value = bool | int | float | str
Cell = Mapping[str, Value]
"""The axes of a cell that apply, by name."""

NO_CUDA = "no CUDA device here"


def _always(_cell: Cell, _device: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob."""

    name: str
    """As PyTorch spells it, where PyTorch has it."""
    type: type[Value]
    """The type of its values in matrix.yaml and in the records."""
    default: Value
    """Frozen: changing it would change the identity of published cells."""
    doc: str
    """One sentence for the data dictionary."""
    unit: str = ""
    """Unit of a number; empty for counts and names."""
    choices: Callable[[], tuple[str, ...]] | None = None
    """Names that are valid, for an axis of names."""
    least: float | None = None
    """Smallest valid number."""
    idle: Callable[[Cell, str], str | None] = _always
    """(axes so far, device) → why this axis cannot matter there, or None when it applies."""


def _one_of(*options: str) -> Callable[[], tuple[str, ...]]:
    return lambda: options


def _only(axis: str, *wanted: Value) -> Callable[[Cell, str], str | None]:
    """The axis matters only where another axis has one of the wanted values."""

    def idle(cell: Cell, _device: str) -> str | None:
        if cell.get(axis) in wanted:
            return None
        return f"matters only with {axis} = {' or '.join(str(value) for value in wanted)}"

    return idle


def _on_cuda(*conditions: Callable[[Cell, str], str | None]) -> Callable[[Cell, str], str | None]:
    """The axis matters only on CUDA, and where every further condition holds."""

    def idle(cell: Cell, device: str) -> str | None:
        if device != "cuda":
            return NO_CUDA
        return next((reason for condition in conditions if (reason := condition(cell, device))), None)

    return idle


def _needs_workers(cell: Cell, _device: str) -> str | None:
    return None if cell.get("num_workers", 0) else "matters only with num_workers > 0"


def _needs_model(cell: Cell, _device: str) -> str | None:
    if cell.get("mode") == "compute" or (cell.get("mode") == "train" and cell.get("step") == "real"):
        return None
    return "matters only where a model runs (mode = compute, or train with step = real)"


def _planted(axis: str) -> Callable[[Cell, str], str | None]:
    """The axis shapes another planted cost and matters only where there is one."""

    def idle(cell: Cell, _device: str) -> str | None:
        return None if cell.get(axis) else f"matters only with {axis} > 0"

    return idle


def _loads_synthetic(cell: Cell, _device: str) -> str | None:
    """Costs are planted into what a loader does, and into synthetic samples only; a stream has no reads to plant in."""
    loads = cell.get("workload") == "synthetic" and cell.get("mode") in ("train", "load")
    if loads and not traits(str(cell["storage_format"])).streamed:
        return None
    return "planted only where synthetic samples are loaded one by one"


_LOADS = _only("mode", "train", "load")


def _format_has(knob: str) -> Callable[[Cell, str], str | None]:
    """The axis is a knob of some storage formats only."""

    def idle(cell: Cell, _device: str) -> str | None:
        name = str(cell.get("storage_format", ""))
        return None if name and knob in traits(name).knobs else f"no knob of storage_format = {name or 'none'}"

    return idle


def _streams(cell: Cell, _device: str) -> str | None:
    name = str(cell.get("storage_format", ""))
    return None if name and traits(name).streamed else "matters only where samples are streamed from shards"


_PHOTOS = ("div2k", "div2k_standin", "folder")

AXES: tuple[Axis, ...] = (
    Axis(
        "workload",
        str,
        "synthetic",
        "What is trained on: dataset, transform and model step.",
        choices=lambda: names("harness.workloads"),
    ),
    Axis(
        "mode",
        str,
        "train",
        "What a trial does: the whole training step, or one stage alone (its ceiling).",
        choices=_one_of("train", "load", "compute", "copy"),
    ),
    Axis(
        "step",
        str,
        "real",
        "The model's step: computed, or emulated by sleeping for step_ms.",
        choices=_one_of("real", "emulated"),
        idle=_only("mode", "train"),
    ),
    Axis(
        "step_ms",
        float,
        10.0,
        "How long an emulated step sleeps, whatever the batch size.",
        unit="ms",
        least=0.0,
        idle=_only("step", "emulated"),
    ),
    Axis(
        "model",
        str,
        "srcnn",
        "The network that is trained.",
        choices=lambda: names("harness.workloads.models"),
        idle=_needs_model,
    ),
    Axis(
        "storage_format", str, "png", "How samples lie on disk.", choices=lambda: names("harness.formats"), idle=_LOADS
    ),
    Axis(
        "page_cache",
        str,
        "warm",
        "Whether the packed samples lie in the system's page cache when a trial begins: all of them, or none. A cold "
        "trial reads every sample once at most.",
        choices=_one_of("warm", "cold"),
        idle=_LOADS,
    ),
    Axis(
        "access",
        str,
        "random",
        "Order of the samples: a new permutation each epoch, or as they lie on disk.",
        choices=_one_of("random", "sequential"),
        idle=_LOADS,
    ),
    Axis(
        "shuffle_buffer",
        int,
        0,
        "Where samples are streamed from shards: how many each worker holds to draw the next one from; 0 keeps the "
        "order of the shard. The order of the shards is shuffled every epoch.",
        unit="samples",
        least=0,
        idle=_streams,
    ),
    Axis(
        "decoder",
        str,
        "pil",
        "The library that decodes stored image files.",
        choices=lambda: names("harness.formats.decoders"),
        idle=_format_has("decoder"),
    ),
    Axis(
        "readahead",
        bool,
        True,
        "LMDB: whether the kernel may read ahead of what is asked for.",
        idle=_format_has("readahead"),
    ),
    Axis(
        "swmr",
        bool,
        False,
        "HDF5: whether the file is opened for reading while another process may write it.",
        idle=_format_has("swmr"),
    ),
    Axis("n_samples", int, 1024, "Samples in the set.", unit="samples", least=1, idle=_LOADS),
    Axis("patch_size", int, 64, "Height and width of a sample.", unit="pixels", least=4),
    Axis(
        "scale",
        int,
        2,
        "Super-resolution factor: the input is downsampled and upsampled (bicubic) by it.",
        least=2,
        idle=_only("workload", *_PHOTOS),
    ),
    Axis(
        "read_us",
        int,
        0,
        "Planted: how long reading one sample waits, on top of the real read.",
        unit="us",
        least=0,
        idle=_loads_synthetic,
    ),
    Axis(
        "decode_us",
        int,
        0,
        "Planted: how long decoding one sample computes, on top of the real decode.",
        unit="us",
        least=0,
        idle=_loads_synthetic,
    ),
    Axis(
        "read_shape",
        str,
        "constant",
        "Planted: how the read's wait varies around its mean, read_us: not, evenly from 0 to twice the mean, or with a "
        "heavy (log-normal) tail.",
        choices=_one_of("constant", "jittered", "heavy_tailed"),
        idle=_planted("read_us"),
    ),
    Axis(
        "collate_us",
        int,
        0,
        "Planted: how long collating one batch computes, on top of the real collation.",
        unit="us",
        least=0,
        idle=_loads_synthetic,
    ),
    Axis(
        "payload_bytes",
        int,
        0,
        "Planted: bytes that every sample carries beside its pixels, from the worker to the device.",
        unit="bytes",
        least=0,
        idle=_only("workload", "synthetic"),
    ),
    Axis(
        "replica",
        int,
        0,
        "Changes nothing: the same cell again under another id, to see what two equal cells differ by.",
        least=0,
    ),
    Axis("batch_size", int, 32, "Samples in a batch.", unit="samples", least=1),
    Axis("num_workers", int, 0, "DataLoader worker processes; 0 loads in the training process.", least=0, idle=_LOADS),
    Axis(
        "prefetch_factor",
        int,
        2,
        "Batches that each worker prepares ahead.",
        unit="batches",
        least=1,
        idle=_needs_workers,
    ),
    Axis(
        "pin_memory",
        bool,
        False,
        "Whether batches are copied into page-locked host memory.",
        idle=_on_cuda(_only("mode", "train", "load", "copy")),
    ),
    Axis(
        "non_blocking",
        bool,
        False,
        "Whether the copy to the device returns before it is done.",
        idle=_on_cuda(_only("mode", "train", "copy")),
    ),
    Axis(
        "timing",
        str,
        "events",
        "How phases are timed: CUDA events, or a synchronisation after every phase.",
        choices=_one_of("events", "serialized"),
        idle=_on_cuda(_only("mode", "train", "compute", "copy")),
    ),
)

NO_KNOBS = frozenset(("mode", "step"))
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
    """
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
