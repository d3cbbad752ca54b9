"""THE table of axes: what each is to a user (its role), its frozen default, unit and meaning, and when it applies.

An axis is spelled as PyTorch spells it. Its default is frozen: it takes part in ``cell_id`` (an axis at its default is
left out of the hash), so that a new axis keeps the ids of all earlier cells. An axis that cannot matter in a cell is
*not applicable* there and recorded as null; it is never coerced to another value. Whether an axis applies depends on
those before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from feedrate.schema.axis import (
    ALIKE,
    FREE_NAME,
    LOADS,
    LOADS_ONE_BY_ONE,
    LOADS_SYNTHETIC,
    NEEDS_MODEL,
    NEEDS_WORKERS,
    NO_CUDA,
    OF_A_SCRIPT,
    OF_FILES,
    OF_IMAGES,
    SCRIPT,
    STREAMED_BY_LOADER,
    STREAMS,
    TUNE,
    Axis,
    Cell,
    Role,
    Value,
    above,
    activity,
    all_of,
    any_of,
    condition,
    format_has,
    knob,
    loader_has,
    named,
    one_of,
    only,
    setting,
)
from feedrate.schema.plugins import names
from feedrate.schema.step_axes import TRAINING, TRANSFER

__all__ = [
    "ACTIVITIES",
    "AXES",
    "BY_NAME",
    "CEILINGS",
    "CONDITIONS",
    "EMULATED_STEPS",
    "FREE_NAME",
    "KNOBS",
    "LOADING",
    "NO_CUDA",
    "PHOTOGRAPHS",
    "REPLACED",
    "SCRIPT",
    "SETTINGS",
    "TRAINING",
    "TRANSFER",
    "TUNE",
    "Axis",
    "Cell",
    "Value",
    "applicable",
    "ceilings",
    "cell_id",
    "lives",
    "needs_context",
    "stand_ins",
]


EMULATED_STEPS = ("emulated", "spin")
"""Values of ``step`` that compute nothing and last as long as ``step_ms`` says."""
TASK = named(
    workload=condition(
        "synthetic",
        "What is trained on: dataset, transform and model step; script is a training script of somebody's own.",
        choices=lambda: (*names("feedrate.workloads"), SCRIPT),
        of_scripts=True,
    ),
    script=condition(
        "", "What that script is called; runs of one name are compared.", idle=OF_A_SCRIPT, of_scripts=True
    ),
    mode=activity(
        "train",
        "What is measured: the whole training step, one stage alone (its limit), or a check of a fact, which times "
        "nothing.",
        choices=one_of("train", "load", "compute", "copy", "check"),
        of_scripts=True,
    ),
    check=activity(
        "next_epoch",
        "Which fact a check looks at.",
        choices=lambda: names("feedrate.trial.checks"),
        idle=only("mode", "check"),
    ),
    ends_by=condition(
        "return",
        "How the training process of the checks `termination` and `worker_signal` ends.",
        choices=one_of("return", "exception", "sigint", "sigterm", "sigkill"),
        idle=only("check", "termination", "worker_signal"),
    ),
    guarded=condition(
        True,
        "Whether a check's processes guard against what it looks for. In `termination` workers then die with their "
        "parent, and SIGTERM ends the training process in order. In `hdf5_fork` each process opens the file for "
        "itself.",
        idle=only("check", "termination", "hdf5_fork"),
    ),
    in_order=condition(
        True,
        "Whether the DataLoader of the check `balance` delivers batches in the order of the sampler.",
        idle=only("check", "balance"),
    ),
    first_process=condition(
        "reaps",
        "What process 1 does with orphans of the check `termination`. An init asks for their status (reaps). A "
        "container whose first process is a script never does (never_waits).",
        choices=one_of("reaps", "never_waits"),
        idle=only("check", "termination"),
    ),
    step=activity(
        "real",
        "The model's step. It is computed (real), or the host sleeps for step_ms (emulated). With spin a CUDA device "
        "is busy for as long, and the host does not wait for it.",
        choices=one_of("real", *EMULATED_STEPS),
        idle=only("mode", "train"),
    ),
    step_ms=condition(
        10.0,
        "How long an emulated step sleeps or spins, whatever the batch size.",
        unit="ms",
        idle=only("step", *EMULATED_STEPS),
    ),
    model=condition(
        "srcnn", "The network that is trained.", choices=lambda: names("feedrate.workloads.models"), idle=NEEDS_MODEL
    ),
)
"""What is trained on, and what a trial does."""

STORED = named(
    storage_format=knob("png", "How samples lie on disk.", choices=lambda: names("feedrate.formats"), idle=LOADS),
    page_cache=condition(
        "warm",
        "Whether the packed samples lie in the system's page cache when a measurement begins. All do (warm), "
        "none do (cold), or as many as fill its memory (full). A cold one reads every sample once at most.",
        choices=one_of("warm", "cold", "full"),
        idle=LOADS,
    ),
    access=condition(
        "random",
        "Order of the samples: a new permutation each epoch, or as they lie on disk.",
        choices=one_of("random", "sequential"),
        idle=LOADS,
    ),
    shuffle_buffer=setting(
        0,
        "How many samples each worker holds to draw the next one from, where shards are streamed. 0 keeps the order "
        "of the shard. The order of the shards is shuffled every epoch.",
        unit="samples",
        idle=STREAMS,
    ),
    decoder=knob(
        "pil",
        "The library that decodes stored image files.",
        choices=lambda: names("feedrate.formats.decoders"),
        idle=any_of(format_has("decoder"), OF_FILES),
    ),
    scaled_decode=setting(
        False,
        "Whether a JPEG file is decoded at a half, a quarter or an eighth of its size (DCT scaling). Only where the "
        "crop keeps enough pixels.",
        idle=OF_FILES,
    ),
    readahead=knob(True, "LMDB: whether the kernel may read ahead of what is asked for.", idle=format_has("readahead")),
    memory_limit_mib=setting(
        0,
        "Memory that a measurement may use, page cache included: it runs in a memory cgroup of that size; 0: no limit.",
        unit="MiB",
        least=0,
        idle=only("page_cache", "cold", "full"),
    ),
    disk_mib_s=condition(
        0,
        "How fast a measurement may read from the disk. The kernel delays further reads (a control group), as a slower "
        "disk would. 0: as fast as the disk is.",
        unit="MiB/s",
        least=0,
        idle=only("page_cache", "cold", "full"),
    ),
    read_ahead_kib=setting(
        0,
        "How far the kernel may read ahead in a file, and around a fault in a mapped one. Set for the disk while the "
        "measurement runs. 0: as the disk has it.",
        unit="KiB",
        least=0,
        idle=only("page_cache", "cold", "full"),
    ),
    swmr=knob(
        False,
        "HDF5: whether the file is opened for reading while another process may write it.",
        idle=format_has("swmr"),
    ),
    n_samples=condition(1024, "Samples in the set.", unit="samples", least=1, idle=LOADS),
    patch_size=condition(64, "Height and width of a sample.", unit="pixels", least=4, idle=OF_IMAGES),
    scale=condition(
        2,
        "Super-resolution factor: the input is downsampled and upsampled (bicubic) by it.",
        least=2,
        idle=only("workload", "div2k", "div2k_standin", "folder"),
    ),
)
"""How the packed samples lie on disk, and in which order they are read."""

PLANTED = named(
    read_us=condition(
        0, "Planted: how long reading one sample waits, on top of the real read.", unit="us", idle=LOADS_SYNTHETIC
    ),
    decode_us=condition(
        0, "Planted: how long decoding one sample computes, on top of the real decode.", unit="us", idle=LOADS_SYNTHETIC
    ),
    read_shape=condition(
        "constant",
        "Planted: how the read's wait varies around its mean, read_us. Not at all, evenly from 0 to twice the mean, "
        "or with a heavy (log-normal) tail.",
        choices=one_of("constant", "jittered", "heavy_tailed"),
        idle=above("read_us"),
    ),
    collate_us=condition(
        0,
        "Planted: how long collating one batch computes, on top of the real collation.",
        unit="us",
        idle=LOADS_SYNTHETIC,
    ),
    payload_bytes=condition(
        0,
        "Planted: bytes that every sample carries beside its pixels, from the worker to the device.",
        unit="bytes",
        idle=only("workload", "synthetic"),
    ),
    replica=condition(
        0, "Changes nothing: the same setting again under another id, to see what two equal ones differ by."
    ),
)
"""Planted costs, whose truth is known, and what changes nothing."""

LOADING = named(
    batch_size=setting(32, "Samples in a batch.", unit="samples", least=1, of_scripts=True),
    num_workers=knob(0, "DataLoader worker processes; 0 loads in the training process.", idle=LOADS, of_scripts=True),
    prefetch_factor=knob(
        2, "Batches that each worker prepares ahead.", unit="batches", least=1, idle=NEEDS_WORKERS, of_scripts=True
    ),
    loader=knob(
        "torch",
        "Which loader makes batches: PyTorch's DataLoader, threads of the training process, or one of another library.",
        choices=lambda: names("feedrate.loaders"),
        idle=all_of(NEEDS_WORKERS, any_of(LOADS_ONE_BY_ONE, STREAMED_BY_LOADER)),
    ),
    start_method=knob(
        "fork",
        "How worker processes are started.",
        choices=one_of("fork", "spawn", "forkserver"),
        idle=all_of(NEEDS_WORKERS, any_of(loader_has("start_method"), OF_A_SCRIPT)),
        of_scripts=True,
    ),
    epoch_steps=condition(
        0,
        "Steps of a real epoch, at whose end the iterator is made anew. 0 samples without end: no epoch's border "
        "falls inside the window.",
        unit="steps",
        idle=all_of(LOADS_ONE_BY_ONE, only("page_cache", "warm")),
    ),
    persistent_workers=knob(
        False,
        "Whether workers live on from epoch to epoch.",
        idle=any_of(
            only("check", "next_epoch"),
            all_of(NEEDS_WORKERS, above("epoch_steps"), loader_has("persistent_workers")),
            all_of(NEEDS_WORKERS, OF_A_SCRIPT),
        ),
        of_scripts=True,
    ),
    collate=knob(
        "totensor",
        "How samples become a batch: each to float tensors by torchvision's ToTensor and then stacked, or all at once "
        "from uint8 (fast). Three other ways give the numbers of ToTensor: without its contiguous copy "
        "(strided), by NumPy (numpy), or value by value in a Python loop (loop).",
        choices=one_of("totensor", "strided", "numpy", "loop", "fast"),
        idle=only("mode", "train", "load", "copy"),
    ),
    normalize_on=knob(
        "worker",
        "Where a batch that was collated from uint8 becomes floating-point. In the worker, on the device (on CUDA no "
        "part of loading alone), or nowhere. The last loads bytes for a device that normalises them.",
        choices=one_of("worker", "device", "none"),
        idle=only("collate", "fast"),
    ),
    cache=knob(
        "none",
        "What was prepared once and is read from disk afterwards. Nothing, every transformed sample, or whole "
        "batches, which are the same ones every epoch in a new order.",
        choices=one_of("none", "sample", "batch"),
        idle=all_of(LOADS_ONE_BY_ONE, only("page_cache", "warm"), ALIKE),
    ),
    index_kind=condition(
        "none",
        "What the dataset keeps of every entry in memory: nothing, a list of dictionaries, numpy arrays, or one "
        "serialized buffer.",
        choices=one_of("none", "list", "numpy", "serialized"),
        idle=all_of(LOADS_ONE_BY_ONE, only("page_cache", "warm"), only("cache", "none"), ALIKE),
    ),
    index_entries=condition(
        1000000,
        "Entries of that index; the packed samples stand for all of them in turn.",
        least=1,
        idle=only("index_kind", "list", "numpy", "serialized"),
    ),
)
"""The DataLoader, and what is put around it."""

TOGETHER = named(
    nodes=condition(
        1,
        "Nodes of a cluster that measure at the same moment: each loads by itself, or all train one model "
        "(parallel = ddp).",
        least=1,
        idle=only("mode", "train", "load"),
    )
)
"""Many machines at once."""

AXES: tuple[Axis, ...] = (*TASK, *STORED, *PLANTED, *LOADING, *TRANSFER, *TRAINING, *TOGETHER)
BY_NAME: Mapping[str, Axis] = {axis.name: axis for axis in AXES}


def _of(*roles: Role) -> tuple[str, ...]:
    return tuple(axis.name for axis in AXES if axis.role in roles)


ACTIVITIES = _of("activity")
"""Axes that say what a trial does rather than how: a loader alone against a training step is no contrast."""
CONDITIONS = _of("activity", "condition")
"""Axes that a user's task gives; cells that differ in one are never ranked."""
SETTINGS = _of("setting", "knob")
"""Axes that can be chosen."""
KNOBS = _of("knob")
"""Settings of loader and storage that leave what is trained as it is: a tuned sweep chooses among their values."""
PHOTOGRAPHS = ("div2k", "folder", "div2k_standin")
"""Workloads that stand in for another; a claim that names the first is tested on whichever a run has."""
CEILINGS = ("load", "copy", "compute")
"""Values of ``mode`` that run one stage of a training cell alone."""


