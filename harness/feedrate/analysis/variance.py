"""Where the spread between trials comes from, and what would lessen it.

The log throughput of a cell's trials varies for three reasons. *Within*: a window is short, and another stretch of the
same trial would have given another number; longer windows lessen it. *Drift*: the machine gets slower or faster as the
run goes on; only a quieter machine lessens it. *Between*: the rest, in which one start of the process, or one minute,
differs from the next; more blocks average it out. What is within is estimated from the two halves of each window, or
from the single steps of it (batch means: G. S. Fishman, Management Science 24(5), 1978).

Each part is itself an estimate: with the usual 6 to 30 trials a cell's own split is rough, the run's is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import KEYS, Floats, blocks_for, successful, t_half_width
from feedrate.analysis.estimates import rows_of
from feedrate.schema.columns import PHASES, STEPS

PARTS = ("within", "between", "drift")
ADVICE = {"within": "longer windows", "between": "more blocks", "drift": "a quieter machine"}
"""What lessens the largest part."""
CORRELATED = 0.1
"""Batches of steps are long enough when neighbours correlate by less than this."""
FEWEST_BATCHES = 6
"""Of a window; with fewer, their spread is hardly known."""
COLUMNS = (
    "n",
    "window_s",
    "total_sd",
    "within_sd",
    "between_sd",
    "drift_sd",
    "largest",
    "blocks",
    "window_factor",
    "advice",
)
DRIFT_COLUMNS = ("run_id", "source", "pct_per_h", "lo", "hi", "n", "hours")
_DEVICE = [column.name for column in STEPS if column.name.startswith("device_")]


def _logs(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials that ended well: ``KEYS``, ``log``, ``hours`` since the run began, ``half`` (log of half_ratio ÷ 2)."""
    ended = successful(trials)
    at = pd.to_datetime(ended["started_at"], format="ISO8601", utc=True)
    hours = (at - at.groupby(ended["run_id"]).transform("min")).dt.total_seconds() / 3600
    return ended[[*KEYS, "block"]].assign(
        log=np.log(ended["samples_per_s"].to_numpy(dtype=np.float64)),
        hours=hours.to_numpy(dtype=np.float64, na_value=np.nan),
        half=np.log(ended["half_ratio"].to_numpy(dtype=np.float64, na_value=np.nan)) / 2,
        window_s=ended["wall_ns"].to_numpy(dtype=np.float64) / 1e9,
        control=(ended["role"] == "control").to_numpy(dtype=bool, na_value=False),
    )


