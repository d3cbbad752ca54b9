"""A training step as a row of stages, when a batch is moved to the device, and the device's own clock.

Each stage takes what the one before returned. ``mode`` and ``step`` choose the row, so that the loop has no ifs and a
stage that is not there costs nothing. On a CPU there is nothing to copy and no ``h2d``:

=========  ========  ==========================================
mode       step      stages
=========  ========  ==========================================
train      real      (h2d,) forward, backward, optimizer
train      emulated  (h2d,) forward = sleep for ``step_ms``
train      spin      h2d, forward = the device spins for ``step_ms``, and the host goes on
load                 none: the loader is drained
compute              forward, backward, optimizer on one resident batch
copy                 h2d of resident batches in turn
=========  ========  ==========================================

``prefetcher`` decides when a batch is moved: in its own step, before the forward pass (``none``); in the step before,
on the compute stream, once that step's forward and backward passes are launched (``next_batch``); or in the step
before, on a stream of its own, before that step's forward pass is launched (``stream``). With the last two a step
fetches and moves the batch of the *next* step: its phases ``fetch`` and ``h2d`` are what it spends on that one. All
batches arrive once and in order; the first is taken before the warm-up, and the last that was moved is not trained on.

A batch that was made on the copy stream is told that the compute stream uses it (``record_stream``), so that the
caching allocator gives its memory to no later copy before the step is done; PyTorch's pinned memory waits for its
copies by itself. Source: the data prefetcher of NVIDIA's Apex examples (imagenet), which waits for a batch before it
begins to move the next one. Here the next one is begun first, and an event marks where the copies before it end: the
work of the streams is the same, and nothing that the host does lies within the wait.

The clock: CUDA events at the borders of stages are made before the window, recorded on the compute stream, and read
after the window; nothing synchronises inside it. The time between two events is a *span*: it contains launch gaps and
does not measure how busy the device was. From one step's last event to the next step's first the device had nothing of
this step to do: that is ``idle``. Copies on a stream of their own have events there, and their span is ``h2d``; on the
compute stream that phase is then the wait for a copy that was begun a step before: the *exposed* copy. The next copy is
issued before the step's first event: where the device has nothing to do meanwhile, it is ``idle``. On one stream all of
a copy is waited for.

``timing = serialized`` synchronises after every stage instead, and ``off`` asks nothing of the device: what events cost
is the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import torch

from feedrate.loaders import Batch, Fields
from feedrate.machine import linux
from feedrate.trial import collate, step
from feedrate.trial.collate import Normalizer
from feedrate.trial.job import Job
from feedrate.trial.plants import Wait

COPY = "h2d"
SPIN_CYCLES = 20_000_000
"""About 10 ms of a device that runs at 2 GHz."""
WARMING_SPINS, SPINS = 20, 5
EVENT_ROOM = 4
"""CUDA events are made before the window for so many times the steps that the pace of the warm-up promises."""


class Stage(NamedTuple):
    """One timed part of a step."""

    phase: str
    """One of ``columns.PHASES``."""
    run: Callable[[Any], Any]
    """Takes what the stage before returned; the first takes a ``Batch``."""


def assemble(
    job: Job, device: torch.device, wrap: step.Wrap = lambda network: network
) -> tuple[list[Stage], step.Training | None]:
    """Choose the stages of a trial; with them, where a model runs, what is done about its training elsewhere."""
    mode = job.value("mode")
    if mode == "load":
        return [], None
    copy = copy_stage(device, job.value("non_blocking"), collate.normalizer(job, "cuda"))
    if decoder := collate.device_decoder(job):
        copy = Stage(COPY, lambda batch: decoder(batch.fields, device))
    if mode == "copy":
        return [copy], None
    if mode == "train" and job.value("step") in EMULATED_STAGES:
        training, stages = None, [EMULATED_STAGES[job.value("step")](job.value("step_ms"))]
    else:
        training = step.build(job, device, wrap)
        stages = [Stage(phase, run) for phase, run in training.step._asdict().items()]
    if mode == "train" and device.type == "cuda":
        return [copy, *stages], training
    # The batch is where it is needed: the first stage takes its tensors as they are.
    run = stages[0].run
    return [stages[0]._replace(run=lambda batch: run(batch.fields)), *stages[1:]], training


def copy_stage(device: torch.device, non_blocking: bool, normalizer: Normalizer | None) -> Stage:
    """Copy a batch to the device and normalise there, on the stream of the copy, what was handed over as bytes."""

    def to_device(batch: Batch) -> Fields:
        return tuple(field.to(device, non_blocking=non_blocking) for field in batch.fields)

    return Stage(COPY, (lambda batch: normalizer(to_device(batch))) if normalizer else to_device)


def _emulated_stage(step_ms: float) -> Stage:
    """Sleep for ``step_ms`` on average, as MLPerf Storage does for an accelerator that is not there."""
    linux.exact_timers()
    wait, ns = Wait(), round(step_ms * 1e6)
    return Stage("forward", lambda _: wait(ns))


def _spinning_stage(step_ms: float) -> Stage:
    """Have the device spin for ``step_ms``, as kernels that compute so long."""
    cycles = round(step_ms * cycles_per_ms())
    return Stage("forward", lambda _: torch.cuda._sleep(cycles))  # type: ignore[no-untyped-call]


def cycles_per_ms() -> float:
    """Time how many cycles the device spins in a millisecond: the median of a few spins, clocks warmed up before."""
    rates = []
    for _ in range(WARMING_SPINS + SPINS):
        begins, ends = timed_event(), timed_event()
        begins.record()
        torch.cuda._sleep(SPIN_CYCLES)  # type: ignore[no-untyped-call]
        ends.record()
        ends.synchronize()
        rates.append(SPIN_CYCLES / begins.elapsed_time(ends))
    return median(rates[WARMING_SPINS:])


EMULATED_STAGES = {"emulated": _emulated_stage, "spin": _spinning_stage}
"""Value of ``step`` to the only stage that its steps have behind the copy, made of ``step_ms``."""


class Prefetch(NamedTuple):
    """A row of stages, and how far it is ahead of its batches."""

    row: list[Stage]
    held: int
    """Batches that were taken from the loader and are trained on later."""
    streamed: StreamedCopy | None
    """What copies on another stream."""


def prefetch(job: Job, row: list[Stage], batches: Iterator[Batch]) -> Prefetch:
    """Rearrange a step so that it moves batches when ``prefetcher`` says."""
    if job.value("prefetcher") == "none":
        return Prefetch(row, 0, None)
    copy, first, *rest = row
    if job.value("prefetcher") == "stream":
        streamed = StreamedCopy(copy.run, next(batches))
        return Prefetch([copy._replace(run=streamed.advance), first, *rest], 1, streamed)
    coming = next(batches)
    ready: Fields = copy.run(coming)

    def forward(batch: Batch) -> Any:
        nonlocal coming
        coming = batch
        return first.run(ready)

    def advance(state: Any) -> Any:
        nonlocal ready
        ready = copy.run(coming)
        return state

    passes = [stage for stage in rest if stage.phase == "backward"]
    others = [stage for stage in rest if stage.phase != "backward"]
    return Prefetch([first._replace(run=forward), *passes, copy._replace(run=advance), *others], 1, None)


class StreamedCopy:
    """One batch on the device or on its way there, over a stream of its own."""

    def __init__(self, move: Callable[[Batch], Fields], first: Batch) -> None:
        """Begin to move the first batch."""
        self.move = move
        """What runs on the copy stream; a timeline puts its events around it."""
        self.wait: Callable[[Fields], Fields] = self._wait
        """What has the compute stream wait for a batch; a timeline puts its events around it too."""
        self.stream = torch.Stream()
        self._copied = torch.Event()
        self._ready = self._issue(first)

    def _issue(self, batch: Batch) -> Fields:
        with self.stream:
            return self.move(batch)

    def advance(self, batch: Batch) -> Fields:
        """Begin to move the next batch, have the compute stream wait for the one that is on its way, hand that out."""
        self._copied.record(self.stream)
        ready, self._ready = self._ready, self._issue(batch)
        return self.wait(ready)

    def _wait(self, ready: Fields) -> Fields:
        compute = torch.accelerator.current_stream()
        compute.wait_event(self._copied)
        for field in ready:
            field.record_stream(compute)
        return ready


def instrument(job: Job, prefetched: Prefetch, synchronize: Callable[[], None]) -> tuple[list[Stage], Timeline | None]:
    """Put the device's clock around the stages, as the axis ``timing`` says."""
    row, _, streamed = prefetched
    if job.device != "cuda" or not row:
        return row, None
    if job.value("timing") != "events":
        return serialize(row, synchronize) if job.value("timing") == "serialized" else row, None
    timeline = Timeline([stage.phase for stage in row])
    if streamed is None:
        return timeline.instrument(row), timeline
    # Its first stage issues the next copy before it has the compute stream wait: only the wait is the device's.
    streamed.move = timeline.on_copy_stream(streamed.move, streamed.stream)
    waits, *rest = timeline.instrument([row[0]._replace(run=streamed.wait), *row[1:]])
    streamed.wait = waits.run
    return [row[0], *rest], timeline


