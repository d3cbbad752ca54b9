"""What is promised of the protocol, each in at least 1,000 simulated runs, and the simulations against plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from feedrate.analysis.contrasts import contrasts
from feedrate.analysis.simulate import (
    PROTOCOL,
    Share,
    called_different,
    confirmation_rate,
    coverage,
    stopped,
    wall_to_target,
)
from feedrate.plan.stopping import Rule, half_width
from feedrate.schema.plugins import ROOT
from feedrate.store import runs

Trials = Callable[..., pd.DataFrame]

pytestmark = pytest.mark.slow


@cache
def recorded() -> pd.DataFrame:
    """The oldest run that is kept with the code."""
    return runs.runs(ROOT / "results")[0].table("trials")


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.1), st.integers(2, 9), st.integers(9, 14))
def test_contrasts_stop_as_they_do_in_a_sweep(seed: int, spread: float, fewest: int, most: int) -> None:
    """Block by block against ``stopping.Rule``, which the sweep itself asks."""
    rule = Rule(fewest, most, 0.03)
    logs = np.random.default_rng(seed).normal(0.05, spread, (5, most))
    found = stopped(logs, rule)
    for row, values in enumerate(logs.tolist()):
        n = next((n for n in range(fewest, most) if rule.done(values[:n])), most)
        assert found.n[row] == n
        assert found.log[row] == pytest.approx(np.mean(values[:n]))
        assert found.half[row] == pytest.approx(half_width(values[:n]))


@settings(max_examples=40)
@given(st.integers(1, 2000), st.floats(0, 1))
def test_a_share_says_how_sure_it_is(n: int, part: float) -> None:
    """Its interval is SciPy's exact one."""
    share = Share(round(part * n), n)
    exact = stats.binomtest(share.hits, n).proportion_ci(method="exact")
    assert share.interval == (pytest.approx(exact.low), pytest.approx(exact.high))
    assert share.value == share.hits / n


@pytest.mark.parametrize("spread", [0.03, 0.05, 0.06, 0.07, 0.085])
@pytest.mark.parametrize("effect", [1.0, 1.05])
def test_intervals_that_stop_when_narrow_cover_the_truth(spread: float, effect: float) -> None:
    """At least 93 % of 20,000, whatever the spread of the pairs and the truth."""
    assert coverage(spread, effect=effect).value >= 0.93


def test_equal_cells_are_seldom_called_different() -> None:
    """6 % spread and 5 % drift: at most 5 % of 20,000 in blocks of random order, far more one cell after the other."""
    blocks, sequential = called_different("random"), called_different("sequential")
    assert blocks.by_verdict.n >= 1000
    assert blocks.by_verdict.value <= 0.05
    assert blocks.by_interval.value < 0.08
    assert sequential.by_verdict.value > 5 * blocks.by_verdict.value
    assert sequential.by_interval.value > 0.25
    assert sequential == called_different("sequential", rule=Rule(30, 30, 0.0))


def test_five_per_cent_are_confirmed_and_one_is_not_at_the_spread_measured_here() -> None:
    """At the middle spread of the recorded contrasts and the protocol's most blocks, in 90 % of 20,000 each."""
    spread = float(contrasts(recorded())["sd_log"].median())
    most = Rule(PROTOCOL.most, PROTOCOL.most, 0.0)
    assert confirmation_rate(1.05, spread, rule=most).value >= 0.9
    assert confirmation_rate(1.01, spread, rule=most).value <= 0.1
    assert confirmation_rate(1.01, spread).value <= 0.1


def test_replays_can_be_repeated() -> None:
    """A seed gives the same again, another one something else; several spreads lie between their extremes."""
    assert coverage(0.06, replays=1000, seed=3) == coverage(0.06, replays=1000, seed=3)
    assert coverage(0.06, replays=1000, seed=3) != coverage(0.06, replays=1000, seed=4)
    low, mixed, high = (confirmation_rate(1.05, spread).value for spread in (0.1, [0.03, 0.1], 0.03))
    assert low < mixed < high


def run_of(trials_of: Trials, spreads: list[float], blocks: int = 40, **columns: Any) -> pd.DataFrame:
    """A run of cells that are all contrasts of each other, with a spread of their own each; a second a trial."""
    random = np.random.default_rng(5)
    cells = [
        ({"batch_size": 2**place}, list(100 * np.exp(random.normal(0, spread, blocks))))
        for place, spread in enumerate(spreads)
    ]
    return trials_of(cells, **{"trial_wall_ns": 1_000_000_000, **columns})


def test_stopping_saves_most_where_cells_differ(trials_of: Trials) -> None:
    """One noisy pair makes all run long where nobody stops; of equal pairs, only those that seem noisy do."""
    random = np.random.default_rng(6)

    def saved(noisy: float) -> float:
        spreads = [noisy, *[0.02] * 9]
        cells = [
            ({"batch_size": 1 + i, "read_us": 1 + i, "patch_size": p}, s)
            for i, s in enumerate(spreads)
            for p in (16, 32)
        ]
        rates = [(cell, list(100 * np.exp(random.normal(0, spread, 40)))) for cell, spread in cells]
        found = wall_to_target(trials_of(rates, trial_wall_ns=1_000_000_000), replays=50)
        assert (found.cells, found.adaptive_met) == (20, 1)
        return 1 - found.ratio

    assert saved(0.09) > 2 * saved(0.02) > 0


