"""The charts of the loader: what is drawn is what was recorded, and what the analysis makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from feedrate.pages.runs import RunView, draw
from feedrate.schema.columns import PHASES

Show = Callable[..., RunView]


@pytest.fixture(scope="module")
def cpu(show: Show) -> RunView:
    return show()


def test_a_mark_is_what_was_recorded(cpu: RunView) -> None:
    """Throughput is the geometric mean over blocks with Student's t; recomputed here."""
    (row,) = (
        row
        for row in draw("throughput", cpu).rows
        if "emulated" in row["what ran"] and (row["batch_size"], row["num_workers"]) == (128, 2)
    )
    trials = cpu.trials
    cell = trials[
        trials["step"].eq("emulated")
        & trials["batch_size"].eq(128)
        & trials["num_workers"].eq(2)
        & trials["storage_format"].eq("png")
        & trials["outcome"].eq("ok")
    ]
    values = np.log(cell["samples"] / cell["wall_ns"] * 1e9).to_numpy(float)
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    wanted = [values.mean() + shift for shift in (0, -half, half)]
    assert row["n"] == len(values)
    assert [row["samples per s"], row["low"], row["high"]] == pytest.approx(np.exp(wanted), rel=1e-6)


def test_phases_add_up_to_the_time_of_a_sample(cpu: RunView) -> None:
    """The segments of a bar sum to its length, and its length is one over the throughput."""
    for row in draw("phases", cpu).rows:
        parts = [row.get(f"{phase} (us)") for phase in (*PHASES, "emulated")]
        assert sum(part for part in parts if part is not None) == pytest.approx(row["total (us)"], rel=1e-3)
        assert row["low (us)"] <= row["total (us)"] <= row["high (us)"]
