"""Drift of the control cell, and the control cell against itself, on made-up trials."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feedrate.analysis import noise


def own(rates: list[list[float]]) -> pd.DataFrame:
    """Trials of one cell: its throughputs, block by block, in the order in which they ran."""
    rows = [
        {"block": block, "position": 16 * place, "samples_per_s": rate, "cell_id": "c", "role": "control"}
        for block, values in enumerate(rates)
        for place, rate in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["block", "position", "samples_per_s", "cell_id", "role"])


def test_the_trend_is_that_of_a_regression() -> None:
    """Slope and interval are those of least squares on logs; over an hour they are taken 3,600 times."""
    random = np.random.default_rng(3)
    at = np.sort(random.uniform(0, 900, 12))
    rates = 1000 * np.exp(1e-4 * at + random.normal(0, 0.02, 12))
    found = noise.drift_trend(at, rates)
    assert found is not None
    fit = stats.linregress(at, np.log(rates))
    half = stats.t.ppf(0.975, 10) * fit.stderr
    assert [found.slope, found.lo, found.hi] == pytest.approx([fit.slope, fit.slope - half, fit.slope + half])
    assert found.n == 12
    hour = found.over(3600)
    assert [hour.value, hour.lo, hour.hi] == pytest.approx(
        [math.exp(3600 * slope) for slope in (found.slope, found.lo, found.hi)]
    )


def test_no_trend_of_two_trials_or_of_trials_at_once() -> None:
    """Two trials have no interval, and trials at one moment no slope; what has no time is left out."""
    two = np.array([1.0, 2.0])
    assert noise.drift_trend(two, two) is None
    assert noise.drift_trend(np.ones(5), np.ones(5)) is None
    assert noise.drift_trend(np.array([0.0, 1.0, np.nan]), np.ones(3)) is None


def test_the_level_is_the_mean_over_blocks() -> None:
    """A block with many trials weighs no more than one with few; one block has no interval."""
    found = noise.mean_rate(own([[100.0] * 5, [400.0]]))
    assert found.value == pytest.approx(200.0)
    assert found.n == 2
    assert found.lo < 200 < found.hi
    alone = noise.mean_rate(own([[100.0, 110.0]]))
    assert math.isnan(alone.lo)
    assert alone.n == 1


def test_pairs_follow_each_other_and_change_sides() -> None:
    """Five trials make two pairs, the fifth none; the second pair is taken the other way round, over blocks too."""
    found = noise.self_ratios(own([[1.0, 2.0, 1.0, 4.0, 9.0], [1.0, 3.0], [5.0]]))
    assert list(found["block"]) == [0, 1]
    assert list(found["pairs"]) == [2, 1]
    assert list(found["ratio"]) == pytest.approx([math.sqrt(2 / 4), 3.0])


def test_a_steady_drift_favours_neither_side() -> None:
    """A machine that grows slower by a tenth from trial to trial comes out equal to itself."""
    steady = [[1000 * 0.9**place for place in range(4)] for _ in range(6)]
    found = noise.pooled_ratio(noise.self_ratios(own(steady)))
    assert found.value == pytest.approx(1.0)
    assert found.n == 6


def test_a_cell_that_ran_once_a_block_is_compared_with_nothing() -> None:
    """Without pairs there is no row, and the sum of nothing is not known."""
    found = noise.self_ratios(own([[1.0], [2.0]]))
    assert found.empty
    assert math.isnan(noise.pooled_ratio(found).value)


@pytest.mark.parametrize("runs", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_equal_sides_come_out_equal(runs: int) -> None:
    """The interval of equal sides holds 1 in about 95 of 100 runs."""
    random = np.random.default_rng(5)
    held = 0
    for _ in range(runs):
        rates = np.exp(random.normal(0, 0.05, (8, 1)) + random.normal(0, 0.03, (8, 4))).tolist()
        found = noise.pooled_ratio(noise.self_ratios(own(rates)))
        held += found.lo <= 1 <= found.hi
    assert 0.95 - 4 * math.sqrt(0.05 * 0.95 / runs) <= held / runs


def test_the_control_cell_is_the_one_that_ran_as_one() -> None:
    """All trials of its cell count, those that the matrix asked for too; a run without roles has none."""
    trials = pd.concat(
        [own([[1.0, 2.0]]).assign(role=["cell", "control"]), own([[3.0]]).assign(cell_id="d", role="cell")]
    )
    assert list(noise.control_trials(trials)["samples_per_s"]) == [1.0, 2.0]
    assert list(noise.control_trials(trials, "d")["samples_per_s"]) == [3.0]
    assert noise.control_trials(trials.assign(role=None)).empty
