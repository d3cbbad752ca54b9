"""Contrasts: which pairs are compared, how, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_trials import make_cell, make_trials
from scipy import stats

from feedrate.analysis.contrasts import blocks_needed, contrasts, verdicts
from feedrate.analysis.estimate import half_width
from feedrate.schema.axes import ACTIVITIES, AXES, applicable, cell_id

VALUES: dict[str, list[Any]] = {
    "workload": ["synthetic", "div2k_standin"],
    "mode": ["train", "load", "compute"],
    "step": ["real", "emulated"],
    "step_ms": [10.0, 20.0],
    "num_workers": [0, 2, 4],
    "prefetch_factor": [2, 4],
    "batch_size": [8, 32],
    "pin_memory": [False, True],
    "scale": [2, 3],
    "read_us": [0, 100],
    "timing": ["events", "serialized"],
}
COMBINATION = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()})
RATE = st.floats(1.0, 1e6)


def pairs(found: pd.DataFrame) -> set[tuple[str, str, str]]:
    return set(zip(found["axis"], found["cell_a"], found["cell_b"], strict=True))


def changed(cell: Mapping[str, Any], axis: str, value: Any, device: str) -> dict[str, Any]:
    """The cell with one axis changed, axes that newly apply at their default: as the matrix would expand it."""
    return applicable({**{axis.name: axis.default for axis in AXES}, **cell, axis: value}, device)[0]


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(COMBINATION, min_size=2, max_size=14), st.sampled_from(["cpu", "cuda"]))
def test_pairs_are_those_that_one_change_turns_into_each_other(combinations: list[dict[str, Any]], device: str) -> None:
    """Against brute force over feedrate.schema.axes.applicable: A with B's value is B, and B with A's value is A."""
    cells = list({cell_id(cell): cell for cell in (make_cell(axes, device) for axes in combinations)}.values())
    expected = {
        (axis, cell_id(a), cell_id(b))
        for a, b in permutations(cells, 2)
        for axis in (set(a) & set(b)) - set(ACTIVITIES)
        if a[axis] < b[axis] and changed(a, axis, b[axis], device) == b and changed(b, axis, a[axis], device) == a
    }
    assert pairs(contrasts(make_trials([(cell, [100.0]) for cell in cells], device=device))) == expected


def test_no_workers_against_two_is_a_contrast_at_the_default_prefetch_factor() -> None:
    """prefetch_factor applies on one side only: at its default it is no second difference, elsewhere it is."""
    none, two, deep = {}, {"num_workers": 2}, {"num_workers": 2, "prefetch_factor": 4}
    found = contrasts(make_trials([(axes, [100.0] * 2) for axes in (deep, two, none)]))
    ids = {name: cell_id(make_cell(axes)) for name, axes in (("none", none), ("two", two), ("deep", deep))}
    assert pairs(found) == {("num_workers", ids["none"], ids["two"]), ("prefetch_factor", ids["two"], ids["deep"])}
    assert found.set_index("axis").loc["num_workers", ["a_value", "b_value"]].tolist() == [0, 2]
    assert [type(value) for value in found["b_value"]] == [int, int]


def test_a_loader_alone_is_no_contrast_to_training() -> None:
    """Mode and step say what a trial does; the emulated step's length is a knob of emulated steps."""
    emulated = {"step": "emulated"}
    cells = [{}, {"mode": "load"}, {"mode": "compute"}, emulated, {**emulated, "step_ms": 20.0}]
    assert list(contrasts(make_trials([(cell, [1.0]) for cell in cells]))["axis"]) == ["step_ms"]


def test_b_is_the_later_value() -> None:
    """Numbers ascending, false before true, names in the axis table's order."""
    axes = [{"batch_size": 128}, {"batch_size": 8}, {"batch_size": 32}]
    found = contrasts(make_trials([(cell, [100.0]) for cell in axes]))
    assert sorted(zip(found["a_value"], found["b_value"], strict=True)) == [(8, 32), (8, 128), (32, 128)]
    on_cuda = [{"pin_memory": True}, {}, {"pin_memory": True, "timing": "serialized"}, {"storage_format": "lmdb"}]
    found = contrasts(make_trials([(cell, [100.0]) for cell in on_cuda], device="cuda")).set_index("axis")
    assert found.loc["pin_memory", ["a_value", "b_value"]].tolist() == [False, True]
    assert found.loc["timing", ["a_value", "b_value"]].tolist() == ["events", "serialized"]
    assert found.loc["storage_format", ["a_value", "b_value"]].tolist() == ["lmdb", "png"]


