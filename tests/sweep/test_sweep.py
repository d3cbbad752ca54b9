"""A real sweep, small: what it writes."""

from __future__ import annotations

import pandas as pd
import pytest
from sweeping import Place

from feedrate.analysis.contrasts import contrasts
from feedrate.schema.columns import PHASES, STEPS_KEPT
from feedrate.store import runs
from feedrate.sweep.launcher import Template

pytestmark = pytest.mark.slow
"""Real sweeps; tests/test_end_to_end.py runs one in make test."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, template: Template) -> tuple[runs.StoredRun, str]:
    """The run, and what the terminal said."""
    folder = tmp_path_factory.mktemp("swept")
    place = Place(folder)
    printed = place.sweep(template, "--seed", "7")
    return runs.runs(place.results)[-1], printed


@pytest.fixture(scope="module")
def run(swept: tuple[runs.StoredRun, str]) -> runs.StoredRun:
    return swept[0]


@pytest.fixture(scope="module")
def trials(run: runs.StoredRun) -> pd.DataFrame:
    return run.table("trials")


def test_every_cell_ran_once_a_block(run: runs.StoredRun, trials: pd.DataFrame) -> None:
    """Blocks are complete, in orders of their own, and every trial ended well."""
    assert (trials["outcome"] == "ok").all(), trials["error_message"].dropna().to_list()
    assert run.manifest.blocks == 2
    assert run.manifest.stop_reason == "blocks"
    per_block = [list(group["cell_id"]) for _, group in trials[trials["role"] != "control"].groupby("block")]
    assert sorted(per_block[0]) == sorted(per_block[1])
    assert len(set(per_block[0])) == len(per_block[0]) == run.manifest.cells + run.manifest.ceilings
    assert (run.manifest.cells, run.manifest.ceilings) == (6, 1)
    assert per_block[0] != per_block[1]


def test_ceilings_are_added_and_the_control_cell_comes_back(run: runs.StoredRun, trials: pd.DataFrame) -> None:
    """What a training cell is judged against runs though nobody asked for it; after every 4 trials the control runs."""
    added = trials[trials["role"] == "ceiling"]
    assert set(added["mode"]) == {"load"}
    assert set(added["read_us"]) == {2000}
    controls = trials[trials["role"] == "control"]
    assert set(controls["cell_id"]) == {run.manifest.control}
    assert list(controls["position"]) == [4, 4]


def test_the_manifest_says_why_it_stopped_and_what_else_used_the_machine(
    run: runs.StoredRun, trials: pd.DataFrame
) -> None:
    """Every contrast of the cells that were asked for, its blocks and its reason; looks before and after the run."""
    asked = contrasts(trials[trials["role"] != "ceiling"])
    stopped = run.manifest.contrasts
    assert {(one.cell_a, one.cell_b) for one in stopped} == set(zip(asked["cell_a"], asked["cell_b"], strict=True))
    assert {(one.blocks, one.reason) for one in stopped} == {(2, "blocks")}
    for seen in (run.manifest.noise_before, run.manifest.noise_after):
        assert seen["wall_ns"] >= 9e8
        assert {"foreign_cpu_pct", "steal_pct", "memory_pressure_pct", "load_1m"} <= set(seen)


def test_phases_close_on_the_wall_clock(trials: pd.DataFrame) -> None:
    """The phases, each stamped by itself, add up to the window within 1 %, and to no more than it.

    A process that loses its core between two stamps misses what it lost: with other tests beside it, one trial in ten
    may.
    """
    missed = 1 - trials[[f"host_{phase}_ns" for phase in PHASES]].fillna(0).sum(axis=1) / trials["wall_ns"]
    assert missed.min() >= 0
    assert missed.quantile(0.9) <= 0.01
    assert missed.median() <= 0.002


def test_windows_are_long_enough_and_end_on_a_multiple_of_the_workers(trials: pd.DataFrame) -> None:
    """A window has its least wall clock and steps, and no burst is cut."""
    assert (trials["wall_ns"] >= 0.25e9).all()
    assert (trials["steps"] >= 4).all()
    with_workers = trials[trials["num_workers"].fillna(0) > 0]
    assert (with_workers["steps"] % with_workers["num_workers"] == 0).all()
    stock = with_workers["num_workers"] * with_workers["prefetch_factor"] + with_workers["num_workers"]
    assert (with_workers["warmup_steps"] >= stock).all()


def test_what_cannot_be_is_null(trials: pd.DataFrame) -> None:
    """Without a device its columns are null, never zero; so are axes that do not apply and stages that did not run."""
    empty = [name for name in trials if name.startswith(("device_", "gpu_"))]
    assert trials[[*empty, "host_h2d_ns", "pin_memory", "non_blocking", "timing"]].isna().all(axis=None)
    assert (trials["device"] == "cpu").all()
    load = trials[trials["mode"] == "load"]
    assert load[["step", "model", "host_forward_ns"]].isna().all(axis=None)
    compute = trials[trials["mode"] == "compute"]
    assert compute[["num_workers", "startup_ns", "worker_read_ns"]].isna().all(axis=None)
    assert (trials["prefetch_factor"].isna() == (trials["num_workers"].fillna(0) == 0)).all()


def test_steps_and_telemetry_belong_to_trials(run: runs.StoredRun, trials: pd.DataFrame) -> None:
    """Single steps add up to no more than their trial; telemetry came about ten times a second."""
    steps = run.table("steps")
    sums = steps.groupby("trial_id")["fetch_ns"].sum()
    fetched = trials.set_index("trial_id")["host_fetch_ns"]
    assert (sums <= fetched.loc[sums.index]).all()
    assert steps.groupby("trial_id").size().max() <= STEPS_KEPT
    telemetry = run.table("telemetry")
    assert set(telemetry["trial_id"]) <= set(trials["trial_id"])
    assert telemetry["in_window"].any()
    spacing = telemetry.groupby("trial_id")["t_ns"].diff().dropna()
    assert spacing.quantile(0.25) < 0.13e9


def test_the_end_is_told(swept: tuple[runs.StoredRun, str]) -> None:
    """The terminal shows best settings, bounds, defaults against best, where files are, what to type next."""
    told = ("best: ", "defaults", "bound", "Files:", "make site")
    packed = ("pin_memory: no CUDA device here", "packing synthetic")
    assert [words for words in (*told, *packed) if words not in swept[1]] == []
    assert "Traceback" not in swept[1]
