"""What other workers and other batches would give: the pipeline model, fitted where loading is simplest.

Cells that share everything but ``num_workers``, ``prefetch_factor`` and ``batch_size`` make a group. Its cells with no
and with one worker fit the model (``pipeline``); cells with more workers were not used and check it (``held_out``). For
a batch size that is held out, each parameter is a straight line over the group's *other* batch sizes (a part a batch, a
part a sample), smaller and larger ones: beyond them the line's error grows without bounds. What is fitted, per batch,
medians over trials:

==================  ==========================================================================================
stamped             read + decode + transform + collate of the cell with one worker
unstamped           what its worker spends between two batches: wall clock a batch - stamped, where the worker is
                    the bottleneck; elsewhere the median of the run's groups in which it could be seen
worker, compute     CPU time of the worker (its clock); the rest of its time, at most the reading, is waiting
receive, compute    CPU time of the training process - that of its step
receive, wait       fetch - receive, compute, where the one worker is ahead; elsewhere as large, measured against
                    receive, compute, as in the median of the run's groups in which it could be seen
step                everything but fetch, the less of both cells (on CUDA, the device's spans if they are longer)
step, cores         CPU time of the step ÷ step, seen without workers; an emulated step has none
==================  ==========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, successful
from feedrate.analysis.ceilings import bottleneck, cells_with_ceilings
from feedrate.analysis.contrasts import grouping_keys
from feedrate.analysis.estimates import identities, rows_of
from feedrate.analysis.loader import per_step
from feedrate.analysis.pipeline import SLICES, Floats, Pace, Pipeline, simulate
from feedrate.schema.axes import AXES, EMULATED_STEPS
from feedrate.schema.columns import WORKER_STAGES

FREE = ("num_workers", "prefetch_factor", "batch_size")
"""Axes that the model predicts; cells that differ only in these make a group."""
AHEAD = 0.8
"""A worker that is busy for less of the time has its next batch ready when it is asked for."""
RATE_WITHIN_PCT = 5.0
"""How far a predicted throughput may be off."""
WAIT_WITHIN_MS = 1.5
"""How far a predicted data wait a step may be off; or ``RATE_WITHIN_PCT`` of it, whichever is more."""
COLUMNS = (
    *KEYS,
    "held_out",
    *("predicted_samples_per_s", "samples_per_s", "lo", "hi", "error_pct", "within"),
    *("predicted_wait_ms", "wait_ms", "wait_error_ms", "wait_within"),
    *("predicted_bottleneck", "bottleneck", "ceilings_apart"),
)
_SAME = ("run_id", "device", *(axis.name for axis in AXES if axis.name not in FREE))
_STAGES = [f"worker_{stage}" for stage in WORKER_STAGES]
_BY_LINE = ("wait_ns", "compute_ns", "receive_wait_ns", "receive_compute_ns", "step_ns")
"""Parameters that are straight lines over batch sizes."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The parameters of one group at one batch size: means a batch, ns, and cores."""

    wait_ns: float
    compute_ns: float
    receive_wait_ns: float
    receive_compute_ns: float
    step_ns: float
    step_cores: float
    batch_size: int
    batches: Floats
    """Each measured batch's waiting and computing ÷ their means; n × 2."""

    def pace(self, num_workers: int, prefetch_factor: int, cores: float) -> Pace:
        """Run the model with other workers."""
        pipeline = Pipeline(
            wait_ns=self.wait_ns * self.batches[:, 0],
            compute_ns=self.compute_ns * self.batches[:, 1],
            receive_wait_ns=self.receive_wait_ns,
            receive_compute_ns=self.receive_compute_ns,
            step_ns=self.step_ns,
            step_cores=self.step_cores,
            cores=cores,
            slices=min(self.batch_size, SLICES),
        )
        return simulate(pipeline, num_workers, prefetch_factor)


def group_cells(trials: pd.DataFrame) -> pd.DataFrame:
    """Medians of every cell's steps, its axes, and the number of its ``group``; cells without a loader are left out."""
    middle = per_step(trials).drop(columns="block").groupby(KEYS).median().reset_index()
    cells = identities(trials).merge(middle, on=KEYS)
    cells = cells[cells["num_workers"].notna() & cells[_STAGES].notna().all(axis=1)]
    by = grouping_keys(cells, _SAME)
    return cells.assign(group=cells.groupby(by, dropna=False, sort=False).ngroup())


