"""Results that nobody measured: runs of as many machines as wanted, by formula and seed, as ``store`` would write them.

They are there to see what many results cost, and large files. Throughputs follow the shape of real ones (loading
against computing, whichever is slower, plus overheads, with a spread between trials); no machine stands behind them,
and they are written nowhere but into a temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness import __version__
from harness.axes import AXES, Value, applicable, cell_id
from harness.hardware import usable_cores
from harness.machine import Machine, Software
from harness.manifest import Dataset, Protocol, RunManifest
from harness.migration import MANIFEST_KEY
from harness.records import PROTOCOL_VERSION, TABLES
from harness.store import encoding, schema

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
    """Write one run for each of many machines.

    Args:
        results: a folder, made where it is missing; gets ``MACHINE/RUN/`` for each.
        machines: how many, one of three with a GPU.
        seed: of everything that varies; the same gives the same runs.

    Returns:
        Rows of trials that were written, about a hundred a machine.
    """
    parts = [(results, range(at, min(at + _A_PART, machines)), seed) for at in range(0, machines, _A_PART)]
    if machines <= _ALONE:
        return sum(map(_write_part, parts))
    with ProcessPoolExecutor(len(usable_cores()), get_context("spawn")) as pool:
        return sum(pool.map(_write_part, parts))


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
    common: dict[str, Sequence[Value]] = {"workload": ("div2k_standin",), "storage_format": ("png",)}
    wanted: list[dict[str, Sequence[Value]]] = [
        {**common, "mode": ("train",), "patch_size": (16,), "batch_size": (8, 32, 128), "num_workers": (0, 2)},
        {
            **common,
            "storage_format": ("png", "lmdb"),
            "mode": ("load",),
            "patch_size": (16,),
            "batch_size": (32,),
            "num_workers": (0, 2),
        },
        {"mode": ("compute",), "workload": ("div2k_standin",), "patch_size": (16,), "batch_size": (8, 32, 128)},
    ]
    defaults = {axis.name: axis.default for axis in AXES}
    return [
        applicable({**defaults, **dict(zip(part, values, strict=True))}, device)[0]
        for part in wanted
        for values in product(*part.values())
    ]


@dataclass(frozen=True, slots=True)
class _Likeness:
    """The rows that all runs of a device share, and what their times are made of."""

    device: str
    tables: Mapping[str, pa.Table]
    load_s: Numbers
    """Seconds for which one process prepares a batch, a value a trial; 0 where nothing is loaded."""
    step_s: Numbers
    """Seconds of a step, likewise; 0 where there is none."""
    workers: Numbers
    batch: Numbers


def _write_part(part: tuple[Path, range, int]) -> int:
    results, numbers, seed = part
    return sum(_write_run(results, number, seed) for number in numbers)


def _write_run(results: Path, number: int, seed: int) -> int:
    facts = machine(number)
    likeness = _likeness("cuda" if facts.gpu_name else "cpu")
    began = _FIRST + number * _APART
    run_id = f"{began:%Y%m%dT%H%M%SZ}-{number % 2**16:04x}"
    folder = results / facts.machine_id / run_id
    folder.mkdir(parents=True)
    trials = likeness.tables["trials"]
    manifest = _manifest(facts, likeness.device, run_id, began, trials.num_rows)
    columns = _measured(likeness, facts, np.random.default_rng([seed, number]))
    columns |= {"run_id": run_id, "machine_id": facts.machine_id, "started_at": began.isoformat()}
    places = zip(trials["block"].to_pylist(), trials["position"].to_pylist(), strict=True)
    columns["trial_id"] = [f"{run_id}-{block:03d}-{position:04d}" for block, position in places]
    for name, table in likeness.tables.items():
        new = columns if name == "trials" else {"run_id": run_id, "trial_id": f"{run_id}-000-0000"}
        whole = changed(table, new).replace_schema_metadata({MANIFEST_KEY: manifest.model_dump_json().encode()})
        pq.write_table(whole, folder / f"{name}.parquet", **encoding(name))
    (folder / "run.json").write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return int(trials.num_rows)


def changed(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """Replace columns of a table.

    Args:
        table: any.
        columns: name to one text for all rows, or to an array of as many values, of which masked ones are null.
    """
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        if isinstance(values, np.ma.MaskedArray):
            column = pa.array(values.data, field.type, mask=np.ma.getmaskarray(values))
        else:
            column = pa.array([values] * table.num_rows if isinstance(values, str) else values, field.type)
        table = table.set_column(place, field, column)
    return table


@cache
def _likeness(device: str) -> _Likeness:
    asked = cells(device)
    rows = list(_rows(asked, device))
    empty = _manifest(machine(2 if device == "cuda" else 0), device, "", _FIRST, len(rows))
    schemas = {name: schema(columns, empty) for name, columns in TABLES.items()}
    steps = [{"run_id": "", "trial_id": "", "step": step, "fetch_ns": 1000, "other_ns": 10} for step in range(4)]
    telemetry = [
        {"run_id": "", "trial_id": "", "t_ns": 10**8 * tick, "in_window": True, "cpu_util_pct": 50.0}
        for tick in range(4)
    ]
    tables = {"trials": rows, "steps": steps, "telemetry": telemetry}
    loads, steps_s = zip(*(_seconds(asked[row["position"] % len(asked)], device) for row in rows), strict=True)
    return _Likeness(
        device,
        {name: pa.Table.from_pylist(held, schemas[name]) for name, held in tables.items()},
        np.array(loads),
        np.array(steps_s),
        np.array([row.get("num_workers") or 0 for row in rows], dtype=np.float64),
        np.array([row["batch_size"] for row in rows], dtype=np.float64),
    )


def _rows(asked: Sequence[Mapping[str, Value]], device: str) -> Iterator[dict[str, Any]]:
    """Rows in which everything that the machine decides stands at nothing."""
    for block in range(BLOCKS):
        for position, cell in enumerate(asked):
            yield {
                "cell_id": cell_id(cell),
                "suite": "loader",
                "role": "cell",
                "block": block,
                "position": position,
                "device": device,
                "protocol_version": PROTOCOL_VERSION,
                "workload_version": 1,
                "data_hash": "0123456789abcdef",
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


def _seconds(cell: Mapping[str, Value], device: str) -> tuple[float, float]:
    """Seconds that a batch takes to be prepared by one process, and to be computed, on a machine of speed 1."""
    batch = int(cell["batch_size"])
    load = 0.6e-3 + batch * (90e-6 if cell.get("storage_format") == "png" else 20e-6)
    step = (3e-3 + batch * 1.1e-3) / (40.0 if device == "cuda" else 1.0)
    return 0.0 if cell["mode"] == "compute" else load, 0.0 if cell["mode"] == "load" else step


def _measured(likeness: _Likeness, facts: Machine, generator: np.random.Generator) -> dict[str, Any]:
    """Times and rates of one machine, a value a trial; what a trial does not do is masked."""
    slower = np.exp(generator.normal(0, 0.3, 2))
    load = likeness.load_s * slower[0] / np.clip(likeness.workers, 1, min(2, facts.cores_logical))
    step = likeness.step_s * slower[1]
    weather = np.exp(generator.normal(0, SPREAD, len(load)))
    shares = {"forward": 0.3, "backward": 0.62, "optimizer": 0.08}
    phases = {"fetch": np.where(likeness.workers > 0, np.maximum(load - step, 2e-4), load), "other": 5e-5 + 0 * load}
    phases |= {name: share * step for name, share in shares.items()}
    idle = {"fetch": likeness.load_s == 0, **dict.fromkeys(shares, likeness.step_s == 0)}
    columns: dict[str, Any] = {
        f"host_{name}_ns": _whole(STEPS * seconds * weather * 1e9, idle.get(name)) for name, seconds in phases.items()
    }
    wall = sum(values.filled(0) for values in columns.values())
    busy = STEPS * likeness.load_s * slower[0] * 0.95e9
    columns |= {f"worker_{stage}_ns": _whole(share * busy, likeness.load_s == 0) for stage, share in _STAGES.items()}
    columns["wall_ns"] = wall
    columns["samples_per_s"] = STEPS * likeness.batch / (wall / 1e9)
    columns["trial_wall_ns"] = wall + BESIDE_NS
    return columns


def _whole(values: Numbers, without: npt.NDArray[np.bool_] | None) -> np.ma.MaskedArray[Any, np.dtype[np.int64]]:
    return np.ma.MaskedArray(np.rint(values).astype(np.int64), mask=False if without is None else without)


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
