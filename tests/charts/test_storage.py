"""What the charts of storage formats promise, checked on made-up runs of the storage suite."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.storage import format_costs, plainest
from feedrate.charts.embed import figure_html
from feedrate.charts.figure import Figure, charts_by_name
from feedrate.charts.marks import ticks
from feedrate.pages.runs import RunView
from feedrate.plan import suite
from feedrate.questions.storage.analysis import effects
from feedrate.questions.storage.charts import storage_throughput

CHARTS = suite.load("storage").charts
VARIED = [pytest.param(name, marks=() if name == "storage_effects" else pytest.mark.slow) for name in CHARTS]
"""For odd runs one chart stands for all but in the slow tests."""
FEW = ("png", "jpeg", "npy", "lmdb", "lmdb_png", "webdataset")
ALL = (*FEW, "lmdb_lz4", "memmap", "hdf5", "hdf5_chunked", "zarr", "arrow", "recordio", "tfrecord")
Trials = Callable[..., pd.DataFrame]
Specs = Callable[[Figure], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def trials(show: Callable[..., RunView]) -> Trials:
    """The trials of a storage run of the given kind, read back through the store."""

    def make(**what: Any) -> pd.DataFrame:
        return show(**{"suites": ("storage",), "formats": FEW, "blocks": 3} | what).trials

    return make


@pytest.fixture(scope="module")
def whole(trials: Trials) -> pd.DataFrame:
    return trials()


def draw(name: str, frame: pd.DataFrame) -> Figure:
    return charts_by_name()[name].draw(frame)


@pytest.fixture(scope="module")
def figures(whole: pd.DataFrame) -> dict[str, Figure]:
    """Every chart of the suite, drawn once."""
    return {name: draw(name, whole) for name in CHARTS}


@pytest.mark.parametrize("name", CHARTS)
def test_questions_are_never_mixed(name: str, figures: dict[str, Figure], specs: Specs) -> None:
    """A panel is of one order and one kind of step; streams are never beside what is read in random order."""
    figure = figures[name]
    for panel, spec in zip(figure.panels, specs(figure), strict=True):
        assert ("random order" in panel.subtitle) != ("order of the disk" in panel.subtitle)
        assert ("emulated" in panel.subtitle) != ("loading alone" in panel.subtitle)
        assert "random order" not in panel.subtitle or "webdataset" not in json.dumps(spec)
    assert {row["access"] for row in figure.rows} <= {"random", "sequential"}
    for row in figure.rows:
        assert "webdataset" not in str(row.get("format", row.get("pair"))) or row["access"] == "sequential"


def test_throughput_is_what_analysis_says(whole: pd.DataFrame, figures: dict[str, Figure]) -> None:
    """A row of the table is the estimate of its cell, cold and warm apart; what was not cold is left out and said."""
    figure = figures["storage_throughput"]
    (row,) = (
        row
        for row in figure.rows
        if (row["format"], row["page_cache"], row["access"], row["patch_size"]) == ("png", "cold", "random", 96)
        and "alone" in row["what ran"]
    )
    table = plainest(format_costs(whole))
    wanted = {"storage_format": "png", "page_cache": "cold", "access": "random", "patch_size": 96, "mode": "load"}
    cell = table[(table[list(wanted)] == list(wanted.values())).all(axis=1) & table["num_workers"].eq(0)].iloc[0]
    assert [row["samples per s"], row["low"], row["high"], row["n"]] == [
        cell[key] for key in ("samples_per_s", "lo", "hi", "n")
    ]
    notes = " ".join(figure.notes)
    for text in ("at most 0\u00a0%", "once at most", "shuffle buffer: 256 samples"):
        assert text in notes
    frame = whole.copy()
    frame.loc[frame["page_cache"].eq("cold") & frame["block"].eq(0), "cached_before_pct"] = 55.0
    assert "asked to be cold" in " ".join(storage_throughput.draw(frame).notes)


def test_effects_are_those_of_the_analysis(whole: pd.DataFrame, figures: dict[str, Figure]) -> None:
    """Every ratio of the chart is one that analysis gives, and each kind is drawn."""
    known = {round(float(ratio), 9) for ratio in effects(whole)["ratio"].dropna()}
    rows = figures["storage_effects"].rows
    assert {round(row["ratio"], 9) for row in rows} <= known
    assert {row["effect"] for row in rows} == {"container", "pixels"}
    assert {row["pair"] for row in rows if row["lossy"]} == {"jpeg → npy"}


@pytest.mark.parametrize(("state", "other"), [("warm", "cold"), ("cold", "warm")])
@pytest.mark.parametrize("name", VARIED)
def test_one_state_of_the_page_cache_is_enough(name: str, state: str, other: str, trials: Trials) -> None:
    """A run of one state draws its marks alone; a warm one says that this is not the cost of a disk."""
    figure = draw(name, trials(states=(state,), formats=FEW[:5], blocks=2))
    assert figure.panels
    assert not any(other in key.label for key in figure.keys)
    if state == "warm":
        assert "Cold" not in figure.message + " ".join(figure.notes)
        assert ("not of a disk" in " ".join(figure.notes)) == (name == "storage_throughput")


@pytest.mark.parametrize("name", VARIED)
def test_one_format_is_drawn_where_one_is_enough(name: str, trials: Trials) -> None:
    """What compares formats says that there is nothing to compare."""
    assert bool(draw(name, trials(formats=("png",))).panels) == (name not in ("storage_effects", "storage_size"))


def test_missing_metrics_leave_the_rest(trials: Trials) -> None:
    """Where no probe ran, throughput is drawn as before; what was not recorded is said to be missing."""
    frame = trials(nulls=True, blocks=2).assign(cached_before_pct=100.0)
    assert draw("storage_throughput", frame).panels
    assert all(draw(name, frame).missing for name in ("storage_cpu", "storage_size"))


def test_ticks_are_round_and_few() -> None:
    """Any span of a logarithmic axis has two to eight ticks inside it."""
    for lo, hi in itertools.combinations((0.71, 0.9, 1.04, 1.3, 4.0, 17.0, 220.0, 9_400.0, 3e6), 2):
        found = ticks(lo, hi)
        assert 2 <= len(found) <= 8, (lo, hi)
        assert all(lo * 0.99 <= tick <= hi * 1.01 for tick in found)


def test_scaling_is_relative_to_the_fewest(figures: dict[str, Figure]) -> None:
    """Every format's first column is 1, and every other is its rate ÷ that, block by block."""
    rows = figures["storage_scaling"].rows
    assert {row["num_workers"] for row in rows} == {0, 2}
    assert all(row["times the fewest workers"] == pytest.approx(1) for row in rows if row["num_workers"] == 0)
    assert any(row["times the fewest workers"] > 1.3 for row in rows)


@pytest.mark.slow
def test_fourteen_formats_fit_a_phone_and_a_page(trials: Trials) -> None:
    """With all formats, workers and states every panel is at most two screens high, and the figures weigh 120 kB."""
    frame = trials(formats=ALL, workers=(0, 1, 2, 4))
    html = ""
    for name in CHARTS:
        figure = draw(name, frame)
        assert all(int(panel.chart.height) <= 640 for panel in figure.panels)
        html += figure_html(figure, name, "x.csv")
    assert len(gzip.compress(html.encode())) <= 120_000
