"""What package ``bench`` asks of the measured process: whether its window is right, and what timing it costs.

A witnessed trial runs what a trial runs, with the trial's own limits, while a ``Witness`` stamps the borders of the
window. It reports every raw stamp, for other ways of timing the same steps. Then come short epochs, each with a fresh
iterator whose workers start anew, and on CUDA steps that end with a synchronisation.

What timing costs is a ratio of real training with the stamps of loop and workers to training without, in turns in one
process, so that what the machine does meanwhile falls on both. It does *not* show what the probes of the parent cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from feedrate.formats import Reader
from feedrate.loaders import Batch, Batches, Fields, Transform
from feedrate.schema import plugins
from feedrate.trial import feed, loop, run, stages
from feedrate.trial.job import Job, Reporter
from feedrate.trial.stages import Stage
from feedrate.trial.witness import CLOSES, EPOCHS_BEGIN, EPOCHS_END, OPENS, Witness

EPOCHS = 2
EPOCH_STEPS = 8

PAIRS = 400
LEAST_PAIRS = 20
TRAINING_S = 40.0
"""When so much time is up, pairs end: on a busy machine there are fewer of them, and the interval is wider."""
PAIR_STEPS = 3
"""Short windows: what disturbs the machine falls on both of a pair."""
WARM_UP = 3


def run_witness_trial(job: Job, reporter: Reporter) -> None:
    """Run a trial and report ``first_batch``, ``witness`` (by the witness itself) and ``result``.

    The result has the trial's own throughput columns (``samples``, ``wall_ns``, ``samples_per_s`` …); on the host's
    clock in nanoseconds ``started`` and ``ended`` of the window, ``iterated`` (when the iterator was made), ``warm``
    and ``window`` (borders of their steps, each the end of one and the beginning of the next) and ``epochs`` (first
    batch held, last step ended); and the throughput columns of ``synchronised`` steps, null without CUDA.
    """
    torch.manual_seed(job.seed)
    synchronize = run.synchronizer(job)
    synchronize()
    plain = stages.assemble(job, torch.device(job.device))[0]
    with Witness(reporter.descriptor) as witness:
        result = _measure_window(job, reporter, plain, synchronize, witness)
        manifest, dataset, collate = feed.open_samples(job)
        order = list(islice(feed.batch_order(job, manifest.count), EPOCH_STEPS))
        source = feed.build_loader(job, dataset, collate, order)  # as a training script would load an epoch
        witness.stamp(EPOCHS_BEGIN)
        epochs = run_epochs(source, plain, synchronize)
        witness.stamp(EPOCHS_END)
    reporter.send("result", epochs=epochs, epoch_steps=EPOCH_STEPS, **result)


def _measure_window(
    job: Job, reporter: Reporter, plain: list[Stage], synchronize: Callable[[], None], witness: Witness
) -> dict[str, Any]:
    """Warm up and measure as a trial does; its loader's workers are gone when this returns."""
    source = feed.open_feed(job, torch.device(job.device))
    first_batch = time.perf_counter_ns()
    reporter.send("first_batch", t_ns=first_batch)
    row, timeline = stages.instrument(job, stages.Prefetch(plain, 0, None), synchronize)
    warm = loop.measure(source.batches, row, run.warm_up_limits(job), synchronize)
    limits = run.window_limits(job)
    if timeline:
        timeline.reset_for(job.window_s, warm.pace_ns())

    def open_window() -> None:
        if timeline:
            timeline.reset()
        witness.stamp(OPENS)

    window = loop.measure(source.batches, row, limits, synchronize, open_window, run.lead_in_steps(job))
    witness.stamp(CLOSES)
    synchronised = None
    if job.device == "cuda":
        waiting = [*plain, Stage("other", lambda _: synchronize())]
        synchronised = run.throughput(job, loop.measure(source.batches, waiting, limits, synchronize))
    return {
        **run.throughput(job, window),
        **run.warm_up(warm, window),
        "started": window.started,
        "ended": window.ended,
        "iterated": first_batch - (source.startup_ns or 0),
        "warm": [*warm.borders(), *window.lead_in],
        "window": list(window.borders()),
        "synchronised": synchronised,
    }


