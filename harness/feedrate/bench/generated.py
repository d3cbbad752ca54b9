"""Results that nobody measured: runs of as many machines as wanted, by formula and seed, and files as large as wanted.

They are there to see what many results and large files cost. They are written as ``store`` would write them and keep
every rule, so they are read, validated and compared to their end. Throughputs follow the shape of real ones (loading
against computing, whichever is slower, plus overheads, with a spread between trials); no machine stands behind them,
and they are written nowhere but into a temporary folder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feedrate import __version__
from feedrate.machine.identity import Machine, Software
from feedrate.pages.compact import estimated
from feedrate.schema.axes import AXES, Value, applicable, cell_id
from feedrate.schema.columns import PROTOCOL_VERSION, TABLES
from feedrate.store import compact
from feedrate.store.manifest import Dataset, Protocol, RunManifest
from feedrate.store.runs import CHECKED, GROUP_ROWS, encoding, folders, schema
from feedrate.store.tables import MANIFEST_KEY

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
RUNS_A_MACHINE = 10
"""Where only their rows are made."""
_PATTERNS, _AT_ONCE, _SOON = 48, 20_000, timedelta(minutes=1)
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
_SEEN: dict[str, Any] = {
    "suite": "loader",
    "role": "cell",
    "protocol_version": PROTOCOL_VERSION,
    "workload_version": 1,
    "data_hash": _DATASET.data_hash,
    "outcome": "ok",
    "steps": STEPS,
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
"""What is the same in all trials."""


def write(results: Path, machines: int, first: int = 0) -> int:
    """Write one run for each of many machines, numbered from ``first`` on; gives the number of trials."""
    return sum(_write_run(results, number) for number in range(first, first + machines))


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


@cache
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


def write_compact(results: Path, count: int) -> None:
    """Make the compact data set of very many runs, ``RUNS_A_MACHINE`` a machine, without the runs themselves.

    Rows are those of a few runs as ``write`` makes them, again and again under other names and dates. An empty file in
    place of each run's folder says that it is there.
    """
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), _PATTERNS)
        few = estimated(folders(Path(folder)))
    rows, generator = len(few) // _PATTERNS, np.random.default_rng(7)
    for begin in range(0, count, _AT_ONCE):
        runs = np.arange(begin, min(begin + _AT_ONCE, count))
        table = few.take(np.add.outer(runs // RUNS_A_MACHINE % _PATTERNS * rows, np.arange(rows)).ravel())
        began = [_FIRST - (1 + number) * _SOON for number in runs.tolist()]
        names = {
            "machine_id": [f"made-up-{number // RUNS_A_MACHINE:06d}" for number in runs],
            "run_id": [f"{at:%Y%m%dT%H%M%SZ}-{number % 2**16:04x}" for at, number in zip(began, runs, strict=True)],
            "started_at": [at.isoformat() for at in began],
        }
        of_run = np.repeat(np.arange(len(runs)), rows)
        changed = {name: pa.array(values).take(pa.array(of_run)) for name, values in names.items()}
        by = np.exp(generator.normal(0, 0.3, len(runs)))[of_run]
        changed |= {name: pc.multiply(table[name], by) for name in ("samples_per_s", "lo", "hi")}
        for name, column in changed.items():
            table = table.set_column(table.column_names.index(name), name, column)
        compact.put(table, results / compact.FOLDER)
        for machine_id, run_id in zip(names["machine_id"], names["run_id"], strict=True):
            path = results / machine_id / run_id
            path.parent.mkdir(exist_ok=True)
            path.touch()


def _write_run(results: Path, number: int) -> int:
    facts, began = machine(number), _FIRST + number * _APART
    device = "cuda" if facts.gpu_name else "cpu"
    run_id = f"{began:%Y%m%dT%H%M%SZ}-{number % 2**16:04x}"
    common = {"run_id": run_id, "machine_id": facts.machine_id, "started_at": began.isoformat(), "device": device}
    generator = np.random.default_rng([7, number])
    slower = np.exp(generator.normal(0, 0.3, 2)).tolist()
    trials = [
        {
            **_SEEN,
            **common,
            **cell,
            "cell_id": cell_id(cell),
            "trial_id": f"{run_id}-{block:03d}-{position:04d}",
            "block": block,
            "position": position,
            **_times(cell, facts, slower, generator),
        }
        for block in range(BLOCKS)
        for position, cell in enumerate(cells(device))
    ]
    first = {"run_id": run_id, "trial_id": trials[0]["trial_id"]}
    rows = {
        "trials": trials,
        "steps": [{**first, "step": step, "fetch_ns": 1000, "other_ns": 10} for step in range(4)],
        "telemetry": [{**first, "t_ns": 10**8 * tick, "in_window": True, "cpu_util_pct": 50.0} for tick in range(4)],
    }
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
        outcomes={"ok": len(trials)},
        cell_seconds={},
        parent_cpu_pct=1.2,
    )
    folder = results / facts.machine_id / run_id
    folder.mkdir(parents=True)
    for name, columns in TABLES.items():
        table = pa.Table.from_pylist(rows[name], schema(columns, manifest))
        pq.write_table(table, folder / f"{name}.parquet", **encoding(name))
    (folder / "run.json").write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return len(trials)


def _times(
    cell: Mapping[str, Any], facts: Machine, slower: Sequence[float], generator: np.random.Generator
) -> dict[str, Any]:
    """Times and rates of one trial; the machine's loading and computing are ``slower`` than usual."""
    batch, workers = int(cell["batch_size"]), int(cell.get("num_workers") or 0)
    own_load = (0.6e-3 + batch * (90e-6 if cell.get("storage_format") == "png" else 20e-6)) * slower[0]
    load = own_load / max(1, min(workers, 2, facts.cores_logical))
    step = (3e-3 + batch * 1.1e-3) / (40.0 if facts.gpu_name else 1.0) * slower[1]
    host, worked = {"other": 5e-5}, {}
    if cell["mode"] != "load":
        host |= {name: share * step for name, share in _STEP.items()}
    if cell["mode"] != "compute":
        computed = step if cell["mode"] == "train" else 0.0
        host["fetch"] = max(load - computed, 2e-4) if workers else load
        worked = {f"worker_{stage}_ns": round(share * STEPS * own_load * 0.95e9) for stage, share in _STAGES.items()}
    weather = float(np.exp(generator.normal(0, SPREAD)))
    times = {f"host_{phase}_ns": round(STEPS * seconds * weather * 1e9) for phase, seconds in host.items()}
    wall = sum(times.values())
    samples = STEPS * batch
    rates = {
        "wall_ns": wall,
        "trial_wall_ns": wall + BESIDE_NS,
        "samples": samples,
        "samples_per_s": samples / wall * 1e9,
    }
    return times | worked | rates


