"""Runs that were never measured: plausible rows by formula and seed, written through the real store.

The formulas follow the shape of real runs (loading against computing, whichever is slower, plus overheads); the numbers
stand for no machine.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from types import ModuleType
from typing import Any

from harness import store
from harness.axes import AXES, Value, applicable, ceilings, cell_id
from harness.machine import Machine, Software
from harness.manifest import Counted, Dataset, Protocol, RunManifest, Stopped
from harness.probes import noise
from harness.records import DEVICE_SPANS, PHASES, PROTOCOL_VERSION, WORKER_STAGES
from harness.storage_device import Storage


def _beside(name: str) -> ModuleType:
    """Load a file of this folder: tests are no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake_claims, fake_storage = _beside("fake_claims"), _beside("fake_storage")

CONTROL_EVERY = 16
STEPS_KEPT = 12
"""Of a trial with a loader."""
WORK = {"png": (0.2, 0.55, 0.15, 0.1), "lmdb": (0.1, 0.05, 0.55, 0.3)}
"""Share of a worker's time in each of its stages, by format."""
HOSTILE = '<script>document.title="owned"</script><img src=x onerror="document.title=1"> [a](javascript:alert(1)) `x` |'


@dataclass(frozen=True)
class Fake:
    """What kind of run to make up."""

    run_id: str = "20260102T030405Z-fake"
    device: str = "cpu"
    blocks: int = 6
    fails: str = "some"
    """none, some or all trials."""
    batches: Sequence[int] = (8, 32, 128)
    workers: Sequence[int] = (0, 2)
    nulls: bool = False
    """Leave out every metric that a probe might not give."""
    hostile: bool = False
    """Put HOSTILE wherever free text can stand."""
    busy: bool = False
    """Other work on the machine: flags, a wide spread, and a machine that grows slower."""
    plants: bool = False
    """Plant costs instead, and read them back a little off."""
    formats: Sequence[str] = ()
    """Compare these storage formats instead, as ``fake_storage`` makes them up."""
    states: Sequence[str] = ("warm", "cold")
    """Of the page cache, where storage formats are compared."""
    claims: Sequence[str] = ()
    """Test the claims of these suites instead, as ``fake_claims`` makes them up."""
    protocol_version: int = PROTOCOL_VERSION
    asked_only: bool = False
    """A run from before ceilings, controls and noise were recorded."""
    suites: Sequence[str] = field(default=("loader",))
    cores: int = 16
    """Tells one made-up machine from another."""


def machine(fake: Fake) -> Machine:
    """Make up a machine with or without a GPU."""
    gpu = fake.device == "cuda"
    return Machine(
        cpu_model=HOSTILE if fake.hostile else "Example 9000 8-Core",
        architecture="x86_64",
        cores_physical=8,
        cores_logical=fake.cores,
        cpu_quota_cores=None,
        memory_bytes=64 * 2**30,
        memory_limit_bytes=None,
        gpu_name="Example GPU 80" if gpu else None,
        gpu_count=int(gpu),
        gpu_memory_bytes=80 * 10**9 if gpu else None,
        virtualised=False,
        operating_system="Linux",
        kernel="6.1.0",
        distribution="Example Linux 12",
        storage=Storage(file_system="ext4", device_class="nvme", rotational=False) if fake.formats else None,
    )


def _planted() -> list[dict[str, Sequence[Value]]]:
    """Costs as the suite calibration plants them."""
    data = {"workload": ("synthetic",), "storage_format": ("lmdb",), "patch_size": (16,), "batch_size": (8, 16)}
    load: dict[str, Sequence[Value]] = {**data, "mode": ("load",), "replica": (0, 1)}
    step: dict[str, Sequence[Value]] = {**data, "mode": ("train",), "step": ("emulated",), "num_workers": (0, 1, 2)}
    return [
        load,
        {**load, "read_us": (1000, 2000), "num_workers": (0, 1)},
        {**load, "decode_us": (2000, 2020, 2100)},
        {**load, "collate_us": (10_000,)},
        {**step, "read_us": (2000,), "step_ms": (5.0, 20.0)},
    ]


