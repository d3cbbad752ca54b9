"""What each stage could do alone, and what therefore holds a cell back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_cell, make_trials, times
from scipy import stats

from feedrate.analysis.ceilings import WAITS, bottleneck, cells_with_ceilings
from feedrate.schema.axes import cell_id


def training(frame: pd.DataFrame) -> pd.DataFrame:
    """The training cells of a run with their ceilings."""
    return cells_with_ceilings(frame).query("mode == 'train'").reset_index(drop=True)


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
        # In turns they come to 150, and the longer has the name; on two streams the smallest two are 1.1 times apart.
        ({"load_ceiling": 500.0, "compute_ceiling": 310.0, "copy_ceiling": 290.0}, "copy-bound"),
        ({"load_ceiling": 500.0, "compute_ceiling": 290.0, "copy_ceiling": 310.0}, "compute-bound"),
        ({"load_ceiling": 500.0, "compute_ceiling": 290.0, "copy_ceiling": 310.0, "prefetcher": "stream"}, "balanced"),
        ({"load_ceiling": 200.0, "compute_ceiling": 290.0, "copy_ceiling": 310.0}, "balanced"),
        ({"load_ceiling": 90.0, "compute_ceiling": 290.0, "copy_ceiling": 310.0}, "loader-bound"),
        ({"fetch_share": 0.9, "load_ceiling": 900.0, "compute_ceiling": float("nan")}, "loader-bound"),
    ],
)
def test_bottlenecks_in_words(columns: dict[str, Any], words: str) -> None:
    """Ceilings where loading and computing are known, else the phase with half of the wall clock."""
    assert bottleneck(row_of(**columns)) == words
    assert bottleneck(pd.Series(row_of(**columns))) == words


LAUNCHING: dict[str, Any] = {
    "device": "cuda",
    "drained_steps": 0.4,
    "fetch_share": 0.02,
    "h2d_share": 0.03,
    "forward_share": 0.45,
    "backward_share": 0.3,
    "optimizer_share": 0.15,
    "other_share": 0.05,
}
"""A host that launches all the time, and a device that is done before the next step is launched."""
STEP_NAMED = {"load_ceiling": 900.0, "compute_ceiling": 120.0}


@pytest.mark.parametrize("ceilings", [{}, STEP_NAMED], ids=["no ceilings", "ceilings name the step"])
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "launch-bound"),
        ({"drained_steps": 1.5}, "compute-bound"),  # the device is behind
        ({"drained_steps": float("nan")}, "compute-bound"),
        ({"device": "cpu"}, "compute-bound"),
        ({"step": "emulated"}, "emulated-step-bound"),
        ({"fetch_share": 0.1, "forward_share": 0.35}, "compute-bound"),  # the host waits for data as well
        # A host that waits for the device in a phase seems to launch.
        *(({axis: value}, "compute-bound") for axis, value in WAITS.items()),
        ({"debug": "profiler"}, "compute-bound"),
        ({"forward_share": 0.05, "h2d_share": 0.43, "backward_share": 0.42}, "compute-bound"),
        (
            {"forward_share": 0.05, "h2d_share": 0.43, "backward_share": 0.42}
            | {"pin_memory": True, "non_blocking": True},
            "launch-bound",
        ),
    ],
)
def test_a_step_is_launch_bound_where_the_host_is_the_slower(
    columns: dict[str, Any], words: str, ceilings: dict[str, float]
) -> None:
    """Only on CUDA, in real steps, where the host never waits and the device is done within a step."""
    assert bottleneck(row_of(**{**LAUNCHING, **ceilings, **columns})) == words


def test_what_the_device_has_left_is_told_in_steps() -> None:
    """10 ms of work after a window of 20 ms steps is half a step."""
    frame = make_trials([(CELL, rates(100))], device="cuda")
    frame = frame.assign(wall_ns=2_000_000_000, steps=100, host_drain_ns=10_000_000)
    assert cells_with_ceilings(frame)["drained_steps"].tolist() == pytest.approx([0.5])


def test_a_training_cell_finds_its_ceilings() -> None:
    """Same loader, same batch: load and compute of another batch size or other workers are not its ceilings."""
    workers = {"num_workers": 2}
    own = [(workers, times(1.0)), ({"mode": "load", **workers}, times(2.0)), ({"mode": "compute"}, times(1.25, 0.01))]
    others = [({"mode": "load"}, times(0.1)), ({"mode": "compute", "batch_size": 64}, times(0.1))]
    row = training(make_trials([*own, *others])).set_index("cell_id").loc[cell_id(make_cell(workers))]
    assert row["load_ceiling"] == pytest.approx(200, rel=0.01)
    assert (row["limit"], row["bottleneck"], row["efficiency_n"]) == ("compute", "compute-bound", 4)
    assert (row["efficiency"], row["au"]) == (pytest.approx(0.8, rel=0.01), pytest.approx(0.8, rel=0.01))
    assert 0 < row["efficiency_lo"] < row["efficiency"] < row["efficiency_hi"]
    assert np.isnan(row["copy_ceiling"])


def test_on_cuda_the_copy_is_a_ceiling_too() -> None:
    """pin_memory and non_blocking pick the copy cell; compute knows neither."""
    axes = {"pin_memory": True, "non_blocking": True}
    rest = [({"mode": "load", "pin_memory": True}, times(9.0)), ({"mode": "compute"}, times(5.0))]
    frame = make_trials([(axes, times(1.0)), ({"mode": "copy", **axes}, times(1.1)), *rest], device="cuda")
    assert training(frame).iloc[0]["limit"] == "copy"


def test_shares_of_ceilings_are_paired_by_block() -> None:
    """What was measured in other blocks than the cell has no say, in the efficiency nor in the utilization."""
    drifting = [100.0, 90.0, 80.0, 70.0]
    frame = make_trials(
        [({}, [rate * 0.9 for rate in drifting[:2]]), ({"mode": "load"}, [1000.0] * 4), ({"mode": "compute"}, drifting)]
    )
    (row,) = training(frame).to_dict("records")
    assert row["limit"] == "compute"
    assert row["au"] == row["efficiency"] == pytest.approx(0.9)


CELL: dict[str, Any] = {"mode": "train", "batch_size": 32, "num_workers": 2}
EMULATED: dict[str, Any] = {**CELL, "step": "emulated", "step_ms": 10.0}
LOAD, COPY, COMPUTE = ({**CELL, "mode": mode} for mode in ("load", "copy", "compute"))
WEATHER = (1.0, 1.1, 0.9, 1.05)


def rates(value: float, more: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)) -> list[float]:
    """Samples/s by block: all cells share the weather of a block."""
    return [value * weather * own for weather, own in zip(WEATHER, more, strict=True)]


@pytest.mark.parametrize("prefetcher", ["none", "next_batch"])
def test_copies_and_step_on_one_stream_take_turns(prefetcher: str) -> None:
    """Copying 100 and computing 300 a second in turn come to 75, paired by block."""
    own = (1.02, 0.99, 1.0, 0.97)
    copies = (1.0, 1.1, 0.9, 1.0)
    trials = make_trials(
        [
            (CELL | {"prefetcher": prefetcher}, rates(60, own)),
            *((LOAD, rates(900)), (COPY, rates(100, copies)), (COMPUTE, rates(300))),
        ],
        device="cuda",
    )
    row = training(trials).iloc[0]
    turns = 1 / (1 / (100 * np.array(copies)) + 1 / 300)
    logs = np.log(60 * np.array(own)) - np.log(turns)
    half = stats.t.ppf(0.975, 3) * logs.std(ddof=1) / 2
    wanted = [math.exp(logs.mean() + sign * half) for sign in (0, -1, 1)]
    assert [row["efficiency"], row["efficiency_lo"], row["efficiency_hi"]] == pytest.approx(wanted)
    assert row["efficiency_n"] == 4
    assert [row["limit"], row["bottleneck"]] == ["copy", "copy-bound"]
    assert row["device_ceiling"] < row["copy_ceiling"]


def test_a_sleep_hides_only_copies_that_the_host_does_not_wait_for() -> None:
    """Copies take turns with an emulated step if they block, and overlap with it otherwise."""
    free = {"pin_memory": True, "non_blocking": True}
    turns, overlap = (
        training(
            make_trials(
                [(EMULATED | how, rates(1500)), (LOAD | pinned, rates(9000)), (COPY | how, rates(3200))], device="cuda"
            )
        )
        for how, pinned in (({}, {}), (free, {"pin_memory": True}))
    )
    assert turns["device_ceiling"].tolist() == pytest.approx([1600], rel=0.01)
    assert turns["efficiency"].tolist() == pytest.approx([1500 / 1600], rel=0.02)
    assert overlap["device_ceiling"].isna().all()
    assert overlap["efficiency"].tolist() == pytest.approx([1500 / 3200], rel=0.02)
