"""The split of the spread between trials: planted parts are found again, and what is advised fits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feedrate.analysis.blocks import half_width
from feedrate.analysis.variance import ADVICE, overall, split
from feedrate.schema.columns import PHASES
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


def batch_means(windows: list[np.ndarray[Any, Any]], counts: list[float]) -> float:
    """Spread of a window's mean from its first steps: batches so long that neighbours correlate by less than 0.1.

    G. S. Fishman, Management Science 24(5), 1978. Few batches bias the correlation downwards, which is added back.
    """
    batches, size = windows, 1
    while True:
        centred = [each - each.mean() for each in batches]
        lagged = sum(float((each[:-1] * each[1:]).sum()) for each in centred)
        correlation = lagged / sum(float((each**2).sum()) for each in centred) + 1 / min(map(len, centred))
        longer = [each[: len(each) // 2 * 2].reshape(-1, 2).mean(axis=1) for each in batches]
        if correlation <= 0.1 or min(map(len, longer)) < 6:
            break
        batches, size = longer, 2 * size
    relative = [each.var(ddof=1) / each.mean() ** 2 for each in batches]
    return float(np.sqrt(np.mean([size * part / count for part, count in zip(relative, counts, strict=True)])))


def test_halves_and_single_steps_agree_on_the_recorded_run() -> None:
    """What is within windows, seen by their halves and by batch means of their steps: within a third, in like order."""
    run = store_runs.runs(ROOT / "results")[0]
    trials, steps = run.table("trials"), run.table("steps")
    spent = steps[[f"{phase}_ns" for phase in PHASES]].astype("float64").sum(axis=1)
    by_trial = {trial: part.to_numpy() for trial, part in spent.groupby(steps["trial_id"])}
    rows = []
    for row in split(trials).to_dict("records"):
        own = trials[trials["cell_id"].eq(row["cell_id"]) & trials["outcome"].eq("ok")]
        workers = max(1, int(own["num_workers"].fillna(0).iloc[0]))
        windows = [by_trial.get(trial, np.zeros(0)) for trial in own["trial_id"]]
        bursts = [each[: len(each) // workers * workers].reshape(-1, workers).sum(axis=1) for each in windows]
        known = [(each, count / workers) for each, count in zip(bursts, own["steps"], strict=True) if len(each) >= 6]
        if known:
            rows.append((row["within_sd"], batch_means(*map(list, zip(*known, strict=True)))))  # type: ignore[arg-type]
    halves, single = np.array(rows).T
    assert len(rows) >= 30
    assert float(np.median(single / halves)) == pytest.approx(1, abs=1 / 3)
    assert stats.spearmanr(halves, single).statistic > 0.7


@pytest.mark.slow
def test_a_steady_machine_has_no_drift(trials_of: Trials) -> None:
    """What a straight line explains by chance is not counted: over 120 runs the part is small."""
    frames = [
        planted(trials_of, between=0.05, cells=4, blocks=8, seed=seed).assign(run_id=f"r{seed}") for seed in range(120)
    ]
    runs = pd.concat(frames, ignore_index=True)
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
    nothing = trials_of([])
    assert len(split(nothing)) == 0
    assert list(overall(split(nothing)).columns)[:2] == ["run_id", "cells"]
