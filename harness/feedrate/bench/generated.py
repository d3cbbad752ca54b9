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
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from feedrate import __version__
from feedrate.machine.identity import Machine, Software, usable_cores
from feedrate.schema.axes import AXES, Value, applicable, cell_id
from feedrate.schema.columns import PROTOCOL_VERSION, TABLES
from feedrate.store.manifest import Dataset, Protocol, RunManifest
from feedrate.store.migration import MANIFEST_KEY, arrow_schema
from feedrate.store.runs import GROUP_ROWS, encoding

BLOCKS = 8
STEPS = 40
"""Of a window."""
SPREAD = 0.02
"""Of log throughput between trials of a cell."""
BESIDE_NS = 500_000_000
"""Of a trial, beside its window."""
_FIRST, _APART = datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=30)
"""When the first run begins, and how much later each next one."""
_CORES = (2, 4, 8, 16, 32, 64, 96, 128)
_GPU_EVERY = 3
"""One machine of so many has a GPU."""
_PART = 250
"""Runs that one call of a process writes; up to twice as many are written without other processes."""
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
_STEP = {"forward": 0.3, "backward": 0.62, "optimizer": 0.08}
"""Share of a step in each of its phases."""


def write(results: Path, machines: int, seed: int = 7) -> int:
    """Write one run for each of many machines; gives the number of trials."""
    parts = [range(at, min(at + _PART, machines)) for at in range(0, machines, _PART)]
    if len(parts) <= 2:
        return sum(_write_runs(results, seed, part) for part in parts)
    with ProcessPoolExecutor(len(usable_cores()), get_context("spawn")) as pool:
        return sum(pool.map(partial(_write_runs, results, seed), parts))


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


@cache
def _pattern(device: str) -> tuple[dict[str, pa.Table], pd.DataFrame]:
    """The rows that all runs of a device share, and the axes of the trials; a machine's own columns are null."""
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
        for block in range(BLOCKS)
        for position, cell in enumerate(cells(device))
    ]
    rows = {
        "trials": trials,
        "steps": [{"step": step, "fetch_ns": 1000, "other_ns": 10} for step in range(4)],
        "telemetry": [{"t_ns": 10**8 * tick, "in_window": True, "cpu_util_pct": 50.0} for tick in range(4)],
    }
    tables = {name: pa.Table.from_pylist(rows[name], arrow_schema(columns)) for name, columns in TABLES.items()}
    axes = pd.DataFrame(trials, columns=["mode", "storage_format", "batch_size", "num_workers"])
    return tables, axes.fillna({"num_workers": 0})


def _write_runs(results: Path, seed: int, numbers: range) -> int:
    return sum(_write_run(results, number, seed) for number in numbers)


def _write_run(results: Path, number: int, seed: int) -> int:
    facts, began = machine(number), _FIRST + number * _APART
    device = "cuda" if facts.gpu_name else "cpu"
    tables, axes = _pattern(device)
    run_id = f"{began:%Y%m%dT%H%M%SZ}-{number % 2**16:04x}"
    manifest = RunManifest(
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
        combinations=len(axes) // BLOCKS,
        cells=len(axes) // BLOCKS,
        merged=(),
        excluded=(),
        substitutions=("div2k_standin stands in for div2k: procedural images of its geometry",),
        datasets=(_DATASET,),
        started_at=began.isoformat(),
        ended_at=(began + timedelta(minutes=4)).isoformat(),
        blocks=BLOCKS,
        stop_reason="budget",
        outcomes={"ok": len(axes)},
        cell_seconds={},
        parent_cpu_pct=1.2,
    )
    folder = results / facts.machine_id / run_id
    folder.mkdir(parents=True)
    columns = _times(axes, facts, np.random.default_rng([seed, number]))
    columns |= {"machine_id": facts.machine_id, "started_at": began.isoformat()}
    columns["trial_id"] = _trial_ids(run_id, *(tables["trials"][name].to_pylist() for name in ("block", "position")))
    metadata = {MANIFEST_KEY: manifest.model_dump_json().encode()}
    for name, table in tables.items():
        own = columns if name == "trials" else {"trial_id": f"{run_id}-000-0000"}
        complete = _replaced(table, {"run_id": run_id, **own}).replace_schema_metadata(metadata)
        pq.write_table(complete, folder / f"{name}.parquet", **encoding(name))
    (folder / "run.json").write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return len(axes)


def _times(axes: pd.DataFrame, facts: Machine, generator: np.random.Generator) -> dict[str, Any]:
    """Times and rates of one machine, a value a trial; NaN where a trial has none."""
    batch, workers = (axes[name].to_numpy(dtype=np.float64) for name in ("batch_size", "num_workers"))
    no_load, no_step = axes["mode"].eq("compute").to_numpy(), axes["mode"].eq("load").to_numpy()
    slower = np.exp(generator.normal(0, 0.3, 2))
    weather = np.exp(generator.normal(0, SPREAD, len(axes)))
    load = 0.6e-3 + batch * np.where(axes["storage_format"].eq("png"), 90e-6, 20e-6)
    own_load = np.where(no_load, 0, load) * slower[0]
    load = own_load / np.clip(workers, 1, min(2, facts.cores_logical))
    step = np.where(no_step, 0, 3e-3 + batch * 1.1e-3) / (40.0 if facts.gpu_name else 1.0) * slower[1]
    fetch = np.where(workers > 0, np.maximum(load - step, 2e-4), load)
    host = {"fetch": np.where(no_load, np.nan, fetch), "other": np.full(len(axes), 5e-5)}
    host |= {name: np.where(no_step, np.nan, share * step) for name, share in _STEP.items()}
    columns = {f"host_{phase}_ns": np.rint(STEPS * seconds * weather * 1e9) for phase, seconds in host.items()}
    wall = np.nansum(list(columns.values()), axis=0)
    working = np.where(no_load, np.nan, STEPS * own_load * 0.95e9)
    columns |= {f"worker_{stage}_ns": np.rint(share * working) for stage, share in _STAGES.items()}
    return columns | {"wall_ns": wall, "samples_per_s": STEPS * batch / (wall / 1e9), "trial_wall_ns": wall + BESIDE_NS}


def _trial_ids(run_id: str, blocks: Sequence[int], positions: Sequence[int]) -> list[str]:
    return [f"{run_id}-{block:03d}-{position:04d}" for block, position in zip(blocks, positions, strict=True)]


def _replaced(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Put other columns into a table: values, NaN for null, or one text for all rows."""
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        column = pa.array([values] * len(table) if isinstance(values, str) else values, from_pandas=True)
        table = table.set_column(place, field, column.cast(field.type))
    return table


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
    weather = np.exp(generator.normal(0, SPREAD, len(places)))
    host = {
        name: np.trunc(part[name].to_numpy() * weather)
        for name in table.column_names
        if name.startswith("host_") and name != "host_drain_ns" and part[name].null_count < len(part)
    }
    wall = np.nansum(list(host.values()), axis=0)
    rates = part["samples"].to_numpy() / (wall / 1e9)
    own = {"block": block, "trial_id": ids, "wall_ns": wall, "samples_per_s": rates, "trial_wall_ns": wall + BESIDE_NS}
    return _replaced(part, {**host, **own})
