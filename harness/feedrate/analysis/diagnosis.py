"""Does a run's noise allow its intervals? Blocks that depend on one another, two modes, heavy tails.

An interval over blocks holds if blocks are nearly independent and nearly normal in logs. What breaks that is looked for
over all cells of a run together, as a cell alone has too few blocks, in what is left of a trial's log throughput
without the medians of its cell and of its block: what all cells of a block share cancels in ratios.

- *Dependence*: a trial resembles that of the block before. The lag-1 autocorrelation of each cell is corrected for the
  bias of short series, -(1 + 3 r) / n (M. G. Kendall, Biometrika 41, 1954), and averaged over cells. A run is withheld
  where it is over ``MOST_LAG1``, at which intervals are a seventh too narrow, and its 99 % interval leaves out 0.
- *Tails*: trials that lie more than ``FAR`` median absolute deviations from their cell's median, a slow mode or a heavy
  tail. In normal noise 3 % of trials do with 6 blocks, 0.4 % with 30; a run is withheld where more than ``MOST_FAR`` do
  beyond that, and the 99 % interval of the difference leaves out 0. The limit lies between noise with a heavy tail,
  under which verdicts hold (2 to 3 % beyond), and two modes in all cells, with a fifth of the trials in the slow one (5
  to 8 %): there intervals of contrasts cover 88 %.
- *Shift*: few trials may be far slower than the others, and matter more than many that are a little slower. A cell that
  had none of them has a narrow interval around a mean that is wrong by what they would have moved it. A run is withheld
  where its far trials move the mean of all trials by more than ``MOST_SHIFT``, and the 95 % interval of that leaves out
  0. This cannot tell whether both sides of a claim have as many: then its verdict would have held.

Simulated with 5 to 130 cells and 6 to 30 blocks, normal noise is diagnosed in less than 1 % of runs. With 60 cells, an
autocorrelation of 0.5 is found in all runs of 6 blocks or more (and told as 0.4 with 6), two modes in 79 % of runs of 6
blocks and 99 % of 12. Where only half of the cells are so, the autocorrelation is found in 51 % of runs of 6 blocks and
95 % of 12, two modes in 14 % and 19 %.

All cells are looked at together, so that noise that only a few have is lost among the others. An effect is therefore
asked by itself, too (``diagnose_effect``), but for dependence only, and few blocks tell little: with two cells, both
dependent, 0.8 is found in 4 % of effects after 7 blocks, 32 % after 12 and 93 % after 30 (0.5: 2, 10 and 50 %); where
only B is, in 1, 4 and 23 %. An effect's own slow trials are no reason to withhold it: they widen its interval, which
then holds the truth. What fails is the interval of a claim that has seen none, and nothing in its cells tells of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import KEYS, Blocks, memoized, successful
from feedrate.analysis.estimate import Floats, moments

MOST_LAG1 = 0.15
MOST_FAR = 0.04
"""Share of trials beyond that of normal noise."""
MOST_SHIFT = 0.015
"""Of the mean log throughput: half the margin of no difference, as ratios are off by twice that if one side has it."""
FAR = 3.5
"""Median absolute deviations, each scaled to the standard deviation of normal noise."""
LEAST_BLOCKS = 6
"""A cell with fewer says nothing."""
LEAST_CELLS = 5
"""Fewer together say nothing."""
_CERTAIN = 2.576
"""Half-width of a 99 % interval in standard errors."""
_LIKELY = 1.96
"""That of a 95 % interval: far trials that move a mean so much are few, even where they do harm."""
_MAD = 1.4826
_NO_SPREAD = 1e-6


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a run's noise is like; NaN where too few cells have enough blocks."""

    lag1: float = math.nan
    """Autocorrelation of a cell's trials from block to block."""
    lag1_lo: float = math.nan
    """Lower end of its 99 % interval."""
    far_share: float = math.nan
    """Share of trials far from their cell's median."""
    far_normal: float = math.nan
    """Share that normal noise would have."""
    far_error: float = math.nan
    """Standard error of their difference."""
    far_shift: float = math.nan
    """By how much far trials move the mean log throughput of all trials."""
    far_shift_error: float = math.nan
    """Its standard error."""

    @property
    def dependence(self) -> float:
        """The autocorrelation where it is certain to be there, else 0."""
        return 0.0 if self.lag1_lo <= 0 else self.lag1

    @property
    def tails(self) -> float:
        """By how much the share of far trials is over that of normal noise where that is certain, else 0."""
        more = self.far_share - self.far_normal
        return 0.0 if more <= _CERTAIN * self.far_error else more

    @property
    def shift(self) -> float:
        """By how much far trials move the mean, as a size, where that is certain, else 0."""
        size = abs(self.far_shift)
        return 0.0 if size <= _LIKELY * self.far_shift_error else size

    @property
    def reason(self) -> str:
        """Why the run's intervals do not hold, as part of a sentence; empty where nothing speaks against them."""
        if self.dependence > MOST_LAG1:
            return (
                f"its repetitions depend on one another: a measurement resembles that of the repetition before (lag-1 "
                f"{self.lag1:.2f})"
            )
        if self.tails > MOST_FAR:
            far = f"{self.far_share:.0%} lie far from the others of their setting"
            return f"its measurements have two modes or a heavy tail: {far}"
        if self.shift > MOST_SHIFT:
            return (
                f"a few of its measurements lie far from the others of their setting, and move means by "
                f"{self.shift:.1%}"
            )
        return ""


