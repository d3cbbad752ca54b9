"""The end of a sweep: best settings, what holds them back, what they gain over the defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.analysis.estimates import cells
from harness.analysis.summary import CONDITIONS, KNOBS, best_cells, bottleneck, ceilings, default_vs_best
from harness.axes import AXES, cell_id

Trials = Callable[..., pd.DataFrame]
CellOf = Callable[..., dict[str, Any]]
STEADY = [100.0, 101.0, 99.0, 100.0]


def times(factor: float, wobble: float = 0.0) -> list[float]:
    """STEADY, faster by a factor, with alternating noise of its own."""
    return [rate * factor * (1 + wobble * (-1) ** block) for block, rate in enumerate(STEADY)]


def test_conditions_and_knobs_share_the_axes_out() -> None:
    """Every axis is either given by the task or can be chosen."""
    assert sorted([*CONDITIONS, *KNOBS]) == sorted(axis.name for axis in AXES)


def test_the_best_is_a_set_cheapest_first(trials_of: Trials) -> None:
    """Cells not told from the best are in; clearly slower ones are not; fewest workers come first."""
    found = best_cells(
        trials_of(
            [
                ({}, times(0.5)),
                ({"num_workers": 1}, times(0.99, 0.05)),
                ({"num_workers": 4}, times(1.0)),
                ({"num_workers": 8}, times(0.98)),
                ({"num_workers": 2}, times(0.995, 0.05)),
            ]
        )
    )
    assert list(found["num_workers"]) == [1, 2, 4]
    assert list(found["place"]) == [0, 1, 2]
    assert list(found["is_best"]) == [False, False, True]
    assert set(found["candidates"]) == {5}
    assert found.iloc[2][["ratio_to_best", "ratio_lo", "ratio_hi"]].tolist() == [1, 1, 1]
    assert (found["ratio_hi"] >= 1).all()


def test_of_equal_workers_the_smaller_memory_and_then_the_defaults_come_first(trials_of: Trials) -> None:
    """A few kilobytes are no difference in memory."""
    frame = trials_of(
        [
            ({"num_workers": 2, "prefetch_factor": 4}, STEADY),
            ({"num_workers": 2}, STEADY),
            ({"num_workers": 2, "storage_format": "lmdb", "prefetch_factor": 8}, STEADY),
        ]
    )
    frame["pss_peak_bytes"] = np.repeat([800.0e6, 800.001e6, 500.0e6], len(STEADY))
    assert list(best_cells(frame)["prefetch_factor"]) == [8, 2, 4]


def test_questions_are_never_mixed(trials_of: Trials) -> None:
    """Workload, mode, step, its length, sample size and run each make a question of their own, nulls included."""
    others: list[dict[str, Any]] = [
        {},
        {"workload": "div2k_standin"},
        {"mode": "load"},
        {"mode": "compute"},
        {"step": "emulated"},
        {"step": "emulated", "step_ms": 50.0},
        {"patch_size": 16},
        {"read_us": 100},
    ]
    frame = trials_of([(axes, times(2.0**place)) for place, axes in enumerate(others)])
    two = pd.concat([frame, frame.assign(run_id="second")])
    assert len(best_cells(frame)) == len(others)
    assert len(best_cells(two)) == 2 * len(others)
    assert best_cells(two)["is_best"].all()


def test_one_block_tells_nothing_apart(trials_of: Trials) -> None:
    """With one pair there is no interval: the set is the best alone, not everything."""
    found = best_cells(trials_of([({}, [100.0]), ({"num_workers": 2}, [101.0])]))
    assert list(found["num_workers"]) == [2]
    assert found["pairs"].tolist() == [1]
    assert np.isnan(found["ratio_hi"]).all()


def test_failed_cells_are_no_candidates(trials_of: Trials) -> None:
    """A question whose every trial failed has no best; others are not disturbed."""
    frame = trials_of([({}, STEADY), ({"num_workers": 2}, [None] * 4), ({"mode": "load"}, [None] * 4)])
    assert best_cells(frame)["candidates"].tolist() == [1]
    empty = best_cells(frame[frame["outcome"] != "ok"])
    assert len(empty) == 0
    assert {"place", "ratio_to_best", "samples_per_s"} <= set(empty.columns)


def row_of(**columns: Any) -> dict[str, Any]:
    return {"mode": "train", "step": "real", "device": "cpu", "samples_per_s": 100.0, **columns}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"fetch_share": 0.6, "forward_share": 0.3}, "loader-bound"),
        ({"fetch_share": 0.1, "forward_share": 0.3, "backward_share": 0.4, "optimizer_share": 0.1}, "compute-bound"),
        ({"fetch_share": 0.1, "forward_share": 0.9, "step": "emulated"}, "emulated-step-bound"),
        ({"fetch_share": 0.4, "forward_share": 0.4}, "balanced"),
        ({"fetch_share": 0.1, "h2d_share": 0.7, "device": "cuda"}, "copy-bound"),
        ({"fetch_share": float("nan")}, "unknown"),
        ({"fetch_share": 0.9, "samples_per_s": float("nan")}, "unknown"),
        ({"mode": "load", "fetch_share": 1.0}, "loader alone"),
        ({"mode": "compute"}, "compute alone"),
        ({"mode": "copy"}, "copy alone"),
        # A host that runs ahead waits for data while the device still computes.
        (
            {
                "device": "cuda",
                "fetch_share": 0.8,
                "device_idle_share": 0.1,
                "device_forward_share": 0.3,
                "device_backward_share": 0.4,
            },
            "compute-bound",
        ),
        ({"device": "cuda", "fetch_share": 0.8, "device_idle_share": 0.7, "device_forward_share": 0.3}, "loader-bound"),
        (
            {"device": "cuda", "fetch_share": 0.1, "device_idle_share": 0.0, "device_h2d_exposed_share": 0.6},
            "copy-bound",
        ),
        # Ceilings outrank shares.
        ({"fetch_share": 0.9, "load_ceiling": 900.0, "compute_ceiling": 100.0}, "compute-bound"),
        ({"fetch_share": 0.9, "load_ceiling": 149.0, "compute_ceiling": 100.0}, "balanced"),
        ({"fetch_share": 0.1, "load_ceiling": 500.0, "compute_ceiling": 900.0, "copy_ceiling": 200.0}, "copy-bound"),
        ({"fetch_share": 0.9, "load_ceiling": 900.0, "compute_ceiling": float("nan")}, "loader-bound"),
    ],
)
def test_bottlenecks_in_words(columns: dict[str, Any], words: str) -> None:
    """Ceilings where loading and computing are known, else the phase with half of the wall clock."""
    assert bottleneck(row_of(**columns)) == words
    assert bottleneck(pd.Series(row_of(**columns))) == words


def test_a_training_cell_finds_its_ceilings(trials_of: Trials, cell_of: CellOf) -> None:
    """Same loader, same batch: load and compute of another batch size or other workers are not its ceilings."""
    frame = trials_of(
        [
            ({"num_workers": 2}, times(1.0)),
            ({"mode": "load", "num_workers": 2}, times(2.0)),
            ({"mode": "compute"}, times(1.25, 0.01)),
            ({"mode": "load"}, times(0.1)),
            ({"mode": "compute", "batch_size": 64}, times(0.1)),
        ]
    )
    row = ceilings(frame).set_index("cell_id").loc[cell_id(cell_of({"num_workers": 2}))]
    assert row["load_ceiling"] == pytest.approx(200, rel=0.01)
    assert row["limit"] == "compute"
    assert (row["efficiency"], row["au"]) == (pytest.approx(0.8, rel=0.01), pytest.approx(0.8, rel=0.01))
    assert 0 < row["efficiency_lo"] < row["efficiency"] < row["efficiency_hi"]
    assert row["efficiency_n"] == 4
    assert np.isnan(row["copy_ceiling"])
    merged = cells(frame).merge(ceilings(frame), on=["run_id", "cell_id"])
    assert [bottleneck(each) for _, each in merged.iterrows()] == ["compute-bound"]


def test_on_cuda_the_copy_is_a_ceiling_too(trials_of: Trials) -> None:
    """pin_memory and non_blocking pick the copy cell; compute knows neither."""
    axes = {"pin_memory": True, "non_blocking": True}
    frame = trials_of(
        [
            (axes, times(1.0)),
            ({"mode": "load", "pin_memory": True}, times(9.0)),
            ({"mode": "copy", **axes}, times(1.1)),
            ({"mode": "compute"}, times(5.0)),
        ],
        device="cuda",
    )
    assert ceilings(frame).iloc[0]["limit"] == "copy"


def test_an_emulated_step_has_a_declared_ceiling(trials_of: Trials) -> None:
    """batch_size ÷ step_ms, and no model's measured speed."""
    frame = trials_of(
        [
            ({"step": "emulated", "step_ms": 100.0}, times(1.0)),
            ({"mode": "load"}, times(50.0)),
            ({"mode": "compute"}, times(0.01)),
        ]
    )
    row = ceilings(frame).iloc[0]
    assert row["compute_ceiling"] == pytest.approx(320)
    assert row["efficiency"] == pytest.approx(100 / 320, rel=0.01)
    assert row["efficiency_lo"] < row["efficiency"] < row["efficiency_hi"]


