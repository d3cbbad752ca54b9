"""The page of a search answers first, shows what spoke for the answer, and needs nothing but the run's own files."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from types import ModuleType

import pytest
from reading import NOTHING, page_text

from feedrate.charts import render
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView, draw
from feedrate.questions.machines import page as machines_page
from feedrate.questions.runs import page as runs_page
from feedrate.questions.runs.facts import runs_table
from feedrate.questions.runs.search_charts import settings_of
from feedrate.questions.suites import page as suites_page
from feedrate.schema.axes import TUNE
from feedrate.store import runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def show_search(fake_tuned: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunView]:
    """Make up the run of a search and read it back as one from elsewhere: without its report."""

    def make(**what: object) -> RunView:
        folder = fake_tuned.write(tmp_path_factory.mktemp("search"), fake_tuned.Search(**what))
        runs.report_of(folder).unlink()
        return RunView(runs.find(str(folder)))

    return make


@pytest.fixture(scope="module")
def view(show_search: Callable[..., RunView]) -> RunView:
    """A search with trials that failed."""
    return show_search(most=3, fails=3)


@pytest.fixture(scope="module")
def page(view: RunView) -> Page:
    return runs_page.page(view)


def test_what_to_paste_comes_first(view: RunView, page: Page) -> None:
    """The answer with its gain, what to paste, the bound, the path, the settings: in this order; then the run."""
    (found,) = view.manifest.tuned
    best = settings_of(view.trials)[found.recommended]
    parts = [
        *(
            f'class="fr-answer">Best setting found: <code>{best}</code> for train.py. ',
            "<code>",
        ),
        *("DataLoader(..., num_workers=", "Compared with ", "A grid of 19 settings × 8 repetitions"),
        *(f'id="slot-search-{view.slug}"', "## Settings that were tried", "## Settings that were not tried"),
        *("## Set aside, but measured all the same", "## The run", "feedrate tune -- train.py", "## What failed"),
    ]
    places = [page.body.index(part) for part in parts]
    assert places == sorted(places)
    said = page_text(page)
    ratio, lo, hi = found.gain or (0.0, 0.0, 0.0)
    assert f"It is {ratio:.2f}× ({lo:.2f}–{hi:.2f}) as fast as num_workers=0 , which the script has." in said
    assert f"{found.trials} measurements of {view.manifest.cells} settings" in said


def test_every_setting_that_ran_has_a_row(view: RunView, page: Page) -> None:
    """The table has each setting once, marks two of them, and says which only failed."""
    table = page.body.partition("## Settings that were tried")[2].partition("## Settings that were not tried")[0]
    assert table.count("<tr") == 1 + view.trials["cell_id"].nunique()
    assert table.count("<strong>recommended</strong>") == table.count("<strong>present</strong>") == 1
    assert table.count("failed") == view.trials.loc[view.trials["outcome"].ne("ok"), "cell_id"].nunique()


def test_the_path_has_a_mark_a_trial(view: RunView) -> None:
    """Trials that ended well are drawn in their order; those of two settings lie in rings; failed ones are counted."""
    figure = draw("search", view, TUNE)
    ended = view.trials[view.trials["outcome"].eq("ok")].sort_values(["block", "position"])
    assert [row["samples per s"] for row in figure.rows] == ended["samples_per_s"].tolist()
    assert [row["trial"] for row in figure.rows] == sorted(row["trial"] for row in figure.rows)
    assert {row["marked"] for row in figure.rows} == {"none", "recommended", "present"}
    assert {"0 workers", "recommended", "present"} <= {key.label for key in figure.keys}
    assert f"{len(view.trials) - len(ended)} measurements failed and have no mark." in figure.notes
    assert f"{len(ended)} measurements of " in figure.message
    assert "NaN" not in json.dumps(render.specification(figure.panels[0]))
    assert ET.fromstring(render.svg(figure.panels[0], "p")).get("width") == "320"


def test_a_search_that_was_cut_short_says_so(show_search: Callable[..., RunView]) -> None:
    """After one block nothing is bounded, and the page says what the search could not rule out."""
    view = show_search(blocks=1)
    said = page_text(runs_page.page(view))
    assert "No other setting was measured often enough to be compared." in said
    assert "The search ended too early to rule out settings that are 3 % faster." in said
    assert "The script has it already." in said
    assert not NOTHING.search(said), NOTHING.findall(said)


def test_no_other_page_takes_it_for_a_task(view: RunView) -> None:
    """Lists name the script; a search has no page of its suite, no headline, and is no machine's best setting."""
    assert "tune train.py" in runs_table([view], "data.md")
    assert suites_page.found([view]) == []
    assert not len(view.headlines)
    assert not len(machines_page.tasks_of([view]))


def test_steps_stand_before_and_after(view: RunView) -> None:
    """The script's own setting above the one that was found, with the trial of median throughput of each."""
    figure = draw("timeline", view)
    (found,) = view.manifest.tuned
    assert found.present != found.recommended
    assert figure.title == "A few steps, before and after"
    names = list(dict.fromkeys(row["setting"] for row in figure.rows))
    assert [name.partition(":")[0] for name in names] == ["before", "after"]
    assert "no workers" in names[0]
    assert f"{settings_of(view.trials)[found.recommended].num_workers} workers" in names[1]
    assert "Before: " in figure.message
    assert any("own setting" in note for note in figure.notes)
