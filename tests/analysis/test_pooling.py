"""Several runs of a machine: one estimate that holds, and that a further run does not overturn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from simulations import histories

from feedrate.analysis.estimate import half_width, moments
from feedrate.analysis.pooling import ASSUMED, BELIEF, Between, between_runs, pooled


def values(mean: float, sd: float, blocks: int) -> np.ndarray:
    """Values of one run with exactly this mean and spread."""
    drawn = np.random.default_rng(blocks).standard_normal(blocks)
    return mean + sd * (drawn - drawn.mean()) / drawn.std(ddof=1)


def test_one_run_speaks_of_itself() -> None:
    """Its interval is that of its blocks, whatever other effects say of other runs."""
    run = values(0.1, 0.03, 8)
    assert pooled([run], Between(1.0, 4)) == (moments(run), 8)
    assert pooled([run, np.array([0.5])], Between(1.0, 4)) == (moments(run), 8)


def test_equal_runs_have_the_interval_of_their_means() -> None:
    """Exact runs with a known variance between them have Student's t of their means."""
    runs = [values(mean, 1e-9, 12) for mean in (0.10, 0.12, 0.14)]
    (mean, sd, n), blocks = pooled(runs, Between(0.02**2, 6))
    assert blocks == 36
    assert mean == pytest.approx(0.12)
    assert half_width(sd, n) == pytest.approx(stats.t.ppf(0.975, 6) * 0.02 / np.sqrt(3), rel=1e-6)


def test_a_short_or_noisy_run_takes_nothing_away() -> None:
    """The interval of two long runs gets no wider by a third that knows little, and hardly moves."""
    long, short = [values(0.1, 0.03, 30), values(0.11, 0.03, 30)], values(0.3, 0.3, 5)
    between = Between(0.0125**2, 30)
    before, after = (pooled(runs, between) for runs in (long, [*long, short]))
    assert after.blocks == before.blocks == 60
    assert half_width(after.spread.sd, after.spread.n) <= half_width(before.spread.sd, before.spread.n)
    assert after.spread.mean == pytest.approx(before.spread.mean)


def test_the_variance_between_runs_is_that_of_all_effects() -> None:
    """What blocks scatter by is taken out; before runs tell, a usual one is assumed."""
    assert between_runs([]) == Between(pytest.approx(ASSUMED**2), BELIEF)
    random = np.random.default_rng(0)
    effects = [
        [effect + 0.04 * random.standard_normal() + 0.05 * random.standard_normal(10) for _ in range(3)]
        for effect in random.standard_normal(200)
    ]
    found = between_runs(effects)
    assert np.sqrt(found.variance) == pytest.approx(0.04, rel=0.1)
    assert BELIEF < found.freedom < BELIEF + 400  # blocks blur it


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 0.04])
def test_histories_of_runs_keep_their_promises(between: float) -> None:
    """Over 40 histories: coverage 93 to 97 %, few wrong verdicts, hardly one turned by a short run."""
    found = histories(between, 40)
    assert 0.93 - 0.005 <= found.covered <= 0.97 + 0.005
    assert found.wrong <= 0.05 + 0.025
    assert found.turned <= 0.01 + 0.005
    assert found.contradicted < 0.001
