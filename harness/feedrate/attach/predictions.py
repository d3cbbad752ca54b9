"""What other numbers of workers would give a training script, and how far such predictions have been off.

The pipeline model (``analysis.pipeline``) is fitted to the one setting that ran. A prediction's range is that of nine
in ten predictions whose truth is known: ``prediction_errors.csv`` has what planted scripts were predicted and what they
did by their own clock, in the two newest records of ``make bench ARGS=scripts``: hours of a machine differ. Each kind
of script is judged by the errors of all other kinds (``advised``).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from feedrate.analysis.estimate import Estimate
from feedrate.analysis.pipeline import SLICES, Pace, Pipeline, simulate
from feedrate.attach.loop import Pacing, whole_steps, workers_of
from feedrate.attach.records import Loader
from feedrate.store.bench_record import PredictedPace, WatchedScript, paces, predictions

HAND_OVER_NS = 500_000.0
"""What taking a batch from a worker costs where none was seen to: queue and unpickling, on a usual core."""
CONFIDENCE = 0.9
"""Share of the predictions of scripts of any other kind that lie in their ranges."""
WORTH = 1.05
"""A pace below so many times the present one is no advice."""
ABOUT = 0.97
"""Paces of at least so many times the best one are as good."""
MODELLED = ("waiting", "here")
"""Rows of the account that other numbers of workers change in a way that the pipeline model knows."""
COMPUTES = 0.5
"""Workers compute where at least so much of preparing a batch does: more of them than cores are no faster."""
CACHED = 2.0
"""A pass whose batches take so many times as long as those of later ones fills a cache."""
ERRORS = Path(__file__).with_name("prediction_errors.csv")


@cache
def known() -> tuple[PredictedPace, ...]:
    """The predictions whose truth is known."""
    with ERRORS.open(encoding="utf-8", newline="") as file:
        return tuple(
            PredictedPace(costs, int(seen), int(workers), float(predicted), float(measured))
            for costs, seen, workers, predicted, measured in list(csv.reader(file))[1:]
        )


def ranged(modelled: float, outcomes: Sequence[PredictedPace], seen: int, n: int) -> Estimate | None:
    """Correct what the model says by how far it is off in the middle, and give the range of nine in ten.

    ``seen``: workers of the run that it rests on, as what handing batches over costs is seen with workers alone. None
    where no prediction of its sort is known.
    """
    errors = [true.measured / true.predicted for true in outcomes if bool(true.seen) == bool(seen)]
    if not errors:
        return None
    beyond = beyond_range(tuple(outcomes))
    low, middle, high = modelled * np.quantile(errors, [beyond, 0.5, 1 - beyond])
    return Estimate(float(middle), float(low), float(high), n)


@cache
def beyond_range(outcomes: tuple[PredictedPace, ...]) -> float:
    """Give the share of known errors at each end that a range leaves out.

    With it the range of all other kinds of scripts holds nine in ten predictions of a kind. A twentieth would leave out
    too much, as scripts of one kind are off alike.
    """
    errors = pd.DataFrame(outcomes)
    errors["ratio"] = errors["measured"] / errors["predicted"]
    errors["seen"] = errors["seen"] > 0
    shares: list[float] = []
    for (costs, seen), ratios in errors.groupby(["costs", "seen"])["ratio"]:
        others = errors.loc[(errors["costs"] != costs) & (errors["seen"] == seen), "ratio"].sort_values()
        if len(others):
            below = others.searchsorted(ratios, side="right") / len(others)
            shares += list(np.minimum(below, 1 - below))
    return float(np.quantile(shares, 1 - CONFIDENCE)) if shares else (1 - CONFIDENCE) / 2


def fewest(others: Mapping[int, Estimate]) -> int | None:
    """Choose the fewest workers of those that are as fast as any; None without any."""
    most = max((pace.value for pace in others.values()), default=0.0)
    return min((workers for workers, pace in others.items() if pace.value >= ABOUT * most), default=None)


def recommended(now: float, others: Mapping[int, Estimate]) -> int | None:
    """Choose the fewest workers of the fastest; None where they are not clearly faster than now."""
    best = fewest(others)
    return best if best is not None and others[best].low > WORTH * now else None


class Advised(NamedTuple):
    """A script that would be told to have another number of workers."""

    script: WatchedScript
    num_workers: int
    pace: Estimate
    """What it would be told of its pace with them."""
    measured: float | None
    """Its pace with them by its own clock; None where it did not run so."""

    @property
    def kept(self) -> bool:
        """Whether it ran at a pace in the range that it would be told."""
        return self.measured is not None and self.pace.low <= self.measured <= self.pace.high


def advised(scripts: Sequence[WatchedScript]) -> Iterator[Advised]:
    """Give what scripts would be told if the errors of scripts of all other kinds were known alone."""
    outcomes, ran = predictions(scripts), paces(scripts)
    for script in scripts:
        of_others = [outcome for outcome in outcomes if outcome.costs != script.costs]
        ranges = {
            workers: pace
            for workers, modelled in script.predicted.items()
            if (pace := ranged(modelled, of_others, script.num_workers, script.steps))
        }
        if script.cause in MODELLED and (best := recommended(script.steps_per_s, ranges)) is not None:
            yield Advised(script, best, ranges[best], ran.get((script.costs, best)))


@dataclass(frozen=True, slots=True)
class Prediction:
    """What another number of workers would give."""

    num_workers: int
    prefetch_factor: int | None
    modelled: float
    """Steps a second by the pipeline model, corrected by what it is off at the present setting."""
    steps_per_s: Estimate
    """The same, corrected by what such predictions are off; in its range lie nine in ten of them."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """What other settings would give, and what that rests on."""

    num_workers: int
    """The present number."""
    present: float
    """Steps a second that the model gives for it; the loop's own pace says how far off that is."""
    others: tuple[Prediction, ...]