def cells(fake: Fake) -> list[dict[str, Value]]:
    """List the cells of a small loader suite, or of one that plants costs."""
    workload = HOSTILE if fake.hostile else "div2k_standin"
    common: dict[str, Sequence[Value]] = {
        "batch_size": fake.batches,
        "num_workers": fake.workers,
        "storage_format": ("png", "lmdb"),
        "workload": (workload,),
    }
    wanted: list[dict[str, Sequence[Value]]] = [
        {**common, "mode": ("train",), "patch_size": (16,), "pin_memory": (False, True), "non_blocking": (False, True)},
        {**common, "mode": ("train",), "step": ("emulated",), "patch_size": (64,)},
        {**common, "mode": ("load",), "workload": ("div2k_standin", "synthetic"), "batch_size": (32,)},
        {"mode": ("compute",), "workload": ("div2k_standin",), "patch_size": (16,), "batch_size": fake.batches},
    ]
    if fake.device == "cuda":
        del wanted[1]
    wanted = _planted() if fake.plants else wanted
    wanted = fake_storage.slices(workload, fake.workers, fake.formats, fake.states) if fake.formats else wanted
    if fake.claims:
        return list({cell_id(cell): cell for cell in fake_claims.cells(fake.device, fake.claims)}.values())
    found: dict[str, dict[str, Value]] = {}
    defaults = {axis.name: axis.default for axis in AXES}
    for part in wanted:
        for values in product(*part.values()):
            cell, _ = applicable({**defaults, **dict(zip(part, values, strict=True))}, fake.device)
            found[cell_id(cell)] = cell
    return list(found.values())


def added(fake: Fake) -> list[dict[str, Value]]:
    """List the ceilings of the training cells that the suite does not ask for itself."""
    if fake.claims:
        return []
    asked = cells(fake)
    found = {
        cell_id(alone): alone
        for cell in asked
        if cell["mode"] == "train"
        for alone in ceilings(cell, fake.device).values()
    }
    for cell in asked:
        found.pop(cell_id(cell), None)
    return [] if fake.asked_only else list(found.values())


def _loading(cell: dict[str, Value]) -> float:
    """Seconds for which one process prepares a batch."""
    pixels = int(cell["patch_size"]) ** 2 / 64**2
    sample = 220e-6 * pixels + (60e-6 if cell.get("storage_format") == "png" else 12e-6)
    return int(cell["batch_size"]) * sample + 0.6e-3 + sum(_plants(cell)) / 1e9


def _plants(cell: dict[str, Value]) -> tuple[float, float, float, float]:
    """What is planted into each of a worker's stages, nanoseconds a batch."""
    read, decode, collate = (float(cell.get(f"{name}_us", 0)) * 1000 for name in ("read", "decode", "collate"))
    return int(cell["batch_size"]) * read, int(cell["batch_size"]) * decode, 0.0, collate


def _times(cell: dict[str, Value], device: str) -> dict[str, float]:
    """Seconds a batch in each phase."""
    batch, workers = int(cell["batch_size"]), int(cell.get("num_workers", 0))
    pixels = int(cell["patch_size"]) ** 2 / 64**2
    load = _loading(cell)
    if workers:
        load = load / min(workers, 2) + 0.3e-3
    speed = 40.0 if device == "cuda" else 1.0
    step = (
        float(cell["step_ms"]) / 1000
        if cell.get("step") == "emulated"
        else (3e-3 + batch * 1.1e-3 * pixels * 16) / speed
    )
    if cell["mode"] in ("load", "copy"):
        step = 0.0
    hidden = step if workers else 0.0
    times = {"fetch": max(load - hidden, 0.2e-3), "forward": step, "other": 0.05e-3}
    if cell["mode"] in ("compute", "copy"):
        times["fetch"] = 0.0
    if cell.get("step") != "emulated" and cell["mode"] in ("train", "compute"):
        times |= {"forward": step * 0.3, "backward": step * 0.62, "optimizer": step * 0.08}
    if device == "cuda" and cell["mode"] in ("train", "copy"):
        times["h2d"] = batch * 12e-6 * pixels * (0.6 if cell.get("pin_memory") else 1.0)
    return times


