"""Storage: which trials the page cache makes credible, what a format costs, and how it scales."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from made_trials import WEATHER, format_cells, make_format_trials
from scipy import stats

from feedrate.analysis.storage import count_doubtful, credible, format_costs, plainest, scaling


def test_only_what_was_verified_is_cold() -> None:
    """Cold trials that found data cached or read too little are left out and counted; so are warm ones."""
    frame = make_format_trials([*format_cells({"png": 100}, page_cache="cold"), *format_cells({"png": 200})])
    cold, warm = frame["page_cache"].eq("cold"), frame["page_cache"].eq("warm")
    frame.loc[cold & frame["block"].eq(0), "cached_before_pct"] = 40.0
    frame.loc[cold & frame["block"].eq(1), "cached_before_pct"] = None
    frame.loc[warm & frame["block"].eq(0), "cached_before_pct"] = 50.0
    frame.loc[warm & frame["block"].eq(1), "cached_before_pct"] = None
    assert count_doubtful(frame) == {"cold": 2, "warm": 1}
    # A packed sample takes 600 bytes and a window has 1,000 samples, of which all but one block's read 80 %.
    frame.loc[cold, "read_bytes"] = np.where(frame.loc[cold, "block"].eq(2), 479_000, 481_000)
    assert count_doubtful(frame) == {"cold": 3, "warm": 1}
    frame.loc[cold, "read_bytes"] = 481_000
    assert len(credible(frame)) == 5
    table = format_costs(frame).set_index("page_cache")
    assert table["n"].to_dict() == {"cold": 2, "warm": 3}
    assert table.loc["cold", "cached_before_hi"] == 0


@pytest.mark.parametrize(
    ("busy", "waiting", "limits"),
    [(50.0, 20.0, True), (95.0, 20.0, False), (50.0, 1.0, False), (None, 20.0, False), (50.0, None, False)],
)
def test_the_disk_limits_only_where_it_is_waited_for(busy: float | None, waiting: float | None, limits: bool) -> None:
    """A cold cell with idle CPUs and tasks that wait for storage; what was not recorded names none."""
    frame = make_format_trials([*format_cells({"png": 100}, page_cache="cold"), *format_cells({"png": 200})])
    frame = frame.assign(cpu_util_pct=busy, io_pressure_pct=waiting)
    table = format_costs(frame).set_index("page_cache")
    assert bool(table.loc["cold", "disk_limits"]) is limits
    assert not table.loc["warm", "disk_limits"]


def test_a_failure_is_not_overlooked() -> None:
    """A cell of which every trial failed stays, without an estimate, though it counted no pages."""
    frame = make_format_trials([({"mode": "load", "storage_format": "zarr", "page_cache": "cold"}, [None, None])])
    frame["cached_before_pct"] = math.nan
    (row,) = format_costs(frame).to_dict("records")
    assert (row["n"], row["failed"]) == (0, 2)
    assert math.isnan(row["samples_per_s"])


def test_costs_are_what_was_recorded() -> None:
    """Bytes, packing, CPU time and start-up of a cell, recomputed by hand, the last with Student's t on logs."""
    frame = make_format_trials(format_cells({"png": 100.0}, batch_size=50, n_samples=200))
    frame["startup_ns"] = [10_000_000, 12_000_000, 9_000_000, 11_000_000]
    frame["workers_cpu_pct"] = 50.0
    (row,) = format_costs(frame).to_dict("records")
    assert (row["sample_bytes"], row["raw_bytes"], row["raw_share"]) == (600, 1000, 0.6)
    assert row["pack_s"] == 2
    cpu = [1.5 * wall / 10 / 50 / 1000 for wall in frame["wall_ns"]]
    assert row["cpu_us"] == pytest.approx(stats.gmean(cpu))
    logs = np.log([10, 12, 9, 11])
    half = stats.t.ppf(0.975, 3) * logs.std(ddof=1) / 2
    expected = [math.exp(logs.mean() + shift) for shift in (0, -half, half)]
    assert [row[f"startup_ms{end}"] for end in ("", "_lo", "_hi")] == pytest.approx(expected)


def test_a_format_s_own_knobs_are_held_at_their_default() -> None:
    """Of LMDB with and without readahead the default stands for the format, wherever the rows come."""
    frame = make_format_trials(
        [*format_cells({"lmdb": 300.0}, readahead=False), *format_cells({"lmdb": 200.0}), *format_cells({"png": 100.0})]
    )
    kept = plainest(format_costs(frame))
    assert kept["storage_format"].tolist() == ["lmdb", "png"]
    assert kept["readahead"].iloc[0]


def test_scaling_is_paired_with_the_fewest_workers() -> None:
    """Each format's worker counts are compared with its own fewest, within state and order."""
    cells = [
        cell
        for workers, name, state in product((0, 2, 4), ("png", "npy"), ("warm", "cold"))
        for cell in format_cells({name: 100.0 + 50 * workers}, num_workers=workers, page_cache=state)
    ]
    found = scaling(make_format_trials(cells))
    assert set(found["base_workers"]) == {0}
    for row in found.to_dict("records"):
        assert row["speedup"] == pytest.approx(1 + row["num_workers"] / 2)
        assert row["pairs"] == len(WEATHER)