def within_by_halves(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate each cell's spread within windows from their two halves.

    A window's log throughput is about the mean of its halves'. They are independent as far as the loop forgets within
    half a window; then the variance of that mean is a quarter of the variance of their difference, the log of
    ``half_ratio``. A trend that all of a cell's windows share is not counted.
    """
    halves = _logs(trials).groupby(KEYS, sort=False)["half"]
    return pd.DataFrame({"n": halves.count(), "within_sd": halves.std()}).reset_index()


def _bursts(durations: npt.NDArray[np.float64], workers: int) -> Floats:
    """Durations of whole rounds of the workers: single steps alternate between waiting and none."""
    whole = len(durations) // workers * workers
    return np.asarray(durations[:whole].reshape(-1, workers).sum(axis=1))


def _batches(bursts: Floats, size: int) -> Floats:
    whole = len(bursts) // size * size
    return np.asarray(bursts[:whole].reshape(-1, size).mean(axis=1))


def _correlation(windows: list[Floats]) -> float:
    """Lag-1 correlation of batches, over all windows of a cell; what few batches bias downwards is added back."""
    centred = [batches - batches.mean() for batches in windows]
    total = sum(float((each**2).sum()) for each in centred)
    lagged = sum(float((each[:-1] * each[1:]).sum()) for each in centred)
    fewest = min(len(each) for each in centred)
    return lagged / total + 1 / fewest if total else 0.0


def _of_cell(windows: list[Floats]) -> tuple[int, list[Floats]]:
    """The shortest batches, in bursts, of which neighbours do not correlate; the longest if all do."""
    size, batches = 1, windows
    while _correlation(batches) > CORRELATED:
        longer = [_batches(window, 2 * size) for window in windows]
        if min(map(len, longer)) < FEWEST_BATCHES:
            break
        size, batches = 2 * size, longer
    return size, batches


def within_by_steps(trials: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Estimate each cell's spread within windows from the steps of each: the slower check on ``within_by_halves``.

    Steps are summed over rounds of the workers, rounds averaged in batches so long that neighbours do not correlate;
    the variance of a window's mean is that of a batch × (steps in a batch ÷ steps in the window), all steps counted,
    though only the first ``STEPS_KEPT`` are stored. On CUDA the device's spans
    count, as the host runs ahead.
    """
    host = steps[[f"{phase}_ns" for phase in PHASES]].astype("float64").sum(axis=1)
    device = steps[_DEVICE].astype("float64").sum(axis=1, min_count=1)
    durations = device.fillna(host).to_numpy()
    places = steps.groupby(["run_id", "trial_id"], sort=False).indices
    cells: dict[tuple[Any, ...], list[tuple[Floats, int, int]]] = {}
    ended = successful(trials)
    of_each = ended["num_workers"].fillna(0).astype("int64").clip(lower=1)
    columns = (ended["run_id"], ended["trial_id"], ended["cell_id"], ended["steps"], of_each)
    for run, trial, cell, in_window, workers in zip(*columns, strict=True):
        bursts = _bursts(durations[places.get((run, trial), [])], workers)
        if len(bursts) >= FEWEST_BATCHES:
            cells.setdefault((run, cell), []).append((bursts, in_window, workers))
    rows = []
    for (run, cell), windows in cells.items():
        size, batches = _of_cell([bursts for bursts, _, _ in windows])
        variances = [
            float(np.var(each, ddof=1) / each.mean() ** 2) * size * workers / in_window
            for each, (_, in_window, workers) in zip(batches, windows, strict=True)
        ]
        rows.append((run, cell, len(windows), np.sqrt(np.mean(variances)), size * windows[0][2]))
    return pd.DataFrame(rows, columns=[*KEYS, "n", "within_sd", "batch_steps"])


def _slope(part: pd.DataFrame) -> tuple[float, float, int]:
    """Trend of log throughput per hour common to cells that each have their own level: slope, its error, its df."""
    centred = part[["log", "hours"]] - part.groupby(KEYS, sort=False)[["log", "hours"]].transform("mean")
    log, hours = centred["log"].to_numpy(), centred["hours"].to_numpy()
    df = len(part) - part.groupby(KEYS).ngroups - 1
    squares = float((hours**2).sum())
    if df < 1 or squares == 0:
        return np.nan, np.nan, max(df, 0)
    slope = float((log * hours).sum()) / squares
    return slope, float(np.sqrt(((log - slope * hours) ** 2).sum() / df / squares)), df


def drift(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate how the machine's speed changed while a run went on: a straight line through log throughput."""
    rows = []
    for run, every in _logs(trials).dropna(subset=["hours"]).groupby("run_id", sort=False):
        of_control = every[every["cell_id"].isin(every["cell_id"][every["control"]])]
        for source, part in (("control", of_control), ("cells", every)):
            if len(part):
                slope, error, df = _slope(part)
                half = float(t_half_width(error, df))
                with np.errstate(over="ignore"):
                    ends = 100 * np.expm1([slope, slope - half, slope + half])
                rows.append((run, source, *ends.tolist(), len(part), float(np.ptp(part["hours"]))))
    return pd.DataFrame(rows, columns=list(DRIFT_COLUMNS))


def _advised(parts: pd.DataFrame, ci_target_pct: float) -> pd.DataFrame:
    """Add what would make the interval of a contrast of two such cells as narrow as the target."""
    target = np.log1p(ci_target_pct / 100)
    variances = np.column_stack([parts[f"{part}_sd"].to_numpy(dtype=np.float64) ** 2 for part in PARTS])
    within, between, _ = variances.T
    n = parts["n"].to_numpy(dtype=np.float64)
    blocks = blocks_for(target, np.sqrt(2 * (within + between)))
    with np.errstate(divide="ignore", invalid="ignore"):
        left = n / 2 * (target / t_half_width(1.0, n - 1)) ** 2 - between
        factor = np.where(left > 0, within / left, np.where(np.isnan(left), np.nan, np.inf))
    known = np.isfinite(variances).all(axis=1)
    largest = pd.Series(np.array(PARTS)[np.nan_to_num(variances).argmax(axis=1)], parts.index, dtype=object)
    found = parts.assign(largest=largest.where(known, None), blocks=blocks, window_factor=factor)
    words = [_words(row, ci_target_pct) for row in rows_of(found)]
    return found.assign(advice=pd.Series(words, parts.index, dtype=object))


def _words(row: dict[Any, Any], ci_target_pct: float) -> str | None:
    """What to do about a cell's spread, and how much of it; None where too little is known."""
    if row["largest"] is None:
        return None
    if row["blocks"] <= row["n"]:
        return f"enough: {row['n']:.0f} blocks reach ±{ci_target_pct:g} %"
    if row["largest"] == "drift":
        return f"{ADVICE['drift']}: the trend alone spreads trials by {100 * row['drift_sd']:.1f} %"
    blocks = f"{row['blocks']:.0f} instead of {row['n']:.0f}"
    if row["largest"] == "between":
        return f"{ADVICE['between']}: {blocks}"
    if np.isinf(row["window_factor"]):
        return f"{ADVICE['within']} and {ADVICE['between']}: {blocks} at the present windows"
    now = row["window_s"]
    return f"{ADVICE['within']}: {now * row['window_factor']:.1f} s instead of {now:.1f} s, or {blocks} blocks"


def split(trials: pd.DataFrame, ci_target_pct: float = 3.0) -> pd.DataFrame:
    """Split the variance of each cell's log throughput into what is within windows, drift, and what is between trials.

    The trend is the run's (see ``drift``, source ``cells``): a straight line of a few trials would explain some of
    their variance by chance. For the same reason its own error is taken off. What is then left between trials is at
    least 0; as within and drift are estimates, the three need not add up to the total.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs.
        ci_target_pct: half-width that the interval of a contrast shall have, in per cent.

    Returns:
        A row a cell with a trial that ended well: ``run_id``, ``cell_id``, ``n`` (blocks), ``window_s`` (median),
        ``total_sd``, ``within_sd``, ``between_sd``, ``drift_sd`` (standard deviations of the log throughput of single
        trials; NaN where n < 2, drift 0 where no time was recorded), ``largest`` (within, between or drift), and for a
        contrast of two cells like this one, in which drift cancels: ``blocks`` (that reach the target),
        ``window_factor`` (times as long windows that reach it with n blocks; infinite where none do) and ``advice`` in
        words.
    """
    single = _logs(trials)
    trends = {run: _slope(part) for run, part in single.dropna(subset=["hours"]).groupby("run_id")}
    squares = {run: max(0.0, np.nan_to_num(slope**2 - error**2)) for run, (slope, error, _) in trends.items()}
    groups = single.groupby(KEYS, sort=False)
    total, moved = groups["log"].var(), groups["hours"].var().fillna(0.0)
    within = groups["half"].var()
    of_trend = moved * [squares.get(run, 0.0) for run in moved.index.get_level_values("run_id")]
    parts = pd.DataFrame(
        {
            "n": groups["block"].nunique(),
            "window_s": groups["window_s"].median(),
            "total_sd": np.sqrt(total),
            "within_sd": np.sqrt(within),
            "between_sd": np.sqrt((total - within - of_trend).clip(lower=0)),
            "drift_sd": of_trend.where(total.notna()) ** 0.5,
        }
    )
    return _advised(parts.reset_index(), ci_target_pct)[[*KEYS, *COLUMNS]]


def overall(parts: pd.DataFrame, ci_target_pct: float = 3.0) -> pd.DataFrame:
    """Sum up the cells of each run: variances are averaged, each counting by its degrees of freedom.

    Args:
        parts: rows of ``split``.
        ci_target_pct: as for ``split``.

    Returns:
        A row a run: ``run_id``, ``cells``, and the columns of ``split`` after ``cell_id``, of its average cell.
    """
    known = parts[parts["total_sd"].notna() & parts["within_sd"].notna() & (parts["n"] > 1)]
    rows = []
    for run, part in known.groupby("run_id", sort=False):
        squares = part[["total_sd", "within_sd", "drift_sd"]].to_numpy(dtype=np.float64) ** 2
        total, within, trend = np.average(squares, axis=0, weights=part["n"] - 1)
        between = max(0.0, total - within - trend)
        sds = dict(
            zip(
                ("total_sd", "within_sd", "drift_sd", "between_sd"),
                np.sqrt([total, within, trend, between]),
                strict=True,
            )
        )
        rows.append(
            {"run_id": run, "cells": len(part), "n": part["n"].median(), "window_s": part["window_s"].median(), **sds}
        )
    columns = ["run_id", "cells", *COLUMNS]
    return _advised(pd.DataFrame(rows), ci_target_pct)[columns] if rows else pd.DataFrame(columns=columns)


def spreads(parts: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Boil the split of one run down to the numbers that a plan needs."""
    known = parts[parts["within_sd"].notna() & parts["between_sd"].notna()]
    columns = (known["cell_id"], known["within_sd"], known["between_sd"])
    return {cell: {"within": float(w), "between": float(b)} for cell, w, b in zip(*columns, strict=True)}
