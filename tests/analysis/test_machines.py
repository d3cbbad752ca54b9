"""Two runs compared cell by cell: Welch against SciPy, and what must match first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_trials import make_trials
from scipy import stats

from feedrate.analysis.machines import CELL, compare, matching, overall
from feedrate.schema.axes import AXES

RATES = st.lists(st.floats(1.0, 1e6), min_size=2, max_size=10)
ENDS = ("ratio", "lo", "hi")
SMALL, LARGE = {"batch_size": 8}, {"batch_size": 16}


def run(rates: Any, run_id: str, **columns: Any) -> pd.DataFrame:
    """One run of the cells given, data and all."""
    return make_trials(rates, run_id=run_id, **{"data_hash": "abc", **columns})


@pytest.mark.slow
@settings(max_examples=12)
@given(RATES, RATES)
def test_the_interval_is_welchs_on_logs(a: list[float], b: list[float]) -> None:
    """Ratio, ends and degrees of freedom agree with SciPy's t test of unequal variances."""
    row = compare(run([({}, a)], "a"), run([({}, b)], "b")).iloc[0]
    logs_a, logs_b = np.log(a), np.log(b)
    assert row["ratio"] == pytest.approx(np.exp(logs_b.mean() - logs_a.mean()))
    assert (row["samples_per_s_a"], row["samples_per_s_b"]) == (
        pytest.approx(stats.gmean(a)),
        pytest.approx(stats.gmean(b)),
    )
    assert (row["n_a"], row["n_b"]) == (len(a), len(b))
    if min(logs_a.std(), logs_b.std()) > 1e-6:
        found = stats.ttest_ind(logs_b, logs_a, equal_var=False)
        lo, hi = found.confidence_interval(0.95)
        assert (np.log(row["lo"]), np.log(row["hi"])) == (pytest.approx(lo), pytest.approx(hi))
        assert row["df"] == pytest.approx(found.df)


def test_the_slower_machine_is_said_to_be_slower() -> None:
    """B against A, by the margins of every verdict; what both sides are is told with it."""
    steady = [100.0, 101.0, 99.0, 100.0]
    a = run([(SMALL, steady), (LARGE, steady)], "a")
    b = run([(SMALL, [rate / 2 for rate in steady]), (LARGE, [rate * 1.001 for rate in steady])], "b")
    found = compare(a, b).set_index("batch_size")
    assert found["verdict"].to_dict() == {8: "slower", 16: "no difference"}
    assert set(found["workload"]) == {"synthetic"}


def test_one_block_has_a_ratio_and_no_interval() -> None:
    """On either side; a spread of 0 on both is an interval without width."""
    one, four = run([({}, [100.0])], "a"), run([({}, [200.0, 201.0, 199.0, 200.0])], "b")
    for row in (compare(one, four).iloc[0], compare(four, one).iloc[0]):
        assert np.isnan([row["lo"], row["hi"], row["df"]]).all()
        assert row["verdict"] == "measured once"
    even = compare(run([({}, [100.0] * 3)], "a"), run([({}, [150.0] * 2)], "b")).iloc[0]
    assert [even[end] for end in ENDS] == [pytest.approx(1.5)] * 3
    assert (even["df"], even["verdict"]) == (3, "faster")


REASONS: list[tuple[dict[str, Any], str]] = [
    ({"data_hash": "xyz"}, "different data_hash: abc in A, xyz in B"),
    ({"workload_version": 2}, "different workload_version: 1 in A, 2 in B"),
    ({"protocol_version": 2}, "different protocol_version: 1 in A, 2 in B"),
]


@pytest.mark.parametrize(("columns", "reason"), REASONS)
def test_what_was_measured_otherwise_is_not_compared(columns: Any, reason: str) -> None:
    """Data, workload and protocol must agree, and what disagrees is named."""
    a = run([({}, [100.0] * 2)], "a")
    b = run([({}, [100.0] * 2)], "b").assign(**columns)
    assert matching(a, b)["reason"].tolist() == [reason]
    assert len(compare(a, b)) == 0


def test_every_cell_of_either_side_is_accounted_for() -> None:
    """Only in A, only in B, failed on one side, another device: each cell once, compared or with a reason."""
    fine = [100.0, 101.0]
    axes = [{"batch_size": size} for size in (1, 2, 3, 4, 5)]
    a = run([(axes[0], fine), (axes[1], fine), (axes[2], [None, None]), (axes[3], fine)], "a")
    b = run([(axes[0], fine), (axes[2], fine), (axes[3], [None, 3.0]), (axes[4], fine)], "b")
    found = matching(a, b)
    assert found.set_index("batch_size")["reason"].to_dict() == {
        1: None,
        2: "only in A",
        3: "no trial ended well in A",
        4: None,
        5: "only in B",
    }
    assert not found.duplicated(CELL).any()
    assert set(found.columns) == {*CELL, "reason", *(axis.name for axis in AXES)}
    assert compare(a, b)["batch_size"].tolist() == [1, 4]
    on_cuda = matching(a[a["batch_size"] == 1], a[a["batch_size"] == 1].assign(device="cuda", run_id="b"))
    assert on_cuda["reason"].tolist() == [
        "different device: cpu in A, cuda in the other",
        "different device: cuda in B, cpu in the other",
    ]


def test_a_side_is_one_run() -> None:
    """Blocks of several runs are no repetitions of each other: refused; no trials at all give an empty table."""
    a, b = (run([({}, [100.0] * 2)], name) for name in ("a", "b"))
    with pytest.raises(ValueError, match="2 runs on one side"):
        compare(pd.concat([a, b]), b)
    nothing = compare(make_trials([]), a)
    assert len(nothing) == 0
    assert {"ratio", "lo", "hi", "df", "verdict", "batch_size"} <= set(nothing.columns)


@settings(max_examples=40)
@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=12))
def test_overall_is_the_geometric_mean_with_students_t(ratios: list[float]) -> None:
    """Over the cells' log ratios, as SciPy has it; one cell has no interval, none has no ratio."""
    found = overall(pd.DataFrame({"ratio": ratios}))
    assert found.value == pytest.approx(stats.gmean(ratios))
    assert found.n == len(ratios)
    logs = np.log(ratios)
    if logs.std() > 1e-6:
        lo, hi = stats.t.interval(0.95, len(logs) - 1, loc=logs.mean(), scale=stats.sem(logs))
        assert (np.log(found.low), np.log(found.high)) == (pytest.approx(lo), pytest.approx(hi))
    assert np.isnan([overall(pd.DataFrame({"ratio": [2.0]})).low, overall(pd.DataFrame({"ratio": []})).value]).all()


def test_equal_numbers_have_no_spread() -> None:
    """What rounding leaves of equal logs is no spread: degrees of freedom are those of none."""
    same = [math.exp(0.1)] * 7
    row = compare(run([({}, same)], "a"), run([({}, [3 * rate for rate in same[:5]])], "b")).iloc[0]
    assert row["df"] == 10
    assert [row[end] for end in ENDS] == [pytest.approx(3)] * 3
