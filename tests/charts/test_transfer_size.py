"""Bandwidth of copies to the device, on made-up trials."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from feedrate.questions.transfer.charts import ADDED, transfers

Trials = Callable[..., pd.DataFrame]
COPY = {"mode": "copy", "batch_size": 8}
SPAN = {"steps": 100, "batch_bytes": 1_000_000, "device_h2d_ns": 10_000_000}


def test_bandwidth_is_bytes_by_copy_time(trials_of: Trials) -> None:
    """100 batches of 1 MB in 10 ms are 10 GB/s."""
    row = transfers(trials_of([(COPY, [50.0, 60.0, 70.0])], device="cuda", **SPAN)).iloc[0]
    assert [row["gb_per_s"], row["gb_lo"], row["gb_hi"]] == pytest.approx([10.0] * 3)
    assert row["gb_n"] == 3
    assert row["batch_bytes"] == 1_000_000


def test_blocks_spread_the_interval(trials_of: Trials) -> None:
    """A block at twice the rate puts the geometric mean between, and the interval around it; one block has none."""
    trials = trials_of([(COPY, [50.0, 60.0])], device="cuda", **SPAN)
    trials.loc[1, "device_h2d_ns"] = 5_000_000
    row = transfers(trials).iloc[0]
    assert row["gb_per_s"] == pytest.approx(200**0.5)
    assert row["gb_lo"] < row["gb_per_s"] < row["gb_hi"]
    assert pd.isna(transfers(trials[:1]).iloc[0]["gb_lo"])


def test_what_was_not_timed_has_no_bandwidth(trials_of: Trials) -> None:
    """Nothing on a CPU, nothing of failed trials, nothing of replicas that share a bus."""
    assert transfers(trials_of([({"mode": "load"}, [5.0, 6.0])])).empty
    assert transfers(trials_of([(COPY, [None, None])], device="cuda", **SPAN)).empty
    ddp = {"mode": "train", "parallel": "ddp", "world_size": 2}
    found = transfers(trials_of([(ddp, [5.0, 6.0])], device="cuda", **SPAN))
    assert found.empty
    assert set(ADDED) <= set(found.columns)
