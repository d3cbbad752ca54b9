"""Where the spread between trials of a cell comes from, and what would make its intervals narrower.

The log throughput of a cell's trials varies for three reasons. *Within*: a window is short, and another stretch of the
same trial would have given another number. *Drift*: the machine gets slower or faster as the run goes on. *Between*:
the rest, in which one start of the process, or one minute, differs from the next. What is within is estimated from the
two halves of each window: its log throughput is about the mean of theirs, and as far as the loop forgets within half a
window, the variance of that mean is a quarter of the variance of their difference, the log of ``half_ratio``. With the
usual 6 to 30 trials a cell's own split is rough, the run's is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, successful
from feedrate.analysis.estimate import blocks_for, t_half_width
from feedrate.analysis.estimates import rows_of
from feedrate.schema.words import per_cent

PARTS = ("within", "between", "drift")
ADVICE = {"within": "longer windows", "between": "more repetitions", "drift": "a quieter machine"}
"""What lessens the largest part."""
_SDS = ("total_sd", "within_sd", "between_sd", "drift_sd")
_COLUMNS = ("n", "window_s", *_SDS, "largest", "blocks", "window_factor", "advice")


def split(trials: pd.DataFrame, ci_target_pct: float = 3.0) -> pd.DataFrame:
    """Split the variance of each cell's log throughput into what is within windows, drift, and what is between trials.

    The trend is the run's, a straight line through all of its cells: one of a few trials would explain some of their
    variance by chance. For the same reason its own error is taken off. What is then left between trials is at least 0;
    as within and drift are estimates, the three need not add up to the total. A trend that all of a cell's windows
    share is not counted.

    Args:
        trials: of any number of runs.
        ci_target_pct: half-width that the interval of a contrast shall have, in per cent.

    Returns:
        A row a cell with a trial that ended well: ``n`` (blocks), ``window_s`` (median), ``total_sd``, ``within_sd``,
        ``between_sd``, ``drift_sd`` (of the log throughput of single trials; drift 0 where no time was recorded),
        ``largest`` (within, between or drift), and for a contrast of two cells like this one, in which drift cancels:
        ``blocks`` (that reach the target), ``window_factor`` (times as long windows that reach it with n blocks;
        infinite where none do) and ``advice`` in words.
    """
    ended = successful(trials)
    at = pd.to_datetime(ended["started_at"], format="ISO8601", utc=True)
    hours = (at - at.groupby(ended["run_id"]).transform("min")).dt.total_seconds() / 3600
    single = ended[[*KEYS, "block"]].assign(
        log=np.log(ended["samples_per_s"].to_numpy(dtype=np.float64)),
        hours=hours.to_numpy(dtype=np.float64, na_value=np.nan),
        half=np.log(ended["half_ratio"].to_numpy(dtype=np.float64, na_value=np.nan)) / 2,
        window_s=ended["wall_ns"].to_numpy(dtype=np.float64) / 1e9,
    )
    squares = {run: _squared_slope(run_trials) for run, run_trials in single.dropna(subset=["hours"]).groupby("run_id")}
    groups = single.groupby(KEYS, sort=False)
    total, within, moved = groups["log"].var(), groups["half"].var(), groups["hours"].var().fillna(0.0)
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
    return _with_advice(parts.reset_index(), ci_target_pct)[[*KEYS, *_COLUMNS]]


def _squared_slope(trials: pd.DataFrame) -> float:
    """Square of a run's trend of log throughput per hour less that of its error; each cell has its own level."""
    centred = trials[["log", "hours"]] - trials.groupby(KEYS, sort=False)[["log", "hours"]].transform("mean")
    log, hours = centred["log"].to_numpy(), centred["hours"].to_numpy()
    df = len(trials) - trials.groupby(KEYS).ngroups - 1
    squares = float((hours**2).sum())
    if df < 1 or squares == 0:
        return 0.0
    slope = float((log * hours).sum()) / squares
    error = float(np.sqrt(((log - slope * hours) ** 2).sum() / df / squares))
    return max(0.0, slope**2 - error**2)


def _with_advice(parts: pd.DataFrame, ci_target_pct: float) -> pd.DataFrame:
    """Add what would make the interval of a contrast of two such cells as narrow as the target."""
    target = np.log1p(ci_target_pct / 100)
    variances = np.column_stack([parts[f"{name}_sd"].to_numpy(dtype=np.float64) ** 2 for name in PARTS])
    within, between, _ = variances.T
    n = parts["n"].to_numpy(dtype=np.float64)
    blocks = blocks_for(target, np.sqrt(2 * (within + between)))
    with np.errstate(divide="ignore", invalid="ignore"):
        left = n / 2 * (target / t_half_width(1.0, n - 1)) ** 2 - between
        factor = np.where(left > 0, within / left, np.where(np.isnan(left), np.nan, np.inf))
    finite = np.isfinite(variances).all(axis=1)
    largest = pd.Series(np.array(PARTS)[np.nan_to_num(variances).argmax(axis=1)], parts.index, dtype=object)
    advised = parts.assign(largest=largest.where(finite, None), blocks=blocks, window_factor=factor)
    advice = [_advice(row) for row in rows_of(advised)]
    return advised.assign(advice=pd.Series(advice, parts.index, dtype=object))


def _advice(row: dict[str, Any]) -> str | None:
    """What to do about a cell's spread, and how much of it; None where too little is known."""
    if row["largest"] is None:
        return None
    if row["blocks"] <= row["n"]:
        return f"no more than these {row['n']:.0f} repetitions"
    if row["largest"] == "drift":
        return f"{ADVICE['drift']}: the trend alone spreads measurements by {per_cent(100 * row['drift_sd'], 1)}"
    blocks = f"{row['blocks']:.0f} instead of {row['n']:.0f}"
    if row["largest"] == "between":
        return f"{ADVICE['between']}: {blocks}"
    if np.isinf(row["window_factor"]):
        return f"{ADVICE['within']} and {ADVICE['between']}: {blocks} at the present windows"
    now = row["window_s"]
    return f"{ADVICE['within']}: {now * row['window_factor']:.1f} s instead of {now:.1f} s, or {blocks} repetitions"


def average_cell(parts: pd.DataFrame, ci_target_pct: float = 3.0) -> pd.DataFrame:
    """Average the cells of each run (rows of :func:`split`): variances count by their degrees of freedom.

    Returns:
        A row a run: ``run_id``, ``cells``, and the columns of ``split`` after ``cell_id``.
    """
    split_cells = parts[parts["total_sd"].notna() & parts["within_sd"].notna() & (parts["n"] > 1)]
    rows = []
    for run, cells in split_cells.groupby("run_id", sort=False):
        squares = cells[["total_sd", "within_sd", "drift_sd"]].to_numpy(dtype=np.float64) ** 2
        total, within, drift = np.average(squares, axis=0, weights=cells["n"] - 1)
        variances = (total, within, max(0.0, total - within - drift), drift)
        row = {"run_id": run, "cells": len(cells), "n": cells["n"].median(), "window_s": cells["window_s"].median()}
        rows.append({**row, **dict(zip(_SDS, np.sqrt(variances), strict=True))})
    columns = ["run_id", "cells", *_COLUMNS]
    return _with_advice(pd.DataFrame(rows), ci_target_pct)[columns] if rows else pd.DataFrame(columns=columns)
