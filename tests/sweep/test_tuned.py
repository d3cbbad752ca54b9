"""A real tuned sweep, small: what it runs, writes and says."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeping import Place

from feedrate.plan.search import GRID_BLOCKS
from feedrate.share import validator
from feedrate.store import runs
from feedrate.sweep.launcher import Template

pytestmark = pytest.mark.slow

BLOCKS = 2
MATRIX = f"""
version: 1
protocol: {{warmup_s: 0.05, window_s: 0.1, min_steps: 4, blocks: [1, {BLOCKS}], timeout_s: 30}}
suites:
  tune:
    - {{mode: load, patch_size: 16, n_samples: 96, storage_format: [png, memmap], batch_size: 8, num_workers: [0, 1]}}
    - {{mode: compute, patch_size: 16, batch_size: 8}}
profiles: {{quick: {{}}}}
"""


def test_a_tuned_sweep_says_what_it_recommends(template: Template, tmp_path: Path) -> None:
    """The manifest has an entry for the task, by its own trials; the terminal says the same; the run can be published.

    Its first trial is that of the setting whose knobs are at their defaults: all others are held against it.
    """
    place = Place(tmp_path)
    place.matrix.write_text(MATRIX)
    printed = place.sweep(template, "--tune", "--seed", "5")
    (run,) = runs.runs(place.results)
    trials, (found,) = run.table("trials"), run.manifest.tuned
    first = trials.iloc[0]
    assert (first["storage_format"], first["num_workers"]) == ("png", 0)
    assert (found.settings, found.present, found.trials) == (4, first["cell_id"], len(trials))
    assert found.recommended in set(trials.loc[trials["outcome"].eq("ok"), "cell_id"])
    assert run.manifest.stop_reason == ("target" if found.known else "blocks")
    assert len(set(trials["block"])) <= BLOCKS
    assert set(trials["mode"]) == {"load"}
    assert not trials.duplicated(["block", "cell_id"]).any()
    assert "--tune" in run.manifest.command
    assert "1 task to tune, 4 settings to choose from" in printed
    assert "1 left out: --tune: neither training nor loading" in printed
    assert "recommended: " in printed
    grid = f"a grid of 4 settings × {GRID_BLOCKS} repetitions takes {4 * GRID_BLOCKS}"
    assert f"{len(trials)} measurements; {grid}" in printed
    assert validator.check(run.folder).valid
