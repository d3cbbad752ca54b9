"""What a run says of itself: one frozen record, written as ``run.json`` and embedded in every parquet file."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from harness.machine import Machine, Software
from harness.records import PROTOCOL_VERSION, SCHEMA_VERSION


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Protocol(_Frozen):
    """How long and how often: recorded, and never part of a cell's identity."""

    warmup_s: float
    """Least warm-up of a trial."""
    window_s: float
    """Least wall clock of a trial's window."""
    min_steps: int
    """Least steps in a window."""
    blocks: tuple[int, int]
    """(fewest, most): the most ends a run; the fewest that a decision should rest on is recorded, and stops nothing."""
    timeout_s: float
    """A trial that has not reported after this long is killed."""


class Counted(_Frozen):
    """A number of combinations and why they are no cells of their own."""

    count: int
    reason: str


class Dataset(_Frozen):
    """One packed set that the run read."""

    name: str
    """Folder name of the set: workload, patch size, scale, samples."""
    storage_format: str
    count: int
    bytes: int
    data_hash: str
    workload_version: int
    pack_s: float
    notes: tuple[str, ...] = ()


class RunManifest(_Frozen):
    """Everything about a run that is not a measurement."""

    schema_version: int = SCHEMA_VERSION
    protocol_version: int = PROTOCOL_VERSION
    feedrate_version: str
    run_id: str
    machine: Machine
    software: Software
    device: str
    """cpu or cuda."""
    runtime: dict[str, str | int | float | None] = {}
    """What PyTorch and the driver say of themselves: CUDA, cuDNN, driver, threads, power limit, PCIe link."""
    command: str
    """The command that repeats the run."""
    profile: str
    suites: dict[str, Any]
    """Suite to its slices: axis to values, as expanded here."""
    protocol: Protocol
    budget_s: float | None
    seed: int
    """Orders every block and every sampler of the run."""
    combinations: int
    cells: int
    merged: tuple[Counted, ...]
    excluded: tuple[Counted, ...]
    substitutions: tuple[str, ...]
    """Where a workload stands in for another, in words."""
    datasets: tuple[Dataset, ...]
    started_at: str
    ended_at: str
    blocks: int
    """Whole blocks that were measured."""
    stop_reason: str
    """budget, blocks, interrupted."""
    outcomes: dict[str, int]
    """Outcome to the number of trials."""
    cell_seconds: dict[str, float]
    """cell_id to the mean wall clock of its trials, in seconds: what a plan predicts from."""
    parent_cpu_pct: float
    """CPU of the parent, probes included, during the blocks; 100 is one core."""
