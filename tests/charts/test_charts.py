"""What every chart promises, whatever it shows: checked on made-up runs that it can be drawn from."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest

from feedrate.charts import render
from feedrate.charts.embed import figure_csv, figure_html
from feedrate.charts.figure import MOST_PANELS, Figure, charts_by_name
from feedrate.pages.runs import RunView, draw

CELLS = ("phases", "throughput")
"""Charts that are drawn from the cells of a run."""
OF_TRIALS = ("machine_workers", "worker_scaling", "transfer_size", "telemetry", "drift", "timeline")
STORAGE = tuple(name for name in charts_by_name() if name.startswith("storage_"))
FORMATS = ("png", "jpeg", "npy", "lmdb", "lmdb_png", "webdataset")
KINDS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "cuda": {"device": "cuda", "workers": (0, 1, 2), "batches": (8, 32), "busy": True},
    "storage": {"suites": ("storage",), "formats": FORMATS, "blocks": 3},
    "workers": {"suites": ("workers",), "claims": ("workers", "collate"), "blocks": 3, "fails": "none"},
}
CASES = [
    *((name, "cpu") for name in CELLS),
    *((name, "cuda") for name in (*CELLS, *OF_TRIALS)),
    *((name, "storage") for name in STORAGE),
    *((name, "workers") for name in ("claims", "worker_startup")),
]
Show = Callable[..., RunView]
Specs = Callable[[Figure], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def figures(show: Show) -> Callable[[str, str], Figure]:
    """A chart of a kind of run, drawn once."""
    drawn: dict[tuple[str, str], Figure] = {}

    def make(name: str, kind: str) -> Figure:
        if (name, kind) not in drawn:
            drawn[name, kind] = draw(name, show(**KINDS[kind]))
        return drawn[name, kind]

    return make


def test_no_chart_is_forgotten() -> None:
    """Every chart is drawn here but those with tests of their own."""
    apart = {"calibration", "search", "gpu_idle", "images_per_core", "loader_memory", "loader_rates", "machine_gains"}
    apart |= {"nodes_at_once"}
    assert {name for name, _ in CASES} | apart == set(charts_by_name())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_chart_draws_says_and_tabulates(name: str, kind: str, figures: Any, specs: Specs) -> None:
    """Each panel has a picture as wide as a phone and a message with numbers; a figure has a table and a legend."""
    figure = figures(name, kind)
    assert 0 < len(figure.panels) <= (2 * MOST_PANELS if name in OF_TRIALS else MOST_PANELS)
    assert figure.rows
    assert figure.keys
    assert figure.question.endswith("?")
    assert figure_csv(figure).count("\n") == len(figure.rows) + 1
    assert "NaN" not in json.dumps(specs(figure))
    for panel in figure.panels:
        assert any(character.isdigit() for character in panel.message)
        assert "nan" not in panel.message.lower()
        picture = ET.fromstring(render.svg(panel, "p"))
        assert picture.get("width") == "320"
        assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) > 1  # marks alone: empty ones are left out
    assert ET.fromstring(render.svg(figure.panels[0], "p", 670)).get("width") == "670"


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_nothing_to_show_is_a_sentence(name: str, show: Show) -> None:
    """When every trial failed, or none was made for a suite, there are no axes, only a sentence; the page shows it."""
    failed = [] if name == "telemetry" else [draw(name, show(fails="all"))]  # probes look at trials that fail, too
    for figure in (*failed, draw(name, show(), "no such suite")):
        assert not figure.panels
        assert figure.missing.endswith(".")
        html = figure_html(figure, "x", "x.csv")
        assert "<svg" not in html
        assert figure.missing in html


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CELLS, *OF_TRIALS])
def test_a_run_that_lacks_much_breaks_nothing(name: str, show: Show) -> None:
    """Of one block of one batch size, without ceilings, a chart draws what there is or says what is missing."""
    figure = draw(name, show(blocks=1, nulls=True, batches=(32,), asked_only=True))
    assert figure.panels or figure.missing.endswith(".")
    assert all(render.svg(panel, "p").startswith("<svg") for panel in figure.panels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "cpu") for name in CELLS),
        *((name, "storage") for name in STORAGE),
        ("worker_startup", "workers"),
    ],
)
def test_one_block_has_no_interval_and_says_so(name: str, kind: str, show: Show, specs: Specs) -> None:
    """With one block no chart draws or tabulates an interval, and NaN reaches no specification."""
    figure = draw(name, show(**{**KINDS[kind], "blocks": 1, "fails": "none"}))
    assert figure.panels
    for row in figure.rows:
        assert all(row.get(low) is None for low in ("low", "low (us)", "times, low"))
    assert ("no interval" in figure.message) == (name not in ("phases", "storage_work"))
    assert "NaN" not in json.dumps(specs(figure))


@pytest.mark.parametrize("name", CELLS)
def test_emulated_never_passes_for_real(name: str, figures: Any, specs: Specs) -> None:
    """Every panel of an emulated step says so in its title and mixes it with nothing; the stand-in has its own name."""
    figure = figures(name, "cpu")
    assert any("emulated" in panel.subtitle for panel in figure.panels)
    for panel, spec in zip(figure.panels, specs(figure), strict=True):
        assert spec["title"]["subtitle"] == [panel.subtitle]
        assert ("emulated" in panel.subtitle) != any(word in panel.subtitle for word in ("real", "alone", "GPU"))
    kinds = {row["what ran"] for row in figure.rows}
    assert any("emulated" in kind for kind in kinds)
    assert all(kinds)
    assert "div2k" not in {row["workload"] for row in figure.rows}
    assert any(panel.title.startswith("div2k_standin,") for panel in figure.panels)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["throughput", "worker_startup"])
def test_hostile_text_stays_text(name: str, show: Show, fake_run: Any) -> None:
    """Markup in a workload's name is escaped in figures, and in a CSV file it is as it was recorded."""
    figure = draw(name, show(hostile=True))
    html = figure_html(figure, "x", "x.csv")
    assert "<script>document" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html
    assert fake_run.HOSTILE in figure_csv(figure).replace('""', '"')


def test_a_formula_in_a_csv_file_is_defused() -> None:
    """A spreadsheet takes text that begins like a formula for text."""
    assert figure_csv(Figure("t", "q?", rows=({"workload": "=1+1"},))).splitlines()[1] == "'=1+1"