def run_epochs(source: Iterable[Batch], row: Sequence[Stage], synchronize: Callable[[], None]) -> list[tuple[int, int]]:
    """Run epochs one after the other; of each, when it held its first batch, and when its last step ended."""
    now = time.perf_counter_ns
    epochs = []
    for _ in range(EPOCHS):
        begun = ended = 0
        for batch in source:
            begun = begun or now()
            reduce(lambda state, stage: stage.run(state), row, batch)
            synchronize()
            ended = now()
        epochs.append((begun, ended))
    return epochs


def run_instrumentation(job: Job, reporter: Reporter) -> None:
    """Measure and report ``result``: ``training``, step times of the job's cell, instrumented ÷ bare, a value a pair.

    ``pair_steps`` are the steps on each side of a pair.
    """
    torch.manual_seed(job.seed)
    reporter.send("result", training=training_ratios(job), pair_steps=PAIR_STEPS)


def _bare_ns(batches: Iterator[Any], row: Sequence[Stage], synchronize: Callable[[], None]) -> int:
    """Wall clock of a loop that stamps nothing, the row's three stages written out as a training script has them."""
    forward, backward, optimize = (stage.run for stage in row)
    begun = time.perf_counter_ns()
    for batch in islice(batches, PAIR_STEPS):
        loss = forward(batch)
        gradients = backward(loss)
        optimize(gradients)
    synchronize()
    return time.perf_counter_ns() - begun


class _PlainDataset(Dataset[Fields]):
    """What ``StampedDataset`` does, without stamps."""

    def __init__(self, reader: Reader, transform: Transform) -> None:
        self._reader, self._transform = reader, transform

    def __getitem__(self, index: int) -> Fields:
        return self._transform(self._reader.decode(self._reader.read(index)))


def training_ratios(job: Job) -> list[float]:
    """Step time of real training on the job's device, instrumented ÷ bare, over samples that are really loaded."""
    reader = cast("Reader", feed.open_packed(job))
    plain = _PlainDataset(reader, plugins.load("feedrate.workloads", job.value("workload")).transform)
    _, stamped, collate = feed.open_samples(job)
    sampler = Batches(len(reader), job.value("batch_size"), job.seed)
    with_stamps = iter(DataLoader(stamped, batch_sampler=sampler, collate_fn=collate))
    bare = DataLoader(
        plain, batch_sampler=sampler, collate_fn=lambda fields: Batch(tuple(default_collate(fields)), b"")
    )
    return step_ratios(job, stages.assemble(job, torch.device(job.device))[0], with_stamps, iter(bare))


def step_ratios(job: Job, row: list[Stage], with_stamps: Iterator[Batch], bare: Iterator[Batch]) -> list[float]:
    """Compare steps that are timed as in a trial, on CUDA by events too, with bare ones, by pairs in changing order."""
    synchronize = run.synchronizer(job)
    timed, timeline = stages.instrument(job, stages.Prefetch(row, 0, None), synchronize)
    if timeline:
        timeline.reset(PAIR_STEPS)
    opens = timeline.reset if timeline else lambda: None
    *copies, forward, backward, optimize = row
    if copies:  # as a script writes it: model(batch.to(device))
        move, train = copies[0].run, forward.run
        forward = forward._replace(run=lambda batch: train(move(batch)))
    limits = loop.Limits(0, PAIR_STEPS, 1, PAIR_STEPS)
    turns: dict[str, Callable[[], int]] = {
        "timed": lambda: loop.measure(with_stamps, timed, limits, synchronize, opens).wall_ns,
        "bare": lambda: _bare_ns(bare, [forward, backward, optimize], synchronize),
    }
    ratios: list[float] = []
    until = time.monotonic() + TRAINING_S
    for pair in range(WARM_UP + PAIRS):
        if pair >= WARM_UP + LEAST_PAIRS and time.monotonic() > until:
            break
        times = {side: turns[side]() for side in sorted(turns, reverse=bool(pair % 2))}
        ratios.append(times["timed"] / times["bare"])
    return ratios[WARM_UP:]
