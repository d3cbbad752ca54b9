"""Ways to say how fast a loop was, ours and others', as functions of the same raw steps.

Workers deliver in bursts: a batch that lay ready takes microseconds, the one that was waited for takes all the rest.
Any average over single batches therefore answers another question than how many samples came through, and a clock that
runs only while all is well leaves out what a reader of the number pays. Here every estimator gets the stamps of one
trial; an external clock over the same window says who is right.

They are the rules of published tools, applied to our steps: this does *not* show those tools' own figures, in which
other things differ as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.store.bench_record import WitnessedTrial

Ints = npt.NDArray[np.int64]

FIXED_WARM_UP = 3
"""Steps that a loop with a fixed warm-up leaves out."""
OURS = "wall_clock"


@dataclass(frozen=True, slots=True)
class Steps:
    """The stamps of one trial; times in nanoseconds on the host's monotonic clock."""

    batch_size: int
    started: int
    """When the window's clock started, after a synchronisation."""
    ended: int
    """When it stopped, after another."""
    iterated: int
    """When the loader's iterator was made."""
    warm: Ints
    """Borders of the warm-up's steps, each the end of one and the beginning of the next; int64, steps + 1."""
    window: Ints
    """The same of the window."""
    epoch_steps: int
    """Batches in each epoch of the stretch with real epochs."""
    epochs: Ints
    """When each of them held its first batch and when its last step had ended; int64, epochs × 2."""
    synchronised: float | None = None
    """Samples a second, by the wall clock, of steps that each end with a synchronisation; None without CUDA."""

    @classmethod
    def of(cls, batch_size: int, result: Mapping[str, Any]) -> Steps:
        """Take a trial's ``result``, as ``feedrate.trial.witness_trial`` reports it."""
        synchronised = result["synchronised"]
        return cls(
            batch_size,
            result["started"],
            result["ended"],
            result["iterated"],
            np.asarray(result["warm"], dtype=np.int64),
            np.asarray(result["window"], dtype=np.int64),
            result["epoch_steps"],
            np.asarray(result["epochs"], dtype=np.int64),
            synchronised and float(synchronised["samples_per_s"]),
        )

    def rates(self) -> npt.NDArray[np.float64]:
        """Samples a second of each step of the window; float64."""
        return self.batch_size * 1e9 / np.maximum(1, np.diff(self.window))

    def first(self, skipped: int) -> Ints:
        """Borders of as many steps as the window has, from the very first on, ``skipped`` left out."""
        every = np.concatenate([self.warm, self.window[1:]])
        return every[skipped : skipped + len(self.window)]


def wall_clock(steps: Steps) -> float:
    """All samples of the window ÷ its wall clock: what feedrate reports."""
    return (len(steps.window) - 1) * steps.batch_size * 1e9 / (steps.ended - steps.started)


def mean_of_rates(steps: Steps) -> float:
    """Mean of the rates of single batches, as dataloader-benchmarks states throughput (arXiv 2209.13705)."""
    return float(steps.rates().mean())


def median_of_rates(steps: Steps) -> float:
    """Median of the rates of single batches, as scripts do that print the median time of a step."""
    return float(np.median(steps.rates()))


def volume_over_mean_step(steps: Steps) -> float:
    """Samples of *all* steps ÷ the mean time of *one* step, as optimum-benchmark 0.6.0 states training throughput."""
    return (len(steps.window) - 1) * steps.batch_size * 1e9 / float(np.diff(steps.window).mean())


def reset_at_epoch_end(steps: Steps) -> float:
    """Samples of all epochs ÷ the time from each epoch's first batch to its last.

    So it is where the clock is set back at ``StopIteration``, as in loadtune 0.3.0.
    """
    samples = len(steps.epochs) * steps.epoch_steps * steps.batch_size
    return samples * 1e9 / float((steps.epochs[:, 1] - steps.epochs[:, 0]).sum())


def from_iterator(steps: Steps) -> float:
    """As many steps as the window has, from the very first on, the clock started before ``iter(loader)``.

    So do scripts that time a whole short loop.
    """
    return _rate(steps, steps.iterated, steps.first(0))


def from_first_batch(steps: Steps) -> float:
    """As many steps as the window has, from the very first on, the clock started when the first batch was there.

    So do scripts that start their clock inside the loop.
    """
    borders = steps.first(0)
    return _rate(steps, int(borders[0]), borders)


def fixed_warm_up(steps: Steps) -> float:
    """As many steps as the window has, after ``FIXED_WARM_UP`` steps, whatever the workers hold ready.

    So do scripts that skip the first few steps.
    """
    borders = steps.first(FIXED_WARM_UP)
    return _rate(steps, int(borders[0]), borders)


def synchronised_steps(steps: Steps) -> float:
    """Steps that each end with a synchronisation, as in loadtune 0.3.0, timed by the wall clock.

    NaN on a CPU, where there is nothing to wait for.
    """
    return math.nan if steps.synchronised is None else steps.synchronised


def _rate(steps: Steps, begun: int, borders: Ints) -> float:
    return (len(borders) - 1) * steps.batch_size * 1e9 / (int(borders[-1]) - begun)


