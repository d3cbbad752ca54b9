"""Why training is not faster: the telling cells, few of many, with the records' numbers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from html import unescape

import pytest
from reading import plain

from feedrate.pages import descriptions
from feedrate.pages.runs import RunView
from feedrate.plan.suite import Suite
from feedrate.questions.loader import page as loader_cells
from feedrate.questions.suites import page as suites_page

Show = Callable[..., RunView]
Section = tuple[str, dict[str, str]]
PATH = "suites/loader.md"


@pytest.fixture(scope="module")
def cuda(show: Show) -> RunView:
    return show(device="cuda")


@pytest.fixture(scope="module")
def section(cuda: RunView) -> tuple[str, dict[str, str]]:
    return loader_cells.section(cuda, "loader", PATH)


def said(section: Section) -> str:
    return plain(section[0])


@pytest.mark.slow
def test_the_fastest_cell_is_told_as_it_was_measured(cuda: RunView, section: Section) -> None:
    """The first row is the fastest training cell's; the sentence has its setting and its rate."""
    judged = cuda.judged[cuda.judged["mode"].eq("train")]
    fastest = judged.sort_values("samples_per_s").iloc[-1]
    first = re.findall(r"<tr.*?</tr>", section[0])[1]
    assert f"{100 * fastest['efficiency']:.0f}\u00a0%" in first
    assert f"{100 * fastest['efficiency_lo']:.0f}–{100 * fastest['efficiency_hi']:.0f}\u00a0%" in first
    assert f"{100 * fastest['au']:.0f}\u00a0%" in first
    assert str(fastest["bottleneck"]) in first
    assert all(f"{name}\u00a0" in first for name in ("loader", "copy", "step"))
    told = said(section)
    (best,) = [row for row in cuda.headlines_of("loader").to_dict("records") if row["cell_id"] == fastest["cell_id"]]
    rate = float(f"{best['samples_per_s']:.3g}")
    assert f"reaches {rate:,.0f} samples a second (" in told
    assert f"{descriptions.knobs(best)} reaches" in told


LAUNCHES = "The host that launches the step’s kernels holds it back"


@pytest.mark.parametrize(
    ("bottleneck", "limit", "workers", "text"),
    [
        ("compute-bound", "compute", 2, "The model holds it back: a faster loader would gain little"),
        ("compute-bound", "compute", 0, "The model holds it back: without workers loading and step take turns"),
        ("balanced", "load", 2, "Two stages are about equally slow (within 1.5×): to speed up one gains little"),
        ("balanced", None, 2, "No phase takes half of the time"),
        ("launch-bound", "compute", 2, f"{LAUNCHES}: a faster device would gain little"),
        ("launch-bound", None, 2, f"{LAUNCHES}, as far as its phases tell"),
        ("loader-bound", "load", 4, "The loader holds it back"),
        ("loader-bound", None, 4, "The loader holds it back, as far as its phases tell"),
    ],
)
def test_what_a_bottleneck_means_is_no_more_than_what_is_known(
    bottleneck: str, limit: str | None, workers: int, text: str
) -> None:
    """Stages that take turns are not said to hide one another, and phases tell of no ceilings."""
    cell = {"bottleneck": bottleneck, "limit": limit, "num_workers": workers}
    meaning = loader_cells.meaning({**cell, "device": "cuda", "step": "model", "efficiency": 0.65})
    assert meaning.startswith(text)
    assert ("gains little" in meaning or "gain little" in meaning) == ("little" in text)


@pytest.mark.parametrize("bottleneck", ["compute-bound", "balanced"])
def test_a_loader_that_takes_the_model_s_cores_is_not_called_hidden(bottleneck: str) -> None:
    """On a CPU the step alone is what training without loading would reach: it is said how far that is."""
    cell = {"bottleneck": bottleneck, "limit": "compute", "num_workers": 2, "device": "cpu", "efficiency": 0.5}
    assert loader_cells.meaning({**cell, "step": "model"}).endswith("without loading it would be up to 2.0× as fast")
    assert "gain" in loader_cells.meaning({**cell, "step": "emulated"})


def test_every_bottleneck_is_shown_and_few_cells_are(cuda: RunView) -> None:
    """Few rows a task: the defaults, and one row for every bottleneck."""
    cells = loader_cells.training_cells(cuda, "loader")
    ((_, shown),) = loader_cells.tasks(cells)
    assert {cell["bottleneck"] for _, cell in shown} == set(cells["bottleneck"])
    assert any("PyTorch’s defaults" in reason for reason, _ in shown)
    assert len(shown) <= loader_cells.CELLS < len(cells)
    assert shown[0][1]["samples_per_s"] == cells["samples_per_s"].max()


@pytest.mark.slow
def test_the_whole_list_is_a_file(cuda: RunView, section: Section) -> None:
    """All training cells come as CSV, linked from the section, and match the records."""
    ((path, text),) = section[1].items()
    assert f'href="../{path}"' in section[0]
    listed = list(csv.DictReader(io.StringIO(text)))
    judged = cuda.judged[cuda.judged["mode"].eq("train")]
    assert len(listed) == len(judged)
    assert sorted(float(row["samples_per_s"]) for row in listed) == pytest.approx(sorted(judged["samples_per_s"]))


def test_hidden_shares_and_stages_are_told(section: Section) -> None:
    """Copies that return early hide three quarters here; the stage that dominates is named."""
    text = said(section)
    assert "copy 75 %" in text
    assert "transform 55 %" in text


@pytest.mark.slow
def test_planted_costs_are_read_back_on_their_page(show: Show) -> None:
    """A suite that plants costs shows planted, measured and error; one that plants nothing shows nothing of it."""
    view = show(plants=True)
    body = suites_page.page("loader", PATH, Suite("Is it read back?", ()), [view]).body
    for title in ("Planted, measured, error", "Small effects", "Equal pairs", "Planted bottlenecks"):
        assert title in body
    assert "Why is it not faster?" not in body
    assert "1,000 – 2,000 µs a sample" in unescape(body)
    assert "0.40\u00a0%" in unescape(body)
    plain = suites_page.page("loader", PATH, Suite("Which?", ()), [show()]).body
    assert "Planted" not in plain
    assert "Why is it not faster?" in unescape(plain)
