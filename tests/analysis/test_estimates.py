"""Estimates of cells, against SciPy, against known truths, and against what must not matter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials
from scipy import stats

from feedrate.analysis.estimates import MEDIANS, cells
from feedrate.schema.columns import AXIS_COLUMNS


@pytest.mark.slow
def test_the_interval_covers_the_truth_95_times_in_100() -> None:
    """Intervals of 2,000 cells with 5 % spread hold the true throughput in 93.5 to 96.5 %."""
    random = np.random.default_rng(1)
    runs, blocks = 2000, 8
    one = make_trials([({}, [1.0] * blocks)])
    frame = pd.concat([one] * runs, ignore_index=True)
    frame["run_id"] = np.repeat([f"r{run}" for run in range(runs)], blocks)
    frame["samples_per_s"] = 1000 * np.exp(random.normal(0, 0.05, len(frame)))
    found = cells(frame)
    assert len(found) == runs
    first = frame["samples_per_s"][:blocks]
    assert found["samples_per_s"][0] == pytest.approx(stats.gmean(first))
    assert found["cv_pct"][0] == pytest.approx(100 * stats.variation(first, ddof=1))
    assert 0.935 < ((found["lo"] < 1000) & (found["hi"] > 1000)).mean() < 0.965


def test_one_block_has_an_estimate_and_no_interval() -> None:
    """A spread that nobody saw is NaN, not 0."""
    row = cells(make_trials([({}, [100.0])])).iloc[0]
    assert row["samples_per_s"] == pytest.approx(100)
    assert row["n"] == 1
    assert np.isnan([row["lo"], row["hi"], row["cv_pct"]]).all()


def test_failed_trials_are_counted_and_left_out() -> None:
    """A failure costs its block; a cell whose every trial failed is NaN, not 0."""
    frame = make_trials([({}, [100.0, None, 100.0]), ({"batch_size": 64}, [None, None])])
    some, none = cells(frame).to_dict("records")
    assert (some["n"], some["failed"], some["samples_per_s"]) == (2, 1, pytest.approx(100))
    assert (none["n"], none["failed"]) == (0, 2)
    assert np.isnan([none[name] for name in ("samples_per_s", "lo", "hi", "cv_pct", "fetch_share", *MEDIANS)]).all()
    assert none["batch_size"] == 64


def test_shares_are_of_the_wall_clock_and_null_stays_null() -> None:
    """Each phase's share is its sum over the window ÷ wall clock; h2d on a CPU is NaN."""
    frame = make_trials([({}, [1000.0, 1000.0])], host_fetch_ns=600_000_000, host_forward_ns=300_000_000, steady=True)
    frame["steady"] = [True, False]
    row = cells(frame).iloc[0]
    assert (row["fetch_share"], row["forward_share"]) == (pytest.approx(0.6), pytest.approx(0.3))
    assert np.isnan([row["h2d_share"], row["device_idle_share"], row["gpu_util_pct"]]).all()
    assert row["steady_share"] == 0.5


def test_what_was_seen_beside_it_is_a_median_over_blocks() -> None:
    """An outlier among three blocks does not move utilization; joules are a sample's."""
    frame = make_trials([({}, [100.0] * 3)], gpu_energy_j=50.0)
    frame = frame.assign(cpu_util_pct=[10.0, 12.0, 99.0], gpu_energy_ns=frame["wall_ns"])
    row = cells(frame).iloc[0]
    assert row["cpu_util_pct"] == 12
    assert row["joules_per_sample"] == pytest.approx(0.05)
    longer = make_trials([({}, [100.0] * 3)], gpu_energy_j=50.0, gpu_energy_ns=int(1.25 * frame["wall_ns"][0]))
    assert cells(longer)["joules_per_sample"][0] == pytest.approx(0.04), "read a quarter longer than the window"


@pytest.mark.parametrize("backend", ["float", "nullable"])
def test_nulls_of_every_kind_are_read(backend: str) -> None:
    """NaN, None and pandas' own null count the same, in every type that a reader may choose."""
    frame = make_trials([({"num_workers": 2}, [100.0, None, 110.0]), ({}, [100.0, 110.0, 120.0])], host_fetch_ns=1)
    frame = frame.convert_dtypes() if backend == "nullable" else frame
    found = cells(frame)
    assert list(found["n"]) == [2, 3]
    assert found["prefetch_factor"].isna().tolist() == [False, True]
    assert {column.name for column in AXIS_COLUMNS} <= set(found.columns)


def test_no_trials_give_no_cells() -> None:
    """An empty run has an empty table with all columns."""
    found = cells(make_trials([]))
    assert len(found) == 0
    assert {"samples_per_s", "lo", "hi", "n", "fetch_share"} <= set(found.columns)