def _trial(
    fake: Fake, cell: dict[str, Value], role: str, block: int, position: int, random_: random.Random
) -> dict[str, Any]:
    steps = 40
    weather = random_.gauss(1.0, 0.09) + 0.03 * block if fake.busy else random_.gauss(1.0, 0.02)
    weather *= fake_claims.factor(cell_id(cell)) if fake.claims else 1.0
    single = fake_storage.times(cell) if fake.formats else _times(cell, fake.device)
    times = {phase: seconds * weather * steps for phase, seconds in single.items()}
    wall = sum(times.values())
    row: dict[str, Any] = {
        "run_id": fake.run_id,
        "trial_id": f"{fake.run_id}-{block:02d}-{position:03d}",
        "cell_id": cell_id(cell),
        "machine_id": machine(fake).machine_id,
        "suite": fake.suites[position % len(fake.suites)],
        "role": None if fake.asked_only else role,
        "block": block,
        "position": position,
        "device": fake.device,
        "protocol_version": fake.protocol_version,
        "workload_version": 1,
        "data_hash": "0123456789abcdef",
        "started_at": f"2026-01-02T03:{block:02d}:{position % 60:02d}Z",
        "outcome": "ok",
        **cell,
    }
    unlucky = fake.fails == "some" and (random_.random() < 0.03 or fake_storage.broken(cell))
    if fake.fails == "all" or unlucky:
        outcome = random_.choice(["oom", "timeout", "error"])
        return {
            **row,
            "outcome": outcome,
            "error_kind": {"oom": "OutOfMemoryError"}.get(outcome, "RuntimeError"),
            "error_message": HOSTILE if fake.hostile else f"made up: {outcome} while loading",
        }
    if cell["mode"] == "check":
        return {**row, **fake_claims.checked(cell)}
    samples = steps * int(cell["batch_size"])
    row |= {
        "steps": steps,
        "samples": samples,
        "wall_ns": int(wall * 1e9),
        "samples_per_s": samples / wall,
        "startup_ns": int(4e7),
        "first_batch_ns": int(6e7),
        "warmup_steps": 8,
        "warmup_ns": int(3e8),
        "half_ratio": 1.0,
        "steady": True,
        "trial_wall_ns": int((wall + 0.5) * 1e9),
        "left_processes": 0,
        "left_shm_segments": 0,
    }
    row |= {f"host_{phase}_ns": int(times[phase] * 1e9) for phase in PHASES if phase in times}
    if fake.device == "cuda" and "h2d" in times:
        row["batch_bytes"] = 2 * 12 * int(cell["patch_size"]) ** 2 * int(cell["batch_size"])
    if not fake.nulls:
        busy = 1 - times.get("fetch", 0.0) / wall
        row |= {
            "cpu_util_pct": 100 * min(1, 0.3 + 0.6 * busy) * weather / 1.1,
            "main_cpu_pct": _main_cpu_pct(cell, times, wall),
        }
        if fake.device == "cuda":
            row |= {"gpu_util_pct": 100 * min(1.0, busy * weather), "gpu_power_w": 200.0}
        row |= _spans(cell, times) if fake.device == "cuda" else {}
        row |= _stamps(cell, steps) | ({} if fake.asked_only else _disturbed(fake, random_))
        if fake.formats:
            row |= fake_storage.columns(cell, steps, doubtful=block == 1 and position < 4)
        row |= fake_claims.columns(cell, steps) if fake.claims else {}
        row["flags"] = None if fake.asked_only else noise.flags(row)
    return row


def _main_cpu_pct(cell: dict[str, Value], times: dict[str, float], wall: float) -> float:
    """The training process computes in its own phases unless it sleeps, and loads where there are no workers."""
    idle = () if cell.get("num_workers") == 0 else ("fetch",)
    idle += ("forward",) if cell.get("step") == "emulated" else ()
    return 100 * sum(seconds for phase, seconds in times.items() if phase not in idle) / wall


def _spans(cell: dict[str, Value], times: dict[str, float]) -> dict[str, int]:
    """What CUDA events say: the host's times, of copies that return early a quarter waited for."""
    spans = {phase: times[phase] for phase in ("h2d", "forward", "backward", "optimizer") if phase in times}
    if "h2d" in spans:
        spans["h2d_exposed"] = spans["h2d"] * (0.25 if cell.get("non_blocking") else 1.0)
    return {f"device_{span}_ns": int(seconds * 1e9) for span, seconds in spans.items()}


def _stamps(cell: dict[str, Value], steps: int) -> dict[str, int]:
    """What the workers stamp."""
    if cell["mode"] not in ("train", "load"):
        return {}
    planted = _plants(cell)
    busy = (_loading(cell) * 1e9 - sum(planted)) * 0.95
    shares = WORK.get(str(cell["storage_format"]), WORK["lmdb"])
    return {
        f"worker_{stage}_ns": int((share * busy + 1.004 * more) * steps)
        for stage, share, more in zip(WORKER_STAGES, shares, planted, strict=True)
    }


