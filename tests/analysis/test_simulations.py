"""What the protocol promises, over thousands of runs whose truth is known; the simulations do what a sweep does."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulations import FAULTS, NOISES, PROTOCOL, certain, equal_cells, fault_worth, nulls_held, ratios, stopped, worth

from feedrate.analysis.estimate import half_width, moments
from feedrate.plan import stopping
from feedrate.plan.claim_selection import LEAST_BLOCKS, ClaimTracker, PlannedClaim, PlannedEffect
from feedrate.plan.stopping import Rule
from feedrate.questions.methodology import page as methodology_page
from feedrate.questions.methodology.simulations import FAULTS_SIMULATED, SIMULATED

FIGURES = (Path(methodology_page.__file__).parent / "simulated.md").read_text(encoding="utf-8")


@settings(max_examples=40, deadline=None)
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
        assert found.half[row] == pytest.approx(stopping.half_width(values[:n]))


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.03, 0.05, 0.06, 0.07, 0.085])
@pytest.mark.parametrize("effect", [1.0, 1.05])
def test_intervals_that_stop_when_narrow_cover_the_truth(spread: float, effect: float) -> None:
    """At least 93 % of 20,000, whatever the spread of the pairs and the truth."""
    found = ratios(effect, spread)
    assert (np.abs(found.log - math.log(effect)) <= found.half).mean() >= 0.93


@pytest.mark.slow
def test_equal_cells_are_seldom_called_different() -> None:
    """Random order calls equal cells different in at most 5 %; one cell after the other far more."""

    def called(sequential: bool) -> tuple[float, float]:
        found = equal_cells(sequential)
        by_verdict = np.isin(found.verdicts(), ("faster", "slower")).mean()
        return float(by_verdict), float((np.abs(found.log) > found.half).mean())

    (by_verdict, by_interval), (later_by_verdict, later_by_interval) = called(sequential=False), called(sequential=True)
    assert by_verdict <= 0.05
    assert by_interval < 0.08
    assert later_by_verdict > 5 * by_verdict
    assert later_by_interval > 0.25


@pytest.mark.slow
def test_five_per_cent_are_confirmed_and_one_is_not_at_a_spread_of_six() -> None:
    """At the protocol's most blocks, in 90 % of 20,000 each."""

    def confirmed(effect: float, rule: Rule) -> float:
        return float((ratios(effect, 0.06, rule).verdicts() == "faster").mean())

    most = Rule(PROTOCOL.most, PROTOCOL.most, 0.0)
    assert confirmed(1.05, most) >= 0.9
    assert confirmed(1.01, most) <= 0.1
    assert confirmed(1.01, PROTOCOL) <= 0.1


@pytest.mark.parametrize(("effect", "spread"), [(0.0, 0.02), (0.03, 0.03), (0.1, 0.03), (-0.2, 0.06), (0.5, 0.02)])
def test_claims_leave_as_they_do_in_a_sweep(effect: float, spread: float) -> None:
    """Block by block against the tracker that the sweep itself asks."""
    logs = np.random.default_rng(3).normal(effect, spread, (6, 30))
    names = [str(row) for row in range(len(logs))]
    weights = [{f"{name}-a": -1.0, f"{name}-b": 1.0} for name in names]
    planned = [
        PlannedClaim(name, (PlannedEffect("throughput", each),), frozenset(each))
        for name, each in zip(names, weights, strict=True)
    ]
    tracker = ClaimTracker(Rule(8, 30, 0.03), planned)
    found = certain(logs, len(logs))
    for block in range(30):
        for name, row in zip(names, logs, strict=True):
            for side, rate in (("a", 1.0), ("b", math.exp(row[block]))):
                tracker.add({"cell_id": f"{name}-{side}", "block": block, "outcome": "ok", "samples_per_s": rate})
    for one, n in zip(planned, found.n, strict=True):
        assert n == next(block for block in range(LEAST_BLOCKS, 31) if tracker.done(one, block))
    assert found.log == pytest.approx([row[:n].mean() for row, n in zip(logs, found.n, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "blocks"), list(zip(FAULTS, 2 * (7, 12, 30), strict=True)))
def test_the_published_faults_are_what_is_simulated(name: str, blocks: int) -> None:
    """A row of each fault, within what 40 runs tell."""
    assert fault_worth(FAULTS[name], blocks, 40) == pytest.approx(FAULTS_SIMULATED[name, blocks], abs=0.17)


def test_intervals_that_have_seen_no_slow_trial_do_not_hold() -> None:
    """How many there are and what they are worth is what the page says."""
    fault = FAULTS["5 % of B’s measurements 3 times as slow"]
    unseen, held = [], []
    for blocks in (7, 12, 30):
        a, b = fault.draw(np.random.default_rng(0), (20_000, blocks))
        mean, sd, n = moments(b - a)
        holds, seen = np.abs(mean) <= half_width(sd, n), (b < -0.5).any(axis=1)
        unseen.append(1 - seen.mean())
        held.append(holds[~seen].mean())
        assert holds[seen].mean() > 0.99
    assert unseen == pytest.approx([0.70, 0.54, 0.21], abs=0.01)
    assert held == pytest.approx([0.14, 0.01, 0], abs=0.01)
    assert "70 % of claims see none of these in 7 repetitions" in FIGURES
    assert "54 % of claims see none in 12 repetitions, and 21 % see none in 30" in FIGURES
    assert "After 7, 12 and 30 repetitions, 14, 1 and 0 % of their intervals hold the truth" in FIGURES
    assert "over 99 % hold it" in FIGURES


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_the_published_table_is_what_is_simulated(noise: str) -> None:
    """Coverage, wrong verdicts and withheld runs, each within three standard errors of 500 runs."""
    shares = worth(NOISES[noise], replays=100)
    for share, published in zip(shares, SIMULATED[noise], strict=True):
        assert share == pytest.approx(published, abs=3 * math.sqrt(published * (1 - published) / 500) + 0.01)
    assert shares[-1] <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_runs_that_end_early_are_seldom_wrong(noise: str) -> None:
    """A budget that lasts for few blocks leaves a diagnosis little to go by, and verdicts as well."""
    assert worth(NOISES[noise], LEAST_BLOCKS, 60)[-1] <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "wrong"), [("autocorrelated, ρ = 0.5", 0.08), ("autocorrelated, ρ = 0.8", 0.27)])
def test_what_a_diagnosis_misses_is_published(noise: str, wrong: float) -> None:
    """The page says how many runs are wrong if a third of their claims have dependent noise."""
    found = worth(NOISES[noise], odd=1 / 3, replays=150)[-1]
    assert found == pytest.approx(wrong, abs=0.06)
    assert f"{100 * wrong:g} %" in FIGURES


@pytest.mark.slow
def test_true_nulls_are_called_no_difference() -> None:
    """At least 80 % of them, after 30 blocks at a spread of 4 %, among claims that are plain."""
    assert nulls_held() >= 0.8