def fit_parameters(cells: pd.DataFrame, cores: float) -> pd.DataFrame:
    """Fit each group and batch size that ran with one worker: these cells with the parameters of ``Fit``."""
    one = cells[cells["num_workers"] == 1].sort_values("prefetch_factor").drop_duplicates(["group", "batch_size"])
    none = cells[cells["num_workers"] == 0][["group", "batch_size", "wall", "fetch", "main_cpu"]]
    fits = one.merge(none, on=["group", "batch_size"], how="left", suffixes=("", "_alone"))
    runs, fetch, stamped = fits["run_id"], fits["fetch"], fits[_STAGES].sum(axis=1)
    # The step, and the cores that it keeps busy: seen without workers, where fetching is preparing, less its waits.
    rest = np.fmin(fits["wall"] - fetch, fits["wall_alone"] - fits["fetch_alone"])
    step = pd.Series(np.fmax(rest, fits["device_span"]), fits.index)
    prepared = (fits["fetch_alone"] - (stamped - fits["workers_cpu"]).clip(lower=0)).clip(lower=0)
    busy = (fits["main_cpu_alone"] - prepared).fillna(fits["main_cpu"])
    real = (fits["mode"] == "train") & ~fits["step"].isin(EMULATED_STEPS)
    step_cores = (busy / step).clip(0, cores).fillna(0.0).where(real, 0.0)
    # What taking a batch costs the training process, seen where the one worker has batches ready.
    computed = (fits["main_cpu"] - step_cores * step).fillna(0.0).clip(0, fetch)
    ahead = (fetch <= 2 * computed) | ((fits["mode"] == "train") & (stamped < AHEAD * fits["wall"]))
    waited = (fetch - computed).where(ahead)
    ratio = _with_median((waited / computed).where(computed > 0), runs)
    # What preparing a batch makes its worker wait for (at most the reading) and compute.
    between = (fits["wall"] - stamped).clip(lower=0).where(~ahead)
    total = stamped + _with_median(between, runs)
    wait = np.fmin((total - fits["workers_cpu"]).clip(lower=0), fits["worker_read"])
    return fits.assign(
        wait_ns=wait,
        compute_ns=total - wait,
        receive_wait_ns=waited.fillna(ratio * computed),
        receive_compute_ns=computed,
        step_ns=step,
        step_cores=step_cores,
    )


def _with_median(values: pd.Series, run_ids: pd.Series) -> pd.Series:
    """What a cell could not show is taken from the others of its run: their median; 0 where none could."""
    return values.fillna(values.groupby(run_ids).transform("median")).fillna(0.0)


def _fits(cells: pd.DataFrame, trials: pd.DataFrame, steps: pd.DataFrame, cores: float) -> dict[int, dict[int, Fit]]:
    """Group to batch size to its fit."""
    columns = [f"{stage}_ns" for stage in _STAGES]
    trial_ids = successful(trials)[[*KEYS, "trial_id"]]
    stamps = dict(
        list(trial_ids.merge(steps[["run_id", "trial_id", *columns]], on=["run_id", "trial_id"]).groupby(KEYS))
    )
    fits: dict[int, dict[int, Fit]] = {}
    for row in rows_of(fit_parameters(cells, cores)):
        batches = np.ones((1, 2))
        if (stamped := stamps.get((row["run_id"], row["cell_id"]))) is not None:
            read = stamped["worker_read_ns"].to_numpy(dtype=np.float64)
            rest = stamped[[name for name in columns if name != "worker_read_ns"]].to_numpy(dtype=np.float64)
            share = row["wait_ns"] / row["worker_read"] if row["worker_read"] else 0.0
            times = np.column_stack([share * read, (1 - share) * read + rest.sum(axis=1)])
            means = times.mean(axis=0)
            batches = np.divide(times, means, out=np.ones_like(times), where=means > 0)
        parameters = {name: row[name] for name in (*_BY_LINE, "step_cores")}
        fit = Fit(**parameters, batch_size=row["batch_size"], batches=batches)
        fits.setdefault(row["group"], {})[row["batch_size"]] = fit
    return fits


