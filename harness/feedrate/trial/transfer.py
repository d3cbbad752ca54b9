"""When a batch is moved to the device.

``prefetcher`` decides when a batch is moved:

==========  ===================================================================================================
none        in its own step, before the forward pass
next_batch  in the step before, on the compute stream, once that step's forward and backward passes are launched
stream      in the step before, on a stream of its own, before that step's forward pass is launched
==========  ===================================================================================================

With the last two a step fetches and moves the batch of the *next* step: its phases ``fetch`` and ``h2d`` are what it
spends on that one, and its forward pass takes the batch that was moved a step ago. All batches arrive once and in
order; the first is taken before the warm-up, and the last that was moved is not trained on.

Memory is safe: a batch that was made on the copy stream is told that the compute stream uses it (``record_stream``),
so that the caching allocator gives its memory to no later copy before the step is done; PyTorch's pinned memory waits
for its copies by itself. Source: the data prefetcher of NVIDIA's Apex examples (imagenet), which waits for a batch
before it begins to move the next one. Here the next one is begun first, and an event says where the copies before it
end: the work of the streams is the same, and nothing that the host does lies within the wait (``device.py``).

The device's own clock: CUDA events at the borders of stages, read after the window.

Events are made before the window and recorded on the compute stream; nothing synchronises inside it. The time between
two events is a *span*: it contains launch gaps and is no measure of how busy the device was. From one step's last event
to the next step's first the device had nothing of this step to do: that is ``idle``.

Copies on a stream of their own have events there, and their span is ``h2d``. On the compute stream that phase is then
the wait for a copy that was begun a step before: the *exposed* copy. The next copy is issued before the step's first
event: where the device has nothing to do meanwhile, it is ``idle``. On one stream all of a copy is waited for.

``timing = serialized`` synchronises after every stage instead; it is a value of an axis of its own, for cross-checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch

from feedrate.trial.job import Job
from feedrate.trial.loader import Batch, Fields
from feedrate.trial.stages import Stage

Move = Callable[[Batch], Fields]
PASSES = ("forward", "backward")


class Ahead(NamedTuple):
    """A row of stages, and how far it is ahead of its batches."""

    row: list[Stage]
    held: int
    """Batches that were taken from the loader and are trained on later."""
    streamed: Streamed | None
    """What copies on another stream."""


def ahead(job: Job, row: list[Stage], batches: Iterator[Batch]) -> Ahead:
    """Rearrange a step so that it moves batches when ``prefetcher`` says."""
    if job.value("prefetcher") == "none":
        return Ahead(row, 0, None)
    copy, first, *rest = row
    if job.value("prefetcher") == "stream":
        streamed = Streamed(copy.run, next(batches))
        return Ahead([copy._replace(run=streamed.advance), first, *rest], 1, streamed)
    moved = NextBatch(copy.run, next(batches))
    forward = first.run
    passes = [stage for stage in rest if stage.phase in PASSES]
    others = [stage for stage in rest if stage.phase not in PASSES]
    begins = first._replace(run=lambda batch: forward(moved.take(batch)))
    return Ahead([begins, *passes, copy._replace(run=moved.advance), *others], 1, None)


class NextBatch:
    """One batch on the device, and the next one on the host until the passes over the first are launched."""

    def __init__(self, move: Move, first: Batch) -> None:
        """Move the first batch."""
        self._move = move
        self._ready = move(first)
        self._coming = first

    def take(self, batch: Batch) -> Fields:
        """Put the next batch aside and hand out the one on the device."""
        self._coming = batch
        return self._ready

    def advance(self, state: Any) -> Any:
        """Move the batch that was put aside; what the stage before returned is passed on."""
        self._ready = self._move(self._coming)
        return state


class Streamed:
    """One batch on the device or on its way there, over a stream of its own."""

    def __init__(self, move: Move, first: Batch) -> None:
        """Begin to move the first batch."""
        self.move = move
        """What runs on the copy stream; a timeline puts its events around it."""
        self.wait: Callable[[Fields], Fields] = self._wait
        """What has the compute stream wait for a batch; a timeline puts its events around it too."""
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._ready = self._issue(first)

    def _issue(self, batch: Batch) -> Fields:
        with torch.cuda.stream(self._stream):
            return self.move(batch)

    def advance(self, batch: Batch) -> Fields:
        """Begin to move the next batch, have the compute stream wait for the one that is on its way, hand that out."""
        self._copied.record(self._stream)
        ready, self._ready = self._ready, self._issue(batch)
        return self.wait(ready)

    def _wait(self, ready: Fields) -> Fields:
        compute = torch.cuda.current_stream()
        compute.wait_event(self._copied)
        for field in ready:
            field.record_stream(compute)
        return ready


COPY = "h2d"


class Event(Protocol):
    """What is needed of ``torch.cuda.Event``."""

    def record(self) -> None:
        """Mark the place on the current stream."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this event to a later one."""


