"""The campaign of faults: real sweeps are struck and lose nothing; and what is lost or grows is found."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from feedrate.bench import faults, mishaps
from feedrate.bench.ground import MATRIX, Done, Ground
from feedrate.store import runs

SMALL = MATRIX.replace("[4, 8, 16]", "8")


@pytest.mark.slow
def test_a_sweep_under_kills_loses_nothing(tmp_path: Path) -> None:
    """Parent, template, trials and workers are killed: each setting is there; what is not there would be found."""
    counts: Counter[str] = Counter()
    ground = Ground(tmp_path, SMALL)
    assert faults.storm(ground, random.Random(8), counts) == []
    assert counts["parent"] == 1
    assert counts.total() >= 3
    (run,) = runs.runs(ground.results)
    measured = run.table("trials").dropna(subset="samples_per_s").iloc[0]
    held = {measured["trial_id"]: measured["samples_per_s"]}
    assert ground.faults(held) == []
    assert ground.faults({measured["trial_id"]: 1.0, "gone": None}) == [f"lost {measured['trial_id']}", "lost gone"]
    (run.folder / "steps.parquet").write_bytes(b"PAR1")
    assert [fault for fault in ground.faults(held) if fault.startswith("refused: ")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clock set back", "error of a plug-in while packing"])
def test_a_mishap_ends_as_it_must(name: str, tmp_path: Path) -> None:
    """Those that no other test tries; ``feedrate bench mishaps`` tries all."""
    assert mishaps.CASES[name](Ground(tmp_path, SMALL.replace("[0, 2]", "0"), blocks=1)) == ""


def test_what_is_wrong_with_an_end_is_said() -> None:
    """Another status, a traceback, words that are missing; nothing where all is as it must."""
    assert Done(0, "all is well").wrong(0, says="well") == ""
    wrong = Done(1, "Traceback (most recent call last)").wrong(0, 2, says="disk")
    assert wrong.startswith("status 1, a traceback, no word of 'disk'")


@pytest.mark.parametrize(
    ("spread", "a_trial", "flat"), [(100, 0.0, True), (100, 0.1, False), (100, -0.1, True), (0, 0.0, True)]
)
def test_growth_is_seen(spread: float, a_trial: float, flat: bool) -> None:
    """A tenth of a KiB in each trial is, beside noise of a hundred; what stays, noisy or not, or falls is not."""
    noise = np.random.default_rng(7).normal(50_000, spread, 9_000)
    figure = faults._slope("memory", ("KiB", 1.0), noise + a_trial * np.arange(9_000))
    assert figure.met is flat
    assert float(figure.measured.split()[0]) == pytest.approx(1000 * a_trial, abs=2)
