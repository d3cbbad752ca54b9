"""The gain of the best of many is told as what it is, not as what it looked like when it was chosen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from simulations import gain_covered

from feedrate.analysis.crossfit import LEAST_BLOCKS, cross_fitted, over, regret_pct

COVERED = 0.93
"""Least share of gains whose interval holds the truth."""


@pytest.mark.parametrize(
    ("settings", "differ", "blocks", "replays"),
    [
        (20, 0.0, 8, 200),
        (2, 0.0, LEAST_BLOCKS, 200),
        *(pytest.param(60, differ, blocks, 500, marks=pytest.mark.slow) for differ in (0.0, 0.1) for blocks in (5, 20)),
    ],
)
def test_intervals_hold_the_true_gain(settings: int, differ: float, blocks: int, replays: int) -> None:
    """Equal settings and such that differ, few blocks and many: ``blocks`` of every run are drawn anew."""
    assert gain_covered(settings, differ, blocks, replays=replays) >= COVERED


def test_a_block_never_measures_what_it_chose() -> None:
    """A setting that is named for a single lucky block gets nothing from that block."""
    steady, lucky = [1.0] * 4, [10.0, 0.0, 0.0, 0.0]
    found = cross_fitted(np.array([steady, lucky]))
    assert found.chosen == 1
    assert np.log(found.ratio.value) == pytest.approx(
        0.5
    )  # half of the blocks choose the lucky one, and measure 0; the others 1


def test_a_clear_best_keeps_its_own_interval() -> None:
    """Where every half chooses the same, the gain and its interval are the plain ones; what is measured may differ."""
    random = np.random.default_rng(2)
    gains = np.array([[0.0], [1.0]]) + 0.01 * random.standard_normal((2, 9))
    half, mean = stats.t.ppf(0.975, 8) * gains[1].std(ddof=1) / 3, gains[1].mean()
    for more in (0, 5):
        found = cross_fitted(gains, of=gains + more)
        assert found.chosen == 1
        ends = [np.exp(mean + more + end) for end in (0, -half, half)]
        assert list(found.ratio.row().values()) == pytest.approx([*ends, 9])


def test_few_blocks_tell_no_gain() -> None:
    """Blocks in which nothing could be compared do not count; the best is named all the same."""
    gains = np.full((2, 6), np.nan)
    gains[:, : LEAST_BLOCKS - 1] = [[0.1] * 3, [0.2] * 3]
    found = cross_fitted(gains)
    assert np.isnan(found.ratio.value)
    assert (found.chosen, found.ratio.n, found.ratio.known) == (1, LEAST_BLOCKS - 1, False)
    gains[:, LEAST_BLOCKS - 1] = 0.3
    assert cross_fitted(gains).ratio.known


def test_failed_blocks_cost_a_setting_no_more_than_themselves() -> None:
    """One failure leaves all other blocks; a setting that seldom ended well is not chosen."""
    gains = np.array([[0.0] * 8, [0.5] * 8, [9.0] * 3 + [np.nan] * 5])
    gains[1, 2] = np.nan
    found = cross_fitted(gains)
    assert (found.chosen, found.ratio.value, found.ratio.n) == (1, pytest.approx(np.exp(0.5)), 7)


def test_a_search_says_what_its_setting_gains() -> None:
    """By the blocks in which both ran; a setting that missed one takes no part; the present one gains nothing."""
    logs = {"present": dict.fromkeys(range(6), 0.0), "best": dict.fromkeys(range(1, 6), -0.7), "lucky": {1: -9.0}}
    gain = over(logs, "present", "best")
    assert gain is not None
    assert (gain.ratio.value, gain.ratio.n) == (pytest.approx(np.exp(0.7)), 5)
    assert over(logs, "present", "present") is None
    assert over(logs, "never ran", "best") is None


def test_regret_is_not_what_chance_lent_the_best() -> None:
    """Among equal settings the luckiest shows no regret; one that is 10 % faster does."""
    random = np.random.default_rng(0)
    paces = {place: np.exp(random.normal(0, 0.04, 16)).tolist() for place in range(20)}
    best = max(paces.values(), key=np.mean)
    assert np.mean(best) / np.mean(paces[0]) > 1.02
    assert regret_pct(paces, 0) < 1.5
    faster = {**paces, "faster": [1.1 * pace for pace in paces[0]]}
    assert regret_pct(faster, 0) == pytest.approx(10, abs=1.5)
    assert regret_pct(faster, "faster") == 0
    assert regret_pct({0: paces[0]}, 0) == 0