def applicable(combination: Cell, device: str) -> tuple[dict[str, Value], dict[str, str]]:
    """The cell of a value for every axis: those that matter on a device; and for each other one the reason."""
    cell: dict[str, Value] = {}
    reasons: dict[str, str] = {}
    for axis in AXES:
        foreign = cell.get("workload") == SCRIPT and not axis.of_scripts
        cell[axis.name] = combination[axis.name]
        if reason := "a script's own" if foreign else axis.idle(cell, device):
            reasons[axis.name] = reason
            del cell[axis.name]
    return cell, reasons


def ceilings(cell: Cell, device: str) -> dict[str, dict[str, Value]]:
    """Map the stages of a training cell to the cells that they are alone; unrelated axes do not apply there.

    On a CPU there is nothing to copy, and how a script copies is not known; an emulated step's ceiling is declared, not
    measured. Several replicas have no ceilings: a stage alone is one replica's.
    """
    if cell.get("parallel", "none") != "none":
        return {}
    whole = {axis.name: axis.default for axis in AXES} | dict(cell)
    left_out = {"copy"} if device == "cpu" or cell["workload"] == SCRIPT else set()
    left_out |= {"compute"} if cell.get("step") in EMULATED_STEPS else set()
    return {stage: applicable({**whole, "mode": stage}, device)[0] for stage in CEILINGS if stage not in left_out}