def test_an_unknown_ceiling_gives_no_efficiency(trials_of: Trials) -> None:
    """Loading alone does not say how much of the machine's best was reached."""
    row = ceilings(trials_of([({}, STEADY), ({"mode": "load"}, times(3.0))])).iloc[0]
    assert pd.isna(row["limit"])
    assert np.isnan([row["efficiency"], row["au"], row["compute_ceiling"]]).all()
    assert len(ceilings(trials_of([]))) == 0


def test_the_defaults_are_compared_with_the_best_of_the_same_format_and_batch(
    trials_of: Trials, cell_of: CellOf
) -> None:
    """A paired ratio with its interval; a batch size without a default cell is left out."""
    frame = trials_of(
        [
            ({}, STEADY),
            ({"num_workers": 2}, times(3.0, 0.01)),
            ({"num_workers": 4}, times(2.0)),
            ({"storage_format": "lmdb"}, times(9.0)),
            ({"batch_size": 8, "num_workers": 2}, times(9.0)),
            ({"mode": "compute"}, times(9.0)),
        ]
    )
    png, lmdb = (default_vs_best(frame).set_index("storage_format").loc[name] for name in ("png", "lmdb"))
    assert len(default_vs_best(frame)) == 2
    assert png["default_cell"] == cell_id(cell_of({}))
    assert png["best_cell"] == cell_id(cell_of({"num_workers": 2}))
    assert png["num_workers"] == 2
    assert (png["ratio"], png["n"], png["verdict"]) == (pytest.approx(3, rel=0.01), 4, "faster")
    assert png["lo"] < 3 < png["hi"]
    assert (lmdb["ratio"], lmdb["verdict"]) == (1, "no difference")


def test_pinned_memory_is_not_the_default_on_cuda(trials_of: Trials, cell_of: CellOf) -> None:
    """Every loader knob must stand at its default, pin_memory and non_blocking too."""
    frame = trials_of(
        [({"pin_memory": True}, times(2.0)), ({"non_blocking": True}, times(2.0)), ({}, STEADY)], device="cuda"
    )
    found = default_vs_best(frame)
    assert found["default_cell"].tolist() == [cell_id(cell_of({}, "cuda"))]
    assert len(default_vs_best(frame[frame["cell_id"] != found["default_cell"][0]])) == 0
