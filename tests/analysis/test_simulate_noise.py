"""What verdicts are worth where noise is not normal, and that the simulations do what a sweep does."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from feedrate.analysis.blocks import half_width, moments
from feedrate.analysis.simulate import certain
from feedrate.analysis.simulate_noise import (
    FAULT_BLOCKS,
    FAULT_SPREAD,
    FAULTS,
    FAULTS_SIMULATED,
    NOISES,
    SIMULATED,
    SPREADS,
    TRUTH,
    fault_worth,
    gain_covered,
    judged,
    naive_bias,
    nulls_told,
    worth,
)
from feedrate.plan.claim_selection import LEAST_BLOCKS, ClaimTracker, PlannedClaim, PlannedEffect
from feedrate.plan.stopping import Rule
from feedrate.questions.methodology import page as methodology_page

FIGURES = (Path(methodology_page.__file__).parent / "simulated.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("noise", NOISES)
def test_noises_differ_in_shape_only(noise: str) -> None:
    """Each has a mean of none and a standard deviation of one."""
    drawn = NOISES[noise](np.random.default_rng(0), (40_000, 12))
    assert drawn.mean() == pytest.approx(0, abs=0.02)
    assert drawn.std() == pytest.approx(1, abs=0.02)


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


def test_a_run_is_judged_by_what_it_measured() -> None:
    """Without noise every verdict is that of the truth, and nothing is withheld."""
    quiet = 1e-4 * np.random.default_rng(0).standard_normal((2, len(TRUTH), 12))
    clear = np.where(np.isclose(TRUTH, math.log(1.01)) | np.isclose(TRUTH, math.log(1.03)), 0.05, TRUTH)
    run = judged(clear, *quiet)
    assert list(run.verdict) == ["confirmed" if effect else "no difference" for effect in clear]
    assert not run.withheld
    assert not run.wrong.any()
    assert not run.claims_withheld().any()


@pytest.mark.parametrize("name", FAULTS)
def test_faults_have_their_own_size(name: str) -> None:
    """Their mean is none, and noise without what was added spreads by 4 % between pairs."""
    a, b = FAULTS[name].draw(np.random.default_rng(0), (20_000, 12))
    assert (a.mean(), b.mean()) == pytest.approx((0, 0), abs=0.005)
    added = 0.0
    for share, times, text in ((0.05, 3, "3 times"), (0.2, 1.25, "1.25 times")):
        added += (text in name) * share * (1 - share) * math.log(times) ** 2
    sides = 2 if "both" in name else 1
    assert (b - a).var() == pytest.approx(FAULT_SPREAD**2 + sides * added, rel=0.05)


@pytest.mark.parametrize(("name", "blocks"), list(FAULTS_SIMULATED)[3::5])
def test_a_part_of_the_published_faults_is_what_is_simulated(name: str, blocks: int) -> None:
    """A fault each at some blocks, within what 60 runs tell."""
    found = fault_worth(FAULTS[name], blocks, 60)
    assert [share.value for share in found] == pytest.approx(FAULTS_SIMULATED[name, blocks], abs=0.17)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "blocks"), FAULTS_SIMULATED)
def test_the_published_faults_are_what_is_simulated(name: str, blocks: int) -> None:
    """All of them, within what 500 runs tell."""
    found = fault_worth(FAULTS[name], blocks, 500)
    assert [share.value for share in found] == pytest.approx(FAULTS_SIMULATED[name, blocks], abs=0.06)


def test_intervals_that_have_seen_no_slow_trial_do_not_hold() -> None:
    """How many there are and what they are worth is what the page says."""
    fault = FAULTS["5 % of B’s trials 3 times as slow"]
    unseen, held = [], []
    for blocks in FAULT_BLOCKS:
        a, b = fault.draw(np.random.default_rng(0), (20_000, blocks))
        mean, sd, n = moments(b - a)
        holds, seen = np.abs(mean) <= half_width(sd, n), (b < -0.5).any(axis=1)
        unseen.append(1 - seen.mean())
        held.append(holds[~seen].mean())
        assert holds[seen].mean() > 0.99
    assert unseen == pytest.approx([0.70, 0.54, 0.21], abs=0.01)
    assert held == pytest.approx([0.14, 0.01, 0], abs=0.01)
    assert "70 % of claims have seen none of these after 7 blocks, 54 % after 12 and 21 % after 30" in FIGURES
    assert "of their intervals 14, 1 and 0 % hold the truth" in FIGURES


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_the_published_table_is_what_is_simulated(noise: str) -> None:
    """Coverage, wrong verdicts and withheld runs, each within what 2,000 runs tell."""
    found = worth(NOISES[noise])
    assert [share.value for share in found] == pytest.approx(SIMULATED[noise], abs=0.012)
    assert found.wrong_left.value <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("blocks", [LEAST_BLOCKS, 10])
def test_runs_that_end_early_are_seldom_wrong(noise: str, blocks: int) -> None:
    """A budget that lasts for few blocks leaves a diagnosis little to go by, and verdicts as well."""
    assert worth(NOISES[noise], SPREADS, blocks, 1000).wrong_left.value <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "wrong"), [("autocorrelated, ρ = 0.5", 0.08), ("autocorrelated, ρ = 0.8", 0.27)])
def test_what_a_diagnosis_misses_is_published(noise: str, wrong: float) -> None:
    """Where a third of the claims have it, most runs are not withheld, and the page says how many are wrong."""
    found = worth(NOISES[noise], odd=1 / 3, replays=1000).wrong_left.value
    assert found == pytest.approx(wrong, abs=0.04)
    assert f"{100 * wrong:g} %" in FIGURES


@pytest.mark.slow
def test_true_nulls_are_told() -> None:
    """At least 80 % of them, after 30 blocks at a spread of 4 %, among claims that are plain."""
    assert nulls_told().value >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("settings", [5, 20, 60])
@pytest.mark.parametrize("differ", [0.0, 0.02])
@pytest.mark.parametrize("blocks", [5, 8, 20])
def test_gains_of_the_best_are_covered(settings: int, differ: float, blocks: int) -> None:
    """In at least 93 % of runs."""
    assert gain_covered(settings, differ, blocks, replays=500).value >= 0.93


def test_the_best_seems_to_gain_by_being_chosen() -> None:
    """Where it is measured by what chose it, equal settings seem to gain 2 %."""
    assert naive_bias(replays=500) == pytest.approx(0.02, abs=0.002)
