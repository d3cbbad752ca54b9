"""What a run's noise is diagnosed for: blocks that depend on one another, two modes; and what it leaves in peace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.analysis.blocks import Floats
from feedrate.analysis.diagnosis import LEAST_BLOCKS, LEAST_CELLS, Diagnosis, diagnose, diagnose_logs
from feedrate.analysis.noise import grade
from feedrate.analysis.simulate_noise import NOISES
from feedrate.schema.plugins import ROOT
from feedrate.store import runs

Trials = Callable[..., pd.DataFrame]
DEPENDENT, MODES = "autocorrelated, ρ = 0.5", "two modes"


def drawn(noise: str, cells: int, blocks: int, seed: int = 0) -> Floats:
    """Log throughputs of cells of very different spreads, around 4 %."""
    random = np.random.default_rng(seed)
    return 0.04 * np.exp(random.normal(0, 0.8, (cells, 1))) * NOISES[noise](random, (cells, blocks))


def diagnosed(noise: str, cells: int, blocks: int, replays: int) -> float:
    """Share of runs that are diagnosed."""
    return float(np.mean([bool(diagnose_logs(drawn(noise, cells, blocks, seed)).reason) for seed in range(replays)]))


@pytest.mark.slow
@pytest.mark.parametrize("cells", [LEAST_CELLS, 30, 60, 130])
@pytest.mark.parametrize("blocks", [LEAST_BLOCKS, 8, 12, 30])
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


@pytest.mark.parametrize("blocks", [6, 12, 30])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_autocorrelation_is_told_nearly_without_bias(blocks: int, rho: float) -> None:
    """Short series pull it down, from 0.5 to 0.1 at six blocks; what is said has most of that taken off."""
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


def test_cells_that_left_early_count_by_their_blocks() -> None:
    """Gaps are no neighbours, and cells of fewer than six blocks say nothing."""
    logs = drawn(DEPENDENT, 60, 12)
    logs[:30, 6:] = np.nan
    assert "depend on one another" in diagnose_logs(logs).reason
    logs[:, 5:] = np.nan
    assert np.isnan(diagnose_logs(logs).lag1)
    assert diagnose_logs(logs).reason == ""
    gaps = drawn(DEPENDENT, 60, 24)
    gaps[:, 1::2] = np.nan
    assert np.isnan(diagnose_logs(gaps).lag1)
    assert diagnose_logs(gaps).reason == ""


def test_too_few_cells_say_nothing() -> None:
    """Their noise could be anything."""
    assert np.isnan(diagnose_logs(drawn("normal", LEAST_CELLS - 1, 30)).far_share)


def graded(trials_of: Trials, noise: str, blocks: int = 12) -> tuple[Diagnosis, Any]:
    """The diagnosis and the grade of a quiet run with one kind of noise."""
    logs = 0.3 * drawn(noise, 40, blocks)
    cells = [({"batch_size": 1 + cell}, list(1000 * np.exp(row))) for cell, row in enumerate(logs)]
    quiet = {"foreign_cpu_pct": 0.5, "steal_pct": 0.0, "cpu_util_pct": 50.0, "steady": True, "half_ratio": 1.0}
    trials = trials_of(cells, **quiet, role="cell")
    return diagnose(trials), grade(trials)


def test_a_run_with_such_noise_is_neither_a_nor_b(trials_of: Trials) -> None:
    """Its grade says why, with the figures; that of normal noise says that nothing was found."""
    for noise, criterion in ((DEPENDENT, "dependence"), (MODES, "tails")):
        found, its = graded(trials_of, noise)
        assert found.reason
        assert its.letters[criterion] in ("C", "D")
        assert its.letter in ("C", "D")
    found, its = graded(trials_of, "normal")
    assert not found.reason
    assert {its.letters["dependence"], its.letters["tails"]} == {"A"}
    lag1, lo = (f"{each:.2f}".replace("-", "−") for each in (found.lag1, found.lag1_lo))
    text = " ".join(its.reasons)
    assert f"the block before: not shown (lag-1 autocorrelation {lag1}, 99 %: {lo} or more): A." in text
    assert f"{100 * found.far_share:.1f} % of trials lie far from the others of their setting" in text


def test_no_committed_run_is_diagnosed() -> None:
    """Their verdicts stand, and none has its grade from it."""
    for run in runs.runs(ROOT / "results"):
        trials = run.table("trials")
        assert diagnose(trials).reason == "", run.folder
        its = grade(trials, run.manifest.control)
        others = [its.letters[name] or "B" for name in its.letters if name not in ("dependence", "tails")]
        assert its.letter == max(others)
