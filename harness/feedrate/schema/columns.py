"""THE table of measured columns: name, type, unit, meaning. Schema, data dictionary and chart titles come from it.

Three tables make a run. ``trials`` has a row a trial, ``steps`` a row a step of a trial's window (the first
``STEPS_KEPT``), ``telemetry`` a row a probe sample. Every ``*_ns`` column of ``trials`` that names a phase is a sum
over the trial's window; null means *not applicable* or *not observable here*, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from feedrate.schema.axes import AXES

SCHEMA_VERSION = 11
"""Of the files: columns, names, types, fields of the manifest. Files of another version are refused."""
PROTOCOL_VERSION = 3
"""Of the semantics of a measurement: records of two versions are never compared, and those of another are refused."""
STEPS_KEPT = 256
"""Steps of a window whose single times are stored; the sums in ``trials`` are over all of them."""

DType = Literal["string", "int64", "float64", "bool"]
PHASES = ("fetch", "h2d", "forward", "backward", "optimizer", "other")
"""Host phases of a step, in their order; their sum closes on the wall clock of the window."""
DEVICE_SPANS = ("h2d", "h2d_exposed", "forward", "backward", "optimizer", "idle")
WORKER_STAGES = ("read", "decode", "transform", "collate")
ROLES = ("cell", "ceiling", "control")
"""Why a trial ran: the matrix asks for its cell, another cell's efficiency needs it, or drift is looked for."""
FLAGS = ("foreign_cpu", "steal", "throttled", "pressure", "gpu_throttled", "gpu_shared", "unsteady")
"""What can disturb a trial, in the order in which ``flags`` names it."""
OUTCOMES = ("ok", "error", "oom", "timeout", "crash")


@dataclass(frozen=True, slots=True)
class Column:
    """One measured quantity."""

    name: str
    dtype: DType
    doc: str
    unit: str = ""


_UNITS: dict[str, tuple[DType, str]] = {
    "_ns": ("int64", "ns"),
    "_bytes": ("int64", "bytes"),
    "_pct": ("float64", "%"),
    "_w": ("float64", "W"),
    "_j": ("float64", "J"),
    "_mhz": ("float64", "MHz"),
    "_c": ("float64", "C"),
    "_bytes_per_s": ("float64", "bytes/s"),
    "samples_per_s": ("float64", "samples/s"),
    "samples": ("int64", "samples"),
}
"""What a name ends with to the type and the unit of the column."""
_TYPES: dict[str, DType] = {
    **dict.fromkeys(("run_id", "trial_id", "cell_id", "machine_id", "suite", "role", "device", "data_hash"), "string"),
    **dict.fromkeys(("started_at", "outcome", "error_kind", "error_message", "flags", "evidence"), "string"),
    **dict.fromkeys(("steady", "fact", "in_window"), "bool"),
    **dict.fromkeys(("half_ratio", "fact_value", "load_1m"), "float64"),
}
"""Types of columns whose names end with no unit; all others are counts."""


def _columns(docs: Mapping[str, str]) -> tuple[Column, ...]:
    """Make columns of names and their meanings; types and units come from the names."""
    columns = []
    for name, doc in docs.items():
        units = [unit for end, unit in _UNITS.items() if name.endswith(end)]
        dtype, unit = units[0] if units else (_TYPES.get(name, "int64"), "")
        columns.append(Column(name, dtype, doc, unit))
    return tuple(columns)


_PHASE_DOC = {
    "fetch": "the training process waited for the next batch",
    "h2d": "it copied the batch to the device (null on a CPU)",
    "forward": "it ran the forward pass and the loss; for an emulated step, the sleep or the launch of a spin",
    "backward": "it ran the backward pass",
    "optimizer": "it ran the optimizer and cleared the gradients",
    "other": "everything else in the loop, stamped by itself; on CUDA with the final synchronisation",
}
_SPAN_DOC = {
    "h2d": "copies to the device",
    "h2d_exposed": "copies that the compute stream had to wait for",
    "forward": "forward passes, launch gaps included",
    "backward": "backward passes, launch gaps included",
    "optimizer": "optimizer steps, launch gaps included",
    "idle": "gaps from one step's last event to the next step's first",
}
_STAGE_DOC = {
    "read": "storage to bytes in memory",
    "decode": "bytes to arrays",
    "transform": "arrays to tensors",
    "collate": "samples to a batch",
}

_IDENTITY = {
    "run_id": "The run that the row belongs to.",
    "trial_id": "One measurement: one execution of one setting, by run, repetition and position.",
    "cell_id": "First 12 hex digits of sha256 over the axes that apply and differ from their default.",
    "machine_id": "Slug and hash of the machine's hardware facts.",
    "suite": "The first suite of the matrix that asked for the setting.",
    "role": f"Why it was measured: {', '.join(ROLES)}. A ceiling is the limit of one stage alone.",
    "block": "Which repetition of all settings, from 0.",
    "position": "Place of the measurement in its repetition, from 0.",
    "device": "cpu or cuda.",
    "protocol_version": "Semantics of the measurement.",
    "workload_version": "Version of the workload's data and model step.",
    "format_version": "Version of the storage format's bytes on disk; null where no loader runs.",
    "data_hash": "First 16 hex digits of sha256 over the samples as they were packed.",
    "started_at": "When the measurement began, ISO 8601, UTC.",
    "outcome": f"One of {', '.join(OUTCOMES)}.",
    "error_kind": "Class of the failure; null when ok.",
    "error_message": "Its message, scrubbed of names and paths; null when ok.",
}


