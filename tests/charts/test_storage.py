"""What the charts of storage formats promise, checked on made-up runs of the storage suite."""

from __future__ import annotations

import gzip
import itertools
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.storage import format_costs, plainest
from feedrate.charts import render
from feedrate.charts.embed import figure_csv, figure_html
from feedrate.charts.figure import MOST_PANELS, Figure
from feedrate.charts.marks import estimated, ticks
from feedrate.pages.runs import RunView
from feedrate.plan import suite
from feedrate.questions.loader.charts import formats
from feedrate.questions.storage.analysis import effects
from feedrate.questions.storage.charts import storage_throughput
from feedrate.schema import plugins

CHARTS = suite.load("storage").charts
VARIED = [pytest.param(name, marks=() if name == "storage_effects" else pytest.mark.slow) for name in CHARTS]
"""For odd runs one chart stands for all but in the slow tests."""
FEW = ("png", "jpeg", "npy", "lmdb", "lmdb_png", "webdataset")
ALL = (*FEW, "lmdb_lz4", "memmap", "hdf5", "hdf5_chunked", "zarr", "arrow", "recordio", "tfrecord")
Trials = Callable[..., pd.DataFrame]


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
    chart = plugins.load("feedrate.questions.*.charts", name)
    assert chart.READS == "trials"
    figure: Figure = chart.draw(frame)
    return figure


@pytest.fixture(scope="module")
def figures(whole: pd.DataFrame) -> dict[str, Figure]:
    """Every chart of the suite, drawn once."""
    return {name: draw(name, whole) for name in CHARTS}


def drawn(figure: Figure) -> str:
    return json.dumps([render.specification(panel) for panel in figure.panels])


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_draws_says_and_tabulates(name: str, figures: dict[str, Figure]) -> None:
    """Every panel has a picture of a phone's width and a message with numbers; the figure has a table and a legend."""
    figure = figures[name]
    assert 0 < len(figure.panels) <= MOST_PANELS
    assert figure.rows
    assert figure.keys
    assert figure.question.endswith("?")
    assert all(any(character.isdigit() for character in panel.message) for panel in figure.panels)
    for panel in figure.panels[-2:]:
        picture = ET.fromstring(render.svg(panel, "p"))
        assert picture.get("width") == "320"
        assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) > 1  # marks alone: empty ones are left out
    assert len(figure_csv(figure).splitlines()) == len(figure.rows) + 1


@pytest.mark.parametrize("name", CHARTS)
def test_questions_are_never_mixed(name: str, figures: dict[str, Figure]) -> None:
    """A panel is of one order and one kind of step; streams are never beside what is read in random order."""
    figure = figures[name]
    for panel in figure.panels:
        assert ("random order" in panel.subtitle) != ("order of the disk" in panel.subtitle)
        assert ("emulated" in panel.subtitle) != ("loading alone" in panel.subtitle)
        if "random order" in panel.subtitle:
            assert "webdataset" not in json.dumps(render.specification(panel))
    assert {row["access"] for row in figure.rows} <= {"random", "sequential"}
    for row in figure.rows:
        assert "webdataset" not in str(row.get("format", row.get("pair"))) or row["access"] == "sequential"


def test_throughput_is_what_analysis_says(whole: pd.DataFrame, figures: dict[str, Figure]) -> None:
    """A row of the table is the estimate of its cell, cold and warm apart; what was not cold is left out and said."""
    figure = figures["storage_throughput"]
    table = plainest(format_costs(whole))
    row = next(
        row
        for row in figure.rows
        if (row["format"], row["page_cache"], row["access"], row["patch_size"]) == ("png", "cold", "random", 96)
        and "alone" in row["what ran"]
    )
    cell = table[
        table["storage_format"].eq("png")
        & table["page_cache"].eq("cold")
        & table["access"].eq("random")
        & table["patch_size"].eq(96)
        & table["mode"].eq("load")
        & table["num_workers"].eq(0)
    ].iloc[0]
    assert [row["samples per s"], row["low"], row["high"], row["n"]] == [
        cell[key] for key in ("samples_per_s", "lo", "hi", "n")
    ]
    notes = " ".join(figure.notes)
    assert "at most 0\u00a0%" in notes
    assert "once at most" in notes
    assert "shuffle buffer: 256 samples" in notes
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