def _disturbed(fake: Fake, random_: random.Random) -> dict[str, Any]:
    """What the machine tells of other work; a container that tells nothing of pressure."""
    others = random_.random() < (0.35 if fake.busy else 0.02)
    seen = {
        "foreign_cpu_pct": random_.uniform(30, 80) if others else random_.uniform(0, 4),
        "workers_cpu_pct": 20.0,
        "steal_pct": 2.5 if fake.busy and random_.random() < 0.2 else 0.0,
        "throttled_ns": 0,
        "read_bytes": 0,
    }
    return seen | ({"gpu_foreign_processes": 0, "gpu_throttle_reasons": 0} if fake.device == "cuda" else {})


def _steps(fake: Fake, trial: dict[str, Any]) -> list[dict[str, Any]]:
    """The first steps of a trial with a loader, each like their mean; its batch is whole when it is fetched."""
    if trial["outcome"] != "ok" or trial["mode"] not in ("train", "load"):
        return []
    told = {
        f"{name}_ns": trial[f"{prefix}{name}_ns"] // trial["steps"]
        for prefix, names in (
            ("host_", PHASES),
            ("", [f"worker_{stage}" for stage in WORKER_STAGES]),
            ("", [f"device_{span}" for span in DEVICE_SPANS]),
        )
        for name in names
        if f"{prefix}{name}_ns" in trial
    }
    wall = sum(told.get(f"{phase}_ns", 0) for phase in PHASES)
    if (spans := sum(told.get(f"device_{span}_ns", 0) for span in DEVICE_SPANS if span != "h2d_exposed")) > 0:
        told["device_idle_ns"] = max(0, wall - spans)
    busy, workers = sum(told.get(f"worker_{stage}_ns", 0) for stage in WORKER_STAGES), trial.get("num_workers", 0)
    found = []
    for step in range(STEPS_KEPT):
        whole = step * wall + told["fetch_ns"]
        moments = {"worker_begun_ns": whole - busy, "worker_ended_ns": whole} if busy and not fake.asked_only else {}
        moments |= {"worker": step % workers} if moments and workers else {}
        found.append({"run_id": fake.run_id, "trial_id": trial["trial_id"], "step": step, **told, **moments})
    return found


