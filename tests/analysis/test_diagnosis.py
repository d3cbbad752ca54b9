"""What a run's noise is diagnosed for: blocks that depend on one another, two modes; and what it leaves in peace."""

from __future__ import annotations

import numpy as np
import pytest
from simulations import FAULTS, NOISES

from feedrate.analysis.diagnosis import LEAST_BLOCKS, LEAST_CELLS, MOST_FAR, diagnose, diagnose_effect, diagnose_logs
from feedrate.analysis.estimate import Floats
from feedrate.schema.plugins import ROOT
from feedrate.store import runs

DEPENDENT, MODES = "autocorrelated, ρ = 0.5", "two modes"


def drawn(noise: str, cells: int, blocks: int, seed: int = 0) -> Floats:
    """Log throughputs of cells of very different spreads, around 4 %."""
    random = np.random.default_rng(seed)
    return 0.04 * np.exp(random.normal(0, 0.8, (cells, 1))) * NOISES[noise](random, (cells, blocks))


def diagnosed(noise: str, cells: int, blocks: int, replays: int) -> float:
    """Share of runs that are diagnosed."""
    return float(np.mean([bool(diagnose_logs(drawn(noise, cells, blocks, seed)).reason) for seed in range(replays)]))


@pytest.mark.slow
@pytest.mark.parametrize("cells", [LEAST_CELLS, 60])
@pytest.mark.parametrize("blocks", [LEAST_BLOCKS, 30])
def test_normal_noise_is_diagnosed_in_less_than_one_run_of_a_hundred(cells: int, blocks: int) -> None:
    """Of 1,000 each, whatever the spreads of cells and the number of blocks."""
    assert diagnosed("normal", cells, blocks, 1000) < 0.01


@pytest.mark.parametrize(
    ("noise", "blocks", "least"),
    [(DEPENDENT, 6, 0.9), (DEPENDENT, 12, 0.95), (MODES, 6, 0.6), (MODES, 12, 0.9), (MODES, 30, 0.95)],
)
def test_noise_that_intervals_do_not_hold_for_is_found(noise: str, blocks: int, least: float) -> None:
    """In most runs of 60 cells."""
    assert diagnosed(noise, 60, blocks, 50) >= least


@pytest.mark.parametrize("blocks", [7, 12, 30])
def test_a_few_trials_that_are_several_times_as_slow_are_found(blocks: int) -> None:
    """They are found in most runs, though they are too few to count as tails."""
    random = np.random.default_rng(0)
    fault = FAULTS["5 % of B’s measurements 3 times as slow"]
    found = [diagnose_logs(np.concatenate(fault.draw(random, (30, blocks)))) for _ in range(50)]
    assert np.mean(["move means" in each.reason for each in found]) >= 0.7
    assert np.mean([bool(each.reason) for each in found]) >= 0.85
    assert np.mean([each.far_share - each.far_normal for each in found]) < MOST_FAR
    assert np.mean([each.far_shift for each in found]) == pytest.approx(-0.0275, abs=0.004)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [2, 12])
@pytest.mark.parametrize("blocks", [LEAST_BLOCKS, 30])
def test_normal_noise_withholds_less_than_one_claim_of_a_hundred(cells: int, blocks: int) -> None:
    """Of 1,000 each, whatever the spreads of its cells."""
    assert np.mean([bool(diagnose_effect(drawn("normal", cells, blocks, seed)).reason) for seed in range(1000)]) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "cells", "blocks", "share"),
    [
        *((0.5, 2, 7, 0.02), (0.5, 2, 30, 0.50), (0.8, 2, 12, 0.32), (0.8, 2, 30, 0.93)),
        *((0.5, 12, 7, 0.50), (0.5, 12, 12, 0.95)),
    ],
)
def test_how_often_a_claim_is_found_to_depend(noise: float, cells: int, blocks: int, share: float) -> None:
    """As the page says it: of few cells in few blocks next to never."""
    random, fault = np.random.default_rng(0), FAULTS[f"autocorrelated, ρ = {noise:g}"]
    logs = [np.concatenate(fault.draw(random, (cells // 2, blocks))) for _ in range(800)]
    assert np.mean([bool(diagnose_effect(each).reason) for each in logs]) == pytest.approx(share, abs=0.06)


def test_an_effect_is_asked_for_dependence_of_its_whole_blocks_alone() -> None:
    """Slow trials and what cells of a block share withhold no effect; too few blocks say nothing."""
    logs = drawn(DEPENDENT, 12, 30)
    found = diagnose_effect(logs)
    assert "depend on one another" in found.reason
    shared = np.cumsum(np.random.default_rng(1).normal(0, 0.5, 30))
    assert diagnose_effect(logs + shared).lag1 == pytest.approx(found.lag1, abs=0.05)
    assert not diagnose_effect(drawn("normal", 2, 30) + shared).reason
    slow = drawn("normal", 2, 30)
    slow[1, ::7] -= 1
    assert not diagnose_effect(slow).reason
    gap = logs.copy()
    gap[0, 10] = np.nan
    assert diagnose_effect(gap).lag1 == pytest.approx(found.lag1, abs=0.1)
    alone = np.where((np.arange(30) > 4) & (np.arange(12)[:, None] < 1), np.nan, logs)
    for few in (alone, logs[:1], logs[:, : LEAST_BLOCKS - 1], np.where(np.arange(30) > 4, np.nan, logs), 0 * logs):
        assert np.isnan(diagnose_effect(few).lag1)
        assert diagnose_effect(few).reason == ""


@pytest.mark.parametrize("blocks", [6, 12, 30])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_autocorrelation_is_told_nearly_without_bias(blocks: int, rho: float) -> None:
    """Most of the bias of short series is taken off."""
    noise = DEPENDENT if rho else "normal"
    found = [diagnose_logs(drawn(noise, 60, blocks, seed)).lag1 for seed in range(60)]
    assert np.mean(found) == pytest.approx(rho, abs=0.03 + 0.25 * rho)


@pytest.mark.parametrize("blocks", [6, 7, 9, 12, 20, 30])
def test_the_share_of_far_trials_is_held_against_that_of_normal_noise(blocks: int) -> None:
    """Which few blocks alone make large, as they know their own spread badly."""
    found = diagnose_logs(drawn("normal", 6000, blocks))
    assert found.far_share == pytest.approx(found.far_normal, rel=0.25)


def test_what_a_block_does_to_all_cells_is_no_reason() -> None:
    """It cancels in ratios: slow hours, and one disturbed block, are not held against a run."""
    logs = drawn("normal", 60, 12) + np.where(np.arange(12) < 6, 0.0, -0.5)
    logs[:, 3] -= 3
    assert not diagnose_logs(logs).reason
    assert diagnose_logs(logs).lag1 == pytest.approx(diagnose_logs(drawn("normal", 60, 12)).lag1, abs=0.02)


def test_of_committed_runs_none_is_diagnosed() -> None:
    """Noise as quiet machines have it withholds no run's intervals."""
    assert {diagnose(run.table("trials")).reason for run in runs.runs(ROOT / "results")} == {""}
