"""Pictures and tables that follow what is chosen, in a real browser: on the front page, and of cores for a GPU."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect
from visits import COMMITTED, Site, Visit, visit

pytestmark = pytest.mark.slow

OPTIONS = "list => [...list.options].map(option => option.value)"
OFFERED = "list => [...list.options].filter(option => !option.disabled).map(option => option.value)"
RATE, NEEDED, IDLE = ".fr-cores output", ".fr-cores-needed", ".fr-cores-idle"


def test_images_step_and_machine_are_chosen(seen: Visit) -> None:
    """One picture is shown, that of what is chosen; the other lists follow; a machine's lines stand alone in it."""
    page = seen.open("index.html")
    lists = {name: page.locator(f"#workers select[data-facet={name}]") for name in ("images", "step", "machine")}
    every, shown = page.locator("#workers .fr-panel"), page.locator("#workers .fr-panel:visible")
    assert every.count() > 1
    drawn = False
    for name in ("images", "step"):
        for value in lists[name].evaluate(OPTIONS):
            lists[name].select_option(value)
            expect(shown).to_have_count(1)
            facets = json.loads(shown.get_attribute("data-facets") or "")
            assert facets[name] == value
            assert [lists[key].input_value() for key in ("images", "step")] == [facets["images"], facets["step"]]
            offered = lists["machine"].evaluate(OFFERED)
            assert offered == ["all", *facets["machine"]]
            if len(facets["machine"]) > 1 and not drawn:
                choose_machines(page, lists["machine"], offered)
                drawn = True
    assert drawn


def choose_machines(page: Page, machines: Locator, offered: list[str]) -> None:
    """The marks of machines one by one are those of all together; each has its own default, which is named once."""
    shown = page.locator("#workers .fr-panel:visible")
    symbols = shown.locator(".fr-live:not(.fr-next) .mark-symbol path")
    counts = []
    for machine in (*offered[1:], offered[0]):
        machines.select_option(machine)
        expect(shown.locator("[data-state=live]")).to_have_count(1)
        page.wait_for_timeout(500)  # what was drawn before is replaced then
        expect(shown.locator(".fr-next")).to_have_count(0)
        counts.append(symbols.count())
        expect(shown.locator(".fr-live:not(.fr-next) text", has_text="PyTorch’s default")).to_have_count(1)
    *alone, whole = counts
    assert sum(alone) == whole > max(alone) > 0


def twice(route: Route) -> None:
    """Show slider and table of a second machine below those of the first."""
    html = route.fetch().text()
    box = re.search(r'<div class="?fr-cores"? id="?cores-([\w-]+).*?</table></div>', html, re.DOTALL)
    assert box is not None
    route.fulfill(body=html.replace(box[0], box[0] + box[0].replace(box[1], "other")), content_type="text/html")


def test_the_table_follows_the_slider(sites: dict[str, Site], browser: Browser) -> None:
    """A GPU's button sets its rate, the keys of the slider others; cores and idle time are those of the rate shown.

    The slider's ends are those that are written; the table of another machine, below, follows a slider of its own.
    """
    seen = visit(browser, sites[COMMITTED])
    seen.page.route("**/cores.html", twice)
    page = seen.open("suites/cores.html")
    others = page.locator(".fr-scroll", has=page.locator(NEEDED)).nth(1)
    before = others.inner_text()
    assert "200 to 20,000" in page.locator(".fr-cores label").first.inner_text()
    core = float(page.locator(NEEDED).first.get_attribute("data-core") or 0)
    cores = int(page.locator(NEEDED).first.get_attribute("data-cores") or 0)
    slider, shown = page.locator(".fr-cores input").first, set()
    for act in (
        lambda: None,
        page.get_by_role("button", name=re.compile("A100.*TF32")).first.click,
        lambda: slider.press("Home"),
        lambda: slider.press("End"),
    ):
        act()
        rate = float(page.locator(RATE).first.inner_text().replace(",", ""))
        shown.add(rate)
        assert float(page.locator(NEEDED).first.inner_text().replace(",", "")) == pytest.approx(rate / core, rel=0.01)
        idle = float(page.locator(IDLE).first.inner_text().rstrip("\u00a0%"))
        assert idle == pytest.approx(100 * max(0.0, 1 - core * cores / rate), abs=0.6)
    assert shown == {2470, 938, 200, 20_000}
    assert others.inner_text() == before
    assert seen.problems == []
    page.context.close()
