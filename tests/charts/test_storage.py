"""What the charts of storage formats promise, checked on made-up runs of the storage suite."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.storage import format_costs, plainest
from feedrate.charts.embed import figure_html
from feedrate.charts.figure import Figure, charts_by_name
from feedrate.pages.runs import RunView
from feedrate.plan import suite
from feedrate.questions.storage.charts import CACHED, MARKS, storage_throughput

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


@pytest.mark.slow
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
    for text in ("at most 0\u00a0%", "once at most", "shuffle buffer of a worker: 256 samples"):
        assert text in notes
    frame = whole.copy()
    frame.loc[frame["page_cache"].eq("cold") & frame["block"].eq(0), "cached_before_pct"] = 55.0
    assert re.search(r"We dropped \d+ cold measurements?: ", " ".join(storage_throughput.draw(frame).notes))


def test_a_full_page_cache_is_neither_cold_nor_warm(whole: pd.DataFrame) -> None:
    """It has a shape, a key, a sentence and a note of its own."""
    full = storage_throughput.draw(whole.assign(page_cache=whole["page_cache"].replace("cold", "full")))
    assert MARKS["full"] not in (MARKS["cold"], MARKS["warm"])
    assert {key.label: key.shape for key in full.keys}[CACHED["full"]] == MARKS["full"]
    assert "Full, " in full.panels[0].message
    notes = " ".join(full.notes)
    assert "Full: the page cache holds as many samples as the memory of a measurement has room for." in notes
    assert "not a disk" not in notes


@pytest.mark.slow
@pytest.mark.parametrize(("state", "other"), [("warm", "cold"), ("cold", "warm")])
@pytest.mark.parametrize("name", VARIED)
def test_one_state_of_the_page_cache_is_enough(name: str, state: str, other: str, trials: Trials) -> None:
    """A run of one state draws its marks alone; a warm one says that this is not the cost of a disk."""
    figure = draw(name, trials(states=(state,), formats=FEW[:5], blocks=2))
    assert figure.panels
    assert not any(other in key.label for key in figure.keys)
    if state == "warm":
        assert "Cold" not in figure.message + " ".join(figure.notes)
        assert ("not a disk" in " ".join(figure.notes)) == (name == "storage_throughput")


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