MEASURED = _columns(
    {
        # the window
        "steps": "Steps in the window.",
        "samples": "Samples in the window: steps times batch_size times world_size. A script has fewer where batches "
        "are not full. Where their size is not known, a batch counts as one.",
        "batch_bytes": "Bytes of a batch as it is fetched, all of its tensors: what is copied to a device.",
        "wall_ns": "Wall clock of the window.",
        "samples_per_s": "samples divided by wall clock; stored for convenience.",
        "startup_ns": "From creating the iterator to holding the first batch.",
        "first_batch_ns": "From the parent's order to the first batch: fork, open, model, start-up; settling the page "
        "cache left out.",
        "warmup_steps": "Steps before the window.",
        "warmup_ns": "Wall clock of the warm-up, first batch excluded.",
        "epochs": "Epochs that began inside the window; null where batches come without end.",
        "compile_ns": "First steps of a compiled or scripted model, before the warm-up.",
        "first_step_ns": "First step of a model that was rehearsed before the warm-up, with the wait for the device. "
        "It holds loading of libraries, choice of algorithms and compiling.",
        "cache_fill_ns": "Preparing all items of an on-disk cache and writing them, before start-up.",
        "cache_bytes": "Size of that cache on disk.",
        "nonfinite_steps": "Steps of the window whose loss was not finite, or whose update the loss scaler skipped; "
        "null without amp.",
        "host_drain_ns": "What the synchronisation behind the window took: how far the host had run ahead of its "
        "device. With ddp it holds the wait for the other ranks.",
        "half_ratio": "Throughput of the window's second half over its first; by CUDA events if any.",
        "steady": "Whether half_ratio lies within 0.9 and 1/0.9; of cold windows the flag `unsteady` makes no use.",
        # stored samples
        "stored_bytes": "Size on disk of the packed set that was read.",
        "pack_ns": "What packing that set took when it was packed: source, encoding, writing, fsync.",
        "cached_before_pct": "Share of what is read (the packed set, or its cache on disk) that lay in the page cache "
        "before anything was opened. By cachestat or mincore.",
        "cached_after_pct": "The same after the window.",
        # host phases, whose sum closes on the wall clock
        **{f"host_{phase}_ns": f"Sum over the window: {_PHASE_DOC[phase]}." for phase in PHASES},
        **{f"device_{span}_ns": f"Sum over the window, by CUDA events: {_SPAN_DOC[span]}." for span in DEVICE_SPANS},
        # loader workers
        **{
            f"worker_{stage}_ns": f"Sum over the window's batches, all workers: {_STAGE_DOC[stage]}."
            for stage in WORKER_STAGES
        },
        "worker_getitem_ns": "Sum over the window's batches, all workers: the data set's own code (`__getitem__`), "
        "where its stages cannot be told apart.",
        "planted_read_ns": "What the reads of the window's batches were planted to wait; null where no wait "
        "is planted.",
        # the GPU
        "gpu_util_pct": "NVML: share of time in which a kernel ran, mean of the samples that count.",
        "gpu_power_w": "NVML board power, mean of the samples that count.",
        "gpu_energy_j": "NVML energy counter: from when the window opened until it closed.",
        "gpu_energy_ns": "Time between the two readings of that counter.",
        "gpu_sm_clock_mhz": "NVML SM clock, mean over the window.",
        "gpu_throttle_reasons": "NVML clock event reasons, or-ed over the window (bit mask).",
        "gpu_mem_peak_bytes": "Peak device memory in tensors since the warm-up (max_memory_allocated).",
        "gpu_mem_reserved_bytes": "Peak device memory that PyTorch reserved (max_memory_reserved).",
        "gpu_mem_used_bytes": "Device memory in use by all processes after the window (cudaMemGetInfo).",
        "gpu_allocations": "Calls of cudaMalloc by PyTorch's allocator since the warm-up; each one stalls the host.",
        "pinned_bytes": "Page-locked host memory that PyTorch's allocator holds after the window, unused blocks "
        "included. Each block is rounded up to a power of two.",
        "pinned_allocations": "Calls of cudaHostAlloc by PyTorch's allocator since the warm-up; null where it does not "
        "count them.",
        # the host
        "cpu_util_pct": "Busy share of all of the machine's cores during the window.",
        "main_cpu_pct": "CPU of the training process during the window; 100 is one core. With ddp that is torchrun's "
        "agent.",
        "workers_cpu_pct": "CPU of all workers during the window; 100 is one core. With ddp ranks are among them.",
        "voluntary_switches": "Voluntary context switches of main process and workers in the window.",
        "involuntary_switches": "Involuntary context switches of main process and workers in the window.",
        "major_faults": "Major page faults of main process and workers in the window.",
        "read_bytes": "Bytes that main process and workers caused to be read from storage in the window. What the "
        "kernel read ahead for them counts.",
        "uss_peak_bytes": "Memory unique to main process and workers, read once after the window. Pages that a fork "
        "shares with the template, PyTorch's code and data among them, do not count.",
        "pss_peak_bytes": "Proportional memory of main process and workers, after the window.",
        "workers_uss_start_bytes": "Memory unique to the workers, at the first batch; with an index only.",
        "workers_uss_end_bytes": "The same after the window.",
        "mem_available_bytes": "Memory that the kernel says is available, after the window.",
        "shm_bytes": "Shared memory in use under /dev/shm after the window.",
        # what may have disturbed the trial
        "foreign_cpu_pct": "CPU of everything but the measurement and its parent during the window; 100 is one core.",
        "steal_pct": "Share of all cores' time that the hypervisor gave to others, in the window.",
        "throttled_ns": "Time for which the control group's CPU quota stopped it, in the window.",
        "io_pressure_pct": "PSI: share of the window in which some task waited for storage (machine).",
        "memory_pressure_pct": "PSI: share of the window in which some task waited for memory (machine).",
        "gpu_foreign_processes": "NVML: processes of others on the GPU when the window closed.",
        "flags": f"What may have disturbed the measurement, by stated rules: {', '.join(FLAGS)}; null: nothing.",
        # checks of facts
        "fact": "Whether a check saw what its claim says; null where no fact was checked.",
        "fact_value": "The number behind it, in the unit that the check's file states.",
        "evidence": "What the check saw, in a sentence.",
        # before and after
        "trial_wall_ns": "From the parent's order until nothing of the measurement was left.",
        "left_processes": "Processes of the measurement that outlived the kill of its group (killed after).",
        "left_shm_segments": "Shared-memory files that the measurement left behind (removed after).",
    }
)
"""What a trial measures, identity and axes left out."""

