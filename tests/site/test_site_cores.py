"""The page "How many cores does a GPU need?" in a real browser, on the committed results."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser
from visits import COMMITTED, Site, visit

pytestmark = pytest.mark.slow

RATE, NEEDED, IDLE = ".fr-cores output", ".fr-cores-needed", ".fr-cores-idle"


def test_the_table_follows_the_slider(sites: dict[str, Site], browser: Browser) -> None:
    """A GPU's button sets its rate, the keys of the slider others; cores and idle time are those of the rate shown."""
    seen = visit(browser, sites[COMMITTED])
    page = seen.open("suites/cores.html")
    core = float(page.locator(NEEDED).first.get_attribute("data-core") or 0)
    cores = int(page.locator(NEEDED).first.get_attribute("data-cores") or 0)
    slider, shown = page.locator(".fr-cores input"), set()
    for act in (
        lambda: None,
        lambda: page.get_by_role("button", name=re.compile("A100.*TF32")).click(),
        lambda: slider.press("Home"),
        lambda: slider.press("End"),
    ):
        act()
        rate = float(page.locator(RATE).inner_text().replace(",", ""))
        shown.add(rate)
        assert float(page.locator(NEEDED).first.inner_text().replace(",", "")) == pytest.approx(rate / core, rel=0.01)
        idle = float(page.locator(IDLE).first.inner_text().rstrip("\u00a0%"))
        assert idle == pytest.approx(100 * max(0.0, 1 - core * cores / rate), abs=0.6)
    assert shown == {2470, 938, 200, 20_000}
    assert seen.problems == []
    page.context.close()
