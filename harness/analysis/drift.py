"""The control cell over a run: does the machine stay the same, and does a cell that is compared with itself differ?

The control cell runs again and again. Its throughput against time shows a machine that grows slower or faster while it
is measured; blocks take that out of ratios, not out of single throughputs. Its trials within a block, compared as if
they were two cells, show what the comparison itself finds where there is nothing to be found (an A/A test): its
interval must hold 1 in 95 of 100 runs.

This does *not* show what disturbs cells unlike the control cell: one that waits for a sleep feels nothing of a slow
disk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.analysis.blocks import Floats, half_width, moments, reach

FEWEST_FOR_SLOPE = 3
"""Trials from which a slope has an interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; NaN where too few were seen."""

    value: float
    lo: float
    hi: float
    n: int
    """Blocks, or trials where it is a slope."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How the logarithm of throughput grows over time: least squares over trials, Student-t interval."""

    slope: float
    """A second."""
    lo: float
    hi: float
    n: int
    """Trials."""
    seconds: float
    """From the first trial to the last."""

    def over(self, seconds: float) -> Estimate:
        """Say by how many times throughput changes over a time, in seconds; what is infinite is too far off to say."""
        with np.errstate(over="ignore"):  # few trials, close together, may mean anything over a long time
            value, lo, hi = (float(np.exp(seconds * slope)) for slope in (self.slope, self.lo, self.hi))
        return Estimate(value, lo, hi, self.n)


def control(ended: pd.DataFrame, cell_id: str | None = None) -> pd.DataFrame:
    """Keep the trials of the control cell, in their order.

    Args:
        ended: trials of one run that ended well.
        cell_id: of the control cell (``RunManifest.control``); by default the cell of the trials that ran as one.
    """
    if cell_id is None:
        named = ended.loc[ended["role"].eq("control").fillna(False).astype(bool), "cell_id"]
        cell_id = None if named.empty else str(named.iloc[0])
    return ended[ended["cell_id"].eq(cell_id).fillna(False).astype(bool)] if cell_id else ended.iloc[:0]


def seconds(trials: pd.DataFrame) -> pd.Series:
    """When trials began, in seconds since the first of them; NaN where that is not recorded."""
    began = pd.to_datetime(trials["started_at"].astype(object), utc=True, format="ISO8601")
    return (began - began.min()).dt.total_seconds()


def trend(at: Floats, rates: Floats) -> Trend | None:
    """Fit the logarithm of throughput over time.

    Args:
        at: when each trial began, seconds; NaN is left out.
        rates: its throughput, samples/s, as many.

    Returns:
        The slope; None with fewer than three trials, or all of them at once.
    """
    known = np.isfinite(at)
    at, logs = at[known], np.log(rates[known])
    if len(at) < FEWEST_FOR_SLOPE or np.ptp(at) <= 0:
        return None
    centred = at - at.mean()
    slope = (centred @ logs) / (centred @ centred)
    residuals = logs - logs.mean() - slope * centred
    half = reach(np.sqrt(residuals @ residuals / (len(at) - 2) / (centred @ centred)), len(at) - 2)
    return Trend(float(slope), float(slope - half), float(slope + half), len(at), float(np.ptp(at)))


def level(own: pd.DataFrame) -> Estimate:
    """Estimate the throughput of one cell: geometric mean over blocks, Student-t interval on logs, samples/s."""
    logs = pd.Series(np.log(own["samples_per_s"].astype("float64")), own.index).groupby(own["block"]).mean()
    return _exponential(np.asarray(logs, dtype=np.float64))


def _exponential(logs: Floats) -> Estimate:
    mean, sd, n = (each[0] for each in moments(logs[None, :]))
    half = half_width(sd, n)
    value, lo, hi = (float(np.exp(end)) for end in (mean, mean - half, mean + half))
    return Estimate(value, lo, hi, int(n))


def against_itself(own: pd.DataFrame) -> pd.DataFrame:
    """Compare trials of one cell within each block as if every second were of another cell.

    Two trials that follow each other make a pair. Which of them plays B changes from pair to pair over the whole run,
    so that a machine that grows slower favours neither; a block's last trial that is left over belongs to none.

    Args:
        own: trials of one cell of one run that ended well.

    Returns:
        A row a block with at least one pair: ``block``, ``ratio`` (B ÷ A, geometric mean of its pairs) and ``pairs``.
    """
    ordered = own.sort_values(["block", "position"], kind="stable")
    place = ordered.groupby("block").cumcount()
    paired = ordered[(place - place % 2 + 1) < ordered.groupby("block")["block"].transform("size")]
    logs = np.log(paired["samples_per_s"].to_numpy(dtype=np.float64))
    first, second = logs[0::2], logs[1::2]
    sign = np.where(np.arange(len(first)) % 2 == 0, 1.0, -1.0)
    pairs = pd.DataFrame({"block": paired["block"].to_numpy()[0::2], "log": sign * (second - first)})
    groups = pairs.groupby("block")["log"]
    return pd.DataFrame({"ratio": np.exp(groups.mean()), "pairs": groups.size()}).reset_index()


def same(compared: pd.DataFrame) -> Estimate:
    """Sum up what :func:`against_itself` found: B ÷ A over all blocks, with its 95 % interval; 1 is the truth."""
    return _exponential(np.log(compared["ratio"].to_numpy(dtype=np.float64)))
