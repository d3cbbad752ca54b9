"""Batches ahead of their step, and the device's clock, on fakes: streams with a diary, events with their own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from feedrate.trial import loop, stages
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch
from feedrate.trial.loop import Limits
from feedrate.trial.stages import Stage, Timeline, serialize


class Clock:
    """A device whose time passes when work is issued to it."""

    def __init__(self) -> None:
        self.ms = 0.0

    def work(self, ms: float) -> Stage:
        def run(state: object) -> object:
            self.ms += ms
            return state

        return Stage({2: "h2d", 3: "forward", 5: "backward"}[int(ms)], run)


class Event:
    """What torch.cuda.Event does, on the clock that is current when it is recorded."""

    def __init__(self, current: Callable[[], Clock]) -> None:
        self._current = current
        self._at = -1.0

    def record(self) -> None:
        self._at = self._current().ms

    def elapsed_time(self, end: Event) -> float:
        assert self._at >= 0, "an event was read that was never recorded"
        return end._at - self._at


class Events:
    """Makes events, and counts them."""

    def __init__(self, current: Callable[[], Clock]) -> None:
        self._current = current
        self.made = 0

    def __call__(self) -> Event:
        self.made += 1
        return Event(self._current)


def test_spans_and_gaps() -> None:
    """Each phase's span is what the device did in it; idle is the gap between steps, none before the first."""
    clock = Clock()
    row = [clock.work(2), clock.work(3), clock.work(5)]
    timeline = Timeline([stage.phase for stage in row], Events(lambda: clock))
    timed = timeline.instrument(row)
    timeline.reset(4)
    for _ in range(3):
        for stage in timed:
            stage.run(None)
        clock.ms += 7
    assert timeline.exposed() == [2_000_000] * 3, "on one stream all of a copy is waited for"
    assert timeline.spans() == {
        "h2d": [2_000_000] * 3,
        "forward": [3_000_000] * 3,
        "backward": [5_000_000] * 3,
        "idle": [0, 7_000_000, 7_000_000],
    }


def test_events_are_made_before_the_window_and_used_again() -> None:
    """Steps within the capacity make no event; the warm-up's are used again; one step too many still works."""
    clock = Clock()
    events = Events(lambda: clock)
    timeline = Timeline(["forward"], events)
    (timed,) = timeline.instrument([clock.work(3)])
    timeline.reset(2)
    made = events.made
    timed.run(None)
    timed.run(None)
    assert events.made == made == 4
    timed.run(None)
    assert len(timeline.spans()["forward"]) == 3
    timeline.reset(3)
    assert events.made == 6
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


def test_halves_are_compared_by_the_device() -> None:
    """A host that runs ahead queues work at once and then waits: an even device is steady all the same."""
    clock = Clock()
    timeline = Timeline(["forward"], Events(lambda: clock))
    (timed,) = timeline.instrument([clock.work(3)])
    timeline.reset(10)
    for _ in range(10):
        timed.run(None)
    assert timeline.half_ratio(1) == 1
    timeline.reset(10)
    for step in range(10):
        timed.run(None)
        clock.ms += 3 * (step >= 5)
    assert timeline.half_ratio(1) < 0.65


def test_a_copy_of_its_own_stream_has_its_own_clock() -> None:
    """Its span is read on its stream; what the compute stream waited for it is the exposed part of it."""
    compute, copies = Clock(), Clock()
    current = [compute]
    timeline = Timeline(["h2d", "forward"], Events(lambda: current[-1]))

    def move(batch: int) -> int:
        copies.ms += 4
        return batch

    timed_move = timeline.on_copy_stream(move)
    row = timeline.instrument([compute.work(2), compute.work(3)])
    timeline.reset(1)  # the second step's events are made when it comes
    for batch in range(2):
        current.append(copies)
        timed_move(batch)
        current.pop()
        for stage in row:
            stage.run(None)
    spans = timeline.spans()
    assert spans["h2d"] == [4_000_000, 4_000_000]
    assert timeline.exposed() == [2_000_000, 2_000_000]
    assert spans["forward"] == [3_000_000, 3_000_000]
    timeline.reset(2)
    assert (timeline.spans()["h2d"], timeline.exposed()) == ([], [])