def rows(fake: Fake) -> dict[str, list[dict[str, Any]]]:
    """Make up the three tables of a run."""
    random_ = random.Random(7)
    trials = []
    everything = [(cell, "cell") for cell in cells(fake)] + [(cell, "ceiling") for cell in added(fake)]
    for block in range(fake.blocks):
        order = list(everything)
        random_.shuffle(order)
        if not fake.asked_only:
            for place in range(CONTROL_EVERY * (len(order) // CONTROL_EVERY), 0, -CONTROL_EVERY):
                order.insert(place, (everything[0][0], "control"))
        trials += [_trial(fake, cell, role, block, place, random_) for place, (cell, role) in enumerate(order)]
    steps = [step for trial in trials for step in _steps(fake, trial)]
    return {"trials": trials, "steps": steps, "telemetry": _samples(fake, trials)}


def _samples(fake: Fake, trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the probes see: three looks at every trial, half a second apart, and a pause between blocks."""
    random_, found, now = random.Random(11), [], 0
    for at, trial in enumerate(trials):
        now += 4 * 10**9 if at and trials[at - 1]["block"] != trial["block"] else 10**8
        for tick in range(3):
            now += 5 * 10**8
            sample = {"run_id": fake.run_id, "trial_id": trial["trial_id"], "t_ns": now, "in_window": tick > 0}
            found.append(sample | ({} if fake.nulls else _look_at(fake, random_)))
    return found


def _look_at(fake: Fake, random_: random.Random) -> dict[str, Any]:
    """One look of the probes."""
    main, workers, others = (
        random_.uniform(60, 100),
        random_.uniform(0, 190),
        random_.uniform(0, 80 if fake.busy else 8),
    )
    seen = {
        "cpu_util_pct": (main + workers + others) / fake.cores,
        "main_cpu_pct": main,
        "workers_cpu_pct": workers,
        "steal_pct": random_.choice((0.0, 0.0, 2.5)) if fake.busy else 0.0,
        "load_1m": random_.uniform(1.5, 2.5),
        "mem_available_bytes": random_.randint(50, 56) * 2**30,
    }
    if fake.device == "cuda":
        seen |= {
            "gpu_util_pct": random_.uniform(20, 100),
            "gpu_power_w": random_.uniform(90, 300),
            "gpu_mem_bytes": 3 * 2**30,
        }
    return seen


def _counts(values: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        found[value] = found.get(value, 0) + 1
    return dict(sorted(found.items()))


def _stopped(fake: Fake) -> tuple[Stopped, ...]:
    """Contrasts of batch sizes: some narrow enough, some stopped by the budget."""
    asked = [cell for cell in cells(fake) if cell["mode"] == "train"]
    pairs = [
        (cell_id(a), cell_id(b)) for a, b in combinations(asked, 2) if {**a, "batch_size": 0} == {**b, "batch_size": 0}
    ]
    return tuple(
        Stopped(axis="batch_size", cell_a=a, cell_b=b, blocks=fake.blocks, reason="budget" if at % 3 else "target")
        for at, (a, b) in enumerate(pairs)
    )


def _look(busy: bool) -> dict[str, float | int | None]:
    return {
        "wall_ns": 1_000_400_000,
        "cpu_util_pct": 31.0 if busy else 0.4,
        "foreign_cpu_pct": 62.0 if busy else 1.1,
        "steal_pct": 0.0,
        "throttled_ns": None,
        "io_pressure_pct": None,
        "memory_pressure_pct": None,
        "cpu_pressure_pct": None,
        "load_1m": 1.7 if busy else 0.21,
        "gpu_foreign_processes": None,
        "gpu_util_pct": None,
        "gpu_throttle_reasons": None,
    }


def manifest(fake: Fake, trials: Sequence[dict[str, Any]]) -> RunManifest:
    """Make up what the run says of itself."""
    text = HOSTILE if fake.hostile else ""
    return RunManifest(
        protocol_version=fake.protocol_version,
        feedrate_version="0.1.0",
        run_id=fake.run_id,
        machine=machine(fake),
        software=Software(python="3.11.7", torch="2.15.0", torchvision="0.29.2"),
        device=fake.device,
        command=f"make sweep {text}".strip(),
        profile="quick",
        suites={name: [{"batch_size": [8]}] for name in fake.suites},
        protocol=Protocol(warmup_s=0.3, window_s=0.6, min_steps=12, blocks=(8, 30), timeout_s=120),
        budget_s=240.0,
        seed=7,
        combinations=96,
        cells=len(cells(fake)),
        merged=(Counted(count=36, reason=text or "no CUDA device here: pin_memory, non_blocking"),),
        excluded=(
            fake_storage.EXCLUDED if fake.formats else (Counted(count=2, reason="the set is smaller than a batch"),)
        ),
        substitutions=(text or "div2k_standin stands in for div2k: procedural images of its geometry",),
        datasets=(
            Dataset(
                name="div2k_standin-p16-s2-n1024",
                storage_format="png",
                count=1024,
                bytes=1_234_567,
                data_hash="0123456789abcdef",
                workload_version=1,
                pack_s=2.5,
                notes=(text,) if text else (),
            ),
        ),
        started_at="2026-01-02T03:04:05Z",
        ended_at="2026-01-02T03:08:05Z",
        blocks=fake.blocks,
        stop_reason="budget",
        **({} if fake.asked_only else _trust(fake)),
        outcomes=_counts(row["outcome"] for row in trials),
        cell_seconds={},
        parent_cpu_pct=1.2,
    )


def _trust(fake: Fake) -> dict[str, Any]:
    """What a run says of how far it can be trusted."""
    return {
        "control": cell_id(cells(fake)[0]),
        "ceilings": len(added(fake)),
        "contrasts": _stopped(fake),
        "noise_before": _look(fake.busy),
        "noise_after": _look(False),
    }


def write(results: Path, fake: Fake = Fake()) -> Path:
    """Write a made-up run below ``results`` and return its folder."""
    tables = rows(fake)
    run = manifest(fake, tables["trials"])
    folder = results / run.machine.machine_id / ("hostile" if fake.hostile else fake.run_id)
    folder.mkdir(parents=True)
    store.write_run(folder, run, [tables])
    return folder
