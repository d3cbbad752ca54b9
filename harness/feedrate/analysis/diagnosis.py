"""Does a run's noise allow its intervals? Blocks that depend on one another, two modes, heavy tails.

An interval over blocks holds if blocks are nearly independent and nearly normal in logs. What breaks that is looked for
over all cells of a run together, as a cell alone has too few blocks, in what is left of a trial's log throughput
without the means of its cell and of its block: what all cells of a block share cancels in ratios.

- *Autocorrelation*: a trial resembles that of the block before. The lag-1 autocorrelation of each cell is corrected
  for the bias of short series, -(1 + 3 r) / n (M. G. Kendall, Biometrika 41, 1954), and averaged over cells. A run is
  withheld where it is over ``MOST_LAG1``, at which intervals are a seventh too narrow, and the lower end of its
  one-sided 99 % interval over 0.
- *Two modes or a heavy tail*: trials that lie more than ``FAR`` median absolute deviations from their cell's median. In
  normal noise 1.2 % of trials do with 6 blocks, 0.3 % with 12; a run is withheld where more than ``MOST_FAR`` do, as
  then the mean of a dozen blocks is far from normal.

It cannot see what happens too seldom to have happened: a mode that no block was in is missed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, Blocks, Floats, memoized, successful

MOST_LAG1 = 0.15
MOST_FAR = 0.05
FAR = 5.0
"""Median absolute deviations, each scaled to the standard deviation of normal noise."""
LEAST_BLOCKS = 6
"""A cell with fewer says nothing."""
_ONE_SIDED = 2.326
"""Quantile of the normal distribution for 99 %."""
_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a run's noise is like; NaN where no cell has enough blocks."""

    lag1: float = math.nan
    """Autocorrelation of a cell's trials from block to block."""
    lag1_lo: float = math.nan
    """Lower end of its one-sided 99 % interval."""
    far_share: float = math.nan
    """Share of trials far from their cell's median."""

    @property
    def reason(self) -> str:
        """Why the run's intervals do not hold, as part of a sentence; empty where nothing speaks against them."""
        if self.lag1 > MOST_LAG1 and self.lag1_lo > 0:
            return f"its blocks depend on one another: a trial resembles that of the block before (lag-1 {self.lag1:.2f})"
        if self.far_share > MOST_FAR:
            return f"its trials have two modes or a heavy tail: {self.far_share:.0%} lie far from their cell’s median"
        return ""


@memoized
def diagnose(trials: pd.DataFrame) -> Diagnosis:
    """Look at the trials of one run."""
    ended = successful(trials)
    cells = list(ended[KEYS].drop_duplicates().itertuples(index=False, name=None))
    return diagnose_logs(Blocks(ended).logs(*map(list, zip(*cells, strict=True)))) if cells else Diagnosis()


def diagnose_logs(logs: Floats) -> Diagnosis:
    """Look at log throughputs, cells × blocks; NaN where no trial ended well."""
    logs = _residuals(logs)
    counts = np.isfinite(logs).sum(axis=1)
    logs, n = logs[counts >= LEAST_BLOCKS], counts[counts >= LEAST_BLOCKS]
    series = [row[np.isfinite(row)] for row in logs]
    square = np.array([(row**2).sum() for row in series])
    if not square.any():
        return Diagnosis()
    medians = np.nanmedian(logs, axis=1, keepdims=True)
    scale = _MAD * np.nanmedian(np.abs(logs - medians), axis=1, keepdims=True)
    far = float((np.abs(logs - medians) > FAR * scale).sum() / n.sum())
    lagged = np.array([(row[1:] * row[:-1]).sum() for row in series])
    moved = square > 0
    shrinks = 1 - 3 / n[moved]
    found = (lagged[moved] / square[moved] + 1 / n[moved]) / shrinks
    weights = shrinks**2 * (n[moved] - 1)
    lag1 = float(np.average(found, weights=weights))
    return Diagnosis(lag1, lag1 - _ONE_SIDED / math.sqrt(weights.sum()), far)


def _residuals(logs: Floats) -> Floats:
    """Take the means of cells and blocks off, which may have gaps: three rounds leave nothing that matters."""
    for axis in (1, 0) * 3:
        known = np.isfinite(logs)
        total, count = np.where(known, logs, 0).sum(axis, keepdims=True), known.sum(axis, keepdims=True)
        logs = logs - total / np.maximum(count, 1)
    return logs
