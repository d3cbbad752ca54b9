"""Where the spread of a cell's trials comes from, and what is advised against it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials

from feedrate.analysis.estimate import half_width
from feedrate.analysis.variance import ADVICE, average_cell, split

START = pd.Timestamp("2026-01-01", tz="UTC")


def planted(
    *, within: float = 0.0, between: float = 0.0, slope: float = 0.0, cells: int = 12, blocks: int = 30, seed: int = 0
) -> pd.DataFrame:
    """Trials two minutes apart: halves that differ by what is within, trials by what is between, a trend per hour."""
    random = np.random.default_rng(seed)
    frame = make_trials([({"batch_size": 1 + cell}, [1.0] * blocks) for cell in range(cells)])
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
def test_planted_parts_are_found_again(parts: dict[str, float], largest: str | None) -> None:
    """In the average cell each variance to within 15 % of the total, and the largest is named."""
    frame = planted(**parts)
    found = average_cell(split(frame)).iloc[0]
    hours = (pd.to_datetime(frame["started_at"], format="ISO8601") - START).dt.total_seconds() / 3600
    expected = {"within": 0.0, "between": 0.0, **parts}
    expected["drift"] = expected.pop("slope", 0.0) * float(hours.groupby(frame["cell_id"]).std().mean())
    for part, sd in expected.items():
        assert found[f"{part}_sd"] ** 2 == pytest.approx(sd**2, abs=0.15 * found["total_sd"] ** 2)
    assert largest in (None, found["largest"])
    assert found["cells"] == 12


def test_what_dominates_decides_the_advice() -> None:
    """Longer windows, more blocks, a quieter machine, or nothing, each with its number."""
    said = {
        name: average_cell(split(planted(blocks=10, **parts))).iloc[0]
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
    assert said["drift"]["advice"].endswith("\u00a0%")
    assert said["enough"]["advice"] == "no more than these 10 repetitions"
    assert said["both"]["advice"].startswith("longer windows and more repetitions: ")
    assert np.isinf(said["both"]["window_factor"])
    window = said["within"]
    now, factor = window["window_s"], window["window_factor"]
    assert f"{now * factor:.1f} s instead of {now:.1f} s" in window["advice"]


def test_what_is_advised_reaches_the_target() -> None:
    """Blocks and windows as told make the interval of a contrast of two such cells as wide as was asked."""
    found = split(planted(within=0.05, between=0.01, blocks=12), ci_target_pct=2.0)
    target = np.log(1.02)
    for row in found.to_dict("records"):
        pair = np.sqrt(2 * (row["within_sd"] ** 2 + row["between_sd"] ** 2))
        assert half_width(pair, row["blocks"]) <= target < half_width(pair, row["blocks"] - 1)
        if np.isfinite(row["window_factor"]):
            longer = np.sqrt(2 * (row["within_sd"] ** 2 / row["window_factor"] + row["between_sd"] ** 2))
            assert half_width(longer, row["n"]) == pytest.approx(target)


@pytest.mark.slow
def test_a_steady_machine_has_no_drift() -> None:
    """What a straight line explains by chance is not counted: over 60 runs the part is small."""
    frames = [planted(between=0.05, cells=4, blocks=8, seed=seed).assign(run_id=f"r{seed}") for seed in range(60)]
    runs = pd.concat(frames, ignore_index=True)
    found = average_cell(split(runs))
    assert len(found) == 60
    assert (found["drift_sd"] ** 2).mean() < 0.03 * (found["total_sd"] ** 2).mean()


def test_what_is_not_known_is_not_said() -> None:
    """One trial, no halves, no times, no trials at all: NaN and no advice, never 0 for what nobody saw."""
    frame = planted(within=0.02, between=0.03, cells=2, blocks=5)
    single = split(frame[frame["block"] == 0])
    assert single[["total_sd", "within_sd", "between_sd", "drift_sd", "blocks"]].isna().all(axis=None)
    assert list(single["advice"]) == [None, None]
    whole = split(frame.assign(half_ratio=np.nan))
    assert whole["within_sd"].isna().all()
    assert whole["total_sd"].notna().all()
    assert len(average_cell(whole)) == 0
    timeless = split(frame.assign(started_at=None))
    assert (timeless["drift_sd"] == 0).all()
    assert timeless["between_sd"].notna().all()
    nothing = make_trials([])
    assert len(split(nothing)) == 0
    assert list(average_cell(split(nothing)).columns)[:2] == ["run_id", "cells"]
