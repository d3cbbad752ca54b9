"""The front page's first chart in a real browser: images, step and machine are chosen."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Locator, Page, expect
from visits import Visit

pytestmark = pytest.mark.slow

OPTIONS = "list => [...list.options].map(option => option.value)"
OFFERED = "list => [...list.options].filter(option => !option.disabled).map(option => option.value)"


def test_images_step_and_machine_are_chosen(seen: Visit) -> None:
    """One picture is shown, that of what is chosen; the other lists follow; a machine's lines stand alone in it."""
    page = seen.open("index.html")
    lists = {name: page.locator(f"#workers select[data-facet={name}]") for name in ("images", "step", "machine")}
    every, shown = page.locator("#workers .fr-panel"), page.locator("#workers .fr-panel:visible")
    assert every.count() > 1
    drawn = 0
    for name in ("images", "step"):
        for value in lists[name].evaluate(OPTIONS):
            lists[name].select_option(value)
            expect(shown).to_have_count(1)
            facets = json.loads(shown.get_attribute("data-facets") or "")
            assert facets[name] == value
            assert [lists[key].input_value() for key in ("images", "step")] == [facets["images"], facets["step"]]
            offered = lists["machine"].evaluate(OFFERED)
            assert offered == ["all", *facets["machine"]]
            if len(facets["machine"]) > 1:
                choose_machines(page, lists["machine"], offered)
                drawn += 1
    assert drawn


def choose_machines(page: Page, machines: Locator, offered: list[str]) -> None:
    """The marks of machines one by one are those of all together."""
    shown = page.locator("#workers .fr-panel:visible")
    symbols = shown.locator(".fr-live:not(.fr-next) .mark-symbol path")
    counts = []
    for machine in (*offered[1:], offered[0]):
        machines.select_option(machine)
        expect(shown.locator("[data-state=live]")).to_have_count(1)
        page.wait_for_timeout(500)  # what was drawn before is replaced then
        expect(shown.locator(".fr-next")).to_have_count(0)
        counts.append(symbols.count())
    *alone, whole = counts
    assert sum(alone) == whole > max(alone) > 0
