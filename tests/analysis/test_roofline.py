"""Every training cell under its roof, on made-up trials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feedrate.analysis.ceilings import ADDED, roofline

Trials = Callable[..., pd.DataFrame]
CELL: dict[str, Any] = {"mode": "train", "batch_size": 32, "num_workers": 2}
EMULATED: dict[str, Any] = {**CELL, "step": "emulated", "step_ms": 10.0}
LOAD, COPY, COMPUTE = ({**CELL, "mode": mode} for mode in ("load", "copy", "compute"))
WEATHER = (1.0, 1.1, 0.9, 1.05)


def rates(value: float, more: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)) -> list[float]:
    """Samples/s by block: all cells share the weather of a block."""
    return [value * weather * own for weather, own in zip(WEATHER, more, strict=True)]


def test_a_cell_stands_under_the_slower_of_its_ceilings(trials_of: Trials) -> None:
    """Loading 100, computing 200, achieving 80: fed half of what it could compute, it reaches 0.4 of a roof of 0.5."""
    found = roofline(trials_of([(CELL, rates(80)), (LOAD, rates(100)), (COMPUTE, rates(200))]))
    row = found.iloc[0]
    assert len(found) == 1
    assert [row["headroom"], row["au"], row["roof"], row["efficiency"]] == pytest.approx([0.5, 0.4, 0.5, 0.8])
    assert row["bottleneck"] == "loader-bound"
    assert row["feed"] == "load"
    assert [row["load_n"], row["compute_n"], row["copy_n"]] == [4, 4, 0]


def test_the_roof_ends_where_the_step_has_all_that_it_takes(trials_of: Trials) -> None:
    """Fed three times what it can compute, a cell can still do no more than compute."""
    row = roofline(trials_of([(CELL, rates(180)), (LOAD, rates(600)), (COMPUTE, rates(200))])).iloc[0]
    assert [row["headroom"], row["roof"], row["au"]] == pytest.approx([3.0, 1.0, 0.9])
    assert row["bottleneck"] == "compute-bound"


def test_intervals_are_paired_by_block(trials_of: Trials) -> None:
    """The weather of a block is in neither; what is left is Student's t on logs."""
    own = (1.02, 0.99, 1.0, 0.97)
    row = roofline(trials_of([(CELL, rates(80, own)), (LOAD, rates(100)), (COMPUTE, rates(200))])).iloc[0]
    assert row["headroom_hi"] - row["headroom_lo"] == pytest.approx(0.0, abs=1e-9)
    logs = np.log(own) + math.log(0.4)
    half = stats.t.ppf(0.975, 3) * logs.std(ddof=1) / 2
    assert [row["au_lo"], row["au_hi"]] == pytest.approx([math.exp(logs.mean() - half), math.exp(logs.mean() + half)])
    assert row["load_hi"] > 1.1 * row["load_lo"]


def test_an_emulated_step_is_declared(trials_of: Trials) -> None:
    """32 samples in 10 ms are 3,200 a second, without an interval and without blocks of its own."""
    row = roofline(trials_of([(EMULATED, rates(1600)), (LOAD, rates(2000))])).iloc[0]
    assert [row["headroom"], row["au"]] == pytest.approx([2000 / 3200, 1600 / 3200], rel=0.01)
    assert row["compute_n"] == 0
    assert math.isnan(row["compute_lo"])
    assert row["headroom_lo"] < row["headroom"] < row["headroom_hi"]


def test_a_slow_copy_is_what_feeds(trials_of: Trials) -> None:
    """On a device the slower of loader and copies feeds the step."""
    trials = trials_of(
        [(CELL, rates(80)), (LOAD, rates(900)), (COPY, rates(100)), (COMPUTE, rates(200))], device="cuda"
    )
    row = roofline(trials).iloc[0]
    assert row["feed"] == "copy"
    assert row["feed_ceiling"] == pytest.approx(row["copy_ceiling"])
    assert row["headroom"] == pytest.approx(0.5)
    assert row["bottleneck"] == "copy-bound"


def test_a_cell_without_both_ceilings_has_no_roof(trials_of: Trials) -> None:
    """Nothing is guessed where the loader or the step was not measured alone, or nothing ended well."""
    for cells in ([(CELL, rates(80))], [(CELL, rates(80)), (LOAD, rates(100))], [(CELL, [None] * 4), (LOAD, rates(9))]):
        found = roofline(trials_of(cells))
        assert found.empty
        assert set(ADDED) <= set(found.columns)
