"""A run that was withdrawn keeps its page and leaves everything else; tiers and labels stand beside every other."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from feedrate.pages.runs import RunView, load_runs
from feedrate.pages.selection import select
from feedrate.questions.explore import page as explore_page
from feedrate.questions.explore.run_files import path_of, run_file
from feedrate.questions.machines import page as machines_page
from feedrate.questions.records import page as data_page
from feedrate.questions.runs import facts
from feedrate.questions.runs import page as run_page
from feedrate.store import marks
from feedrate.store import runs as store_runs

WHY = "The disk was failing <script>alert(1)</script>"
GONE, STAYS = "20260102T030405Z-gone", "20260103T030405Z-stays"


@pytest.fixture(scope="module")
def results(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one machine, the older one withdrawn, the newer one a labelled reference."""
    folder = tmp_path_factory.mktemp("results")
    for run_id in (GONE, STAYS):
        fake_run.write(folder, fake_run.Fake(run_id=run_id, blocks=1, batches=(8,)))
    marks.withdraw(store_runs.find(GONE, folder).folder, WHY)
    stays = store_runs.find(STAYS, folder).folder
    marks.set_tier(stays, marks.REFERENCE)
    marks.label(stays, "<b>Lab</b> *server*", "=cmd|' /C calc'!A0")
    return folder


def shown_of(results: Path, run_id: str) -> RunView:
    return RunView(store_runs.find(run_id, results))


def test_a_withdrawn_run_is_shown_nowhere_else(results: Path) -> None:
    """No list, no chart, no number draws on it, and one line leads to its page."""
    everyone = select(load_runs(results))
    assert [view.manifest.run_id for view in everyone.withdrawn] == [GONE]
    for runs in (everyone.every, everyone.featured):
        assert GONE not in [view.manifest.run_id for view in runs]
    assert [view.manifest.run_id for view in everyone.every] == [STAYS]
    explored = explore_page.page(everyone, {path_of(view): run_file(view) for view in everyone.every})
    assert GONE not in explored.body + "".join(map(str, explored.files.values()))
    listed = data_page.page(everyone.every, everyone.withdrawn, [], []).body
    assert listed.count(GONE) == 2  # the link and its text
    assert f"runs/{GONE}.html" in listed


def test_its_page_stays_with_the_reason(results: Path) -> None:
    """The page says when and why, as text, has the run's files, and has no figure."""
    view = shown_of(results, GONE)
    page = run_page.withdrawn_page(view)
    assert page.path == view.page
    assert "This run was withdrawn on" in page.body
    assert "The disk was failing &lt;script&gt;" in page.body
    assert "<script>" not in page.body
    assert sorted(path.rpartition("/")[2] for path in page.files) == sorted(facts.FILES)
    assert not page.figures


@pytest.mark.slow
def test_every_table_names_the_tier(results: Path) -> None:
    """Runs, their pages and machines say who vouches, or how many of each; what a submitter wrote is text there."""
    view = shown_of(results, STAYS)
    everyone = select(load_runs(results))
    listed, its_own = data_page.page([view], [], [], []).body, run_page.page(view).body
    for body in (listed, its_own, machines_page.listing("compare.md", everyone.every)):
        assert "run.html#tiers" in body
        assert ">reference</a>" in body
        assert "<b>Lab</b>" not in body
    for body in (listed, its_own):
        assert "&lt;b&gt;Lab&lt;/b&gt;" in body
    assert "=cmd|&#39; /C calc&#39;!A0" in its_own
    both = [view, shown_of(results, GONE)]
    assert "1 reference, 1 self-reported" in facts.tiers("compare.md", both)
    assert ">self-reported</a>" in facts.tiers("compare.md", both[1:])
