"""The front page's first chart in a real browser: images, step and machine are chosen."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect
from visits import Visit

pytestmark = pytest.mark.slow

OPTIONS = "list => [...list.options].map(option => option.value)"


def test_images_step_and_machine_are_chosen(seen: Visit) -> None:
    """One picture is shown, that of what is chosen; the other lists follow; a machine's lines stand alone in it."""
    page = seen.open("index.html")
    lists = {name: page.get_by_label(name, exact=True) for name in ("images", "step", "machine")}
    every, shown = page.locator("#workers .fr-panel"), page.locator("#workers .fr-panel:visible")
    assert every.count() > 1
    for name in ("images", "step"):
        for value in lists[name].evaluate(OPTIONS):
            lists[name].select_option(value)
            expect(shown).to_have_count(1)
            facets = json.loads(shown.get_attribute("data-facets") or "")
            assert facets[name] == value
            assert {key: lists[key].input_value() for key in facets} == facets
    symbols = shown.locator(".fr-live:not(.fr-next) .mark-symbol path")
    all_machines, *machines = lists["machine"].evaluate(OPTIONS)
    counts = []
    for machine in (*machines, all_machines):
        lists["machine"].select_option(machine)
        expect(shown.locator("[data-state=live]")).to_have_count(1)
        page.wait_for_timeout(500)  # what was drawn before is replaced then
        expect(shown.locator(".fr-next")).to_have_count(0)
        counts.append(symbols.count())
    *alone, whole = counts
    assert sum(alone) == whole > max(alone) > 0
