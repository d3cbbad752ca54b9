"""The row of a made-up trial, and those of its first steps.

Loading against computing, whichever is slower, plus overheads. The numbers stand for no machine.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import fake_claims
import fake_storage
from fake_kind import HOSTILE, Fake, machine

from feedrate.machine.probes import noise
from feedrate.schema.axes import Value, cell_id
from feedrate.schema.columns import DEVICE_SPANS, PHASES, WORKER_STAGES

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LASTED_S = 240
STEPS = 40
STEPS_KEPT = 12
"""Of a trial with a loader."""
WORK = {"png": (0.2, 0.55, 0.15, 0.1), "lmdb": (0.1, 0.05, 0.55, 0.3)}
"""Share of a worker's time in each of its stages, by format."""
Row = dict[str, Any]


def trial(fake: Fake, cell: dict[str, Value], role: str, block: int, position: int, random_: random.Random) -> Row:
    """Make up what a trial was and how it ended; the numbers of one that ended well follow formulas."""
    weather = random_.gauss(1.0, 0.09) + 0.03 * block if fake.busy else random_.gauss(1.0, 0.02)
    weather *= fake_claims.factor(cell_id(cell)) if fake.claims else 1.0
    weather /= fake.pace
    row = {**_identity(fake, cell, block, position), "role": None if fake.asked_only else role}
    unlucky = fake.fails == "some" and (random_.random() < 0.03 or fake_storage.broken(cell))
    if fake.fails == "all" or unlucky:
        return row | _failed(fake, random_)
    if cell["mode"] == "check":
        return row | fake_claims.checked(cell)
    single = fake_storage.times(cell) if fake.formats else _phases(cell, fake.device)
    times = {phase: seconds * weather * STEPS for phase, seconds in single.items()}
    row |= _timed(fake, cell, times)
    if fake.nulls:
        return row
    row |= _probed(fake, cell, times, weather)
    row |= _stamps(cell, STEPS) | ({} if fake.asked_only else _disturbed(fake, random_))
    if fake.formats:
        row |= fake_storage.columns(cell, STEPS, doubtful=block == 1 and position < 4)
    row |= fake_claims.columns(cell, STEPS) if fake.claims else {}
    return row | {"flags": None if fake.asked_only else noise.flags(row)}


def _identity(fake: Fake, cell: dict[str, Value], block: int, position: int) -> Row:
    """What every trial says of itself, one that failed too but for its outcome."""
    return {
        "run_id": fake.run_id,
        "trial_id": f"{fake.run_id}-{block:03d}-{position:04d}",
        "cell_id": cell_id(cell),
        "machine_id": machine(fake).machine_id,
        "suite": fake.suites[position % len(fake.suites)],
        "block": block,
        "position": position,
        "device": fake.device,
        "protocol_version": fake.protocol_version,
        "workload_version": 1,
        "data_hash": fake.data_hash,
        "started_at": (BEGAN + timedelta(seconds=LASTED_S * (block + position / 1000) / fake.blocks)).isoformat(),
        "outcome": "ok",
        **cell,
    }


def _failed(fake: Fake, random_: random.Random) -> Row:
    """How a trial ended that did not end well."""
    outcome = random_.choice(["oom", "timeout", "error"])
    return {
        "outcome": outcome,
        "error_kind": {"oom": "OutOfMemoryError"}.get(outcome, "RuntimeError"),
        "error_message": HOSTILE if fake.hostile else f"made up: {outcome} while loading",
    }


def _timed(fake: Fake, cell: dict[str, Value], times: dict[str, float]) -> Row:
    """What the trial's own clock says."""
    wall, samples = sum(times.values()), STEPS * int(cell["batch_size"])
    row: Row = {
        "steps": STEPS,
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
    return row


def _probed(fake: Fake, cell: dict[str, Value], times: dict[str, float], weather: float) -> Row:
    """What the probes and CUDA's events say."""
    wall = sum(times.values())
    busy = 1 - times.get("fetch", 0.0) / wall
    row: Row = {
        "cpu_util_pct": 100 * min(1, 0.3 + 0.6 * busy) * weather / 1.1,
        "main_cpu_pct": _main_cpu_pct(cell, times, wall),
    }
    if fake.device == "cuda":
        row |= {"gpu_util_pct": 100 * min(1.0, busy * weather), "gpu_power_w": 200.0}
        row |= _spans(cell, times)
    return row


def _disturbed(fake: Fake, random_: random.Random) -> Row:
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


def steps(fake: Fake, trial: Row) -> list[Row]:
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


def _loading(cell: dict[str, Value]) -> float:
    """Seconds for which one process prepares a batch."""
    pixels = int(cell["patch_size"]) ** 2 / 64**2
    sample = 220e-6 * pixels + (60e-6 if cell.get("storage_format") == "png" else 12e-6)
    return int(cell["batch_size"]) * sample + 0.6e-3 + sum(_plants(cell)) / 1e9


def _plants(cell: dict[str, Value]) -> tuple[float, float, float, float]:
    """What is planted into each of a worker's stages, nanoseconds a batch."""
    read, decode, collate = (float(cell.get(f"{name}_us", 0)) * 1000 for name in ("read", "decode", "collate"))
    return int(cell["batch_size"]) * read, int(cell["batch_size"]) * decode, 0.0, collate


def _phases(cell: dict[str, Value], device: str) -> dict[str, float]:
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


def _main_cpu_pct(cell: dict[str, Value], times: dict[str, float], wall: float) -> float:
    """The training process computes in its own phases unless it sleeps, and loads where there are no workers."""
    idle: tuple[str, ...] = () if cell.get("num_workers") == 0 else ("fetch",)
    idle += ("forward",) if cell.get("step") == "emulated" else ()
    return 100 * sum(seconds for phase, seconds in times.items() if phase not in idle) / wall


def _spans(cell: dict[str, Value], times: dict[str, float]) -> dict[str, int]:
    """What CUDA events say: the host's times, of copies that return early a quarter waited for."""
    found: dict[str, float] = {
        phase: times[phase] for phase in ("h2d", "forward", "backward", "optimizer") if phase in times
    }
    if "h2d" in found:
        found["h2d_exposed"] = found["h2d"] * (0.25 if cell.get("non_blocking") else 1.0)
    return {f"device_{span}_ns": int(seconds * 1e9) for span, seconds in found.items()}


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