@memoized
def diagnose(trials: pd.DataFrame) -> Diagnosis:
    """Look at the trials of one run."""
    ended = successful(trials)
    cells = list(ended[KEYS].drop_duplicates().itertuples(index=False, name=None))
    return diagnose_logs(Blocks(ended).logs(*map(list, zip(*cells, strict=True)))) if cells else Diagnosis()


def diagnose_logs(logs: Floats) -> Diagnosis:
    """Look at log throughputs, cells × blocks; NaN where no trial ended well."""
    enough = logs[np.isfinite(logs).sum(axis=1) >= LEAST_BLOCKS]
    if len(enough) < LEAST_CELLS:
        return Diagnosis()
    left = _left(enough)
    return Diagnosis(*_lag1(left), *_far(left)) if len(left) else Diagnosis(*[0.0] * 7)


def diagnose_effect(logs: Floats) -> Diagnosis:
    """Look at the cells of one effect in one run: do its blocks depend on one another?

    What all of them share in a block cancels in the effect, and is taken off. Simulated with 2 to 12 cells and 6 to 30
    blocks, normal noise is found to depend in less than 1 % of effects.

    Args:
        logs: logs of the effect's metric, cells × blocks; blocks in which a cell is missing (NaN) are left out.

    Returns:
        The autocorrelation alone; NaN with fewer than two cells that vary, or ``LEAST_BLOCKS`` whole blocks.
    """
    whole = np.isfinite(logs).all(axis=0)
    left = _left(np.where(whole, logs, np.nan))
    return Diagnosis(*_lag1(left)) if whole.sum() >= LEAST_BLOCKS and len(left) > 1 else Diagnosis()


def _left(logs: Floats) -> Floats:
    """What is left of logs without the medians of their cell and their block, of the cells that vary."""
    logs = logs - _medians(logs)
    left = logs - _medians(logs.T).T
    varied: Floats = left[moments(left).sd > _NO_SPREAD]
    return varied


def _lag1(left: Floats) -> tuple[float, float]:
    """Autocorrelation of neighbouring blocks and the lower end of its interval, averaged over cells.

    The variance of the coefficient of one series is ((n - 2) / n)² / (n - 1) (P. A. P. Moran, Biometrika 35, 1948).
    """
    mean, sd, n = moments(left)
    left = left - mean[:, None]
    product, _, pairs = moments(left[:, 1:] * left[:, :-1])
    several = pairs > 0
    if not several.any():
        return math.nan, math.nan
    n, pairs = n[several], pairs[several]
    shrinks = 1 - 3 / n
    correlations = (product[several] / sd[several] ** 2 + 1 / n) / shrinks
    weights = (shrinks * n / (n - 2)) ** 2 * pairs
    lag1 = float(np.average(correlations, weights=weights))
    cells = len(n) / max(1, len(n) - 1)  # the medians of blocks took away as much as one cell tells
    return lag1, lag1 - _CERTAIN * math.sqrt(cells / weights.sum())


def _far(left: Floats) -> tuple[float, float, float, float, float]:
    """Share of far trials, that of normal noise and the error of the difference; their shift and its error."""
    n = np.isfinite(left).sum(axis=1)
    offsets = left - _medians(left)
    distances = np.abs(offsets)
    far = distances > FAR * _MAD * _medians(distances)
    normal = n * _normal_far(n)
    more, moved = far.sum(axis=1) - normal, np.where(far, offsets, 0.0).sum(axis=1)
    more_error, moved_error = (float(np.sqrt((excess**2).sum())) / n.sum() for excess in (more, moved))
    return (
        float(far.sum() / n.sum()),
        float(normal.sum() / n.sum()),
        more_error,
        float(moved.sum() / n.sum()),
        moved_error,
    )


def _normal_far(n: npt.NDArray[np.int64]) -> Floats:
    """Share of far trials of normal noise in n blocks, simulated for 6 to 60; an odd block adds little to a median."""
    return np.asarray(0.27 * (n - n % 2.0) ** -1.22)


def _medians(values: Floats) -> Floats:
    """Medians of the finite values of each row, as a column."""
    ordered, n = np.sort(values, axis=1), np.isfinite(values).sum(axis=1, keepdims=True)
    ends = (np.take_along_axis(ordered, np.maximum(at, 0), axis=1) for at in ((n - 1) // 2, n // 2))
    return sum(ends, np.zeros(n.shape)) / 2
