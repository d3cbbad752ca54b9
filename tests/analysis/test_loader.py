"""Inside the loader: what a sample costs, and what the step hides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.analysis.loader import overlap, per_step, stages
from feedrate.schema.axes import cell_id

Trials = Callable[..., pd.DataFrame]
CellOf = Callable[..., dict[str, Any]]
MS = 1e6
STEPS = 10
STEADY = [1000.0, 1010.0, 990.0, 1000.0]
LOAD = {"mode": "load", "num_workers": 2, "batch_size": 8}
TRAIN = {"num_workers": 2, "batch_size": 8}


def stamped(frame: pd.DataFrame, **stage_ms: float) -> pd.DataFrame:
    """Each batch took so many milliseconds of each stage, stages that are not named none."""
    times = {"read": 0.0, "decode": 0.0, "transform": 0.0, "collate": 0.0} | stage_ms
    return frame.assign(steps=STEPS, **{f"worker_{stage}_ns": STEPS * ms * MS for stage, ms in times.items()})


def paced(trials_of: Trials, fetch_ms: float, load_ms: float, workers: int = 2, **columns: Any) -> pd.DataFrame:
    """A training cell that waits for its batches, and its loader alone, which takes so long for each."""
    axes = {"num_workers": workers, "batch_size": 8}
    both = trials_of([(axes, STEADY), ({"mode": "load", **axes}, STEADY)], steps=STEPS, **columns)
    train = (both["mode"] == "train").to_numpy()
    weather = 1 + 0.05 * both["block"].to_numpy(dtype=np.float64)
    wobble = 1 + 0.01 * (both["block"].to_numpy(dtype=np.float64) % 2)
    return both.assign(
        host_fetch_ns=STEPS * MS * weather * np.where(train, fetch_ms * wobble, load_ms),
        wall_ns=STEPS * MS * weather * np.where(train, 50.0, load_ms),
    )


def test_a_samples_cost_is_a_batchs_divided(trials_of: Trials) -> None:
    """Microseconds a sample, shares of the workers' own time, and how busy two workers are."""
    frame = stamped(trials_of([(LOAD, STEADY)]), read=8.0, decode=4.0, transform=3.0, collate=1.0)
    (row,) = stages(frame.assign(wall_ns=STEPS * 10 * MS)).to_dict("records")
    assert [row[f"{name}_us_per_sample"] for name in ("read", "decode", "transform", "collate")] == pytest.approx(
        [1000, 500, 375, 125]
    )
    assert [row[f"{name}_share"] for name in ("read", "decode", "transform", "collate")] == pytest.approx(
        [0.5, 0.25, 0.1875, 0.0625]
    )
    assert row["worker_busy_share"] == pytest.approx(16 / (2 * 10))
    assert (row["dominant"], row["n"]) == ("read", len(STEADY))
    alone = stamped(trials_of([({"mode": "load"}, STEADY)]), read=8.0)
    assert stages(alone.assign(wall_ns=STEPS * 10 * MS))["worker_busy_share"].tolist() == pytest.approx([0.8])


@pytest.mark.parametrize(
    ("stage_ms", "word"),
    [
        ({"read": 5.0, "decode": 4.0}, "fetch-bound"),
        ({"read": 4.0, "decode": 3.0, "transform": 1.0, "collate": 1.0}, "preparation-bound"),
    ],
)
def test_a_loader_is_bound_by_fetching_or_by_preparing(
    trials_of: Trials, stage_ms: dict[str, float], word: str
) -> None:
    """Half of the workers' time decides, also when reading is the largest of four; a loader alone is always asked."""
    frame = stamped(trials_of([(TRAIN, STEADY), (LOAD, STEADY)]), **stage_ms)
    waiting = frame.assign(host_fetch_ns=0.9 * frame["wall_ns"], host_forward_ns=0.1 * frame["wall_ns"])
    assert stages(waiting)["bound"].tolist() == [word, word]
    computing = frame.assign(host_fetch_ns=0.1 * frame["wall_ns"], host_forward_ns=0.9 * frame["wall_ns"])
    found = stages(computing)["bound"]
    assert found.isna().tolist() == [True, False]
    assert found[1] == word


