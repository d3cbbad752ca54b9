"""Storage: what is believed of the page cache, what a format costs, which effect is larger, and what to use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from feedrate.analysis.storage import count_doubtful, credible, format_costs, plainest, scaling
from feedrate.questions.storage.analysis import choices, effects, larger
from feedrate.schema.plugins import traits

Build = Callable[..., pd.DataFrame]
WEATHER = (1.0, 0.93, 1.08, 1.02)
"""What every cell of a block is faster by: pairing must take it out."""
BYTES = {"png": 600, "jpeg": 100, "lmdb_lz4": 900, "lmdb_png": 600, "hdf5_chunked": 700}
"""On disk for a sample of 1,000 bytes of pixels, which all others take whole."""
ALL = ("png", "jpeg", "npy", "lmdb", "lmdb_lz4", "lmdb_png", "hdf5", "hdf5_chunked", "memmap")


def rows(rates: Mapping[str, float], jitter: float = 0.0, **axes: Any) -> list[tuple[dict[str, Any], list[float]]]:
    """Cells of loading alone by format, with their rates in every block."""
    given_axes = {"mode": "load", "workload": "div2k", **axes}
    noise = [1 + jitter * step for step in (0, 1, -1, 2)]
    return [
        (
            {**given_axes, "storage_format": name},
            [rate * weather * noise[(block + place) % 4] for block, weather in enumerate(WEATHER)],
        )
        for place, (name, rate) in enumerate(rates.items())
    ]


@pytest.fixture(scope="session")
def build(trials_of: Build) -> Build:
    """Trials of cells, with what the page cache held and what a sample takes on disk."""

    def make(cells: Sequence[tuple[dict[str, Any], list[float]]], **columns: Any) -> pd.DataFrame:
        frame = trials_of(cells, steps=10, main_cpu_pct=100.0, startup_ns=10_000_000, **columns)
        frame["cached_before_pct"] = np.where(frame["page_cache"].eq("cold"), 0.0, 100.0)
        sizes = [BYTES.get(str(name), 1000) for name in frame["storage_format"]]
        frame["stored_bytes"] = np.array(sizes) * frame["n_samples"].astype("int64")
        frame["batch_bytes"] = 4000 * frame["batch_size"].astype("int64")
        frame["pack_ns"] = 2_000_000_000
        return frame

    return make


def test_only_what_was_verified_is_cold(build: Build) -> None:
    """A cold trial that found the set cached, or counted nothing, is left out and counted; so is a warm one."""
    frame = build([*rows({"png": 100}, page_cache="cold"), *rows({"png": 200})])
    cold, warm = frame["page_cache"].eq("cold"), frame["page_cache"].eq("warm")
    frame.loc[cold & frame["block"].eq(0), "cached_before_pct"] = 40.0
    frame.loc[cold & frame["block"].eq(1), "cached_before_pct"] = None
    frame.loc[warm & frame["block"].eq(0), "cached_before_pct"] = 50.0
    frame.loc[warm & frame["block"].eq(1), "cached_before_pct"] = None
    assert count_doubtful(frame) == {"cold": 2, "warm": 1}
    assert len(credible(frame)) == 5
    table = format_costs(frame).set_index("page_cache")
    assert table["n"].to_dict() == {"cold": 2, "warm": 3}
    assert table.loc["cold", "cached_before_hi"] == 0


def test_a_failure_is_not_overlooked(build: Build) -> None:
    """A cell of which every trial failed stays, without an estimate, though it counted no pages."""
    frame = build([({"mode": "load", "storage_format": "zarr", "page_cache": "cold"}, [None, None])])
    frame["cached_before_pct"] = math.nan
    (row,) = format_costs(frame).to_dict("records")
    assert (row["n"], row["failed"]) == (0, 2)
    assert math.isnan(row["samples_per_s"])


def test_costs_are_what_was_recorded(build: Build) -> None:
    """Bytes, packing, CPU time and start-up of a cell, recomputed by hand, the last with Student's t on logs."""
    frame = build(rows({"png": 100.0}, batch_size=50, n_samples=200))
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


def test_without_workers_their_cpu_is_nothing(build: Build) -> None:
    """Where there are no workers a missing share is no missing cost; where there are, it is."""
    frame = build([*rows({"png": 100.0}), *rows({"png": 100.0}, num_workers=2)])
    assert format_costs(frame)["cpu_us"].notna().tolist() == [True, False]


def test_a_format_s_own_knobs_are_held_at_their_default(build: Build) -> None:
    """Of LMDB with and without readahead the default stands for the format, wherever the rows come."""
    frame = build([*rows({"lmdb": 300.0}, readahead=False), *rows({"lmdb": 200.0}), *rows({"png": 100.0})])
    kept = plainest(format_costs(frame))
    assert kept["storage_format"].tolist() == ["lmdb", "png"]
    assert kept["readahead"].iloc[0]


def test_the_two_effects_are_what_was_planted(build: Build) -> None:
    """A container that is 1.5 times as fast and pixels that are 8 times as fast are read back, whatever the weather."""
    found = effects(build(rows({"png": 100, "lmdb_png": 150, "npy": 800, "lmdb": 1200})))
    pairs = {(row["a_format"], row["b_format"]): row for row in found.to_dict("records")}
    assert set(pairs) == {("png", "lmdb_png"), ("npy", "lmdb"), ("png", "npy"), ("lmdb_png", "lmdb")}
    for key, effect, ratio in (
        (("png", "lmdb_png"), "container", 1.5),
        (("npy", "lmdb"), "container", 1.5),
        (("png", "npy"), "pixels", 8),
        (("lmdb_png", "lmdb"), "pixels", 8),
    ):
        assert pairs[key]["effect"] == effect
        assert [pairs[key][end] for end in ("lo", "ratio", "hi")] == pytest.approx([ratio] * 3)
        assert pairs[key]["verdict"] == "faster"


