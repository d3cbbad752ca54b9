"""Every measure of every cell, against the estimates that the rest of the site shows, and against sums done by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials
from scipy import stats

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimates import cells
from feedrate.analysis.measures import COLUMNS, MEASURES, estimate_measures
from feedrate.schema.columns import PHASES, TRIALS


def test_throughput_is_the_estimate_of_all_other_pages() -> None:
    """Mean, interval, n and failures are those of ``estimates.cells``; a control counts once a block."""
    first = make_trials([({}, [100.0, 120.0, None, 90.0]), ({"batch_size": 64}, [50.0]), ({"batch_size": 8}, [None])])
    first = pd.concat([first, first[first["block"].eq(0)].assign(samples_per_s=80.0)], ignore_index=True)
    frame = pd.concat([first, make_trials([({}, [7.0, 8.0])], run_id="other")], ignore_index=True)
    known, found = cells(frame), estimate_measures(frame)
    assert found[KEYS].equals(known[KEYS])
    assert found[["n", "failed"]].equals(known[["n", "failed"]])
    for ours, theirs in (("samples_per_s", "samples_per_s"), ("samples_per_s_lo", "lo"), ("samples_per_s_hi", "hi")):
        np.testing.assert_allclose(found[ours], known[theirs])


def test_phases_are_arithmetic_and_add_up() -> None:
    """Phases sum to a sample's time, as one that took none counts as 0; ends are Student's."""
    frame = make_trials([({}, [100.0, 200.0, 400.0])], samples=1000)
    times = {"fetch": [3e6, 0.0, 1e6], "forward": [2e6, 2e6, 2e6], "other": [1e6, 1e6, 1e6]}
    for phase, values in times.items():
        frame[f"host_{phase}_ns"] = values
    row = estimate_measures(frame).iloc[0]
    assert sum(row[f"{phase}_us"] for phase in times) == pytest.approx(sum(map(sum, times.values())) / 3 / 1000 / 1000)
    low, high = stats.t.interval(0.95, 2, loc=4 / 3, scale=stats.sem([3.0, 0.0, 1.0]))
    assert low < 0
    assert (row["fetch_us_lo"], row["fetch_us_hi"], row["fetch_us_n"]) == (0.0, pytest.approx(high), 3)
    assert row["forward_us_lo"] == row["forward_us_hi"] == pytest.approx(2.0)
    assert np.isnan(row["backward_us"])
    assert row["backward_us_n"] == 0


def test_an_epoch_is_startup_and_all_samples() -> None:
    """Start-up plus the samples of the set at the trial's throughput; null where no set is read."""
    frame = make_trials([({"n_samples": 512}, [100.0] * 2), ({"mode": "compute"}, [100.0])], startup_ns=2_000_000_000)
    loads, computes = estimate_measures(frame).to_dict("records")
    assert loads["epoch_s"] == pytest.approx(2 + 5.12)
    assert np.isnan(computes["epoch_s"])


def test_percentages_end_at_a_hundred_and_one_block_has_no_interval() -> None:
    """The upper end of a utilization is cut off; what one block says has a mean and no ends."""
    frame = make_trials([({}, [100.0, 100.0]), ({"batch_size": 8}, [100.0])])
    frame["cpu_util_pct"] = [99.0, 95.0, 50.0]
    two, one = estimate_measures(frame).to_dict("records")
    assert (two["cpu_util_pct"], two["cpu_util_pct_hi"]) == (97.0, 100.0)
    assert (one["cpu_util_pct"], one["cpu_util_pct_n"]) == (50.0, 1)
    assert np.isnan([one["cpu_util_pct_lo"], one["cpu_util_pct_hi"], one["samples_per_s_lo"]]).all()


def test_a_cold_trial_that_was_warm_does_not_count() -> None:
    """Trials that were not as cold as their cell says are left out; a cell may have none."""
    frame = make_trials([({"page_cache": "cold"}, [100.0, 900.0, 110.0])])
    frame["cached_before_pct"] = [0.0, 100.0, 0.0]
    row = estimate_measures(frame).iloc[0]
    assert row["n"] == 2
    assert row["samples_per_s"] == pytest.approx(stats.gmean([100.0, 110.0]))
    frame["cached_before_pct"] = 100.0
    assert estimate_measures(frame).iloc[0]["n"] == 0


def test_measures_read_recorded_columns() -> None:
    """Every column that a measure names is recorded, every phase has a measure, and no two share a name."""
    assert set(COLUMNS) <= {column.name for column in TRIALS}
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    assert {f"{phase}_us" for phase in PHASES} <= set(names)
