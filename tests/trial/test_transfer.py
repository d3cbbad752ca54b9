"""Batches ahead of their step, on fake streams that keep a diary: each arrives once, in order, and safely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from feedrate.trial import loop, run, transfer
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch
from feedrate.trial.loop import Limits
from feedrate.trial.stages import Stage
from feedrate.trial.step import moving
from feedrate.trial.step.plain import Step


class Streams:
    """What of ``torch.cuda`` the prefetchers use: streams with names, and a diary of what was asked of them."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.current = ["compute"]
        self.copied: dict[str, str] = {}

    def said(self, what: str) -> None:
        if what.startswith("copy "):
            self.copied[self.current[-1]] = what.removeprefix("copy ")
        self.diary.append(f"{self.current[-1]}: {what}")

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.current.append(stream.name)
        yield
        self.current.pop()


class Stream:
    """A stream."""

    def __init__(self, streams: Streams, name: str) -> None:
        self.streams, self.name = streams, name

    def wait_event(self, event: Mark) -> None:
        self.streams.said(f"{self.name} waits for {event.marks}")


class Mark:
    """An event, which names the batch whose copy is the last before it on its stream."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.marks = ""

    def record(self, stream: Stream) -> None:
        self.marks = self.streams.copied[stream.name]


class Tensor:
    """A field of a batch, which knows on which stream its memory lies."""

    def __init__(self, streams: Streams, name: str) -> None:
        self.streams, self.name = streams, name

    def record_stream(self, stream: Stream) -> None:
        self.streams.said(f"{self.name} is used by {stream.name}")

    def __repr__(self) -> str:
        return self.name


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    found = Streams()
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream(found, "copies"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream(found, found.current[-1]))
    monkeypatch.setattr(torch.cuda, "stream", found.stream)
    monkeypatch.setattr(torch.cuda, "Event", lambda: Mark(found))
    return found


def row(streams: Streams) -> list[Stage]:
    """A training step on CUDA as ``stages.assemble`` makes it, which writes down what it does."""

    def copy(batch: Batch) -> tuple[Tensor, ...]:
        (name,) = batch.fields
        streams.said(f"copy {name}")
        return (Tensor(streams, f"{name}"),)

    def part(phase: str) -> Stage:
        def run(state: Any) -> Any:
            streams.said(f"{phase}{f' {state[0]}' if phase == 'forward' else ''}")
            return None

        return Stage(phase, run)

    return [Stage("h2d", copy), part("forward"), part("backward"), part("optimizer")]


def batches() -> Iterator[Batch]:
    return (Batch((f"b{k}",), str(k).encode()) for k in range(1000))  # type: ignore[arg-type]


def ran(streams: Streams, prefetcher: str, steps: int) -> tuple[transfer.Ahead, loop.Window]:
    """Run some steps of a trial with the measured loop itself."""
    source = batches()
    ahead = transfer.ahead(Job("trial", cell={"prefetcher": prefetcher}), row(streams), source)
    return ahead, loop.measure(source, ahead.row, Limits(0, steps, 1, steps), lambda: None)


def test_without_a_prefetcher_nothing_changes(streams: Streams) -> None:
    """The row is the very same, and no batch is taken."""
    plain, source = row(streams), batches()
    ahead = transfer.ahead(Job("trial", cell={}), plain, source)
    assert ahead == (plain, 0, None)
    assert ahead.row is plain
    assert next(source).fields == ("b0",)


def test_next_batch_is_moved_when_the_passes_are_launched(streams: Streams) -> None:
    """A step's own batch lies on the device already; the next one's copy is issued between backward and optimizer."""
    ahead, _ = ran(streams, "next_batch", 2)
    assert streams.diary == [
        "compute: copy b0",
        *("compute: forward b0", "compute: backward", "compute: copy b1", "compute: optimizer"),
        *("compute: forward b1", "compute: backward", "compute: copy b2", "compute: optimizer"),
    ]
    assert ahead.held == 1
    assert ahead.streamed is None


def test_a_stream_of_its_own_is_waited_for(streams: Streams) -> None:
    """The next copy begins; the compute stream waits for the one before, its own, and says that it uses its memory."""
    ahead, _ = ran(streams, "stream", 2)
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
    assert ahead.held == 1
    assert ahead.streamed is not None


@pytest.mark.parametrize("prefetcher", ["none", "next_batch", "stream"])
def test_all_batches_arrive_once_and_in_order(streams: Streams, prefetcher: str) -> None:
    """Whatever moves them, the same batches are trained on in the same order, as many as there are steps."""
    ahead, window = ran(streams, prefetcher, 7)
    trained = [line.rpartition(" ")[2] for line in streams.diary if "forward" in line]
    assert trained == [f"b{k}" for k in range(7)]
    moved = [line.rpartition(" ")[2] for line in streams.diary if "copy" in line]
    assert moved == [f"b{k}" for k in range(7 + ahead.held)]
    assert window.tags[:7] == [str(k + ahead.held).encode() for k in range(7)]
    assert set(window.durations()) == {"fetch", "h2d", "forward", "backward", "optimizer", "other"}


def test_copies_are_timed_on_their_stream(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events stand around the copy on its stream, and on the compute stream around the wait for the copy before."""

    def event(enable_timing: bool) -> Any:
        return SimpleNamespace(record=lambda: streams.said("event"), elapsed_time=lambda _: 1.0)

    job = Job("trial", device="cuda", cell={"prefetcher": "stream"})
    source = batches()
    ahead = transfer.ahead(job, row(streams), source)
    monkeypatch.setattr(torch.cuda, "Event", event)
    timed, timeline = run.timed(job, ahead, lambda: None)
    assert timeline
    timeline.reset(2)
    streams.diary.clear()
    loop.measure(source, timed, Limits(0, 2, 1, 2), lambda: None)
    step = streams.diary[: len(streams.diary) // 2]
    assert step == [
        *("copies: event", "copies: copy b1", "copies: event"),
        "compute: event",
        "compute: compute waits for b0",
        "compute: b0 is used by compute",
        "compute: event",
        *("compute: forward b0", "compute: event", "compute: backward", "compute: event"),
        *("compute: optimizer", "compute: event"),
    ]
    assert timeline.exposed() == [1_000_000] * 2


def test_what_the_host_takes_to_issue_a_copy_is_not_exposed(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a device that has nothing to do it is idle time; spans and gaps still add up to the steps' time."""
    now = [0.0]

    class Event:
        """Of a device that reaches at once whatever is recorded: its time is the host's."""

        def __init__(self, enable_timing: bool) -> None:
            self.at = now[0]

        def record(self) -> None:
            self.at = now[0]

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    def taking(stage: Stage, ms: float) -> Stage:
        def run(state: Any) -> Any:
            now[0] += ms
            return stage.run(state)

        return stage._replace(run=run)

    slow = [taking(stage, ms) for stage, ms in zip(row(streams), (5, 1, 2, 3), strict=True)]
    job = Job("trial", device="cuda", cell={"prefetcher": "stream"})
    source = batches()
    ahead = transfer.ahead(job, slow, source)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    timed, timeline = run.timed(job, ahead, lambda: None)
    assert timeline
    loop.measure(source, timed, Limits(0, 3, 1, 3), lambda: None)  # events are made as steps come
    assert timeline.exposed() == [0, 0, 0]
    ms = {name: [time / 1e6 for time in times] for name, times in timeline.spans().items()}
    assert ms == {"h2d": [5] * 3, "forward": [1] * 3, "backward": [2] * 3, "optimizer": [3] * 3, "idle": [0, 5, 5]}


def test_an_emulated_step_has_its_next_batch_moved_too(streams: Streams) -> None:
    """Where a step is one stage alone, the copy follows it."""
    source = batches()
    copy, forward, *_ = row(streams)
    ahead = transfer.ahead(Job("trial", cell={"prefetcher": "next_batch"}), [copy, forward], source)
    assert [stage.phase for stage in ahead.row] == ["forward", "h2d"]


def step(seen: list[Any]) -> Step:
    """A step that notes what its forward pass gets."""

    def forward(fields: Any) -> Any:
        seen.append(fields)
        return fields[0].sum()

    return Step(forward, lambda _: None, lambda _: seen.append("updated"))


@pytest.mark.parametrize("where", ["host", "device"])
def test_a_made_tensor_changes_no_input(where: str) -> None:
    """Both sides hand on an input that is equal bit for bit, with the target and what rides along as they were."""
    seen: list[Any] = []
    image, target, rider = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8), torch.arange(5)
    moving.created(step(seen), torch.device("cpu"), where).forward((image, target, rider))
    ((given, *others),) = seen
    assert torch.equal(given, image)
    assert given is not image
    assert others[0] is target
    assert others[1] is rider


@pytest.mark.parametrize("where", ["host", "device"])
def test_both_sides_draw_as_many_numbers(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensor has the input's shape and type; it is made on the host and moved, or made on the device."""
    drawn: list[tuple[Any, ...]] = []
    rand = torch.rand

    def noted(shape: Any, dtype: Any, device: Any) -> torch.Tensor:
        drawn.append((tuple(shape), dtype, device.type))
        return rand(shape, dtype=dtype, device=device)

    monkeypatch.setattr(torch, "rand", noted)
    made = moving.created(step([]), torch.device("meta"), where)
    made.forward((torch.empty(2, 3, 4, 4, dtype=torch.float64, device="meta"),))
    assert drawn == [((2, 3, 4, 4), torch.float64, "cpu" if where == "host" else "meta")]


def brought(outputs: moving.Outputs, steps: int, kept: list[Any]) -> None:
    """Run steps whose outputs are their numbers; ``kept`` gets those that come back, after what the step did itself."""
    whole = outputs.returned(step(kept))
    loss = outputs.seen(lambda output, target: output + target)
    for k in range(steps):
        output = torch.tensor(float(k), requires_grad=True)
        assert loss(output, torch.tensor(1.0)).item() == k + 1
        whole.optimizer(None)


@pytest.mark.parametrize(("every", "wanted"), [(1, [0, 1, 2, 3]), (2, [1, 3]), (3, [2])])
def test_outputs_come_back_every_so_many_steps(every: int, wanted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every n-th output is copied after the update, detached; the loss is what it was."""
    kept: list[Any] = []
    monkeypatch.setattr(moving, "pageable", lambda: kept.append)
    brought(moving.Outputs("pageable", every), 4, kept)
    tensors = [entry for entry in kept if entry != "updated"]
    assert [int(tensor) for tensor in tensors] == wanted
    assert not any(tensor.requires_grad for tensor in tensors)
    assert kept.count("updated") == 4
    assert kept[0] == "updated"


class Event:
    """A CUDA event that keeps a diary."""

    def __init__(self, name: str, diary: list[str]) -> None:
        self.name, self.diary = name, diary

    def synchronize(self) -> None:
        self.diary.append(f"wait {self.name}")

    def record(self) -> None:
        self.diary.append(f"record {self.name}")


def test_pinned_buffers_are_not_overwritten_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two buffers in turn for each shape, made once; before one is written, the copy into it before must be done."""
    diary: list[str] = []
    buffers: list[torch.Tensor] = []

    def buffer(output: torch.Tensor) -> tuple[torch.Tensor, Any]:
        buffers.append(torch.empty_like(output))
        return buffers[-1], Event(f"e{len(buffers) - 1}", diary)

    monkeypatch.setattr(moving, "_buffer", buffer)
    pinned = moving.Pinned()
    for k in range(3):
        pinned.keep(torch.full((2,), float(k)))
    assert diary == ["wait e0", "record e0", "wait e1", "record e1", "wait e0", "record e0"]
    assert [list(islice(kept.tolist(), 1)) for kept in buffers] == [[2.0], [1.0]]
    pinned.keep(torch.zeros(3))
    assert len(buffers) == 4