def write_repeated(small: Path, rows: int, target: Path) -> None:
    """Write a large file of trials: those of a small one again and again, with host times of their own."""
    table = pq.read_table(small, **CHECKED)
    frame = table.to_pandas()
    blocks = int(frame["block"].max()) + 1
    manifest = json.loads(table.schema.metadata[MANIFEST_KEY])
    manifest |= {"outcomes": {"ok": rows}, "blocks": -(-rows // (len(frame) // blocks))}
    complete = table.schema.with_metadata({MANIFEST_KEY: json.dumps(manifest).encode()})
    names = [name for name in frame if name.startswith("host_") and name != "host_drain_ns" and frame[name].any()]
    generator = np.random.default_rng(5)
    with pq.ParquetWriter(target, complete, **encoding("trials")) as writer:
        for begin in range(0, rows, GROUP_ROWS):
            places = np.arange(begin, min(begin + GROUP_ROWS, rows))
            part = frame.iloc[places % len(frame)].reset_index(drop=True)
            part["block"] += blocks * (places // len(frame))
            numbers = zip(part["run_id"], part["block"], part["position"], strict=True)
            part["trial_id"] = [f"{run_id}-{block:03d}-{position:04d}" for run_id, block, position in numbers]
            weather = np.exp(generator.normal(0, SPREAD, len(places)))
            part[names] = np.trunc(part[names].mul(weather, axis=0))
            part["wall_ns"] = part[names].sum(axis=1)
            part["samples_per_s"] = part["samples"] / (part["wall_ns"] / 1e9)
            part["trial_wall_ns"] = part["wall_ns"] + BESIDE_NS
            writer.write_table(pa.Table.from_pandas(part, complete, preserve_index=False))