_DTYPES: dict[type, DType] = {str: "string", int: "int64", float: "float64", bool: "bool"}
AXIS_COLUMNS = tuple(Column(axis.name, _DTYPES[axis.type], axis.doc, axis.unit) for axis in AXES)
TRIALS: tuple[Column, ...] = (*_columns(_IDENTITY), *AXIS_COLUMNS, *MEASURED)

STEPS = _columns(
    {
        "run_id": "The run that the row belongs to.",
        "trial_id": "The measurement that the step belongs to.",
        "step": "Place in the window, from 0.",
        **{f"{phase}_ns": f"In this step, {_PHASE_DOC[phase]}." for phase in PHASES},
        **{f"device_{span}_ns": f"In this step, by CUDA events: {_SPAN_DOC[span]}." for span in DEVICE_SPANS},
        **{f"worker_{stage}_ns": f"For this batch, in its worker: {_STAGE_DOC[stage]}." for stage in WORKER_STAGES},
        "worker_getitem_ns": "For this batch, in its worker: the data set's own code, where its stages cannot be told "
        "apart.",
        "batches_ready": "Batches that lay ready when this one was asked for; null where that is not known.",
        "worker": "Which worker prepared the batch, from 0; null where the training process did.",
        "worker_begun_ns": "When the batch's first sample was asked for, from the beginning of the window's first "
        "step; negative: before.",
        "worker_ended_ns": "When the batch was collated, likewise.",
    }
)
TELEMETRY = _columns(
    {
        "run_id": "The run that the row belongs to.",
        "trial_id": "The measurement that was running.",
        "t_ns": "Since the run began, on the machine's monotonic clock.",
        "in_window": "Whether the sample fell into the measurement's window.",
        "cpu_util_pct": "Busy share of all cores since the sample before.",
        "main_cpu_pct": "CPU of the training process since the sample before; 100 is one core.",
        "workers_cpu_pct": "CPU of all workers since the sample before; 100 is one core.",
        "steal_pct": "Share of all cores' time that the hypervisor gave to others.",
        "load_1m": "Load average over a minute.",
        "mem_available_bytes": "Memory that the kernel says is available.",
        "gpu_util_pct": "NVML utilization, averaged by the driver over up to a second.",
        "gpu_power_w": "NVML board power.",
        "gpu_mem_bytes": "NVML device memory in use, all processes.",
        "gpu_sm_clock_mhz": "NVML SM clock.",
        "gpu_temperature_c": "NVML temperature.",
        "gpu_throttle_reasons": "NVML clock event reasons (bit mask).",
        "gpu_pcie_rx_bytes_per_s": "NVML PCIe traffic to the device.",
    }
)

TABLES: dict[str, tuple[Column, ...]] = {"trials": TRIALS, "steps": STEPS, "telemetry": TELEMETRY}
