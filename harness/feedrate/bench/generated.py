"""Results that nobody measured: runs of as many machines as wanted, by formula and seed, and files as large as wanted.

They are there to see what many results and large files cost. They are written as ``store`` would write them and keep
every rule, so they are read, validated and compared to their end. Throughputs follow the shape of real ones (loading
against computing, whichever is slower, plus overheads, with a spread between trials); no machine stands behind them,
and they are written nowhere but into a temporary folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from feedrate import __version__
from feedrate.machine.identity import Machine, Software, usable_cores
from feedrate.schema.axes import AXES, Value, applicable, cell_id
from feedrate.schema.columns import PROTOCOL_VERSION, TABLES
from feedrate.store.manifest import Dataset, Protocol, RunManifest
from feedrate.store.migration import MANIFEST_KEY
from feedrate.store.runs import GROUP_ROWS, encoding, schema

BLOCKS = 8
STEPS = 40
"""Of a window."""
SPREAD = 0.02
"""Of log throughput between trials of a cell."""
BESIDE_NS = 500_000_000
"""Of a trial, beside its window."""
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_APART = timedelta(minutes=30)
"""Between the beginnings of two runs."""
_CORES = (2, 4, 8, 16, 32, 64, 96, 128)
_GPU_EVERY = 3
"""One machine of so many has a GPU."""
_A_PART = 250
"""Runs that one call of a process writes."""
_ALONE = 2 * _A_PART
_SOFTWARE = Software(python="3.11.7", torch="2.15.0", torchvision="0.29.2")
_DATASET = Dataset(
    name="div2k_standin-p16-x2-n1024",
    storage_format="png",
    count=1024,
    bytes=1_234_567,
    data_hash="0123456789abcdef",
    workload_version=1,
    pack_s=2.5,
)
_PROTOCOL = Protocol(warmup_s=0.3, window_s=0.6, min_steps=12, blocks=(8, 30), timeout_s=120)
_STAGES = {"read": 0.2, "decode": 0.5, "transform": 0.2, "collate": 0.1}
"""Share of a worker's time in each of its stages."""
Numbers = npt.NDArray[np.float64]


def write(results: Path, machines: int, seed: int = 7) -> int:
    """Write one run for each of many machines; gives the number of trials."""
    parts = [range(at, min(at + _A_PART, machines)) for at in range(0, machines, _A_PART)]
    if machines <= _ALONE:
        return sum(_write_runs(results, seed, part) for part in parts)
    with ProcessPoolExecutor(len(usable_cores()), get_context("spawn")) as pool:
        return sum(pool.map(partial(_write_runs, results, seed), parts))


def _write_runs(results: Path, seed: int, numbers: range) -> int:
    return sum(_write_run(results, number, seed) for number in numbers)


