"""A suite's page has the charts of as many machines as keep it light."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness import suite
from harness.pages import suites

NOTE = "Its charts would make this page slow to load."


@pytest.mark.parametrize(("room", "machines"), [(0, 1), (10**9, 2)])
def test_charts_stand_on_a_page_as_long_as_it_stays_light(
    room: int, machines: int, show: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine that was measured last has its charts in any case; where another's are left out, that is said."""
    monkeypatch.setattr(suites, "_ROOM", room)
    runs = [show(cores=4, run_id="20260104T030405Z-four"), show()]
    content = suite.load("loader")
    page = suites.page("loader", "suites/loader.md", content, runs)
    assert len(page.figures) == machines * len(content.charts)
    assert all(shown.machine_id in page.body for shown in runs)
    assert page.body.count(NOTE) == 2 - machines
