"""The measured loop on a device that is not there, held against what its plan makes happen."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import fake_device
import pytest
import torch
from fake_device import QUEUE, FakeDevice, HostTensor
from planned_step import DEPTH, PASSES, Plan, Truth

import feedrate
from feedrate.analysis.ceilings import bottleneck
from feedrate.loaders import Batch
from feedrate.trial import bench, loop, stages
from feedrate.trial.job import Job
from feedrate.trial.loop import Limits
from feedrate.trial.run import host_times
from feedrate.trial.stages import Stage

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
        window = loop.measure(source, timed, limits, device.synchronize, timeline.restart)
        exposed, half = timeline.exposed(), timeline.half_ratio(1)
    assert exposed is not None
    assert half is not None
    steps = {**timeline.spans(), "exposed": exposed, "fetch": window.durations()["fetch"], "wall": [window.wall_ns]}
    return Measured(steps, half, trained, window)


def happens(plan: Plan) -> dict[str, list[int]]:
    """The same by the simulation of the plan."""
    truth = Truth(plan)
    steps = {**truth.spans(), "idle": truth.idle(), "exposed": truth.exposed(), "wall": [truth.wall_ns]}
    return {**steps, "fetch": [came - asked for asked, came in truth.waits()]}


@pytest.mark.parametrize("name", PLANS)
def test_what_is_measured_is_what_happens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step's phases, exposed copy, gap and wait are the plan's to the nanosecond.

    Whatever moves them, the same batches are trained on in the same order, as many as there are steps.
    """
    plan = PLANS[name]
    measured = follow(plan, monkeypatch)
    assert measured.steps == happens(plan)
    assert measured.half_ratio == pytest.approx(Truth(plan).half_ratio(), rel=1e-6)
    held = plan.prefetcher != "none"
    assert measured.trained == list(range(plan.steps))
    assert measured.window.tags[: plan.steps] == [str(k + held).encode() for k in range(plan.steps)]


@pytest.mark.parametrize("prefetcher", ["none", "next_batch", "stream"])
def test_the_plans_are_held_back_by_what_they_say(prefetcher: str) -> None:
    """The device waits for the loader, for copies, for launches, or for nothing: the grid has all of them."""
    shares = {}
    for bound in BOUNDS:
        found = {key: sum(times) for key, times in happens(PLANS[f"{prefetcher}, pinned, {bound}, spread 0.0"]).items()}
        shares[bound] = {key: each / found["wall"] for key, each in found.items()}
    assert shares["loader"]["idle"] > 0.25
    assert shares["copy"]["exposed"] > 0.4
    assert shares["compute"]["idle"] < 0.05
    assert shares["compute"]["fetch"] < 0.3
    assert shares["launch"]["fetch"] < 0.05
    assert sum(shares["launch"][name] for name in PASSES) > 0.8


def test_a_full_queue_holds_the_host_back_and_not_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is far ahead waits for the device; phases and halves by the device's clock are as even as before."""
    plan = Plan("none", True, load=10, copy=100, launch=5, kernel=2_000, steps=400)
    measured = follow(plan, monkeypatch)
    truth = happens(plan)
    assert sum(measured.steps["fetch"]) < 0.01 * measured.steps["wall"][0], "nobody waits for the loader"
    assert 9 * plan.steps > 2 * QUEUE, "pieces of work"
    assert {name: times for name, times in measured.steps.items() if name != "fetch"} == {
        name: times for name, times in truth.items() if name != "fetch"
    }
    assert measured.half_ratio == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "call", "said"),
    [(fake_device.Stream, "wait_event", "not copied yet"), (fake_device.Copied, "record_stream", "given away")],
)
def test_a_prefetcher_that_forgets_a_call_is_caught(
    kind: type, call: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is not waited for, or whose memory the compute stream does not hold, fails a check of the fake."""
    monkeypatch.setattr(kind, call, lambda *_: None)
    with pytest.raises(AssertionError, match=said):
        follow(PLANS["stream, pinned, copy, spread 0.0"], monkeypatch)


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


def test_a_spinning_step_keeps_the_device_busy_and_not_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lasts as long as it was told, by a rate that was timed on the device, while the host goes on."""
    plan, device = Plan("none", True, load=500, copy=2_000), FakeDevice()
    cell = {"mode": "train", "step": "spin", "step_ms": 5.0, "non_blocking": True}
    job = Job("trial", device="cuda", cell=cell)
    device.install(monkeypatch)
    row, training = stages.assemble(job, torch.device("cuda"))
    source = batches(device, plan)
    timed, timeline = stages.instrument(job, stages.prefetch(job, row, source), device.synchronize)
    window = loop.measure(source, timed, Limits(0, plan.steps, 1, plan.steps), device.synchronize)
    assert training is None
    assert timeline
    assert timeline.spans()["forward"] == pytest.approx([5_000_000] * plan.steps, abs=10)
    assert timeline.spans()["h2d"][1:] == [2_000_000] * (plan.steps - 1)
    assert window.durations()["forward"] == [0] * plan.steps
    assert window.wall_ns == pytest.approx(7_000_000 * plan.steps, rel=0.01)


@pytest.mark.parametrize(("bound", "hidden"), [("launch", False), ("compute", True)])
def test_what_events_cost_in_training_is_found(bound: str, hidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a millisecond of the host for each event shows where launches hold it back; else it is hidden."""
    plan, device = PLANS[f"none, pinned, {bound}, spread 0.0"], FakeDevice()
    record = fake_device.Event.record

    def dear(event: fake_device.Event, stream: fake_device.Stream | None = None) -> None:
        device.clock.wait_until(device.clock.now() + 100_000)
        record(event, stream)

    monkeypatch.setattr(fake_device.Event, "record", dear)
    monkeypatch.setattr(bench, "PAIRS", 5)
    device.install(monkeypatch)
    sources = [batches(device, plan) for _ in range(2)]
    ratios = bench.step_ratios(Job("instrumentation", device="cuda"), planted_row(device, plan, []), *sources)
    events_us = 100 * (len(PASSES) + 2)
    assert ratios == pytest.approx([1 if hidden else 1 + events_us / (len(PASSES) * plan.launch)] * 5, rel=0.01)


@pytest.mark.parametrize("name", [name for name in PLANS if name.startswith("none")])
def test_the_hook_sees_when_a_device_starves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a script under ``feedrate run`` each starvation is seen, as long as it lasts, and none where there is none."""
    monkeypatch.syspath_prepend(HOOK)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    hook = import_module("_feedrate_hook")
    plan, device = PLANS[name], FakeDevice()
    seen: list[int] = []
    monkeypatch.setattr(hook, "LOG", SimpleNamespace(write=lambda kind, begun, ended: seen.append(ended - begun)))
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
