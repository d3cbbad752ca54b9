"""The split of the spread between trials: planted parts are found again, and what is advised fits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from feedrate.analysis.blocks import half_width
from feedrate.analysis.variance import ADVICE, drift, overall, split, spreads, within_by_halves, within_by_steps
from feedrate.schema.columns import STEPS
from feedrate.schema.plugins import ROOT
from feedrate.store import runs as store_runs

Trials = Callable[..., pd.DataFrame]
START = pd.Timestamp("2026-01-01", tz="UTC")


def planted(
    trials_of: Trials,
    *,
    within: float = 0.0,
    between: float = 0.0,
    slope: float = 0.0,
    cells: int = 12,
    blocks: int = 30,
    seed: int = 0,
) -> pd.DataFrame:
    """Trials two minutes apart: halves that differ by what is within, trials by what is between, a trend per hour."""
    random = np.random.default_rng(seed)
    frame = trials_of([({"batch_size": 1 + cell}, [1.0] * blocks) for cell in range(cells)])
    order = (
        frame["block"].to_numpy() * cells + random.permuted(np.tile(np.arange(cells), (blocks, 1)), axis=1).T.ravel()
    )
    hours = order / 30
    halves = within * np.sqrt(2) * random.standard_normal((len(frame), 2))
    log = halves.mean(axis=1) + between * random.standard_normal(len(frame)) + slope * hours
    return frame.assign(
        samples_per_s=1000 * np.exp(log),
        half_ratio=np.exp(halves[:, 1] - halves[:, 0]),
        started_at=[(START + pd.Timedelta(hours=hour)).isoformat() for hour in hours],
    )


@pytest.mark.parametrize(
    ("parts", "largest"),
    [
        ({"within": 0.05, "between": 0.01}, "within"),
        ({"within": 0.01, "between": 0.04}, "between"),
        ({"within": 0.01, "between": 0.01, "slope": 0.02}, "drift"),
        ({"within": 0.03, "between": 0.03, "slope": 0.01}, None),
    ],
)
def test_planted_parts_are_found_again(trials_of: Trials, parts: dict[str, float], largest: str | None) -> None:
    """In the average cell each variance to within 15 % of the total, and the largest is named."""
    frame = planted(trials_of, **parts)
    found = overall(split(frame)).iloc[0]
    hours = (pd.to_datetime(frame["started_at"], format="ISO8601") - START).dt.total_seconds() / 3600
    expected = {"within": 0.0, "between": 0.0, **parts}
    expected["drift"] = expected.pop("slope", 0.0) * float(hours.groupby(frame["cell_id"]).std().mean())
    for part, sd in expected.items():
        assert found[f"{part}_sd"] ** 2 == pytest.approx(sd**2, abs=0.15 * found["total_sd"] ** 2)
    assert largest in (None, found["largest"])
    assert found["cells"] == 12


def test_the_parts_of_a_cell_are_its_total(trials_of: Trials) -> None:
    """Where something is left between trials, the three variances add up to what was seen."""
    found = split(planted(trials_of, within=0.02, between=0.04, slope=0.01))
    squares = found[["within_sd", "between_sd", "drift_sd"]] ** 2
    assert (squares > 0).all(axis=None)
    assert squares.sum(axis=1).to_numpy() == pytest.approx((found["total_sd"] ** 2).to_numpy())


def test_what_dominates_decides_the_advice(trials_of: Trials) -> None:
    """Longer windows, more blocks, a quieter machine, or nothing, each with its number."""
    said = {
        name: overall(split(planted(trials_of, blocks=10, **parts))).iloc[0]
        for name, parts in {
            "within": {"within": 0.06, "between": 0.004},
            "between": {"within": 0.01, "between": 0.06},
            "drift": {"within": 0.02, "between": 0.05, "slope": 0.3},
            "enough": {"within": 0.01, "between": 0.01},
            "both": {"within": 0.09, "between": 0.06},
        }.items()
    }
    for part, words in ADVICE.items():
        assert said[part]["advice"].startswith(words)
        assert said[part]["largest"] == part
    assert f"{said['between']['blocks']:.0f} instead of 10" in said["between"]["advice"]
    assert "% " not in said["drift"]["advice"]
    assert said["drift"]["advice"].endswith(" %")
    assert said["enough"]["advice"] == "enough: 10 blocks reach ±3 %"
    assert said["both"]["advice"].startswith("longer windows and more blocks: ")
    assert np.isinf(said["both"]["window_factor"])
    window = said["within"]
    now, factor = window["window_s"], window["window_factor"]
    assert f"{now * factor:.1f} s instead of {now:.1f} s" in window["advice"]


def test_what_is_advised_reaches_the_target(trials_of: Trials) -> None:
    """Blocks and windows as told make the interval of a contrast of two such cells as wide as was asked."""
    found = split(planted(trials_of, within=0.05, between=0.01, blocks=12), ci_target_pct=2.0)
    target = np.log(1.02)
    for row in found.to_dict("records"):
        pair = np.sqrt(2 * (row["within_sd"] ** 2 + row["between_sd"] ** 2))
        assert half_width(pair, row["blocks"]) <= target < half_width(pair, row["blocks"] - 1)
        if np.isfinite(row["window_factor"]):
            longer = np.sqrt(2 * (row["within_sd"] ** 2 / row["window_factor"] + row["between_sd"] ** 2))
            assert half_width(longer, row["n"]) == pytest.approx(target)


def test_two_ways_to_see_within_agree_on_the_recorded_run() -> None:
    """Halves and steps, over all cells of the run that is kept with the code: within a third, cells in like order."""
    run = store_runs.runs(ROOT / "results")[0]
    trials = run.table("trials")
    both = within_by_halves(trials).merge(within_by_steps(trials, run.table("steps")), on=["run_id", "cell_id"])
    halves, steps = both["within_sd_x"], both["within_sd_y"]
    assert len(both) >= 30
    assert float((steps / halves).median()) == pytest.approx(1, abs=1 / 3)
    assert stats.spearmanr(halves, steps).statistic > 0.7


def steps_of(trials: pd.DataFrame, durations: np.ndarray[Any, Any], kept: int = 256) -> pd.DataFrame:
    """The steps table of trials whose steps took so long, in ns; trials × steps."""
    rows = [
        {"run_id": run, "trial_id": trial, "step": step, "fetch_ns": int(ns)}
        for run, trial, row in zip(trials["run_id"], trials["trial_id"], durations, strict=True)
        for step, ns in enumerate(row[:kept])
    ]
    frame = pd.DataFrame(rows, columns=[column.name for column in STEPS])
    return frame.astype({"fetch_ns": "Int64"})


@pytest.mark.parametrize(("memory", "workers"), [(0.0, 0), (0.6, 0), (0.0, 4)])
def test_steps_say_how_much_another_window_would_differ(trials_of: Trials, memory: float, workers: int) -> None:
    """Independent steps, steps that remember, bursts of workers: from single windows, how much their means differ.

    Of 600 steps only the first 256 are known.
    """
    random = np.random.default_rng(3)
    trials, count = 300, 600
    noise = 0.2 * random.standard_normal((trials, count))
    for step in range(1, count):
        noise[:, step] += memory * noise[:, step - 1]
    steps = 1e6 * np.exp(noise)
    if workers:
        waiting = steps.reshape(trials, -1, workers)
        steps = np.where(np.arange(workers) == 0, waiting.sum(axis=2, keepdims=True), 0.0).reshape(trials, count) + 10
    frame = trials_of([({"num_workers": workers}, [1.0] * trials)])
    frame = frame.assign(trial_id=[f"t{row}" for row in range(trials)], steps=count)
    found = within_by_steps(frame, steps_of(frame, steps)).iloc[0]
    truth = np.log(steps.mean(axis=1)).std()
    assert found["within_sd"] == pytest.approx(truth, rel=0.2)
    assert found["n"] == trials
    assert (found["batch_steps"] > 1) == (memory > 0 or workers > 0)


def test_on_cuda_the_devices_steps_count(trials_of: Trials) -> None:
    """A host that runs ahead is steady while its device is not."""
    random = np.random.default_rng(4)
    frame = trials_of([({}, [1.0] * 20)]).assign(trial_id=[f"t{row}" for row in range(20)], steps=64)
    steps = steps_of(frame, np.full((20, 64), 1000.0))
    assert within_by_steps(frame, steps)["within_sd"].tolist() == [0]
    steps["device_forward_ns"] = pd.array(1e6 * np.exp(0.3 * random.standard_normal(len(steps))), dtype="Float64")
    assert within_by_steps(frame, steps)["within_sd"].tolist() == [pytest.approx(0.3 / 8, rel=0.2)]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(-0.1, 0.1)), min_size=3, max_size=20, unique_by=lambda row: row[0])
)
def test_the_trend_of_one_cell_is_linear_regression(trials_of: Trials, rows: list[tuple[float, float]]) -> None:
    """Slope and interval as SciPy has them, turned into per cent an hour."""
    hours, logs = np.array(sorted(rows)).T
    frame = trials_of([({}, list(np.exp(logs)))])
    frame["started_at"] = [(START + pd.Timedelta(hours=hour)).isoformat() for hour in hours]
    hours = np.array([(pd.Timestamp(at) - START).total_seconds() / 3600 for at in frame["started_at"]])
    if np.ptp(hours) < 0.01:
        return
    found, line = drift(frame).iloc[0], stats.linregress(hours, logs)
    half = float(stats.t.ppf(0.975, len(rows) - 2)) * line.stderr
    assert (found["source"], found["n"]) == ("cells", len(rows))
    assert found["pct_per_h"] == pytest.approx(100 * np.expm1(line.slope), abs=1e-6)
    if half < 100:
        assert found["hi"] == pytest.approx(100 * np.expm1(line.slope + half), rel=1e-5, abs=1e-4)
    assert found["hours"] == pytest.approx(np.ptp(hours))


def test_the_control_cell_shows_the_trend_too(trials_of: Trials) -> None:
    """Where one ran, all of its trials make a row of their own; both intervals hold the trend that was planted."""
    frame = planted(trials_of, within=0.01, between=0.01, slope=0.01, cells=4)
    control = frame["cell_id"] == frame["cell_id"].iloc[0]
    again = frame[control & (frame["block"] % 2 == 1)].assign(role="control")
    found = drift(pd.concat([frame, again], ignore_index=True)).set_index("source")
    assert found["n"].to_dict() == {"control": 45, "cells": 135}
    for row in found.to_dict("records"):
        assert row["lo"] < 100 * np.expm1(0.01) < row["hi"]
    assert list(drift(frame)["source"]) == ["cells"]


@pytest.mark.slow
def test_a_steady_machine_has_no_drift(trials_of: Trials) -> None:
    """What a straight line explains by chance is not counted: intervals of 120 runs hold 0, and the part is small."""
    frames = [
        planted(trials_of, between=0.05, cells=4, blocks=8, seed=seed).assign(run_id=f"r{seed}") for seed in range(120)
    ]
    runs = pd.concat(frames, ignore_index=True)
    trends = drift(runs)
    assert ((trends["lo"] < 0) & (trends["hi"] > 0)).mean() == pytest.approx(0.95, abs=0.06)
    found = overall(split(runs))
    assert len(found) == 120
    assert (found["drift_sd"] ** 2).mean() < 0.03 * (found["total_sd"] ** 2).mean()


def test_scale_and_order_do_not_matter(trials_of: Trials) -> None:
    """A machine twice as fast varies the same; so do rows in any order."""
    frame = planted(trials_of, within=0.02, between=0.03, slope=0.01, cells=3)
    one = split(frame)
    twice = split(frame.assign(samples_per_s=2 * frame["samples_per_s"]))
    moved = split(frame.sample(frac=1, random_state=1)).set_index("cell_id").loc[one["cell_id"]].reset_index()
    pd.testing.assert_frame_equal(one, twice)
    pd.testing.assert_frame_equal(one, moved[one.columns])


def test_a_plan_gets_simple_numbers(trials_of: Trials) -> None:
    """cell_id to two plain floats; a cell of one trial is left out."""
    frame = planted(trials_of, within=0.02, between=0.03, cells=3, blocks=5)
    one = frame["cell_id"].iloc[0]
    parts = split(frame[(frame["cell_id"] != one) | (frame["block"] == 0)])
    found = spreads(parts)
    assert set(found) == set(frame["cell_id"]) - {one}
    assert {type(value) for each in found.values() for value in each.values()} == {float}
    assert all(set(each) == {"within", "between"} for each in found.values())


def test_what_is_not_known_is_not_said(trials_of: Trials) -> None:
    """One trial, no halves, no times, no trials at all: NaN and no advice, never 0 for what nobody saw."""
    frame = planted(trials_of, within=0.02, between=0.03, cells=2, blocks=5)
    single = split(frame[frame["block"] == 0])
    assert single[["total_sd", "within_sd", "between_sd", "drift_sd", "blocks"]].isna().all(axis=None)
    assert list(single["advice"]) == [None, None]
    whole = split(frame.assign(half_ratio=np.nan))
    assert whole["within_sd"].isna().all()
    assert whole["total_sd"].notna().all()
    assert len(overall(whole)) == 0
    timeless = split(frame.assign(started_at=None))
    assert (timeless["drift_sd"] == 0).all()
    assert timeless["between_sd"].notna().all()
    assert len(drift(frame.assign(started_at=None))) == 0
    nothing = trials_of([])
    assert [len(found) for found in (split(nothing), drift(nothing), within_by_halves(nothing))] == [0, 0, 0]
    assert list(overall(split(nothing)).columns)[:2] == ["run_id", "cells"]
