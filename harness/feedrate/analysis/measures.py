"""Trials of any number of runs → every measure of every cell with its interval: what the page Explore offers.

Each trial gives one value of a measure. Trials of one block are averaged, then blocks: rates, durations, energy and
memory as geometric means, the phases of a sample and percentages as arithmetic ones, because parts must add up to their
whole and may be 0. All intervals are Student's t over blocks. One pass over all runs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, successful
from feedrate.analysis.estimate import RATE, Floats, Moments, as_columns
from feedrate.analysis.estimates import AXIS_NAMES, IDENTITY
from feedrate.analysis.storage import PROVING, doubtful
from feedrate.schema.columns import PHASES

_Columns = Mapping[str, Floats]
"""Column of trials to its values, NaN where it is null."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a trial that can be looked at."""

    name: str
    """With its unit, as columns and links spell it."""
    label: str
    unit: str
    columns: tuple[str, ...]
    """Of ``records.TRIALS``, from which it is computed."""
    compute: Callable[[_Columns], Floats]
    logs: bool = True
    """Whether its mean is geometric; else it is arithmetic, and its interval is cut off at 0."""
    most: float = float("inf")
    """What it cannot exceed."""


def _column(
    name: str, label: str, unit: str, column: str, scale: float = 1.0, logs: bool = True, most: float = float("inf")
) -> Measure:
    """A measure of one column, times a scale."""
    return Measure(name, label, unit, (column,), lambda given: scale * given[column], logs, most)


def _a_sample(name: str, label: str, unit: str, column: str, scale: float, logs: bool = False) -> Measure:
    """A measure of one column divided by the window's samples, times a scale."""
    return Measure(name, label, unit, (column, "samples"), lambda given: scale * given[column] / given["samples"], logs)


_PHASE_LABELS = {
    "fetch": "Waiting for data (fetch)",
    "h2d": "Copy to the device (host)",
    "forward": "Forward pass",
    "backward": "Backward pass",
    "optimizer": "Optimizer",
    "other": "Other",
}
MEASURES: tuple[Measure, ...] = (
    _column("samples_per_s", "Throughput", "samples/s", "samples_per_s"),
    Measure(
        "epoch_s",
        "Epoch time",
        "s",
        ("startup_ns", "n_samples", "samples_per_s"),
        lambda given: given["startup_ns"] / 1e9 + given["n_samples"] / given["samples_per_s"],
    ),
    *(_a_sample(f"{phase}_us", _PHASE_LABELS[phase], "µs/sample", f"host_{phase}_ns", 1e-3) for phase in PHASES),
    _a_sample("h2d_exposed_us", "Copy that the device waited for", "µs/sample", "device_h2d_exposed_ns", 1e-3),
    _a_sample("device_idle_us", "Device idle between steps", "µs/sample", "device_idle_ns", 1e-3),
    _column("startup_ms", "Time to the first batch", "ms", "startup_ns", 1e-6),
    _column("gpu_util_pct", "GPU utilization", "%", "gpu_util_pct", logs=False, most=100.0),
    _column("cpu_util_pct", "CPU utilization, all cores", "%", "cpu_util_pct", logs=False, most=100.0),
    _column("main_cpu_pct", "CPU of the training process", "% of a core", "main_cpu_pct", logs=False),
    _column("workers_cpu_pct", "CPU of the workers", "% of a core", "workers_cpu_pct", logs=False),
    _a_sample("joules_per_sample", "Energy", "J/sample", "gpu_energy_j", 1.0, logs=True),
    _column("gpu_power_w", "GPU power", "W", "gpu_power_w", logs=False),
    _column("gpu_mem_peak_mib", "GPU memory in tensors, peak", "MiB", "gpu_mem_peak_bytes", 1 / MIB),
    _column("uss_peak_mib", "Memory of one’s own (USS)", "MiB", "uss_peak_bytes", 1 / MIB),
    _column("pss_peak_mib", "Memory, shared pages in parts (PSS)", "MiB", "pss_peak_bytes", 1 / MIB),
)
_LOGS = [measure.name for measure in MEASURES if measure.logs]
_NUMBERS = sorted({name for measure in MEASURES for name in measure.columns})
_JUDGING = ("outcome", "samples_per_s", "storage_format", "page_cache", *PROVING)
"""What decides whether a trial counts."""
_INPUTS = tuple(dict.fromkeys((*_JUDGING, *(name for measure in MEASURES for name in measure.columns))))
COLUMNS = tuple(dict.fromkeys((*IDENTITY, "block", *AXIS_NAMES, *_INPUTS)))
"""The columns of ``records.TRIALS`` that are read."""


def _back(values: pd.DataFrame) -> pd.DataFrame:
    """Bring the measures that are means of logs back."""
    return values.assign(**{name: np.exp(values[name]) for name in _LOGS})


def estimate_measures(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate every measure of every cell, from the columns ``COLUMNS`` of trials.

    Checks, which time nothing, and trials whose page cache was not as their cell says (``storage.doubtful``) do not
    count.

    Returns:
        A row a cell with a trial that was timed, in order of appearance: the columns of ``IDENTITY``, every axis, ``n``
        (blocks that count for throughput), ``failed`` (trials that did not end well), and for every measure its mean
        under its name, with its interval and ``<name>_n`` (blocks in which it is known).
    """
    timed = trials[trials["mode"].ne("check").fillna(True).astype(bool)].reset_index(drop=True)
    cell = timed.groupby(KEYS, sort=False).ngroup()
    counted = successful(timed[~doubtful(timed)])
    given = {name: counted[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in _NUMBERS}
    with np.errstate(invalid="ignore", divide="ignore"):
        values = {measure.name: measure.compute(given) for measure in MEASURES}
        values |= {name: np.log(np.where(values[name] > 0, values[name], np.nan)) for name in _LOGS}
    finite = pd.DataFrame(values, counted.index).replace([np.inf, -np.inf], np.nan)
    groups = finite.groupby([cell[counted.index], counted["block"]]).mean().groupby(level=0)
    spread = Moments(groups.mean(), groups.std(), groups.count())
    mean, low, high, n = as_columns(RATE, spread, _back).values()
    low = low.clip(lower=0.0)
    high = high.clip(upper=pd.Series({measure.name: measure.most for measure in MEASURES}), axis=1)
    measures: pd.DataFrame = pd.concat(
        [mean, low.add_suffix("_lo"), high.add_suffix("_hi"), n.add_suffix("_n")], axis=1
    )
    names = [f"{measure.name}{end}" for measure in MEASURES for end in ("", "_lo", "_hi", "_n")]
    cells = timed.loc[~cell.duplicated(), [*IDENTITY, *AXIS_NAMES]].reset_index(drop=True)
    measures = measures[names].reindex(cells.index)
    counts = [name for name in names if name.endswith("_n")]
    measures[counts] = measures[counts].fillna(0).astype(np.int64)
    measures["failed"] = timed["outcome"].ne("ok").groupby(cell).sum().astype(np.int64)
    return pd.concat([cells, measures.assign(n=measures["samples_per_s_n"])], axis=1)
