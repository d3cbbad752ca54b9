"""THE table of measured columns: name, type, unit, meaning. Schema, data dictionary and chart titles come from it.

Three tables make a run. ``trials`` has a row a trial, ``steps`` a row a step of a trial's window (the first
``STEPS_KEPT``), ``telemetry`` a row a probe sample. Every ``*_ns`` column of ``trials`` that names a phase is a sum
over the trial's window; null means *not applicable* or *not observable here*, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from feedrate.schema.axes import AXES

SCHEMA_VERSION = 2
"""Of the files: columns, names, types, fields of the manifest. ``store/migration.py`` reads the version before."""
NEEDS_FEEDRATE = "0.2.0"
"""The oldest feedrate that reads files of this schema version."""
PROTOCOL_VERSION = 1
"""Of the semantics of a measurement: records of two versions are never compared."""
STEPS_KEPT = 256
"""Steps of a window whose single times are stored; the sums in ``trials`` are over all of them."""

DType = Literal["string", "int64", "float64", "bool"]
PHASES = ("fetch", "h2d", "forward", "backward", "optimizer", "other")
"""Host phases of a step, in their order; their sum closes on the wall clock of the window."""
DEVICE_SPANS = ("h2d", "h2d_exposed", "forward", "backward", "optimizer", "idle")
WORKER_STAGES = ("read", "decode", "transform", "collate")
ROLES = ("cell", "ceiling", "control")
"""Why a trial ran: the matrix asks for its cell, another cell's efficiency needs it, or drift is looked for."""
FLAGS = (
    "foreign_cpu",
    "steal",
    "throttled",
    "pressure",
    "gpu_throttled",
    "gpu_shared",
    "unsteady",
)
"""What can disturb a trial, in the order in which ``flags`` names it."""
OUTCOMES = ("ok", "error", "oom", "timeout", "crash")


@dataclass(frozen=True, slots=True)
class Column:
    """One measured quantity."""

    name: str
    dtype: DType
    doc: str
    unit: str = ""


