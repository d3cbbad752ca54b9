"""The page Explore, given links of nobody, odd runs, narrow screens and no scripts."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
import visits
from exploring import ready, state, tick
from playwright.sync_api import Browser, expect

pytestmark = pytest.mark.slow


def test_words_that_nobody_knows_are_said(sites: dict[str, Any], browser: Browser) -> None:
    """Unknown machines, runs, axes, values and measures in a link are named in a sentence; the rest of it holds."""
    seen = visits.visit(browser, sites["main"])
    page = ready(seen.open("explore.html"))
    known = page.url
    wrong = {
        "colour=warp": "no axis “warp”",
        "metric=happiness": "no measure “happiness”",
        "speed=9": "no axis or setting “speed”",
        "sort=luck,ascending": "no column “luck”",
        "batch_size=8,9": "no cell with batch_size “9”",
    }
    for part in wrong:
        known = re.sub(f"&{part.partition('=')[0]}=[^&]*", "", known) + f"&{part}"
    page.goto("about:blank")
    page.goto(known)
    ready(page)
    problems = page.locator(".fr-explore-problems").inner_text()
    assert [said for said in wrong.values() if said not in problems] == []
    assert "batch_size 8" in page.locator(".fr-explore-main .fr-explore-about").inner_text()
    page.goto("about:blank")
    page.goto(re.sub("&run=[^&]*", "&run=%3Cb%3Egone", known))
    expect(page.locator(".fr-explore-problems")).to_contain_text("no run “<b>gone”")
    assert "No run is chosen" in page.locator(".fr-explore-problems").inner_text()
    assert seen.problems == []


def test_a_sleep_is_called_a_sleep(sites: dict[str, Any], browser: Browser) -> None:
    """An emulated step has no forward pass: neither control, table nor legend speak of one."""
    page = visits.visit(browser, sites["main"]).open("explore.html")
    page.goto("about:blank")
    page.goto(f"{sites['main'].address}explore.html#machine={_machine(sites, 'cpu')}&ran=emulated")
    ready(page)
    text = page.locator(".fr-explore").inner_text()
    assert "Emulated step (sleep)" in text
    assert "emulated step, no model" in text
    assert "Forward pass" not in text


def _machine(sites: dict[str, Any], device: str) -> str:
    found: str = next(run.manifest.machine.machine_id for run in sites["main"].runs if run.manifest.device == device)
    return found


@pytest.mark.parametrize("width", [360, 1920])
def test_it_fits_and_keeps_its_place(sites: dict[str, Any], browser: Browser, width: int) -> None:
    """From a phone to a wide screen nothing sticks out, with everything unfolded."""
    page = ready(visits.visit(browser, sites["main"], width=width).open("explore.html"))
    page.evaluate(visits.UNFOLD)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for chart in page.locator(".fr-explore-chart").all():
        inside, outside = chart.locator("svg").bounding_box(), chart.bounding_box()
        assert inside
        assert outside
        assert inside["width"] <= outside["width"] + 1


def test_without_scripts_the_files_are_named(sites: dict[str, Any], browser: Browser) -> None:
    """No promise of a picture; links to runs, whose files have every number."""
    page = visits.visit(browser, sites["main"], java_script_enabled=False).open("explore.html")
    assert page.locator("#fr-explore").is_hidden()
    assert page.locator("#fr-explore-plain a:visible").count() == 2


@pytest.mark.slow
def test_odd_runs_are_shown_as_text(sites: dict[str, Any], browser: Browser, fake_run: ModuleType) -> None:
    """One block, no metrics, hostile names: every machine can be chosen, and no name becomes an element."""
    seen = visits.visit(browser, sites["odd"])
    page = ready(seen.open("explore.html"))
    page.locator("details.fr-explore-machines summary").click()
    for name in [box.get_attribute("value") or "" for box in page.locator("input[name=machine]").all()]:
        if name not in state(page)["machine"]:
            tick(page, "machine", name)
    assert page.locator(".fr-explore img, .fr-explore script, .fr-explore b").count() == 0
    assert "onerror" in page.locator(".fr-explore").inner_text()
    assert page.title() != "owned"
    assert seen.problems == []