def machine(number: int) -> Machine:
    """Make up a machine; no two of different numbers are the same one."""
    gpu = number % _GPU_EVERY == _GPU_EVERY - 1
    cores = _CORES[number % len(_CORES)]
    return Machine(
        cpu_model=f"Example {1000 + number}",
        architecture="x86_64",
        cores_physical=max(1, cores // 2),
        cores_logical=cores,
        cpu_quota_cores=None,
        memory_bytes=(16 + 16 * (number % 7)) * 2**30,
        memory_limit_bytes=None,
        gpu_name=f"Accelerator {40 * (1 + number % 4)}" if gpu else None,
        gpu_count=int(gpu),
        gpu_memory_bytes=80 * 10**9 if gpu else None,
        virtualised=False,
        operating_system="Linux",
        kernel="6.1.0",
        distribution="Example Linux 12",
    )


def cells(device: str) -> list[dict[str, Value]]:
    """List the cells of every run: a small loader suite, each by the axes that apply."""
    common: dict[str, Sequence[Value]] = {"workload": ("div2k_standin",), "patch_size": (16,)}
    wanted: list[dict[str, Sequence[Value]]] = [
        {**common, "storage_format": ("png",), "mode": ("train",), "batch_size": (8, 32, 128), "num_workers": (0, 2)},
        {**common, "storage_format": ("png", "lmdb"), "mode": ("load",), "batch_size": (32,), "num_workers": (0, 2)},
        {**common, "mode": ("compute",), "batch_size": (8, 32, 128)},
    ]
    defaults = {axis.name: axis.default for axis in AXES}
    return [
        applicable({**defaults, **dict(zip(part, values, strict=True))}, device)[0]
        for part in wanted
        for values in product(*part.values())
    ]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The rows that all runs of a device share, and what their times are made of: arrays of a value a trial."""

    tables: Mapping[str, pa.Table]
    load_s: Numbers
    """Seconds for which one process prepares a batch; 0 where nothing is loaded."""
    step_s: Numbers
    """Seconds of a step; 0 where there is none."""
    workers: Numbers
    batch: Numbers


@cache
def _pattern(device: str) -> _Pattern:
    every = [(block, position, cell) for block in range(BLOCKS) for position, cell in enumerate(cells(device))]
    # What a machine decides stands at a number that is overwritten, or at nothing.
    trials = [
        {
            "cell_id": cell_id(cell),
            "suite": "loader",
            "role": "cell",
            "block": block,
            "position": position,
            "device": device,
            "protocol_version": PROTOCOL_VERSION,
            "workload_version": 1,
            "data_hash": _DATASET.data_hash,
            "outcome": "ok",
            **cell,
            "steps": STEPS,
            "samples": STEPS * int(cell["batch_size"]),
            "startup_ns": 40_000_000,
            "first_batch_ns": 60_000_000,
            "warmup_steps": 8,
            "warmup_ns": 300_000_000,
            "half_ratio": 1.0,
            "steady": True,
            "cpu_util_pct": 40.0,
            "foreign_cpu_pct": 1.0,
            "steal_pct": 0.0,
            "left_processes": 0,
            "left_shm_segments": 0,
        }
        for block, position, cell in every
    ]
    none = {"run_id": "", "trial_id": ""}
    steps = [{**none, "step": step, "fetch_ns": 1000, "other_ns": 10} for step in range(4)]
    telemetry = [{**none, "t_ns": 10**8 * tick, "in_window": True, "cpu_util_pct": 50.0} for tick in range(4)]
    manifest = _manifest(machine(2 if device == "cuda" else 0), device, "", _FIRST, len(trials))
    rows = {"trials": trials, "steps": steps, "telemetry": telemetry}
    load_s, step_s = np.array([_seconds(cell, device) for *_, cell in every]).T
    return _Pattern(
        {name: pa.Table.from_pylist(rows[name], schema(columns, manifest)) for name, columns in TABLES.items()},
        load_s,
        step_s,
        np.array([cell.get("num_workers") or 0 for *_, cell in every], dtype=np.float64),
        np.array([cell["batch_size"] for *_, cell in every], dtype=np.float64),
    )


def _seconds(cell: Mapping[str, Value], device: str) -> tuple[float, float]:
    """Seconds that a batch takes to be prepared by one process, and to be computed, on a machine of speed 1."""
    batch = int(cell["batch_size"])
    load = 0.6e-3 + batch * (90e-6 if cell.get("storage_format") == "png" else 20e-6)
    step = (3e-3 + batch * 1.1e-3) / (40.0 if device == "cuda" else 1.0)
    return 0.0 if cell["mode"] == "compute" else load, 0.0 if cell["mode"] == "load" else step


def _write_run(results: Path, number: int, seed: int) -> int:
    facts = machine(number)
    device = "cuda" if facts.gpu_name else "cpu"
    pattern, began = _pattern(device), _FIRST + number * _APART
    run_id = f"{began:%Y%m%dT%H%M%SZ}-{number % 2**16:04x}"
    folder = results / facts.machine_id / run_id
    folder.mkdir(parents=True)
    trials = pattern.tables["trials"]
    manifest = _manifest(facts, device, run_id, began, trials.num_rows)
    metadata = {MANIFEST_KEY: manifest.model_dump_json().encode()}
    columns = _measured(pattern, facts, np.random.default_rng([seed, number]))
    columns |= {"run_id": run_id, "machine_id": facts.machine_id, "started_at": began.isoformat()}
    columns["trial_id"] = _trial_ids(run_id, trials["block"].to_pylist(), trials["position"].to_pylist())
    for name, table in pattern.tables.items():
        new = columns if name == "trials" else {"run_id": run_id, "trial_id": f"{run_id}-000-0000"}
        whole = _replaced(table, new).replace_schema_metadata(metadata)
        pq.write_table(whole, folder / f"{name}.parquet", **encoding(name))
    (folder / "run.json").write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return int(trials.num_rows)


def _trial_ids(run_id: str, blocks: Sequence[int], positions: Sequence[int]) -> list[str]:
    return [f"{run_id}-{block:03d}-{position:04d}" for block, position in zip(blocks, positions, strict=True)]


def _replaced(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Put other columns into a table: arrays, masked where null, or one text for all rows."""
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        if isinstance(values, np.ma.MaskedArray):
            column = pa.array(values.data, field.type, mask=np.ma.getmaskarray(values))
        else:
            column = pa.array([values] * table.num_rows if isinstance(values, str) else values, field.type)
        table = table.set_column(place, field, column)
    return table


def _measured(pattern: _Pattern, facts: Machine, generator: np.random.Generator) -> dict[str, Any]:
    """Times and rates of one machine, a value a trial; what a trial does not do is masked."""
    slower = np.exp(generator.normal(0, 0.3, 2))
    load = pattern.load_s * slower[0] / np.clip(pattern.workers, 1, min(2, facts.cores_logical))
    step = pattern.step_s * slower[1]
    weather = np.exp(generator.normal(0, SPREAD, len(load)))
    no_load, no_step = pattern.load_s == 0, pattern.step_s == 0
    columns: dict[str, Any] = {}

    def put(name: str, values_ns: Numbers, masked: npt.NDArray[np.bool_] | bool) -> None:
        columns[name] = np.ma.MaskedArray(np.rint(values_ns).astype(np.int64), mask=masked)

    fetch = np.where(pattern.workers > 0, np.maximum(load - step, 2e-4), load)
    put("host_fetch_ns", STEPS * fetch * weather * 1e9, no_load)
    put("host_other_ns", STEPS * (5e-5 + 0 * load) * weather * 1e9, False)
    for phase, share in (("forward", 0.3), ("backward", 0.62), ("optimizer", 0.08)):
        put(f"host_{phase}_ns", STEPS * (share * step) * weather * 1e9, no_step)
    wall = sum(values.filled(0) for values in columns.values())
    for stage, share in _STAGES.items():
        put(f"worker_{stage}_ns", share * (STEPS * pattern.load_s * slower[0] * 0.95e9), no_load)
    rates = STEPS * pattern.batch / (wall / 1e9)
    return columns | {"wall_ns": wall, "samples_per_s": rates, "trial_wall_ns": wall + BESIDE_NS}


def _manifest(facts: Machine, device: str, run_id: str, began: datetime, trials: int) -> RunManifest:
    return RunManifest(
        feedrate_version=__version__,
        run_id=run_id,
        machine=facts,
        software=_SOFTWARE,
        device=device,
        command="make sweep",
        profile="quick",
        suites={"loader": [{"batch_size": [8, 32, 128]}]},
        protocol=_PROTOCOL,
        budget_s=240.0,
        seed=7,
        combinations=len(cells(device)),
        cells=len(cells(device)),
        merged=(),
        excluded=(),
        substitutions=("div2k_standin stands in for div2k: procedural images of its geometry",),
        datasets=(_DATASET,),
        started_at=began.isoformat(),
        ended_at=(began + timedelta(minutes=4)).isoformat(),
        blocks=BLOCKS,
        stop_reason="budget",
        outcomes={"ok": trials},
        cell_seconds={},
        parent_cpu_pct=1.2,
    )


def write_repeated(small: Path, rows: int, target: Path) -> None:
    """Write a large file of trials: those of a small one again and again, with host times of their own."""
    table = pq.read_table(small)
    blocks = int(np.max(table["block"].to_numpy())) + 1
    manifest = json.loads(table.schema.metadata[MANIFEST_KEY])
    manifest |= {"outcomes": {"ok": rows}, "blocks": -(-rows // (len(table) // blocks))}
    table = table.replace_schema_metadata({MANIFEST_KEY: json.dumps(manifest).encode()})
    generator = np.random.default_rng(5)
    with pq.ParquetWriter(target, table.schema, **encoding("trials")) as writer:
        for begin in range(0, rows, GROUP_ROWS):
            places = np.arange(begin, min(begin + GROUP_ROWS, rows))
            writer.write_table(_repeated(table, blocks, places, generator))


def _repeated(table: pa.Table, blocks: int, places: npt.NDArray[np.int64], generator: np.random.Generator) -> pa.Table:
    part = table.take(pa.array(places % len(table)))
    block = part["block"].to_numpy() + blocks * (places // len(table))
    ids = _trial_ids(part["run_id"][0].as_py(), block.tolist(), part["position"].to_pylist())
    columns: dict[str, Any] = {"block": block, "trial_id": ids}
    weather, wall = np.exp(generator.normal(0, SPREAD, len(places))), np.zeros(len(places), dtype=np.int64)
    for name in table.column_names:
        if name.startswith("host_") and name != "host_drain_ns" and part[name].null_count < len(part):
            values = np.ma.masked_invalid(part[name].to_numpy().astype(np.float64) * weather)
            columns[name] = np.ma.MaskedArray(values.filled(0).astype(np.int64), np.ma.getmaskarray(values))
            wall += columns[name].filled(0)
    columns |= {"wall_ns": wall, "samples_per_s": part["samples"].to_numpy() / (wall / 1e9)}
    return _replaced(part, columns | {"trial_wall_ns": wall + BESIDE_NS})