def test_what_both_sides_share_is_told_and_the_axis_that_differs_is_null() -> None:
    """A conditional axis takes the value of the side where it applies."""
    row = contrasts(make_trials([({}, [1.0]), ({"num_workers": 2}, [1.0])])).iloc[0]
    assert pd.isna(row["num_workers"])
    assert (row["prefetch_factor"], row["batch_size"], row["workload"]) == (2, 32, "synthetic")


@pytest.mark.slow
@settings(max_examples=8)
@given(st.lists(st.tuples(RATE, RATE), min_size=2, max_size=10))
def test_the_interval_is_students_t_on_paired_log_ratios(rates: list[tuple[float, float]]) -> None:
    """Ratio and interval agree with SciPy's on the differences of logs."""
    first, second = np.array(rates).T
    row = contrasts(make_trials([({"batch_size": 8}, list(first)), ({"batch_size": 16}, list(second))])).iloc[0]
    logs = np.log(second) - np.log(first)
    assert row["ratio"] == pytest.approx(np.exp(logs.mean()))
    assert (row["n"], row["dropped"]) == (len(rates), 0)
    if logs.std() > 1e-9:
        lo, hi = stats.t.interval(0.95, len(rates) - 1, loc=logs.mean(), scale=stats.sem(logs))
        assert (np.log(row["lo"]), np.log(row["hi"])) == (pytest.approx(lo), pytest.approx(hi))


def test_a_failed_partner_drops_the_pair_and_is_counted() -> None:
    """Failed on one side: dropped. Never begun on one side: no pair, and none dropped."""
    never = float("nan")
    frame = make_trials(
        [
            ({"batch_size": 8}, [100.0, None, 100.0, 100.0, None]),
            ({"batch_size": 16}, [200.0, 200.0, 200.0, never, None]),
        ]
    )
    row = contrasts(frame).iloc[0]
    assert (row["n"], row["dropped"], row["ratio"]) == (2, 2, pytest.approx(2))


@pytest.mark.parametrize(
    ("lo", "hi", "verdict"),
    [
        (0.971, 1.029, "no difference"),
        (1.011, 1.029, "no difference"),
        (1.011, 1.2, "faster"),
        (1.009, 1.2, "inconclusive"),
        (0.8, 0.989, "slower"),
        (0.8, 0.995, "inconclusive"),
        (0.9, 1.1, "inconclusive"),
        (float("nan"), float("nan"), "inconclusive"),
    ],
)
def test_verdicts(lo: float, hi: float, verdict: str) -> None:
    """The first rule that holds: inside ±3 %, over 1.01, under 0.99, else inconclusive."""
    assert verdicts((lo * hi) ** 0.5, lo, hi) == verdict


@settings(max_examples=50)
@given(st.floats(0.8, 1.2), st.floats(0.005, 0.2))
def test_blocks_needed_are_the_first_that_decide(ratio: float, sd: float) -> None:
    """With as many blocks the verdict holds, with one fewer it does not."""

    def said(n: float) -> str:
        half = float(half_width(sd, n))
        return str(verdicts(ratio, ratio * np.exp(-half), ratio * np.exp(half)))

    n = float(blocks_needed(ratio, sd))
    assert said(n) != "inconclusive"
    assert n == 2 or said(n - 1) == "inconclusive"


def test_blocks_needed_are_told_where_nothing_is_decided() -> None:
    """More than were measured where it is inconclusive, NaN where a verdict holds or no spread is known."""
    wobbly = [100.0, 120.0, 90.0, 110.0]
    rates = {8: [100.0] * 4, 16: wobbly, 32: [200.0, 201.0, 199.0, 200.0], 64: [100.0, None, None, None]}
    frame = make_trials([({"batch_size": size}, values) for size, values in rates.items()])
    found = contrasts(frame).set_index(["a_value", "b_value"])
    assert found.loc[(8, 16), "verdict"] == "inconclusive"
    assert 4 < found.loc[(8, 16), "blocks_needed"] < 1000
    assert found.loc[(8, 32), "verdict"] == "faster"
    assert found.loc[[(8, 32), (8, 64)], "blocks_needed"].isna().all()
