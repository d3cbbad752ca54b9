"""Ways to state how fast a loop was, ours and others', as functions of the same raw steps.

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

_Ints = npt.NDArray[np.int64]

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
    warm: _Ints
    """Borders of the warm-up's steps, each the end of one and the beginning of the next; int64, steps + 1."""
    window: _Ints
    """The same of the window."""
    epoch_steps: int
    """Batches in each epoch of the stretch with real epochs."""
    epochs: _Ints
    """When each of them held its first batch and when its last step had ended; int64, epochs × 2."""
    synchronised: float = math.nan
    """Samples a second, by the wall clock, of steps that each end with a synchronisation; NaN without CUDA."""

    @classmethod
    def of(cls, batch_size: int, result: Mapping[str, Any]) -> Steps:
        """Take a trial's ``result``, as ``feedrate.trial.bench`` reports it."""
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
            float(synchronised["samples_per_s"]) if synchronised else math.nan,
        )

    @property
    def samples(self) -> int:
        """Of the window."""
        return (len(self.window) - 1) * self.batch_size

    def rates(self) -> npt.NDArray[np.float64]:
        """Samples a second of each step of the window."""
        return self.batch_size * 1e9 / np.maximum(1, np.diff(self.window))

    def from_the_first(self, skipped: int, began: int | None = None) -> float:
        """Samples a second of as many steps as the window has, from the very first on, ``skipped`` left out.

        The clock starts at ``began``, or where the first of them does.
        """
        borders = np.concatenate([self.warm, self.window[1:]])[skipped : skipped + len(self.window)]
        began = int(borders[0]) if began is None else began
        return (len(borders) - 1) * self.batch_size * 1e9 / (int(borders[-1]) - began)


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
    compute: Callable[[Steps], float]
    """Samples a second; NaN where it does not apply."""
    of_epochs: bool = False
    """Whether it speaks of the stretch of epochs; else of the window."""


ESTIMATORS: tuple[Estimator, ...] = (
    Estimator(
        OURS,
        "feedrate: wall clock",
        "",
        "feedrate",
        lambda steps: steps.samples * 1e9 / (steps.ended - steps.started),
    ),
    Estimator(
        "mean_of_rates",
        "mean of rates",
        "It counts every batch alike, however short: a burst of ready batches outweighs the wait before it.",
        "dataloader-benchmarks (arXiv 2209.13705)",
        lambda steps: float(steps.rates().mean()),
    ),
    Estimator(
        "median_of_rates",
        "median of rates",
        "It reports the middle batch: with several workers most batches lie ready, and the wait is never seen.",
        "scripts that print the median time of a step",
        lambda steps: float(np.median(steps.rates())),
    ),
    Estimator(
        "volume_over_mean_step",
        "all samples ÷ mean step",
        "It divides the samples of all steps by the time of one: too high by the number of steps.",
        "optimum-benchmark 0.6.0 (training)",
        lambda steps: steps.samples * 1e9 / float(np.diff(steps.window).mean()),
    ),
    Estimator(
        "reset_at_epoch_end",
        "clock reset each epoch",
        "It leaves out what lies between epochs: ending the workers, starting new ones, waiting for their first batch.",
        "loadtune 0.3.0",
        lambda steps: (
            len(steps.epochs) * steps.epoch_steps * steps.batch_size * 1e9 / float(np.diff(steps.epochs, axis=1).sum())
        ),
        of_epochs=True,
    ),
    Estimator(
        "from_iterator",
        "no warm-up, from iter()",
        "It counts the start of the workers, once, as if every step paid for it.",
        "scripts that time a whole short loop",
        lambda steps: steps.from_the_first(0, steps.iterated),
    ),
    Estimator(
        "from_first_batch",
        "no warm-up, first batch",
        "It counts the batches that workers had prefetched before the clock ran.",
        "scripts that start their clock inside the loop",
        lambda steps: steps.from_the_first(0),
    ),
    Estimator(
        "fixed_warm_up",
        f"{FIXED_WARM_UP} steps of warm-up",
        "It leaves out a fixed number of steps: with several workers the prefetched stock outlasts it.",
        "scripts that skip the first few steps",
        lambda steps: steps.from_the_first(FIXED_WARM_UP),
    ),
    Estimator(
        "synchronised_steps",
        "synchronise each step",
        "It makes the host wait for the device after every step, so that loading and computing overlap less.",
        "loadtune 0.3.0",
        lambda steps: steps.synchronised,
    ),
)


def estimates(steps: Steps) -> dict[str, float]:
    """Name of every estimator that applies to its samples a second."""
    rates = {estimator.name: estimator.compute(steps) for estimator in ESTIMATORS}
    return {name: rate for name, rate in rates.items() if math.isfinite(rate)}


def frame(trials: Iterable[WitnessedTrial]) -> pd.DataFrame:
    """Lay out witnessed trials, a row an estimate.

    Returns:
        ``cell_id``, ``repeat``, ``estimator``, ``samples_per_s``, and by the external clock ``window_samples_per_s``
        and ``epochs_samples_per_s``.
    """
    rows = []
    for trial in trials:
        window, epochs = trial.samples * 1e9 / trial.witness_ns, trial.epochs_samples * 1e9 / trial.epochs_witness_ns
        rows += [(trial.cell_id, trial.repeat, name, rate, window, epochs) for name, rate in trial.estimates.items()]
    names = ["cell_id", "repeat", "estimator", "samples_per_s", "window_samples_per_s", "epochs_samples_per_s"]
    return pd.DataFrame(rows, columns=names)


def summary(witnessed: pd.DataFrame) -> pd.DataFrame:
    """Sum up the errors of each estimator over all cells of :func:`frame`, against the clock over its own stretch.

    Returns:
        A row an estimator that was computed, in the order of ``ESTIMATORS``: ``estimator``, ``median_pct``,
        ``worst_pct`` (the error of largest size, with its sign), ``low_pct``, ``high_pct``, ``n`` (trials), ``cells``.
    """
    of_epochs = witnessed["estimator"].isin([estimator.name for estimator in ESTIMATORS if estimator.of_epochs])
    truth = witnessed["window_samples_per_s"].mask(of_epochs, witnessed["epochs_samples_per_s"])
    errors = witnessed.assign(error=100 * (witnessed["samples_per_s"] / truth - 1)).groupby("estimator", sort=False)
    table = errors.agg(
        median_pct=("error", "median"),
        worst_pct=("error", lambda error: error.iloc[error.abs().argmax()]),
        low_pct=("error", "min"),
        high_pct=("error", "max"),
        n=("error", "size"),
        cells=("cell_id", "nunique"),
    )
    computed = [estimator.name for estimator in ESTIMATORS if estimator.name in table.index]
    return table.loc[computed].reset_index()
