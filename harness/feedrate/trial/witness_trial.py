"""A trial beside an external clock, with every raw stamp: what other ways of timing make of the same steps.

It runs what a trial runs, with the trial's own limits, while a :class:`Witness` stamps the borders of the window. Then
come two stretches that the endless loader of a window cannot show: short epochs, each with a fresh iterator whose
workers start anew, and on CUDA steps that end with a synchronisation.

Its cells plant the costs of loading, so that it holds for loaders of every kind; it does *not* show how fast any is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from feedrate.trial import device, feed, loader, loop, run, stages
from feedrate.trial.job import Job, Reporter
from feedrate.trial.loader import Batch, Fields
from feedrate.trial.stages import Stage
from feedrate.trial.witness import CLOSES, EPOCHS_BEGIN, EPOCHS_END, OPENS, Witness

EPOCHS = 2
EPOCH_STEPS = 8


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
    plain = stages.build(job, torch.device(job.device))
    with Witness(reporter.descriptor) as witness:
        result = _measure_window(job, reporter, plain, synchronize, witness)
        source = _epoch_loader(job)
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
    row, timeline = device.instrument(job, device.Prefetch(plain, 0, None), synchronize)
    warm = loop.measure(source.batches, row, run.warm_up_limits(job), synchronize)
    if timeline:
        timeline.reset_for(job.window_s, warm.pace_ns())
    limits = run.window_limits(job)
    window = loop.measure(source.batches, row, limits, synchronize, opens=lambda: witness.stamp(OPENS))
    witness.stamp(CLOSES)
    synchronised = None
    if job.device == "cuda":
        waiting = [*plain, Stage("other", lambda _: synchronize())]
        synchronised = run.throughput(job, warm, loop.measure(source.batches, waiting, limits, synchronize))
    return {
        **run.throughput(job, warm, window),
        "started": window.started,
        "ended": window.ended,
        "iterated": first_batch - (source.startup_ns or 0),
        "warm": list(warm.borders()),
        "window": list(window.borders()),
        "synchronised": synchronised,
    }


def _epoch_loader(job: Job) -> DataLoader[Fields]:
    """The trial's samples in epochs of ``EPOCH_STEPS`` batches, as a training script would load them."""
    manifest, dataset, collate = feed.samples(job)
    workers = job.value("num_workers")
    return loader.build(
        dataset,
        collate,
        batches=list(islice(feed.order(job, manifest.count), EPOCH_STEPS)),
        batch_size=job.value("batch_size"),
        num_workers=workers,
        prefetch_factor=job.value("prefetch_factor") if workers else None,
        pin_memory=False,
    )


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
