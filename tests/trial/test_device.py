"""The measured loop on a device that is not there, held against what its plan makes happen."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from fake_device import FakeDevice, HostTensor
from planned_step import DEPTH, PASSES, Plan, Truth

import feedrate
from feedrate.analysis.ceilings import bottleneck
from feedrate.loaders import Batch
from feedrate.trial import loop, stages
from feedrate.trial.job import Job
from feedrate.trial.loop import Limits
from feedrate.trial.run import host_times
from feedrate.trial.stages import Stage, Timeline, serialize

BOUNDS: dict[str, dict[str, Any]] = {
    "loader": {"load": 15_000, "copy": 2_000, "kernel": 2_000},
    "copy": {"load": 3_000, "copy": 12_000, "kernel": 2_000},
    "compute": {"load": 3_000, "copy": 2_000, "kernel": 4_000},
    "launch": {"load": 3_000, "copy": 1_000, "kernel": 1_500, "launch": 4_000},
    "nothing": {"load": 8_000, "copy": 7_500, "kernel": 2_600, "launch": 2_500},
}
"""What holds a training back, and the planted times that make it so."""
PLANS = {
    f"{prefetcher}, {'pinned' if pinned else 'pageable'}, {bound}, spread {spread}": Plan(
        prefetcher, pinned, **times, spread=spread
    )
    for prefetcher in ("none", "next_batch", "stream")
    for pinned in (True, False)
    for bound, times in BOUNDS.items()
    for spread in (0.0, 0.4)
}
HOOK = f"{feedrate.__path__[0]}/attach/hook"


def batches(device: FakeDevice, plan: Plan) -> Iterator[Batch]:
    """Load as the plan says, some batches ahead; each has its number."""
    clock, taken = device.clock, []
    ready = clock.now()
    for k, (load, copy) in enumerate(zip(plan.times("load"), plan.times("copy"), strict=False)):
        ready = max(ready, taken[k - DEPTH] if k >= DEPTH else 0) + load
        clock.wait_until(ready)
        taken.append(clock.now())
        yield Batch((HostTensor(device, copy, plan.pinned, k),), str(k).encode())  # type: ignore[arg-type]


def planted_row(device: FakeDevice, plan: Plan, trained: list[int]) -> list[Stage]:
    """The stages of a training step, whose passes are a kernel each; the forward pass notes its batch."""

    def launching(name: str) -> Stage:
        launches, kernels = plan.times(f"{name} launch"), plan.times(name)

        def run(fields: Any) -> None:
            trained.extend(field.number for field in fields or ())
            device.launch(next(launches), next(kernels), fields or ())

        return Stage(name, run)

    return [stages.copy_stage(torch.device("cuda"), True, None), *map(launching, PASSES)]


class Measured(NamedTuple):
    """What feedrate says of a plan that was followed."""

    steps: dict[str, list[int]]
    """Nanoseconds of each step; the wall clock and the wait at its end by themselves."""
    half_ratio: float
    trained: list[int]
    """The number of each step's batch."""
    window: loop.Window