@pytest.mark.parametrize("name", VARIED)
def test_without_cold_cells_no_disk_is_spoken_of(name: str, trials: Trials) -> None:
    """A warm run draws warm marks alone and says that this is not the cost of a disk; its legend knows no cold."""
    frame = trials(states=("warm",), formats=FEW[:5], blocks=2)
    figure = draw(name, frame)
    assert figure.panels
    assert not any("cold" in key.label for key in figure.keys)
    assert "Cold" not in figure.message + " ".join(figure.notes)
    assert ("not of a disk" in " ".join(figure.notes)) == (name == "storage_throughput")


@pytest.mark.parametrize("name", VARIED)
def test_without_warm_cells_the_cold_ones_stand(name: str, trials: Trials) -> None:
    """A run that is only cold has every panel."""
    frame = trials(states=("cold",), formats=FEW[:5], blocks=2)
    figure = draw(name, frame)
    assert figure.panels
    assert not any("warm" in key.label for key in figure.keys)


@pytest.mark.parametrize("name", VARIED)
def test_one_format_and_no_result_are_said(name: str, trials: Trials) -> None:
    """One format is drawn where one is enough; where nothing ended well there is a sentence and no axes."""
    single = trials(formats=("png",))
    assert bool(draw(name, single).panels) == (name not in ("storage_effects", "storage_size"))
    for frame in (single.assign(outcome="error"), single.iloc[:0]):
        figure = draw(name, frame)
        assert not figure.panels
        assert figure.missing.endswith(".")
        assert "<svg" not in figure_html(figure, "x", "x.csv")


@pytest.mark.parametrize("name", VARIED)
def test_one_block_has_no_interval(name: str, trials: Trials) -> None:
    """With one block no chart draws or tabulates an interval, and NaN reaches no specification."""
    frame = trials(blocks=1, fails="none")
    figure = draw(name, frame)
    assert all(row.get(end) is None for row in figure.rows for end in ("low", "high"))
    assert "NaN" not in drawn(figure)
    assert ("no interval" in figure.message) == (name != "storage_work")


def test_missing_metrics_leave_the_rest(trials: Trials) -> None:
    """Where no probe ran, throughput is drawn as before; what was not recorded is said to be missing."""
    frame = trials(nulls=True, blocks=2).assign(cached_before_pct=0.0)
    assert draw("storage_throughput", frame).panels
    for name in ("storage_cpu", "storage_size"):
        assert draw(name, frame).missing


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


@pytest.mark.parametrize("name", ["storage_size", *(pytest.param(n, marks=pytest.mark.slow) for n in CHARTS[:2])])
def test_same_records_same_bytes(name: str, whole: pd.DataFrame, figures: dict[str, Figure]) -> None:
    """Drawn twice, page and table are byte-identical."""
    again = draw(name, whole)
    assert figure_html(figures[name], "a", "a.csv") == figure_html(again, "a", "a.csv")
    assert figure_csv(figures[name]) == figure_csv(again)


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


def test_the_loader_s_chart_of_formats_follows_the_records(trials: Trials) -> None:
    """Its note says what the page cache held; of fourteen formats it draws as many as have a shape, and says so."""
    frame = trials(formats=ALL, blocks=2, workers=(0,))
    figure = formats.draw(estimated(frame))
    assert len(figure.keys) == formats.MOST_FORMATS
    assert len({key.shape for key in figure.keys}) == len(figure.keys)
    assert len({row["storage_format"] for row in figure.rows}) == len(ALL) - 2
    notes = " ".join(figure.notes)
    assert f"Of {len(ALL) - 2} formats" in notes
    assert formats.CACHED["warm"] in notes
    cold = formats.draw(estimated(trials(formats=FEW, states=("cold",))))
    assert formats.CACHED["cold"] in cold.notes
    assert formats.CACHED["warm"] not in cold.notes
    older = formats.draw(estimated(frame[frame["page_cache"].eq("warm")].assign(page_cache=pd.NA)))
    assert formats.CACHED[""] in older.notes
