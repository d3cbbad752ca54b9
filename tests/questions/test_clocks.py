"""A run that timed a step by two clocks shows what they say of each phase."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pandas as pd
import pytest

from feedrate.analysis.estimates import cells
from feedrate.pages.runs import RunView
from feedrate.questions.runs import page as runs_page
from feedrate.schema.axes import AXES, cell_id

Show = Callable[..., RunView]


def twice(shown: RunView) -> SimpleNamespace:
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
    both = pd.concat([events, waiting], ignore_index=True)
    return SimpleNamespace(trials=both, cells=cells(both))


def test_both_clocks_are_compared(show: Show) -> None:
    """The ratio is the device's span ÷ the waiting host's phase, and what overlap hides is told."""
    text = runs_page.section(twice(show(device="cuda", fails="none")))
    assert ">forward<" in text
    assert ">0.50<" in text
    assert "What overlap hides of a step in which nothing overlaps: " in text
    assert "50" in text.partition("nothing overlaps: ")[2][:200]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_clock_says_nothing(show: Show, device: str) -> None:
    """Without a serialized twin there is nothing to compare."""
    assert runs_page.section(show(device=device)) == ""