class Streams:
    """What of ``torch.cuda`` the prefetchers use: streams with names, and a diary of what was asked of them."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.current = ["compute"]
        self.copied: dict[str, str] = {}

    def note(self, what: str) -> None:
        if what.startswith("copy "):
            self.copied[self.current[-1]] = what.removeprefix("copy ")
        self.diary.append(f"{self.current[-1]}: {what}")

    def named(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, wait_event=lambda event: self.note(f"{name} waits for {event.marks}"))

    @contextmanager
    def stream(self, stream: SimpleNamespace) -> Iterator[None]:
        self.current.append(stream.name)
        yield
        self.current.pop()

    def event(self) -> SimpleNamespace:
        """An event, which names the batch whose copy is the last before it on its stream."""
        event = SimpleNamespace(marks="")
        event.record = lambda stream: setattr(event, "marks", self.copied[stream.name])
        return event

    def row(self) -> list[Stage]:
        """A training step on CUDA as ``stages.assemble`` makes it, which writes down what it does."""

        def copy(batch: Batch) -> tuple[SimpleNamespace, ...]:
            (name,) = batch.fields
            self.note(f"copy {name}")
            used = lambda stream: self.note(f"{name} is used by {stream.name}")  # noqa: E731
            return (SimpleNamespace(name=name, record_stream=used),)

        def forward(state: Any) -> None:
            self.note(f"forward {state[0].name}")

        parts = [Stage(phase, lambda _, phase=phase: self.note(phase)) for phase in ("backward", "optimizer")]
        return [Stage("h2d", copy), Stage("forward", forward), *parts]


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    streams = Streams()
    monkeypatch.setattr(torch.cuda, "Stream", lambda: streams.named("copies"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: streams.named(streams.current[-1]))
    monkeypatch.setattr(torch.cuda, "stream", streams.stream)
    monkeypatch.setattr(torch.cuda, "Event", streams.event)
    return streams


def batches() -> Iterator[Batch]:
    return (Batch((f"b{k}",), str(k).encode()) for k in range(1000))  # type: ignore[arg-type]


def trial(prefetcher: str) -> Job:
    return Job("trial", device="cuda", cell={"prefetcher": prefetcher})


def measured(streams: Streams, prefetcher: str, steps: int) -> tuple[stages.Prefetch, loop.Window]:
    """Run some steps of a trial with the measured loop itself."""
    source = batches()
    prefetched = stages.prefetch(trial(prefetcher), streams.row(), source)
    return prefetched, loop.measure(source, prefetched.row, Limits(0, steps, 1, steps), lambda: None)


def test_without_a_prefetcher_nothing_changes(streams: Streams) -> None:
    """The row is the very same, and no batch is taken."""
    plain, source = streams.row(), batches()
    prefetched = stages.prefetch(trial("none"), plain, source)
    assert prefetched == (plain, 0, None)
    assert prefetched.row is plain
    assert next(source).fields == ("b0",)


def test_next_batch_is_moved_when_the_passes_are_launched(streams: Streams) -> None:
    """A step's own batch lies on the device already; the next one's copy is issued between backward and optimizer."""
    prefetched, _ = measured(streams, "next_batch", 2)
    assert streams.diary == [
        "compute: copy b0",
        *("compute: forward b0", "compute: backward", "compute: copy b1", "compute: optimizer"),
        *("compute: forward b1", "compute: backward", "compute: copy b2", "compute: optimizer"),
    ]
    assert (prefetched.held, prefetched.streamed) == (1, None)


def test_a_stream_of_its_own_is_waited_for(streams: Streams) -> None:
    """The next copy begins; the compute stream waits for the one before, its own, and says that it uses its memory."""
    prefetched, _ = measured(streams, "stream", 2)
    assert streams.diary == [
        "copies: copy b0",
        "copies: copy b1",
        "compute: compute waits for b0",
        "compute: b0 is used by compute",
        *("compute: forward b0", "compute: backward", "compute: optimizer"),
        "copies: copy b2",
        "compute: compute waits for b1",
        "compute: b1 is used by compute",
        *("compute: forward b1", "compute: backward", "compute: optimizer"),
    ]
    assert prefetched.held == 1
    assert prefetched.streamed is not None


@pytest.mark.parametrize("prefetcher", ["none", "next_batch", "stream"])
def test_all_batches_arrive_once_and_in_order(streams: Streams, prefetcher: str) -> None:
    """Whatever moves them, the same batches are trained on in the same order, as many as there are steps."""
    prefetched, window = measured(streams, prefetcher, 7)
    held = prefetched.held
    assert [line.rpartition(" ")[2] for line in streams.diary if "forward" in line] == [f"b{k}" for k in range(7)]
    assert [line.rpartition(" ")[2] for line in streams.diary if "copy" in line] == [f"b{k}" for k in range(7 + held)]
    assert window.tags[:7] == [str(k + held).encode() for k in range(7)]
    assert set(window.durations()) == {"fetch", "h2d", "forward", "backward", "optimizer", "other"}


def test_what_the_host_takes_to_issue_a_copy_is_not_exposed(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a device that has nothing to do it is idle time; spans and gaps still add up to the steps' time."""
    clock = Clock()  # of a device that reaches at once whatever is recorded: its time is the host's

    def taking(stage: Stage, ms: float) -> Stage:
        def run(state: Any) -> Any:
            clock.ms += ms
            return stage.run(state)

        return stage._replace(run=run)

    slow = [taking(stage, ms) for stage, ms in zip(streams.row(), (5, 1, 2, 3), strict=True)]
    source = batches()
    prefetched = stages.prefetch(trial("stream"), slow, source)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Event(lambda: clock))
    timed, timeline = stages.instrument(trial("stream"), prefetched, lambda: None)
    assert timeline
    loop.measure(source, timed, Limits(0, 3, 1, 3), lambda: None)  # events are made as steps come
    assert timeline.exposed() == [0, 0, 0]
    ms = {name: [time / 1e6 for time in times] for name, times in timeline.spans().items()}
    assert ms == {"h2d": [5] * 3, "forward": [1] * 3, "backward": [2] * 3, "optimizer": [3] * 3, "idle": [0, 5, 5]}


def test_an_emulated_step_has_its_next_batch_moved_too(streams: Streams) -> None:
    """Where a step is one stage alone, the copy follows it."""
    prefetched = stages.prefetch(trial("next_batch"), streams.row()[:2], batches())
    assert [stage.phase for stage in prefetched.row] == ["forward", "h2d"]