def test_nothing_is_compared_across_states_and_orders(build: Build) -> None:
    """Cold against warm, and random against sequential, make no pair of formats."""
    frame = build(
        [
            *rows({"png": 100}),
            *rows({"lmdb_png": 100}, page_cache="cold"),
            *rows({"recordio": 100}, access="sequential"),
            *rows({"npy": 100}, num_workers=2),
        ]
    )
    assert effects(frame).empty
    assert larger(frame).empty
    assert len(choices(frame).drop_duplicates(["page_cache", "access"])) == 3


@settings(max_examples=5)
@given(pixels=st.floats(0.2, 30), container=st.floats(1.2, 5))
def test_the_larger_effect_is_named(build: Build, pixels: float, container: float) -> None:
    """Whatever is planted, the size of one effect ÷ the other's is read back, and the larger one is named."""
    size = max(pixels, 1 / pixels)
    rates = {"png": 100.0, "lmdb_png": 100.0 * container, "npy": 100.0 * pixels, "lmdb": 100.0 * pixels * container}
    frame = build(rows(rates))
    (row,) = larger(frame).to_dict("records")
    assert row["pixels_ratio"] == pytest.approx(pixels)
    assert row["container_ratio"] == pytest.approx(container)
    assert row["times"] == pytest.approx(size / container)
    if abs(math.log(size / container)) > 1e-6:
        assert row["larger"] == ("pixels" if size > container else "container")


def test_effects_that_cannot_be_told_apart_are_called_so(build: Build) -> None:
    """Two effects of one size, measured with noise, are not ranked; nor is anything from one block."""
    cells = rows({"png": 100, "lmdb_png": 200, "npy": 200, "lmdb": 400}, jitter=0.05)
    (row,) = larger(build(cells)).to_dict("records")
    assert row["larger"] == "neither"
    (row,) = larger(build([(axes, rates[:1]) for axes, rates in cells])).to_dict("records")
    assert row["larger"] == "neither"
    assert math.isnan(row["times_lo"])


def test_the_cheapest_of_what_cannot_be_told_apart_comes_first(build: Build) -> None:
    """Fewest workers, then fewest bytes, then the higher estimate; a clearly slower one is not in the set."""
    frame = build(
        [
            *rows({"memmap": 1000, "lmdb_lz4": 1001, "png": 100}, jitter=0.03),
            *rows({"npy": 1070}, jitter=-0.03, num_workers=2),
        ]
    )
    fastest = choices(frame)
    fastest = fastest[fastest["purpose"].eq("speed")]
    assert fastest["storage_format"].tolist() == ["lmdb_lz4", "memmap", "npy"]
    assert fastest["place"].tolist() == [0, 1, 2]
    assert fastest["is_best"].tolist() == [False, False, True]
    assert set(fastest["candidates"]) == {4}


def test_what_loses_information_is_never_a_candidate(build: Build) -> None:
    """The fastest of all is JPEG: it is named with its ratio to the best without loss, under a purpose of its own."""
    chosen = choices(build(rows({"jpeg": 2000, "png": 100, "lmdb": 1000, "lmdb_lz4": 500})))
    assert traits("jpeg").lossy
    by = {purpose: part["storage_format"].tolist() for purpose, part in chosen.groupby("purpose")}
    assert by == {"speed": ["lmdb"], "space": ["lmdb_lz4"], "lossy": ["jpeg"]}
    ratios = chosen.set_index("purpose")["ratio_to_best"]
    assert ratios.to_dict() == pytest.approx({"speed": 1.0, "space": 0.5, "lossy": 2.0})


def test_scaling_is_paired_with_the_fewest_workers(build: Build) -> None:
    """Each format's worker counts are compared with its own fewest, within state and order."""
    cells = [
        cell
        for workers, name, state in product((0, 2, 4), ("png", "npy"), ("warm", "cold"))
        for cell in rows({name: 100.0 + 50 * workers}, num_workers=workers, page_cache=state)
    ]
    found = scaling(build(cells))
    assert set(found["base_workers"]) == {0}
    for row in found.to_dict("records"):
        assert row["speedup"] == pytest.approx(1 + row["num_workers"] / 2)
        assert row["pairs"] == len(WEATHER)


def test_an_empty_run_answers_nothing(build: Build) -> None:
    """Without a trial, or with a single format, there is nothing to compare and nothing breaks."""
    whole = build(rows({"png": 100}))
    for frame in (whole, whole.iloc[:0], whole.assign(outcome="error")):
        assert effects(frame).empty
        assert larger(frame).empty
        assert set(choices(frame)["storage_format"]) <= {"png"}
        assert len(scaling(frame)) <= 1


@pytest.mark.parametrize("name", ALL)
def test_the_formats_of_these_tests_are_what_they_are_taken_for(name: str) -> None:
    """Every format that is compared here exists with the container and contents that the tests rely on."""
    found = traits(name)
    assert found.container == ("files" if name in ("png", "jpeg", "npy") else found.container)
    assert (found.stores == "pixels") == (name not in BYTES)