def serialize(stages: Sequence[Stage], synchronize: Callable[[], None]) -> list[Stage]:
    """Wrap stages so that the host waits for the device after each."""

    def timed(run: Callable[[Any], Any], state: Any) -> Any:
        result = run(state)
        synchronize()
        return result

    return [Stage(phase, partial(timed, run)) for phase, run in stages]


def timed_event() -> torch.Event:
    """Make one event that keeps time."""
    return torch.Event(enable_timing=True)


class Timeline:
    """Events of a number of steps: ``len(phases) + 1`` borders, and two on the copy stream where there is one.

    Borders are recorded on the stream that is current when a timeline is made: looking it up each time takes longer.
    """

    def __init__(self, phases: Sequence[str]) -> None:
        self.phases = tuple(phases)
        self._stream = torch.accelerator.current_stream()
        self._borders: list[list[Any]] = []
        self._copies: list[list[Any]] | None = None
        self._step = 0

    def reset(self, capacity: int = 0) -> None:
        """Start over, with events for ``capacity`` steps or more.

        Steps beyond get theirs when they come, which costs them some microseconds.
        """
        while len(self._borders) < capacity:
            self._add_step()
        self._step = 0

    def reset_for(self, window_s: float, pace_ns: int) -> None:
        """Start over with room for a window at the pace of the warm-up."""
        self.reset(EVENT_ROOM * int(window_s * 1e9) // pace_ns)

    def _add_step(self) -> None:
        """Make the events of a step and record each once: CUDA creates an event when it is first recorded."""
        borders = len(self.phases) + 1
        events = [timed_event() for _ in range(borders + 2 * (self._copies is not None))]
        for event in events:
            event.record(self._stream)
        self._borders.append(events[:borders])
        if self._copies is not None:
            self._copies.append(events[borders:])

    def instrument(self, stages: Sequence[Stage]) -> list[Stage]:
        """Wrap stages so that each records the event at its end, and the first also the one at its start."""
        return [Stage(phase, self._wrap(run, border)) for border, (phase, run) in enumerate(stages)]

    def _wrap(self, run: Callable[[Any], Any], border: int) -> Callable[[Any], Any]:
        last = border == len(self.phases) - 1

        def timed(state: Any) -> Any:
            if border == 0:
                if self._step == len(self._borders):
                    self._add_step()
                self._borders[self._step][0].record(self._stream)
            borders = self._borders[self._step]
            result = run(state)
            borders[border + 1].record(self._stream)
            if last:
                self._step += 1
            return result

        return timed

    def on_copy_stream(self, move: Callable[[Any], Any], stream: torch.Stream) -> Callable[[Any], Any]:
        """Wrap a copy that is begun on another stream, so that events stand around it there.

        ``move`` is called once a step, before the first stage and with that stream as the current one.
        """
        copies = self._copies = []

        def timed(batch: Any) -> Any:
            if self._step == len(self._borders):
                self._add_step()
            begins, ends = copies[self._step]
            begins.record(stream)
            result = move(batch)
            ends.record(stream)
            return result

        return timed

    def half_ratio(self, multiple: int) -> float | None:
        """Throughput of the second half of the steps over that of the first, by the device's clock.

        A host that runs ahead of its device sees the first half as fast and the end as slow; the device does not.
        """
        middle = self._step // 2 // multiple * multiple
        if not middle:
            return None
        begin = self._borders[0][0]
        first: float = begin.elapsed_time(self._borders[middle - 1][-1])
        total: float = begin.elapsed_time(self._borders[self._step - 1][-1])
        return (self._step - middle) / (total - first) / (middle / first)

    def spans(self) -> dict[str, list[int]]:
        """Read the window's events, ns of each step; the device must have been synchronised.

        ``h2d_exposed`` is what the compute stream waited for copies, if there are any.
        """
        steps = self._borders[: self._step]
        spans = {phase: self._between(border) for border, phase in enumerate(self.phases)}
        if COPY in spans:
            spans[f"{COPY}_exposed"] = spans[COPY]
        if self._copies is not None:
            spans[COPY] = [_ns(*pair) for pair in self._copies[: self._step]]
        spans["idle"] = [0, *(_ns(a[-1], b[0]) for a, b in pairwise(steps))] if steps else []
        return spans

    def _between(self, border: int) -> list[int]:
        return [_ns(step[border], step[border + 1]) for step in self._borders[: self._step]]


def _ns(begins: Any, ends: Any) -> int:
    ns: int = round(begins.elapsed_time(ends) * 1e6)
    return ns
