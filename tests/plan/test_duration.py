"""What a trial is predicted to take where none ran before: held against a loader that is played step by step."""

from __future__ import annotations

import math
from itertools import count

import pytest

from feedrate.plan.duration import CUDA_S, TEMPLATE_S, trial_s
from feedrate.schema import window
from feedrate.schema.axes import AXES, Cell, Value, applicable
from feedrate.store.manifest import Protocol

PROTOCOL = Protocol(warmup_s=0.5, window_s=3, min_steps=12, blocks=(1, 1), timeout_s=60)


def cell_of(device: str = "cpu", **axes: Value) -> Cell:
    """A cell with these values, all others at their defaults."""
    planted = {"workload": "synthetic", "storage_format": "lmdb", "patch_size": 16, "mode": "load"}
    return applicable({axis.name: axis.default for axis in AXES} | planted | axes, device)[0]


def played_s(workers: int, ahead: int, burst_s: float, step_s: float) -> float:
    """Play a trial: workers prepare batches in turn, ``ahead`` each at most, and the step takes them in order."""
    free, taken_at, now = [0.0] * workers, [], 0.0
    warm = opened = math.inf
    for step in count():
        asked = taken_at[step - workers * ahead] if step >= workers * ahead else 0.0
        free[step % workers] = max(free[step % workers], asked) + burst_s
        taken_at.append(now := max(now, free[step % workers]))
        now += step_s
        if warm == math.inf and step + 1 >= window.LEAST_WARM_UP and now - taken_at[0] >= PROTOCOL.warmup_s:
            warm = step
        if step == warm + window.drained_after(workers, ahead):
            opened = step
        inside = step - opened
        if inside < PROTOCOL.min_steps or inside % workers:
            continue
        if now - taken_at[int(opened)] >= PROTOCOL.window_s:
            break
    return now


@pytest.mark.parametrize(
    ("workers", "size", "read_us", "step_ms"),
    [(16, 256, 3000, 0), (8, 64, 2000, 0), (2, 32, 1000, 0), (16, 256, 1000, 200), (1, 8, 4000, 10)],
)
def test_the_first_batches_and_the_stock_count(workers: int, size: int, read_us: int, step_ms: int) -> None:
    """Planned ÷ played lies within 0.8 and 1.25, of sixteen workers with batches of 256 files, too."""
    step: dict[str, Value] = {"mode": "train", "step": "emulated", "step_ms": step_ms} if step_ms else {}
    cell = cell_of(batch_size=size, num_workers=workers, read_us=read_us, **step)
    planned = trial_s(cell, PROTOCOL, PROTOCOL.window_s, "cpu", cores=64)
    assert 0.8 <= planned / played_s(workers, 2, size * read_us / 1e6, step_ms / 1e3) <= 1.25


@pytest.mark.parametrize(
    ("change", "device", "more_s"),
    [
        ({"launch_blocking": True, "mode": "compute"}, "cuda", TEMPLATE_S),
        ({"num_workers": 2, "start_method": "spawn"}, "cpu", TEMPLATE_S),
        ({"pin_memory": True}, "cuda", CUDA_S),
    ],
    ids=["launch_blocking", "spawn", "pinned"],
)
def test_what_a_trial_starts_counts(change: dict[str, Value], device: str, more_s: float) -> None:
    """A fresh interpreter imports torch, spawned workers do so side by side, pinning takes a CUDA context."""
    plain = {name: value for name, value in change.items() if name in ("mode", "num_workers")}
    without, there = (trial_s(cell_of(device, **axes), PROTOCOL, 3, device, cores=16) for axes in (plain, change))
    assert there - without == pytest.approx(more_s)
    assert math.isfinite(there)
