"""The page of a run shows what its machine did and whether it drifted, where the run can have that."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from feedrate.pages.runs import RunView
from feedrate.questions.runs import page as runs_page

Show = Callable[..., RunView]


def test_a_run_has_its_pictures(show: Show) -> None:
    """Drift and telemetry have a heading, a place in the page, a figure with its table, and files to download."""
    shown = show(busy=True)
    page = runs_page.page(shown)
    assert list(page.figures) == [f"drift-{shown.slug}", f"telemetry-{shown.slug}"]
    for name, placed in page.figures.items():
        assert f'id="slot-{name}"' in page.body
        assert placed.html.count("<svg") > 1
        assert any(path.endswith(".csv") for path in placed.files)
    assert page.body.index("How far to trust it") < page.body.index("The machine over the run")
    assert page.body.index("The machine over the run") < page.body.index("Why it stopped")


def test_the_pictures_are_light(show: Show) -> None:
    """Both figures with their tables take less than a third of what a page may weigh before anyone touches a chart."""
    figures = runs_page.page(show(busy=True)).figures
    assert len(gzip.compress("".join(placed.html for placed in figures.values()).encode())) < 50_000


def test_what_a_run_cannot_have_is_left_out(show: Show) -> None:
    """Without a control cell there is no drift, without samples no telemetry, and no empty heading either."""
    older = runs_page.page(show(asked_only=True, nulls=True))
    assert not older.figures
    assert "Drift, and" not in older.body
    assert "The machine over the run" not in older.body