@dataclass(frozen=True, slots=True)
class Estimator:
    """One way to state throughput."""

    name: str
    """In records."""
    label: str
    """For people, short enough for a chart."""
    fault: str
    """What it does wrong."""
    used_by: str
    """Who does so."""
    compute: Callable[[Steps], float]
    """Samples a second."""
    truth: str = "window"
    """The stretch of steps that it speaks of: the window or the epochs."""


ESTIMATORS: tuple[Estimator, ...] = (
    Estimator(OURS, "feedrate: wall clock", "", "feedrate", wall_clock),
    Estimator(
        "mean_of_rates",
        "mean of rates",
        "It counts every batch alike, however short: a burst of ready batches outweighs the wait before it.",
        "dataloader-benchmarks (arXiv 2209.13705)",
        mean_of_rates,
    ),
    Estimator(
        "median_of_rates",
        "median of rates",
        "It reports the middle batch: with several workers most batches lie ready, and the wait is never seen.",
        "scripts that print the median time of a step",
        median_of_rates,
    ),
    Estimator(
        "volume_over_mean_step",
        "all samples ÷ mean step",
        "It divides the samples of all steps by the time of one: too high by the number of steps.",
        "optimum-benchmark 0.6.0 (training)",
        volume_over_mean_step,
    ),
    Estimator(
        "reset_at_epoch_end",
        "clock reset each epoch",
        "It leaves out what lies between epochs: ending the workers, starting new ones, waiting for their first batch.",
        "loadtune 0.3.0",
        reset_at_epoch_end,
        "epochs",
    ),
    Estimator(
        "from_iterator",
        "no warm-up, from iter()",
        "It counts the start of the workers, once, as if every step paid for it.",
        "scripts that time a whole short loop",
        from_iterator,
    ),
    Estimator(
        "from_first_batch",
        "no warm-up, first batch",
        "It counts the batches that workers had prefetched before the clock ran.",
        "scripts that start their clock inside the loop",
        from_first_batch,
    ),
    Estimator(
        "fixed_warm_up",
        f"{FIXED_WARM_UP} steps of warm-up",
        "It leaves out a fixed number of steps: with several workers the prefetched stock outlasts it.",
        "scripts that skip the first few steps",
        fixed_warm_up,
    ),
    Estimator(
        "synchronised_steps",
        "synchronise each step",
        "It makes the host wait for the device after every step, so that loading and computing overlap less.",
        "loadtune 0.3.0",
        synchronised_steps,
    ),
)


def estimates(steps: Steps) -> dict[str, float]:
    """Compute every estimator that applies.

    Returns:
        Name to samples a second; those that do not apply here are left out.
    """
    found = {estimator.name: estimator.compute(steps) for estimator in ESTIMATORS}
    return {name: rate for name, rate in found.items() if math.isfinite(rate)}


def frame(trials: Iterable[WitnessedTrial]) -> pd.DataFrame:
    """Lay out witnessed trials, a row an estimate.

    Returns:
        ``cell_id``, ``repeat``, ``estimator``, ``samples_per_s``, and by the external clock ``window_samples_per_s``
        and ``epochs_samples_per_s``.
    """
    rows = [
        (
            trial.cell_id,
            trial.repeat,
            name,
            rate,
            trial.samples * 1e9 / trial.witness_ns,
            trial.epochs_samples * 1e9 / trial.epochs_witness_ns,
        )
        for trial in trials
        for name, rate in trial.estimates.items()
    ]
    truths = ["window_samples_per_s", "epochs_samples_per_s"]
    return pd.DataFrame(rows, columns=["cell_id", "repeat", "estimator", "samples_per_s", *truths])


def errors(witnessed: pd.DataFrame) -> pd.DataFrame:
    """Compare every estimate with the external clock over the steps that it speaks of."""
    of_epochs = witnessed["estimator"].isin([e.name for e in ESTIMATORS if e.truth == "epochs"])
    truth = witnessed["window_samples_per_s"].where(~of_epochs, witnessed["epochs_samples_per_s"])
    return witnessed.assign(error_pct=100 * (witnessed["samples_per_s"] / truth - 1))


def summary(witnessed: pd.DataFrame) -> pd.DataFrame:
    """Sum up the errors of each estimator over all planted cells.

    Args:
        witnessed: as :func:`frame` lays it out.

    Returns:
        A row an estimator that was computed, in the order of ``ESTIMATORS``: ``estimator``, ``median_pct``,
        ``worst_pct`` (the error of largest size, with its sign), ``low_pct``, ``high_pct``, ``n`` (trials), ``cells``.
    """
    found = errors(witnessed)
    rows = []
    for estimator in ESTIMATORS:
        part = found[found["estimator"] == estimator.name]
        if len(part):
            error = part["error_pct"].to_numpy(dtype=np.float64)
            rows.append(
                {
                    "estimator": estimator.name,
                    "median_pct": float(np.median(error)),
                    "worst_pct": float(error[np.abs(error).argmax()]),
                    "low_pct": float(error.min()),
                    "high_pct": float(error.max()),
                    "n": len(part),
                    "cells": part["cell_id"].nunique(),
                }
            )
    columns = ["estimator", "median_pct", "worst_pct", "low_pct", "high_pct", "n", "cells"]
    return pd.DataFrame(rows, columns=columns)
