"""The page of a run shows what its machine did and whether it drifted, where the run can have that."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pandas as pd
import pytest

from feedrate.pages.runs import RunView
from feedrate.questions.runs import page as runs_page
from feedrate.schema.axes import AXES, cell_id

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


def twice(shown: RunView) -> RunView:
    """The run's first training cell once more, serialized: its host phases are twice its device spans."""
    trials = shown.trials.astype({f"{side}_forward_ns": "Float64" for side in ("host", "device")})
    first = trials[trials["mode"].eq("train") & trials["outcome"].eq("ok")].iloc[0]
    own = trials[trials["cell_id"].eq(first["cell_id"]) & trials["outcome"].eq("ok")]
    axes = {axis.name: axis.type(first[axis.name]) for axis in AXES if not pd.isna(first[axis.name])}
    events = own.assign(device_forward_ns=own["host_forward_ns"])
    waiting = own.assign(
        timing="serialized",
        cell_id=cell_id({**axes, "timing": "serialized"}),
        host_forward_ns=2 * own["host_forward_ns"],
        wall_ns=2 * own["wall_ns"],
    )
    both = RunView(shown.run)
    both.trials = pd.concat([events, waiting], ignore_index=True)
    return both


def test_both_clocks_are_compared(show: Show) -> None:
    """The ratio is the device's span ÷ the waiting host's phase, and what overlap hides is told."""
    body = runs_page.page(twice(show(device="cuda", fails="none"))).body
    text = body.partition("### Two clocks")[2].partition("\n## ")[0]
    assert ">forward<" in text
    assert ">0.50<" in text
    assert "50" in text.partition("What overlap hides of a step in which nothing overlaps: ")[2][:200]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_clock_says_nothing(show: Show, device: str) -> None:
    """Without a serialized twin there is nothing to compare."""
    assert "Two clocks" not in runs_page.page(show(device=device)).body