def test_cells_that_load_nothing_have_no_stages(trials_of: Trials) -> None:
    """Neither computing alone nor a failed cell is stamped; an empty frame stays one."""
    frame = stamped(trials_of([(LOAD, [None] * 4)]))
    for nothing in (frame, trials_of([({"mode": "compute"}, STEADY)], steps=STEPS), trials_of([])):
        assert len(stages(nothing)) == 0
        assert {"read_share", "dominant", "bound"} <= set(stages(nothing).columns)


def test_hidden_is_what_is_not_waited_for(trials_of: Trials, cell_of: CellOf) -> None:
    """Two milliseconds of a batch that takes eight: three quarters are hidden, by block, whatever the drift."""
    (row,) = overlap(paced(trials_of, fetch_ms=2, load_ms=8)).to_dict("records")
    assert row["cell_id"] == cell_id(cell_of(TRAIN))
    assert row["fetch_hidden"] == pytest.approx(0.75, abs=0.002)
    assert row["fetch_hidden_lo"] < row["fetch_hidden"] < row["fetch_hidden_hi"]
    assert row["fetch_hidden_hi"] - row["fetch_hidden_lo"] < 0.01
    assert (row["fetch_n"], row["copy_n"]) == (len(STEADY), 0)
    assert row["load_batch_ms"] == pytest.approx(8 * 1.075)
    assert np.isnan(row["copy_hidden"])


def test_without_workers_nothing_is_hidden(trials_of: Trials) -> None:
    """The training process waits for every batch as long as it takes; a loader that is slower alone hides nothing."""
    (alone,) = overlap(paced(trials_of, fetch_ms=8, load_ms=8, workers=0)).to_dict("records")
    assert alone["fetch_hidden"] == pytest.approx(0, abs=0.02)
    for fetch in (5, 12):
        (other,) = overlap(paced(trials_of, fetch_ms=fetch, load_ms=8, workers=0)).to_dict("records")
        assert other["fetch_hidden"] == other["fetch_hidden_lo"] == 0


def test_a_copy_is_hidden_as_far_as_compute_does_not_wait(trials_of: Trials) -> None:
    """Of 3 ms of copying, compute waits for 1; on a CPU the share is null."""
    frame = paced(trials_of, 2, 8).assign(device_h2d_ns=STEPS * 3 * MS, device_h2d_exposed_ns=STEPS * 1 * MS)
    assert overlap(frame)["copy_hidden"][0] == pytest.approx(2 / 3)
    whole = frame.assign(device_h2d_exposed_ns=frame["device_h2d_ns"])
    assert overlap(whole)["copy_hidden"][0] == 0


def test_without_its_loader_alone_a_cell_hides_nobody_knows_what(trials_of: Trials) -> None:
    """Another batch size is no ceiling; the wait is known all the same."""
    axes = {"mode": "load", "num_workers": 2, "batch_size": 16}
    frame = trials_of([(TRAIN, STEADY), (axes, STEADY)], steps=STEPS, host_fetch_ns=STEPS * 2 * MS)
    (row,) = overlap(frame).to_dict("records")
    assert np.isnan(row["fetch_hidden"])
    assert row["fetch_wait_ms"] == pytest.approx(2)
    assert list(overlap(trials_of([])).columns) == list(overlap(frame).columns)


def test_what_a_trial_summed_up_becomes_a_step(trials_of: Trials) -> None:
    """Sums ÷ steps; CPU per cent become CPU time; failures are left out; a null stays one."""
    frame = trials_of([(TRAIN, [1000.0, None])], steps=STEPS, main_cpu_pct=50.0, workers_cpu_pct=150.0)
    found = per_step(frame.assign(wall_ns=STEPS * 4 * MS, device_forward_ns=STEPS * 3 * MS))
    assert len(found) == 1
    assert found[["wall", "main_cpu", "workers_cpu", "device_span"]].iloc[0].tolist() == pytest.approx(
        [4 * MS, 2 * MS, 6 * MS, 3 * MS]
    )
    assert found[["fetch", "worker_read"]].isna().all(axis=None)
