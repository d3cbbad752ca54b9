"""Several runs of one machine → one estimate of an effect: random effects of runs.

A run is one afternoon: its heat, its neighbours and where its memory lies move all of its blocks alike. So an effect of
a run differs from the machine's by more than blocks tell. By how much is estimated from all effects of a machine that
several runs measured (``between_runs``), since two or three runs of a single one say hardly anything of it.

Runs count by what they know: weights are 1 ÷ (variance between runs + variance of the run's own mean). A run whose
standard error is over ``VAGUE`` times that of the best one is left out of an effect: whatever it found it could only
blur what is known. The spread between blocks of a run is weighted with that of all its effect's runs (Smyth 2004). The
interval is Student's t; its degrees of freedom are those of both variances (Satterthwaite 1946).

Hartung and Knapp (2001) estimate the variance of the mean from the same few runs; pooled over effects it needs no
correction for that. What this covers is simulated (``tests/simulations.py``). Of a single run nothing is known of other
runs: its interval is that of its blocks, and speaks of that run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feedrate.analysis.estimate import Floats, Moments, moments

ASSUMED, MOST, BELIEF = 0.0125, 0.03, 3
"""Standard deviation between runs (log ratio) that is assumed before runs tell, and that a noisy machine may have; for
how many runs the first counts. Effects of two virtual machines differed by 1.0 to 1.5 % from run to run."""
VAGUE, SPREAD_BELIEF = 1.75, 6
"""How many times the least standard error a run may have that counts; for how many blocks the spread of all runs of an
effect counts in that of one."""


class Between(NamedTuple):
    """How much an effect differs from run to run."""

    variance: float
    freedom: float


def between_runs(effects: Iterable[Sequence[Floats]]) -> Between:
    """Estimate the variance between runs from effects that several runs measured.

    Args:
        effects: for each effect its log ratios, an array a run, of one value a block; runs with fewer than two values
            do not count.
    """
    squares, freedom = BELIEF * ASSUMED**2, float(BELIEF)
    for runs in effects:
        summaries = _summarised(runs)
        if summaries.tells.sum() == 1:  # better those that are vague than none
            summaries = summaries._replace(tells=np.ones_like(summaries.tells))
        mean, variances = summaries.mean[summaries.tells], summaries.variance[summaries.tells]
        if (more := len(mean) - 1) > 0:
            counts = more / (1 + variances.mean() / MOST**2) ** 2  # as precisely as it is known
            squares += counts * (mean.var(ddof=1) - variances.mean())
            freedom += counts
    return Between(max(0.0, squares / freedom), freedom)


class Pooled(NamedTuple):
    """An effect over runs."""

    spread: Moments
    """Mean, standard deviation and number of as many independent values as would give the same interval."""
    blocks: int
    """Of the runs that count."""


def pooled(runs: Sequence[Floats], between: Between) -> Pooled:
    """Pool the values of an effect over runs.

    Args:
        runs: its log ratios, an array a run, of one value a block.
        between: how much effects differ from run to run.

    Returns:
        The effect of the machine; that of the run where one alone has two values or more.
    """
    summaries = _summarised(runs)
    if len(summaries.mean) < 2:
        alone = moments(max(runs, key=len, default=np.empty(0)))
        return Pooled(alone, int(alone.n))
    weights = summaries.tells / np.maximum(between.variance + summaries.variance, np.finfo(float).tiny)
    share = weights / weights.sum()
    of_runs, of_blocks = (share**2).sum() * between.variance, (share**2 * summaries.variance).sum()
    variance, blocks = of_runs + of_blocks, summaries.blocks[summaries.tells]
    doubts = of_runs**2 / between.freedom + of_blocks**2 / (blocks - 1).sum()
    units = 1 + (variance**2 / doubts if doubts else between.freedom)
    spread = Moments(float(share @ summaries.mean), float(np.sqrt(variance * units)), float(units))
    return Pooled(spread, int(blocks.sum()))


class _Summaries(NamedTuple):
    """What each run with two values knows of an effect."""

    mean: Floats
    variance: Floats
    """Of the mean, by the run's blocks."""
    blocks: Floats
    tells: npt.NDArray[np.bool_]
    """Whether it knows enough to count."""


def _summarised(runs: Sequence[Floats]) -> _Summaries:
    spreads = [moments(values) for values in runs if np.isfinite(values).sum() > 1]
    mean, sd, count = (np.array([spread[column] for spread in spreads], dtype=np.float64) for column in range(3))
    freedom, variance, tells = count - 1, sd**2, np.ones(len(spreads), dtype=bool)
    for _ in range(2 if spreads else 0):  # the usual spread is that of the runs that count
        usual = (freedom * sd**2)[tells].sum() / freedom[tells].sum()
        variance = (SPREAD_BELIEF * usual + freedom * sd**2) / (SPREAD_BELIEF + freedom) / count
        tells = variance <= VAGUE**2 * variance.min()
    return _Summaries(mean, variance, count, tells)
