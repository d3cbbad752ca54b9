"""Trials of any number of runs → every measure of every cell with its interval: what the page Explore offers.

Each trial gives one value of a measure. Trials of one block are averaged, then blocks: rates, durations, energy and
memory as geometric means, the phases of a sample and percentages as arithmetic ones, because parts must add up to their
whole and may be 0. All intervals are Student's t over blocks. One pass over all runs at once, without a Python loop
over rows, runs or cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import KEYS, Floats, half_width, successful
from feedrate.analysis.estimates import AXIS_NAMES, IDENTITY
from feedrate.analysis.storage import credible
from feedrate.schema.columns import PHASES

_Columns = Mapping[str, Floats]
"""Column of trials to its values, NaN where it is null."""
_Ints = npt.NDArray[np.intp]
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
_NUMBERS = sorted({name for measure in MEASURES for name in measure.columns})
_JUDGING = ("outcome", "samples_per_s", "storage_format", "page_cache", "cached_before_pct")
"""What decides whether a trial counts."""
_INPUTS = tuple(dict.fromkeys((*_JUDGING, *(name for measure in MEASURES for name in measure.columns))))
COLUMNS = tuple(dict.fromkeys((*IDENTITY, "block", *AXIS_NAMES, *_INPUTS)))
"""The columns of ``records.TRIALS`` that are read."""


def estimate_measures(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate every measure of every cell, from the columns ``COLUMNS`` of trials.

    Checks, which time nothing, and trials whose page cache was not as their cell says (``storage.credible``) do not
    count.

    Returns:
        A row a cell with a trial that was timed, in order of appearance: the columns of ``IDENTITY``, every axis, ``n``
        (blocks that count for throughput), ``failed`` (trials that did not end well), and for every measure its mean
        under its name, with its interval and ``<name>_n`` (blocks in which it is known).
    """
    timed = trials[trials["mode"].ne("check").fillna(True).astype(bool)]
    cell, cells = _numbered([timed[name] for name in KEYS])
    first = np.zeros(cells, dtype=np.intp)
    first[cell[::-1]] = np.arange(len(timed))[::-1]
    result = timed[[*IDENTITY, *AXIS_NAMES]].iloc[first].reset_index(drop=True)
    inputs = timed[list(_INPUTS)].reset_index(drop=True)
    failed = np.bincount(cell[inputs["outcome"].ne("ok").to_numpy(dtype=bool)], minlength=cells)
    doubtful = inputs["storage_format"].notna() & ~inputs.index.isin(credible(inputs).index)
    counted = successful(inputs[~doubtful])
    rows = counted.index.to_numpy()
    block, blocks = _numbered([pd.Series(cell[rows]), timed["block"].iloc[rows]])
    cell_of = np.zeros(blocks, dtype=np.intp)
    cell_of[block] = cell[rows]
    given = {name: counted[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in _NUMBERS}
    columns: dict[str, npt.NDArray[np.float64] | npt.NDArray[np.int64]] = {}
    for measure in MEASURES:
        columns |= _estimate(measure, given, block, cell_of, cells)
    found = pd.DataFrame(columns).assign(failed=failed.astype(np.int64))
    return pd.concat([result, found.assign(n=found["samples_per_s_n"])], axis=1)


def _numbered(keys: Sequence[pd.Series]) -> tuple[_Ints, int]:
    """Number the combinations of some columns in order of appearance: each row's number, and how many there are."""
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    count = 0
    for key in keys:
        part, names = pd.factorize(key)
        codes, uniques = pd.factorize(codes * len(names) + part)
        count = len(uniques)
    return codes.astype(np.intp), count


def _estimate(
    measure: Measure, given: _Columns, block: _Ints, cell_of: _Ints, cells: int
) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.int64]]:
    """One measure of all cells: trials are averaged by block, blocks by cell."""
    with np.errstate(invalid="ignore", divide="ignore"):
        values = measure.compute(given)
        values = np.log(np.where(values > 0, values, np.nan)) if measure.logs else values
    means, _, tried = _moments(values, block, len(cell_of))
    mean, sd, n = _moments(np.where(tried > 0, means, np.nan), cell_of, cells)
    half = half_width(sd, n)
    low, high = mean - half, mean + half
    if measure.logs:
        mean, low, high = np.exp(mean), np.exp(low), np.exp(high)
    else:
        low, high = np.clip(low, 0.0, None), np.clip(high, None, measure.most)
    name = measure.name
    return {name: mean, f"{name}_lo": low, f"{name}_hi": high, f"{name}_n": n}


def _moments(values: Floats, group: _Ints, count: int) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Mean, standard deviation (n - 1) and number of the finite values of each group; NaN where there are too few."""
    known = np.isfinite(values)
    values, group = values[known], group[known]
    n = np.bincount(group, minlength=count).astype(np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(group, weights=values, minlength=count) / n
        squares = np.bincount(group, weights=(values - mean[group]) ** 2, minlength=count)
        return mean, np.sqrt(np.where(n > 1, squares / (n - 1), np.nan)), n
