"""Telemetry is thinned without losing a peak, in the same way every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pandas.testing
import pytest

from feedrate.questions.runs import telemetry
from feedrate.schema.columns import TELEMETRY

SECOND = 10**9


def samples(count: int = 4000, **columns: Any) -> pd.DataFrame:
    """Samples ten times a second, ten of a trial, forty trials of a block."""
    at = np.arange(count)
    frame = pd.DataFrame(
        {
            "run_id": "r",
            "trial_id": [f"t{place:05d}" for place in at // 10],
            "t_ns": (at + 7) * SECOND // 10,
            "block": at // 400,
            "position": at // 10 % 40,
            "role": "cell",
            "outcome": "ok",
            "flags": None,
            **columns,
        }
    )
    return frame.reindex(columns=list(dict.fromkeys([*(column.name for column in TELEMETRY), *frame.columns])))


def test_every_sample_is_in_one_bin_and_no_peak_is_lost() -> None:
    """Bins count every sample once, keep all extremes, and do not depend on the order of rows."""
    load = np.random.default_rng(1).gamma(2, 1, 4000)
    frame = samples(load_1m=load)
    found = telemetry.binned(telemetry.in_order(frame))
    mixed = telemetry.binned(telemetry.in_order(frame.sample(frac=1, random_state=3)))
    pandas.testing.assert_frame_equal(found, mixed)
    assert len(telemetry.binned(telemetry.in_order(samples(31)))) == 6
    assert list(telemetry.binned(telemetry.in_order(samples(1)))["n"]) == [1]
    assert len(found) == telemetry.BINS
    assert found["n"].sum() == 4000
    assert found["load_most"].max() == load.max()
    assert found["load_least"].min() == load.min()
    assert (found["load_least"] <= found["load"]).all()
    assert (found["load"] * found["n"]).sum() == pytest.approx(load.sum())
    assert found["memory"].isna().all()


def test_a_pause_stays_empty() -> None:
    """While nobody looked there is nothing, and no zero."""
    frame = samples(load_1m=1.0)
    frame.loc[frame["block"] >= 5, "t_ns"] += 200 * SECOND
    found = telemetry.binned(telemetry.in_order(frame))
    empty = found[found["n"] == 0]
    assert len(empty) > 20
    assert empty["load"].isna().all()


def test_a_resumed_run_never_goes_back() -> None:
    """Samples of later trials that the clock puts before earlier ones are moved behind them; the rest stays."""
    frame = samples()
    frame.loc[frame["block"] >= 5, "t_ns"] -= 50 * SECOND
    found = telemetry.in_order(frame)
    assert found["block"].is_monotonic_increasing
    assert found.groupby("trial_id")["t_s"].agg(lambda own: own.max() - own.min()).max() == pytest.approx(0.9)
    plain = telemetry.in_order(samples())
    assert list(plain["t_s"]) == pytest.approx(list(np.arange(4000) / 10))


def test_everything_else_is_what_is_left_of_the_cores() -> None:
    """Busy cores less the trial's own, never less than none; without the number of cores nobody can say."""
    frame = samples(2, cpu_util_pct=[75.0, 10.0], main_cpu_pct=[100.0, 90.0], workers_cpu_pct=[150.0, None])
    found = telemetry.quantities(frame, 4)
    assert list(found["others"]) == pytest.approx([0.5, 0.0])
    assert list(found["main"]) == [1.0, 0.9]
    assert telemetry.quantities(frame)["others"].isna().all()