def follow(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Measure a plan with the loop, the streams and the timeline of a trial."""
    device, trained = FakeDevice(), []
    job = Job("trial", device="cuda", cell={"prefetcher": plan.prefetcher})
    with monkeypatch.context() as patched:
        device.install(patched)
        source = batches(device, plan)
        prefetched = stages.prefetch(job, planted_row(device, plan, trained), source)
        timed, timeline = stages.instrument(job, prefetched, device.synchronize)
        assert timeline
        timeline.reset(plan.steps)
        limits = Limits(0, plan.steps, 1, plan.steps)
        window = loop.measure(source, timed, limits, device.synchronize, timeline.reset)
        half = timeline.half_ratio(1)
    assert half is not None
    steps = {**timeline.spans(), "fetch": window.durations()["fetch"], "wall": [window.wall_ns]}
    return Measured(steps, half, trained, window)


def happens(plan: Plan) -> dict[str, list[int]]:
    """The same by the simulation of the plan."""
    truth = Truth(plan)
    steps = {**truth.spans(), "idle": truth.idle(), "h2d_exposed": truth.exposed(), "wall": [truth.wall_ns]}
    return {**steps, "fetch": [came - asked for asked, came in truth.waits()]}


@pytest.mark.parametrize("name", PLANS)
def test_what_is_measured_is_what_happens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step's phases, exposed copy, gap and wait are the plan's to the nanosecond."""
    plan = PLANS[name]
    measured = follow(plan, monkeypatch)
    assert measured.steps == happens(plan)
    assert measured.half_ratio == pytest.approx(Truth(plan).half_ratio(), rel=1e-6)
    held = plan.prefetcher != "none"
    assert measured.trained == list(range(plan.steps))
    assert measured.window.tags[: plan.steps] == [str(k + held).encode() for k in range(plan.steps)]


@pytest.mark.parametrize("prefetcher", ["none", "next_batch", "stream"])
@pytest.mark.parametrize("bound", ["loader", "copy", "compute", "launch"])
def test_what_holds_a_training_back_is_named(bound: str, prefetcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged by each stage alone and by what is measured of the host, a verdict is what was planted."""
    plan = PLANS[f"{prefetcher}, pinned, {bound}, spread 0.4"]
    window = follow(plan, monkeypatch).window
    shares = {
        f"{name.removeprefix('host_').removesuffix('_ns')}_share": ns / window.wall_ns
        for name, ns in host_times(window)[0].items()
    }
    drained = window.drained * window.steps / window.wall_ns
    row = {"mode": "train", "step": "real", "device": "cuda", "prefetcher": prefetcher, "samples_per_s": 1.0}
    row |= {"pin_memory": True, "non_blocking": True, "drained_steps": drained}
    row |= {"load_ceiling": 1 / plan.load, "copy_ceiling": 1 / plan.copy}
    row |= {"compute_ceiling": 1 / (len(PASSES) * max(plan.kernel, plan.launch))}
    assert bottleneck(row | shares) == f"{bound}-bound"


@pytest.mark.parametrize("name", [name for name in PLANS if name.startswith("none")])
def test_the_hook_sees_when_a_device_starves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a script under ``feedrate run`` each starvation is seen, as long as it lasts, and none where there is none."""
    monkeypatch.syspath_prepend(HOOK)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    hook = import_module("_feedrate_step")
    plan, device = PLANS[name], FakeDevice()
    seen: list[int] = []

    def write(kind: int, begun: int, ended: int) -> None:
        if kind == hook.STARVED:  # Python collects garbage meanwhile, which the hook writes down, too
            seen.append(ended - begun)

    monkeypatch.setattr(hook, "LOG", SimpleNamespace(write=write))
    device.install(monkeypatch)
    watched, source, row = hook.Device(), batches(device, plan), planted_row(device, plan, [])
    for _ in range(plan.steps):
        asked, event = device.clock.now(), watched.asked()
        state: Any = next(source)
        watched.came(event, asked)
        for stage in row:
            state = stage.run(state)
    device.synchronize()
    watched.read()  # what is left is written when the script ends
    expected = [ns for ns in Truth(plan).starved() if ns]
    assert seen == pytest.approx(expected, abs=1)


def test_events_are_made_before_the_window_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps within the capacity make no event; the warm-up's are used again; one step too many still works."""
    device, made, make = FakeDevice(), [], stages.timed_event
    device.install(monkeypatch)
    monkeypatch.setattr(stages, "timed_event", lambda: (made.append(1), make())[1])
    timeline = Timeline(["forward"])
    (timed,) = timeline.instrument([Stage("forward", lambda _: device.launch(0, 3_000_000))])
    timeline.reset(2)
    timed.run(None)
    timed.run(None)
    assert len(made) == 4
    timed.run(None)
    device.synchronize()
    assert len(timeline.spans()["forward"]) == 3
    timeline.reset(3)
    assert len(made) == 6
    assert timeline.spans() == {"forward": [], "idle": []}


def test_serialized_waits_after_every_stage() -> None:
    """With timing = serialized the host waits for the device after each stage, and passes its result on."""
    waits: list[int] = []
    row = serialize([Stage("forward", lambda s: s + 1), Stage("backward", lambda s: s * 2)], lambda: waits.append(1))
    state = 1
    for stage in row:
        state = stage.run(state)
    assert state == 4
    assert len(waits) == 2
