"""What timing costs the process that is timed: the loop's stamps, the workers' stamps, and both in real training.

Every cost is a difference between two loops that do the same work and take turns in one process, so that what the
machine does meanwhile falls on both. It does *not* show what the probes of the parent cost; that is on another figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from feedrate.formats import Reader, Sample
from feedrate.schema import plugins
from feedrate.trial import feed, loader, loop, stages
from feedrate.trial.device import Timeline
from feedrate.trial.job import Job, Reporter
from feedrate.trial.loader import Batch, Fields, Transform
from feedrate.trial.stages import Stage

PHASES = ("forward", "backward", "optimizer")
LOOPS = 20
LOOP_STEPS = 20_000
EVENT_STEPS = 2_000
"""With CUDA events, each of which is an object of the driver's."""
BATCHES = 200
BATCH_SIZE = 32
PAIRS = 400
LEAST_PAIRS = 20
TRAINING_S = 40.0
"""When so much time is up, pairs end: on a busy machine there are fewer of them, and the interval is wider."""
PAIR_STEPS = 3
"""Short windows: what disturbs the machine falls on both of a pair."""
WARM_UP = 3


def run_instrumentation(job: Job, reporter: Reporter) -> None:
    """Measure and report ``result``.

    Its lists have a value a pair of turns: ``loop_ns`` (a step with three stages, timed minus bare), ``events_ns`` (the
    same with CUDA events; null without CUDA), ``stamps_ns`` (a batch of 32 in a worker, stamped minus plain) and
    ``training`` (step time of the job's cell on the CPU, instrumented ÷ bare).
    """
    torch.manual_seed(job.seed)
    reporter.send(
        "result",
        loop_ns=loop_costs(LOOPS, LOOP_STEPS),
        events_ns=_event_costs() if job.device == "cuda" else None,
        stamps_ns=stamp_costs(LOOPS, BATCHES),
        training=training_ratios(job),
        pair_steps=PAIR_STEPS,
    )


def _pass_on(state: Any) -> Any:
    return state


def _bare_ns(batches: Iterator[Any], row: Sequence[Stage], steps: int) -> int:
    """Wall clock of a loop that stamps nothing, the row's three stages written out as a training script has them."""
    forward, backward, optimize = (stage.run for stage in row)
    begun = time.perf_counter_ns()
    for batch in islice(batches, steps):
        loss = forward(batch)
        gradients = backward(loss)
        optimize(gradients)
    return time.perf_counter_ns() - begun


def _timed_ns(batches: Iterator[Batch], row: Sequence[Stage], steps: int) -> int:
    return loop.measure(batches, row, loop.Limits(0, steps, 1, steps), lambda: None).wall_ns


def loop_costs(
    pairs: int, steps: int, instrument: Callable[[list[Stage]], list[Stage]] = lambda row: row
) -> list[float]:
    """Compare ``loop.measure`` with a bare loop, both over an iterator and three stages that do nothing."""
    batches = repeat(Batch((), b""))
    row = [Stage(phase, _pass_on) for phase in PHASES]
    costs = []
    for _ in range(pairs):
        timed = _timed_ns(batches, instrument(row), steps)
        costs.append((timed - _bare_ns(batches, row, steps)) / steps)
    return costs


def _event_costs() -> list[float]:
    timeline = Timeline(PHASES)

    def instrument(row: list[Stage]) -> list[Stage]:
        timeline.reset(EVENT_STEPS)
        torch.cuda.synchronize()
        return timeline.instrument(row)

    return loop_costs(LOOPS, EVENT_STEPS, instrument)


class _PlainDataset(Dataset[Fields]):
    """What ``StampedDataset`` does, without stamps."""

    def __init__(self, reader: Reader, transform: Transform) -> None:
        self._reader = reader
        self._transform = transform

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: int) -> Fields:
        return self._transform(self._reader.decode(self._reader.read(index)))


def _plain_collate(samples: list[Fields]) -> Batch:
    return Batch(tuple(default_collate(samples)), b"")


class _EmptyReader(Reader):
    """Empty samples: reading one costs nothing."""

    def __init__(self) -> None:
        """There is no folder to open."""

    def read(self, index: int) -> int:
        return index

    def decode(self, raw: int) -> Sample:  # noqa: ARG002 - the interface of readers
        return ()


def stamp_costs(pairs: int, batches: int) -> list[float]:
    """Compare the dataset and collation that stamp with plain ones, over samples that cost nothing to read."""
    reader, fields = _EmptyReader(), (torch.zeros(3, 16, 16), torch.zeros(3, 16, 16))
    stamped = loader.StampedDataset(reader, lambda _: fields)
    plain = _PlainDataset(reader, lambda _: fields)
    collate = loader.StampedCollate(stamped)

    def batches_ns(dataset: Dataset[Fields], collate: Callable[[list[Fields]], Batch]) -> int:
        """Wall clock of what a worker does for so many batches."""
        begun = time.perf_counter_ns()
        for _ in range(batches):
            collate([dataset[index] for index in range(BATCH_SIZE)])
        return time.perf_counter_ns() - begun

    return [(batches_ns(stamped, collate) - batches_ns(plain, _plain_collate)) / batches for _ in range(pairs)]


def training_ratios(job: Job) -> list[float]:
    """Step time of real training on the CPU, instrumented ÷ bare, pair by pair, the first of a pair changing."""
    reader = cast("Reader", feed.open_packed(job))
    plain = _PlainDataset(reader, plugins.load("feedrate.workloads", job.value("workload")).transform)
    _, stamped, collate = feed.samples(job)
    sampler = loader.Batches(len(plain), job.value("batch_size"), job.seed)
    with_stamps = iter(DataLoader(stamped, batch_sampler=sampler, collate_fn=collate))
    bare = iter(DataLoader(plain, batch_sampler=sampler, collate_fn=_plain_collate))
    row = stages.build(job, torch.device("cpu"))
    turns = [(_timed_ns, with_stamps), (_bare_ns, bare)]
    ratios: list[float] = []
    until = time.monotonic() + TRAINING_S
    for pair in range(WARM_UP + PAIRS):
        if pair >= WARM_UP + LEAST_PAIRS and time.monotonic() > until:
            break
        order = turns if pair % 2 else turns[::-1]
        times = {measure: measure(batches, row, PAIR_STEPS) for measure, batches in order}
        ratios.append(times[_timed_ns] / times[_bare_ns])
    return ratios[WARM_UP:]