_PHASE_DOC = {
    "fetch": "the training process waited for the next batch",
    "h2d": "it copied the batch to the device (null on a CPU)",
    "forward": "it ran the forward pass and the loss; for an emulated step, the sleep",
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

_IDENTITY = (
    Column("run_id", "string", "The run that the row belongs to."),
    Column("trial_id", "string", "One execution of one cell: run, block and position."),
    Column(
        "cell_id", "string", "First 12 hex digits of sha256 over the axes that apply and differ from their default."
    ),
    Column("machine_id", "string", "Slug and hash of the machine's hardware facts."),
    Column("suite", "string", "The first suite of the matrix that asked for the cell."),
    Column("role", "string", f"Why the trial ran: {', '.join(ROLES)}."),
    Column("block", "int64", "Which repetition of all cells, from 0."),
    Column("position", "int64", "Place of the trial in its block, from 0."),
    Column("device", "string", "cpu or cuda."),
    Column("protocol_version", "int64", "Semantics of the measurement."),
    Column("workload_version", "int64", "Version of the workload's data and model step."),
    Column("format_version", "int64", "Version of the storage format's bytes on disk; null where no loader runs."),
    Column("data_hash", "string", "First 16 hex digits of sha256 over the samples as they were packed."),
    Column("started_at", "string", "When the trial began, ISO 8601, UTC."),
    Column("outcome", "string", f"One of {', '.join(OUTCOMES)}."),
    Column("error_kind", "string", "Class of the failure; null when ok."),
    Column("error_message", "string", "Its message, scrubbed of names and paths; null when ok."),
)
_THROUGHPUT = (
    Column("steps", "int64", "Steps in the window."),
    Column("samples", "int64", "Samples in the window: steps times batch_size times world_size.", "samples"),
    Column(
        "batch_bytes",
        "int64",
        "Bytes of a batch as it is fetched, all of its tensors: what is copied to a device.",
        "bytes",
    ),
    Column("wall_ns", "int64", "Wall clock of the window.", "ns"),
    Column("samples_per_s", "float64", "samples divided by wall clock; stored for convenience.", "samples/s"),
    Column("startup_ns", "int64", "From creating the iterator to holding the first batch.", "ns"),
    Column(
        "first_batch_ns",
        "int64",
        "From the parent's order to the first batch: fork, open, model, start-up; settling the page cache left out.",
        "ns",
    ),
    Column("warmup_steps", "int64", "Steps before the window."),
    Column("warmup_ns", "int64", "Wall clock of the warm-up, first batch excluded.", "ns"),
    Column("epochs", "int64", "Epochs that began inside the window; null where batches come without end."),
    Column("compile_ns", "int64", "First steps of a compiled or scripted model, before the warm-up.", "ns"),
    Column(
        "cache_fill_ns", "int64", "Preparing all items of an on-disk cache and writing them, before start-up.", "ns"
    ),
    Column("cache_bytes", "int64", "Size of that cache on disk.", "bytes"),
    Column(
        "nonfinite_steps",
        "int64",
        "Steps of the window whose loss was not finite, or whose update the loss scaler skipped; null without amp.",
    ),
    Column(
        "host_drain_ns",
        "int64",
        "What the synchronisation behind the window took: how far the host had run ahead of its device; with ddp the "
        "wait for the other ranks too.",
        "ns",
    ),
    Column("half_ratio", "float64", "Throughput of the window's second half over its first; by CUDA events if any."),
    Column(
        "steady",
        "bool",
        "Whether half_ratio lies within 0.9 and 1/0.9; of cold windows the flag `unsteady` makes no use.",
    ),
)
_STORED = (
    Column("stored_bytes", "int64", "Size on disk of the packed set that the trial read.", "bytes"),
    Column(
        "pack_ns", "int64", "What packing that set took when it was packed: source, encoding, writing, fsync.", "ns"
    ),
    Column(
        "cached_before_pct",
        "float64",
        "Share of the pages of what is read (the packed set, or its cache on disk) in the page cache before anything "
        "was opened (cachestat or mincore).",
        "%",
    ),
    Column("cached_after_pct", "float64", "The same after the window.", "%"),
)
_PHASE_COLUMNS = tuple(
    Column(f"host_{phase}_ns", "int64", f"Sum over the window: {_PHASE_DOC[phase]}.", "ns") for phase in PHASES
)
_SPAN_COLUMNS = tuple(
    Column(f"device_{span}_ns", "int64", f"Sum over the window, by CUDA events: {_SPAN_DOC[span]}.", "ns")
    for span in DEVICE_SPANS
)
_STAGE_COLUMNS = (
    *(
        Column(f"worker_{stage}_ns", "int64", f"Sum over the window's batches, all workers: {_STAGE_DOC[stage]}.", "ns")
        for stage in WORKER_STAGES
    ),
    Column(
        "planted_read_ns",
        "int64",
        "What the reads of the window's batches were planted to wait; null where no wait is planted.",
        "ns",
    ),
)
_GPU = (
    Column(
        "gpu_util_pct", "float64", "NVML: share of time in which a kernel ran, mean of the samples that count.", "%"
    ),
    Column("gpu_power_w", "float64", "NVML board power, mean of the samples that count.", "W"),
    Column("gpu_energy_j", "float64", "NVML energy counter over the window.", "J"),
    Column("gpu_sm_clock_mhz", "float64", "NVML SM clock, mean over the window.", "MHz"),
    Column("gpu_throttle_reasons", "int64", "NVML clock event reasons, or-ed over the window (bit mask)."),
    Column(
        "gpu_mem_peak_bytes",
        "int64",
        "Peak device memory in tensors since the warm-up (max_memory_allocated).",
        "bytes",
    ),
    Column(
        "gpu_mem_reserved_bytes", "int64", "Peak device memory that PyTorch reserved (max_memory_reserved).", "bytes"
    ),
    Column(
        "gpu_mem_used_bytes",
        "int64",
        "Device memory in use by all processes after the window (cudaMemGetInfo).",
        "bytes",
    ),
    Column(
        "pinned_bytes", "int64", "Page-locked host memory that PyTorch's allocator holds after the window.", "bytes"
    ),
)
_HOST = (
    Column("cpu_util_pct", "float64", "Busy share of all of the machine's cores during the window.", "%"),
    Column(
        "main_cpu_pct",
        "float64",
        "CPU of the training process during the window; 100 is one core. With ddp that is torchrun's agent.",
        "%",
    ),
    Column(
        "workers_cpu_pct",
        "float64",
        "CPU of all workers during the window; 100 is one core. With ddp ranks are among them.",
        "%",
    ),
    Column("voluntary_switches", "int64", "Voluntary context switches of main process and workers in the window."),
    Column("involuntary_switches", "int64", "Involuntary context switches of main process and workers in the window."),
    Column("major_faults", "int64", "Major page faults of main process and workers in the window."),
    Column("read_bytes", "int64", "Bytes that main process and workers caused to be read from storage.", "bytes"),
    Column(
        "uss_peak_bytes",
        "int64",
        "Memory unique to main process and workers, read once after the window. Pages that a fork shares with the "
        "template, PyTorch's code and data among them, do not count.",
        "bytes",
    ),
    Column("pss_peak_bytes", "int64", "Proportional memory of main process and workers, after the window.", "bytes"),
    Column(
        "workers_uss_start_bytes",
        "int64",
        "Memory unique to the workers, at the first batch; with an index only.",
        "bytes",
    ),
    Column("workers_uss_end_bytes", "int64", "The same after the window.", "bytes"),
    Column("mem_available_bytes", "int64", "Memory that the kernel says is available, after the window.", "bytes"),
    Column("shm_bytes", "int64", "Shared memory in use under /dev/shm after the window.", "bytes"),
)
_NOISE = (
    Column(
        "foreign_cpu_pct",
        "float64",
        "CPU of everything that is not the trial or its parent during the window; 100 is one core.",
        "%",
    ),
    Column("steal_pct", "float64", "Share of all cores' time that the hypervisor gave to others, in the window.", "%"),
    Column("throttled_ns", "int64", "Time for which the control group's CPU quota stopped it, in the window.", "ns"),
    Column(
        "io_pressure_pct", "float64", "PSI: share of the window in which some task waited for storage (machine).", "%"
    ),
    Column(
        "memory_pressure_pct",
        "float64",
        "PSI: share of the window in which some task waited for memory (machine).",
        "%",
    ),
    Column("gpu_foreign_processes", "int64", "NVML: processes of others on the GPU when the window closed."),
    Column(
        "flags", "string", f"What may have disturbed the trial, by stated rules: {', '.join(FLAGS)}; null: nothing."
    ),
)
_UPKEEP = (
    Column("trial_wall_ns", "int64", "From the parent's order until nothing of the trial was left.", "ns"),
    Column("left_processes", "int64", "Processes of the trial that outlived the kill of its group (killed after)."),
    Column("left_shm_segments", "int64", "Shared-memory files that the trial left behind (removed after)."),
)

_CHECK = (
    Column("fact", "bool", "Whether a check saw what its claim says; null where no fact was checked."),
    Column("fact_value", "float64", "The number behind it, in the unit that the check's file states."),
    Column("evidence", "string", "What the check saw, in a sentence."),
)

MEASURED: tuple[Column, ...] = (
    *_THROUGHPUT,
    *_STORED,
    *_PHASE_COLUMNS,
    *_SPAN_COLUMNS,
    *_STAGE_COLUMNS,
    *_GPU,
    *_HOST,
    *_NOISE,
    *_CHECK,
    *_UPKEEP,
)
"""What a trial measures, identity and axes left out."""

_DTYPES: dict[type, DType] = {str: "string", int: "int64", float: "float64", bool: "bool"}
AXIS_COLUMNS = tuple(Column(axis.name, _DTYPES[axis.type], axis.doc, axis.unit) for axis in AXES)
TRIALS: tuple[Column, ...] = (*_IDENTITY, *AXIS_COLUMNS, *MEASURED)

STEPS: tuple[Column, ...] = (
    Column("run_id", "string", "The run that the row belongs to."),
    Column("trial_id", "string", "The trial that the step belongs to."),
    Column("step", "int64", "Place in the window, from 0."),
    *(Column(f"{phase}_ns", "int64", f"In this step, {_PHASE_DOC[phase]}.", "ns") for phase in PHASES),
    *(
        Column(f"device_{span}_ns", "int64", f"In this step, by CUDA events: {_SPAN_DOC[span]}.", "ns")
        for span in DEVICE_SPANS
    ),
    *(
        Column(f"worker_{stage}_ns", "int64", f"For this batch, in its worker: {_STAGE_DOC[stage]}.", "ns")
        for stage in WORKER_STAGES
    ),
    Column("worker", "int64", "Which worker prepared the batch, from 0; null where the training process did."),
    Column(
        "worker_begun_ns",
        "int64",
        "When the batch's first sample was asked for, from the beginning of the window's first step; negative: before.",
        "ns",
    ),
    Column("worker_ended_ns", "int64", "When the batch was collated, likewise.", "ns"),
)
TELEMETRY: tuple[Column, ...] = (
    Column("run_id", "string", "The run that the row belongs to."),
    Column("trial_id", "string", "The trial that was running."),
    Column("t_ns", "int64", "Since the run began, on the machine's monotonic clock.", "ns"),
    Column("in_window", "bool", "Whether the sample fell into the trial's window."),
    Column("cpu_util_pct", "float64", "Busy share of all cores since the sample before.", "%"),
    Column("main_cpu_pct", "float64", "CPU of the training process since the sample before; 100 is one core.", "%"),
    Column("workers_cpu_pct", "float64", "CPU of all workers since the sample before; 100 is one core.", "%"),
    Column("steal_pct", "float64", "Share of all cores' time that the hypervisor gave to others.", "%"),
    Column("load_1m", "float64", "Load average over a minute."),
    Column("mem_available_bytes", "int64", "Memory that the kernel says is available.", "bytes"),
    Column("gpu_util_pct", "float64", "NVML utilization, averaged by the driver over up to a second.", "%"),
    Column("gpu_power_w", "float64", "NVML board power.", "W"),
    Column("gpu_mem_bytes", "int64", "NVML device memory in use, all processes.", "bytes"),
    Column("gpu_sm_clock_mhz", "float64", "NVML SM clock.", "MHz"),
    Column("gpu_temperature_c", "float64", "NVML temperature.", "C"),
    Column("gpu_throttle_reasons", "int64", "NVML clock event reasons (bit mask)."),
    Column("gpu_pcie_rx_bytes_per_s", "float64", "NVML PCIe traffic to the device.", "bytes/s"),
)

TABLES: dict[str, tuple[Column, ...]] = {"trials": TRIALS, "steps": STEPS, "telemetry": TELEMETRY}
