"""The page of a script's run answers first, says nothing that only sweeps have, and shows text of others as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import ModuleType

import pytest
from reading import NOTHING, page_text

from feedrate.analysis.noise import OF_SCRIPTS
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.questions.machines import page as machines_page
from feedrate.questions.runs import page as runs_page
from feedrate.store import runs

Show = Callable[..., RunView]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def show_script(fake_script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Show:
    """Make up a run of a script and read it back as pages see it."""

    def make(**what: object) -> RunView:
        folder = fake_script.write(tmp_path_factory.mktemp("script"), fake_script.Script(**what))
        return RunView(runs.find(str(folder)))

    return make


@pytest.fixture(scope="module")
def view(show_script: Show) -> RunView:
    return show_script()


@pytest.fixture(scope="module")
def page(view: RunView) -> Page:
    return runs_page.page(view)


@pytest.fixture(scope="module")
def with_ceilings(show_script: Show) -> str:
    """What the page of a script says whose step and loader were measured alone."""
    return page_text(runs_page.page(show_script(headspace=True, prepare_ms=40.0)))


def test_what_holds_the_script_back_comes_first(view: RunView, page: Page) -> None:
    """The answer, the lines, what would help, the timeline, the phases: in this order, and then the run's facts."""
    parts = [
        *(
            'class="fr-answer">train.py is held back by waiting for a batch: ',
            f'id="slot-account-{view.slug}"',
            "image = Image.open(self.paths[index])",
        ),
        *("## What would help", f'id="slot-predictions-{view.slug}"'),
        *(f'id="slot-timeline-{view.slug}"', f'id="slot-phases-{view.slug}"', "## The run", "feedrate run -- train.py"),
    ]
    places = [page.body.index(part) for part in parts]
    assert places == sorted(places)
    assert {f"{name}-{view.slug}" for name in ("account", "predictions", "timeline", "phases", "telemetry")} == set(
        page.figures
    )
    assert "__getitem__ (loading)" in page.figures[f"timeline-{view.slug}"].html
    assert "worker 1" in page.figures[f"timeline-{view.slug}"].html


def test_it_has_no_words_of_a_sweep(show_script: Show, page: Page, with_ceilings: str) -> None:
    """No control cell, protocol, seed, order or px; rows of its loop are stretches; nothing is shown as None."""
    for said in (page_text(page), page_text(runs_page.page(show_script(workers=0))), with_ceilings):
        for word in (
            " px",
            "ontrol setting",
            "Limits added",
            "Order of measurements",
            "Why it stopped",
            "seed",
            "Window",
            "cells",
        ):
            assert word not in said, word
        assert not NOTHING.search(said), NOTHING.findall(said)
        assert "its loop, in " in said


def test_only_what_says_something_of_the_machine_grades_it(view: RunView) -> None:
    """Stretches that differ are the script's own: its grade knows flags, drift and their number alone."""
    assert set(view.grade.letters) == set(OF_SCRIPTS)
    assert "cell" not in " ".join(view.grade.reasons)


def test_step_and_loader_alone_are_its_ceilings(page: Page, with_ceilings: str) -> None:
    """With --headspace the page says what each does alone, what is the bottleneck, and that weights were spoiled."""
    assert re.search(r"The step alone, without its loader [\d,.]+ [\d,.]+–[\d,.]+ 6 ", with_ceilings)
    assert re.search(r"By the rule of all runs the loop is loader-bound ?:", with_ceilings)
    assert "weights were spoiled" in with_ceilings
    assert "weights" not in page_text(page)


def test_a_run_from_elsewhere_speaks_through_its_records(show_script: Show) -> None:
    """Without the report, which is never published, the page says how long the script waits and what holds it back."""
    view = show_script(prepare_ms=60.0)
    report = runs.report_of(view.run.folder)
    assert "/home/somebody" in report.read_text()
    report.unlink()
    page = runs_page.page(RunView(view.run))
    assert re.search(r'class="fr-answer">train.py waits for data \d\d\s% of its time: loader-bound\.', page.body)
    assert f"slot-timeline-{view.slug}" in page.body
    assert "What would help" not in page.body
    assert not NOTHING.search(page_text(page))


def test_an_account_without_a_cause_is_shown(show_script: Show) -> None:
    """Of a loop too short to name a cause, the page says how long it waits, and where all of the time went."""
    view = show_script(hour=4)
    path = runs.report_of(view.run.folder)
    report = json.loads(path.read_text())
    said = [line for line in report["said"] if line[0] not in ("held back by", "next", "by the model")]
    path.write_text(json.dumps(report | {"cause": None, "pacing": None, "predictions": None, "said": said}))
    page = runs_page.page(view)
    assert 'class="fr-answer">train.py waits for data ' in page.body
    assert f"account-{view.slug}" in page.figures
    assert "Where the time of the training process went" in page.body
    assert "What would help" not in page.body


def test_a_script_takes_no_best_setting_away(show: Show, view: RunView) -> None:
    """Best settings of a machine are those of its sweeps; a script is no task."""
    sweep = show()
    tasks = machines_page.tasks_of([view, sweep])
    assert len(tasks)
    assert {best.view for best in tasks.values()} == {sweep}
    assert not len(view.headlines)
