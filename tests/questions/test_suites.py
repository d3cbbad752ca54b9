"""A suite's page has each machine and device, and the charts of as many as leave it light."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from feedrate.plan import suite
from feedrate.questions.suites import page as suites_page


@pytest.mark.slow
def test_charts_stand_on_a_page_as_long_as_it_stays_light(
    show: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine that was measured last has its charts in any case; where another's are left out, that is said."""
    monkeypatch.setattr(suites_page, "CHARTED", 1)
    few: dict[str, Any] = {"batches": (8, 32), "workers": (0,), "blocks": 2}
    runs = [show(cores=4, run_id="20260104T030405Z-four", **few), show(**few)]
    content = replace(suite.load("loader"), charts=suite.load("loader").charts[:2])
    page = suites_page.page("loader", "suites/loader.md", content, runs)
    assert len(page.figures) == 2
    assert all(view.machine_id in page.body for view in runs)
    assert page.body.count("Its charts would make this page slow to load.") == 1


@pytest.mark.slow
def test_devices_of_a_machine_stand_apart(show: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's CPU and GPU runs each have a heading that names the device, and figures."""
    monkeypatch.setattr(suites_page, "CHARTED", 3)
    few: dict[str, Any] = {"batches": (8,), "workers": (0,), "blocks": 2}
    cpu, gpu = show(gpu_idle=True, run_id="cpu", **few), show(device="cuda", run_id="gpu", **few)
    other = show(cores=4, run_id="other", **few)
    page = suites_page.page("loader", "suites/loader.md", suite.Suite("Which?", ("phases",)), [cpu, other, gpu])
    names = re.findall(r"^## (.+) \{ #(.+) \}$", unescape(page.body), re.MULTILINE)
    machine = "Example GPU 80, Example 9000 8-Core, 16 hardware threads"
    assert names[:2] == [(f"{machine}, on CPU", f"{gpu.machine_id}-cpu"), (machine, gpu.machine_id)]
    assert names[2][1] == other.machine_id
    assert f'<a href="#{gpu.machine_id}-cpu">{machine}, on CPU</a>' in page.body
    assert set(page.figures) == {f"loader-phases-{mark}" for _, mark in names}
    assert "slow to load" not in page.body
    cited = {name: placed.citation for name, placed in page.figures.items()}
    assert [found and found.origin.machines for found in cited.values()][:2] == [(name,) for name, _ in names[:2]]


@pytest.mark.parametrize(
    ("name", "what"),
    [pytest.param("calibration", {"plants": True}, marks=pytest.mark.slow), ("workers", {"claims": ("workers",)})],
)
def test_headings_of_two_devices_have_ids_of_their_own(
    name: str, what: dict[str, Any], show: Callable[..., Any]
) -> None:
    """On a page with sections for planted costs, or for what workers cost, no id stands twice."""
    few: dict[str, Any] = {"suites": (name,), "blocks": 1, "fails": "none", **what}
    runs = [show(gpu_idle=True, run_id="cpu", **few), show(device="cuda", run_id="gpu", **few)]
    page = suites_page.page(name, f"suites/{name}.md", suite.Suite("Which?", ()), runs)
    ids = re.findall(r"\{ #(.+) \}$", page.body, re.MULTILINE)
    assert len(ids) == len(set(ids)) > 3
