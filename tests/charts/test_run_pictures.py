"""The pictures of a run: scaling with workers, copies by size, telemetry and drift show what was recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.charts.figure import Figure
from feedrate.pages.runs import RunView, draw
from feedrate.questions.runs import telemetry as seen
from feedrate.questions.runs.drift_charts import drift
from feedrate.questions.runs.telemetry_charts import telemetry
from feedrate.questions.transfer.charts import transfer_size, transfers
from feedrate.questions.workers.charts import worker_scaling
from feedrate.schema import words

Show = Callable[..., RunView]
TrialsOf = Callable[..., pd.DataFrame]
Specs = Callable[[Figure], list[dict[str, Any]]]
WHOLE: dict[str, Any] = {"device": "cuda", "workers": (0, 1, 2), "batches": (8, 32), "busy": True}
"""A run that every one of them can be drawn from."""
COPY = {"mode": "copy", "batch_size": 8}
SPAN = {"steps": 100, "batch_bytes": 1_000_000, "device_h2d_ns": 10_000_000}


def data(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return list(spec["datasets"].values())


@pytest.mark.slow
def test_scaling_is_speed_up_over_the_fewest_workers(show: Show, specs: Specs) -> None:
    """One for the base itself, and else the ratio of rates; cores are marked where they are known."""
    trials = show(workers=(0, 1, 2)).trials
    figure = worker_scaling.draw(trials, cores=2)
    for row in figure.rows:
        assert row["over workers"] == 0
        assert (row["speed-up"] == pytest.approx(1.0)) == (row["num_workers"] == 0)
    assert "2 cores" in json.dumps(specs(figure)[0])
    assert "2 cores" not in json.dumps(specs(worker_scaling.draw(trials))[0])


def test_copies_by_size_need_a_device(show: Show) -> None:
    """On a CPU it says that nothing was copied; on a GPU pinned memory is faster, as made up; the bus is not meant."""
    assert "without a CUDA device" in transfer_size.draw(show().trials).missing
    figure = transfer_size.draw(show(**WHOLE).trials)
    rates = {row["memory"]: row["GB per s"] for row in figure.rows if row["copies"] == "Copies alone"}
    assert rates["pinned"] > 1.3 * rates["pageable"]
    assert "pinned" in figure.panels[0].message
    assert all(row["low"] <= row["GB per s"] <= row["high"] for row in figure.rows)
    assert any("The spans contain launches" in note for note in figure.notes)


def test_bandwidth_is_bytes_by_copy_time(trials_of: TrialsOf) -> None:
    """100 batches of 1 MB in 10 ms are 10 GB/s."""
    row = transfers(trials_of([(COPY, [50.0, 60.0, 70.0])], device="cuda", **SPAN)).iloc[0]
    assert [row["gb_per_s"], row["gb_lo"], row["gb_hi"]] == pytest.approx([10.0] * 3)
    assert row["gb_n"] == 3
    assert row["batch_bytes"] == 1_000_000


def test_telemetry_is_thinned_and_marks_trials(show: Show, specs: Specs) -> None:
    """At most 600 points a line; the peak that was seen is in the table; marked trials are in the legend."""
    run = show(busy=True)
    figure = draw("telemetry", run)
    assert 10 < len(figure.rows) <= 600
    steal = float(run.telemetry["steal_pct"].max())
    assert max(row["Taken by the hypervisor (% of all cores): most"] or 0.0 for row in figure.rows) == steal
    assert all(len(rows) <= 600 for rows in data(specs(figure)[0]))
    assert {"measurement with a flag", "workers"} <= {key.label for key in figure.keys}
    assert f"{run.trials['flags'].notna().sum()} of {len(run.trials)} measurements carry a flag" in figure.message
    assert not any("GPU" in key.label for key in figure.keys)
    assert "GPU utilization (%)" in draw("telemetry", show(**WHOLE)).rows[0]


def test_telemetry_says_whose_the_cores_were(show: Show) -> None:
    """The mean of everything else is that of the samples, over all cores of the system, whichever a run might use."""
    run = show(busy=True)
    online = 64
    mean = seen.quantities(seen.in_order(run.telemetry), online).mean()
    drawn = telemetry.draw(run.telemetry, cores=run.cores, cores_logical=online)
    assert f"of {run.cores:g} cores busy on average, everything else {words.number(mean['others'], 2)}" in drawn.message
    unknown = telemetry.draw(run.telemetry, cores=run.cores)
    assert "everything else" not in unknown.message


def control(trials: pd.DataFrame) -> pd.Series:
    """Which trials are those of the control cell."""
    cell = trials.loc[trials["role"].eq("control"), "cell_id"].iloc[0]
    return trials["cell_id"].eq(cell) & trials["outcome"].eq("ok")


def test_drift_is_told_with_its_interval(show: Show, specs: Specs) -> None:
    """The mean of the control cell is that over its blocks; its trials are all in the table, flagged ones apart."""
    run = show(busy=True)
    figure = drift.draw(run.trials)
    own = run.trials[control(run.trials)]
    logs = np.log(own["samples_per_s"].astype(float)).groupby(own["block"].astype(int)).mean()
    mean = next(row for row in figure.rows if row["what"] == "mean over repetitions")
    assert mean["samples per s"] == pytest.approx(math.exp(logs.mean()))
    assert mean["low"] < mean["samples per s"] < mean["high"]
    trials = [row for row in figure.rows if row["what"] == "measurement"]
    assert len(trials) == len(own)
    flagged = own["flags"].notna().sum()
    marks = [row for rows in data(specs(figure)[0]) for row in rows if "rate" in row]
    assert sum(row["flags"] != "none" for row in trials) == flagged > 0
    assert sum(row["kind"] == "flagged" for row in marks) == flagged
    change = figure.rows[len(trials) + 1]
    assert change["what"] == "change over the run, %"
    assert f" it changed by {words.signed(change['%'])} " in figure.message