def _interpolated(fits: Mapping[int, Fit], batch_size: int) -> Fit | None:
    """Fit a batch size by straight lines over a group's others; None where it does not lie between them."""
    others = [fit for size, fit in fits.items() if size != batch_size]
    sizes = np.array([fit.batch_size for fit in others], dtype=np.float64)
    if not others or not sizes.min() < batch_size < sizes.max():
        return None
    nearest = min(others, key=lambda fit: abs(math.log(fit.batch_size / batch_size)))
    values = {}
    for name in _BY_LINE:
        measured = np.array([getattr(fit, name) for fit in others])
        slope, base = np.polyfit(sizes, measured, 1, w=1 / np.maximum(measured, 1.0))
        values[name] = max(0.0, float(base + slope * batch_size))
    calmer = math.sqrt(nearest.batch_size / batch_size)
    batches = np.maximum(0.0, 1 + (nearest.batches - 1) * calmer)
    return replace(nearest, **values, batch_size=batch_size, batches=batches)


def held_out(trials: pd.DataFrame, steps: pd.DataFrame, cores: float) -> pd.DataFrame:
    """Predict cells that the model was not fitted to, and compare: of runs of one machine, whose trials had ``cores``.

    Returns:
        A row a prediction, ``COLUMNS``: ``held_out`` (``num_workers``: cells with two workers and more, from those with
        none and one; ``batch_size``: cells with workers, from smaller and larger batches of those with none and one),
        predicted and measured throughput and the error; predicted and measured data wait a step (the measured one is a
        median over trials) and the error; whether each is within its limit (``RATE_WITHIN_PCT``, ``WAIT_WITHIN_MS``);
        for training cells the bottleneck that the predicted ceilings name, the measured one (``bottleneck``), and how
        many times the larger of the measured ceilings is the smaller (``ceilings_apart``).
    """
    cells = group_cells(trials)
    fits = _fits(cells, trials, steps, cores)
    measured = cells_with_ceilings(trials).set_index(KEYS)
    predicted = []
    for axis in ("num_workers", "batch_size"):
        for row in rows_of(cells[cells["num_workers"] > (1 if axis == "num_workers" else 0)]):
            of_group, size = fits.get(row["group"], {}), row["batch_size"]
            fit = of_group.get(size) if axis == "num_workers" else _interpolated(of_group, size)
            if fit:
                cell = row | {str(name): value for name, value in measured.loc[row["run_id"], row["cell_id"]].items()}
                predicted.append({"held_out": axis, **_compared(cell, _predicted(row, fit, cores))})
    return pd.DataFrame(predicted, columns=list(COLUMNS))


def _predicted(row: Mapping[str, Any], fit: Fit, cores: float) -> dict[str, Any]:
    """Prediction for one cell: its pace, and for a training cell the bottleneck that its predicted ceilings name."""
    workers = int(row["num_workers"])
    prefetch = int(row["prefetch_factor"]) if workers else 1
    pace = fit.pace(workers, prefetch, cores)
    rate = row["batch_size"] * 1e9 / pace.step_ns
    predicted: dict[str, Any] = {"predicted_samples_per_s": rate, "predicted_wait_ms": pace.data_wait_ns / 1e6}
    if row["mode"] == "train":
        alone = replace(fit, step_ns=0.0).pace(workers, prefetch, cores)
        ceilings = {
            "load_ceiling": row["batch_size"] * 1e9 / alone.step_ns,
            "compute_ceiling": row["batch_size"] * 1e9 / fit.step_ns,
        }
        predicted["predicted_bottleneck"] = bottleneck({**row, **ceilings, "samples_per_s": rate})
    return predicted


def _compared(cell: Mapping[str, Any], predicted: Mapping[str, Any]) -> dict[str, Any]:
    """A prediction beside what was measured."""
    wait_ms = cell["fetch"] / 1e6
    error_pct = 100 * (predicted["predicted_samples_per_s"] / cell["samples_per_s"] - 1)
    wait_error_ms = predicted["predicted_wait_ms"] - wait_ms
    apart = cell["load_ceiling"] / cell["compute_ceiling"]
    return {
        **{name: cell[name] for name in (*KEYS, "samples_per_s", "lo", "hi", "bottleneck")},
        **predicted,
        "ceilings_apart": max(apart, 1 / apart),
        "wait_ms": wait_ms,
        "error_pct": error_pct,
        "within": abs(error_pct) <= RATE_WITHIN_PCT,
        "wait_error_ms": wait_error_ms,
        "wait_within": abs(wait_error_ms) <= max(WAIT_WITHIN_MS, RATE_WITHIN_PCT / 100 * wait_ms),
    }