def cuda_event() -> Event:
    """Make one event that keeps time."""
    event: Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


class Timeline:
    """Events for a fixed number of steps, ``len(phases) + 1`` borders a step."""

    def __init__(self, phases: Sequence[str], make: Callable[[], Event] = cuda_event) -> None:
        self.phases = tuple(phases)
        self._make = make
        self._events: list[list[Event]] = []
        self._copies: list[tuple[Event, Event]] | None = None
        self._step = 0

    def reset(self, capacity: int) -> None:
        """Make events for ``capacity`` steps and start over; called outside a window.

        Steps beyond get theirs when they come, which costs them some microseconds.
        """
        self._extend(capacity - len(self._events))
        self._step = 0

    def _make_room(self) -> None:
        if self._step == len(self._events):
            self._extend(1)

    def _extend(self, steps: int) -> None:
        """Make events and record each once: CUDA creates an event when it is first recorded."""
        for _ in range(steps):
            self._events.append([self._recorded() for _ in range(len(self.phases) + 1)])
            if self._copies is not None:
                self._copies.append((self._recorded(), self._recorded()))

    def _recorded(self) -> Event:
        event = self._make()
        event.record()
        return event

    def instrument(self, stages: Sequence[Stage]) -> list[Stage]:
        """Wrap stages so that each records the event at its end, and the first also the one at its start."""
        last = len(stages) - 1
        return [Stage(s.phase, self._wrap(s.run, border, border == last)) for border, s in enumerate(stages)]

    def _wrap(self, run: Callable[[Any], Any], border: int, last: bool) -> Callable[[Any], Any]:
        def timed(state: Any) -> Any:
            if border == 0:
                self._make_room()
                self._events[self._step][0].record()
            events = self._events[self._step]
            result = run(state)
            events[border + 1].record()
            if last:
                self._step += 1
            return result

        return timed

    def beside(self, move: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a copy that is begun on another stream, so that events stand around it there.

        Args:
            move: is called once a step, before the first stage and with that stream as the current one.
        """
        copies = self._copies = []

        def timed(batch: Any) -> Any:
            self._make_room()
            begins, ends = copies[self._step]
            begins.record()
            result = move(batch)
            ends.record()
            return result

        return timed

    def half_ratio(self, multiple: int) -> float | None:
        """Throughput of the second half of the steps over that of the first, by the device's clock.

        A host that runs ahead of its device sees the first half as fast and the end as slow; the device does not.
        """
        middle = self._step // 2 // multiple * multiple
        if not middle:
            return None
        used = self._events[: self._step]
        first, whole = used[0][0].elapsed_time(used[middle - 1][-1]), used[0][0].elapsed_time(used[-1][-1])
        return (self._step - middle) / (whole - first) / (middle / first)

    def spans(self) -> dict[str, list[int]]:
        """Read the window's events; the device must have been synchronised."""
        used = self._events[: self._step]
        found = {phase: self._between(border) for border, phase in enumerate(self.phases)}
        if self._copies is not None:
            found[COPY] = [_ns(*pair) for pair in self._copies[: self._step]]
        gaps = [_ns(a[-1], b[0]) for a, b in pairwise(used)]
        found["idle"] = [0, *gaps] if used else []
        return found

    def exposed(self) -> list[int] | None:
        """Read what the compute stream waited for copies in each step, in nanoseconds; None where none is copied."""
        return self._between(self.phases.index(COPY)) if COPY in self.phases else None

    def _between(self, border: int) -> list[int]:
        return [_ns(step[border], step[border + 1]) for step in self._events[: self._step]]


def _ns(begins: Event, ends: Event) -> int:
    return round(begins.elapsed_time(ends) * 1e6)


def serialize(stages: Sequence[Stage], synchronize: Callable[[], None]) -> list[Stage]:
    """Wrap stages so that the host waits for the device after each."""

    def waiting(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(state: Any) -> Any:
            result = run(state)
            synchronize()
            return result

        return timed

    return [Stage(stage.phase, waiting(stage.run)) for stage in stages]