def test_replays_are_what_a_sweep_would_do(trials_of: Trials) -> None:
    """Against plain Python with the rule of ``stopping``, on the same draws: who runs in which block, how long."""
    frame = run_of(trials_of, [0.01, 0.05, 0.08], blocks=12)
    found = wall_to_target(frame, replays=40, seed=9)
    logs = np.log(frame["samples_per_s"].to_numpy().reshape(3, -1))
    pairs = [(0, 1), (0, 2), (1, 2)]
    wide = {(a, b): (logs[b] - logs[a] - (logs[b] - logs[a]).mean()) * (12 / 11) ** 0.5 for a, b in pairs}
    random = np.random.default_rng(9)
    draws = np.array([random.integers(12, size=40) for _ in range(1000)]).T
    rule = Rule(PROTOCOL.fewest, 1000, PROTOCOL.target)
    trials = 0
    for replay in draws:
        live, seen = {0, 1, 2}, {pair: list[float]() for pair in pairs}
        for drawn in replay:
            trials += len(live)
            for pair in pairs:
                if live.issuperset(pair):
                    seen[pair].append(wide[pair][drawn])
            live &= {cell for pair in pairs if not rule.done(seen[pair]) for cell in pair}
            if not live:
                break
    assert found.adaptive_s == pytest.approx(trials / len(draws))

    def met(n: int) -> float:
        narrow = [{p: half_width(wide[p][row[:n]].tolist()) <= rule.target for p in pairs} for row in draws]
        return float(np.mean([all(ok for p, ok in each.items() if cell in p) for each in narrow for cell in range(3)]))

    assert found.fixed_blocks is not None
    assert met(found.fixed_blocks) >= 0.95 > met(found.fixed_blocks - 1)


def test_what_no_number_of_blocks_reaches_is_not_a_number(trials_of: Trials) -> None:
    """Replays end in any case; then nothing is said of the fixed number."""
    found = wall_to_target(run_of(trials_of, [0.5, 0.5]), replays=20, most=12)
    assert found.fixed_blocks is None
    assert math.isnan(found.ratio)
    assert (found.adaptive_met, found.adaptive_s) == (0, pytest.approx(24))


def test_failures_helpers_and_time_beside_trials_are_counted(trials_of: Trials) -> None:
    """A failed trial costs its pair, cells that only serve others are left out, a block costs more than its trials."""
    frame = run_of(trials_of, [0.02, 0.02, 0.02])
    plain = wall_to_target(frame, replays=50)
    served = frame.assign(role=np.where(frame["batch_size"] == 4, "ceiling", "cell"))
    assert (plain.cells, wall_to_target(served, replays=50).cells) == (3, 2)
    failing = frame.assign(outcome=np.where(frame["block"] % 2 == 1, "error", "ok"))
    assert wall_to_target(failing, replays=50).fixed_blocks > 1.5 * plain.fixed_blocks  # type: ignore[operator]
    at = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(10 * frame["block"], unit="s")
    slow = wall_to_target(frame.assign(started_at=at.map(lambda each: each.isoformat())), replays=50)
    assert slow.fixed_s > 2 * plain.fixed_s
    assert slow.adaptive_s > 2 * plain.adaptive_s


def test_only_blocks_that_ran_every_cell_are_drawn_from(trials_of: Trials) -> None:
    """A cell that stopped early is no cell that failed; one that only ever failed is none at all."""
    frame = run_of(trials_of, [0.02, 0.02, 0.02], blocks=20)
    stopping = frame[(frame["batch_size"] > 1) | (frame["block"] < 9)]
    found = wall_to_target(stopping, replays=50)
    assert found == wall_to_target(frame[frame["block"] < 9], replays=50)
    assert (found.cells, found.recorded_blocks) == (3, 9)
    failing = frame.assign(outcome=np.where(frame["batch_size"] == 1, "error", "ok"))
    assert wall_to_target(failing, replays=50).cells == 2
    with pytest.raises(ValueError, match="1 blocks in which every cell ran"):
        wall_to_target(frame[frame["block"] == 0])


def test_a_cell_without_a_contrast_is_measured_by_its_own_interval(trials_of: Trials) -> None:
    """Alone it has nobody to be compared with, and is done when its own interval is narrow."""
    found = wall_to_target(run_of(trials_of, [0.02]), replays=50)
    assert (found.cells, found.adaptive_met, found.adaptive_s) == (1, 1, pytest.approx(8, abs=0.5))


def test_the_recorded_run_would_take_at_most_60_per_cent_of_the_wall_clock() -> None:
    """All cells at the target, against the fixed number with which 95 % of them are."""
    found = wall_to_target(recorded(), replays=200)
    assert found.adaptive_met == 1
    assert found.ratio <= 0.6