def needs_context(cell: Cell, device: str) -> bool:
    """Whether a trial needs a CUDA context: loading into pageable memory does without its seconds."""
    return device == "cuda" and (cell.get("mode") != "load" or bool(cell.get("pin_memory")))


def lives(cell: Cell) -> list[Cell]:
    """Give the cells that one trial of a script may stand for: lasting workers change starts of epochs alone."""
    return [{**cell, "persistent_workers": lasting} for lasting in (False, True)] if cell["num_workers"] else [cell]


def cell_id(cell: Cell) -> str:
    """Identify a cell: 12 hex digits of sha256 over the sorted JSON of the axes that differ from their frozen default.

    An axis at its default and one that does not apply count the same.
    """
    telling = {name: value for name, value in cell.items() if value != BY_NAME[name].default}
    if telling.get("loader") == "threads":  # published ids spell it as it was called before schema version 9
        telling = {**telling, "worker_kind": "thread"}
        del telling["loader"]
    text = json.dumps(telling, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def stand_ins(photographs: str) -> dict[str, str]:
    """What is measured in place of workloads that read a user's images, where one of ``PHOTOGRAPHS`` is at hand."""
    return {"div2k": photographs, "imagefolder": "imagefolder" if photographs == "folder" else "imagefolder_standin"}


REPLACED = tuple(stand_ins(PHOTOGRAPHS[0]))
"""Workloads in whose place others may be measured."""