def predict(loader: Loader, pace: Pacing, cores: float) -> Predictions | None:
    """Run the pipeline model with other numbers of workers.

    None where there is nothing to fit, or where the model is further off the present pace than its ranges say.
    """
    if loader.settings.get("watched") or not len(loader.batches):
        return None
    workers, prefetch = workers_of(loader), int(loader.settings.get("prefetch_factor") or 2)
    steps = whole_steps(loader)
    model = fit(loader, steps, cores)
    # Iterators are made anew each epoch: that costs what it costs now, where there are workers.
    overhead = float(steps.loc[steps["first"], "wait_ns"].sum()) / len(steps) if workers else 0.0
    present = _rate(simulate(model, workers, prefetch), overhead)
    pace_now = pace.steps_per_s.value
    here = ranged(present, known(), workers, pace.stretches)
    if here is None or abs(math.log(pace_now / present)) > math.log(here.high / here.low) / 2:
        return None
    # The host may run ahead of the device, which then takes longer than the step that the model knows.
    starved = 1.0 if pace.starved_share is None else pace.starved_share.value
    most = pace_now / (1 - starved) if starved < 1 else math.inf
    others = []
    for other in _candidates(workers, cores, model):
        rate = pace_now * _rate(simulate(model, other, prefetch), overhead if other else 0.0) / present
        rate = min(rate, most)
        if predicted := ranged(rate, known(), workers, pace.stretches):
            others.append(Prediction(other, prefetch if other else None, rate, predicted))
    return Predictions(workers, present, tuple(others))


def caches(loader: Loader) -> bool:
    """Whether the training process prepares batches, those of the first pass far slower than those of later ones.

    Workers have no cache of one another's, and are started anew.
    """
    batches = loader.batches
    took = (batches["ended_ns"] - batches["begun_ns"]).groupby(batches["iterator"]).mean()
    return not workers_of(loader) and len(took) > 1 and bool(took.iloc[0] > CACHED * took.iloc[1:].mean())


def _rate(pace: Pace, overhead_ns: float) -> float:
    return 1e9 / (pace.step_ns + overhead_ns)


def _candidates(present: int, cores: float, model: Pipeline) -> list[int]:
    """Numbers of workers worth asking about, the present one left out."""
    computes = model.compute_ns.sum() >= COMPUTES * (model.compute_ns.sum() + model.wait_ns.sum())
    most = math.ceil(cores) if computes else max(4 * math.ceil(cores), 2 * present, 8)
    counts = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    return [count for count in counts if count != present and count <= max(most, present)]


def fit(loader: Loader, steps: pd.DataFrame, cores: float) -> Pipeline:
    """Fit the pipeline model to the one setting that ran, by some of its steps (``whole_steps``)."""
    batches = loader.batches
    took = (batches["ended_ns"] - batches["begun_ns"]).to_numpy(np.float64)
    compute = np.minimum(batches["cpu_ns"].to_numpy(np.float64), took)
    wait = np.clip(took - compute - batches["queued_ns"].to_numpy(np.float64), 0, None)
    if loader.settings["num_workers"]:
        taken = steps[~steps["first"]]
        ready = taken[taken["prepared_ended_ns"] < taken["begun_ns"]]
        taken = ready if ready["wait_cpu_ns"].count() >= 3 else taken
        # A pace is one of means, however rare a slow hand-over is.
        receive_compute = float(np.nan_to_num(taken["wait_cpu_ns"].mean(), nan=HAND_OVER_NS))
        receive_wait = max(0.0, float(ready["wait_ns"].mean()) - receive_compute) if len(ready) >= 3 else 0.0
    else:  # what a worker would cost to hand a batch over was not seen: its usual cost without the batch's bytes
        receive_compute, receive_wait = HAND_OVER_NS, 0.0
    step = float(steps["step_ns"].mean())
    return Pipeline(
        wait_ns=wait,
        compute_ns=compute,
        receive_wait_ns=receive_wait,
        receive_compute_ns=receive_compute,
        step_ns=step,
        step_cores=float(np.clip(np.nan_to_num(steps["step_cpu_ns"].mean()) / step, 0, cores)) if step else 0.0,
        cores=cores,
        slices=int(min(SLICES, max(1, batches["samples"].median()))),
    )
