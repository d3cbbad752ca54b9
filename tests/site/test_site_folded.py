"""What pages hold folded, in a real browser: no part of the page before it is wanted, and there when it is."""

from __future__ import annotations

from playwright.sync_api import Browser, Route, expect
from visits import Site, Visit, unfold, visit


def test_a_link_unfolds_what_it_leads_into(seen: Visit) -> None:
    """What lies in a folded part comes into view, whether a link on the page or its address names it; so on paper.

    Until then it is no part of the page, which is the lighter for it.
    """
    page = seen.open("suites/loader.html")
    name = f"{page.locator('.fr-figure').first.get_attribute('id')}-table"
    table = page.locator(f"#{name}")
    assert table.count() == page.locator(".fr-data table").count() == 0
    page.evaluate("name => { location.hash = name }", name)
    expect(table).to_be_in_viewport()
    again = seen.open(f"suites/loader.html#{name}")
    expect(again.locator(f"#{name}")).to_be_in_viewport()
    again.evaluate("document.querySelector('details[open]').open = false")
    before = again.locator("details[open]").count()
    again.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert again.locator("details:not([open])").count() == 0
    assert again.locator(".fr-data table:visible").count() == again.locator(".fr-data").count() > 1
    again.evaluate("dispatchEvent(new Event('afterprint'))")
    assert again.locator("details[open]").count() == before


def test_what_is_folded_is_found_and_never_empty(sites: dict[str, Site], browser: Browser) -> None:
    """The browser's own search finds what is folded; a part that is opened before its script has come is filled."""
    seen = visit(browser, sites["main"])
    page = seen.open("suites/loader.html")
    page.keyboard.press("Control+f")
    assert page.locator(".fr-data table").count() == page.locator(".fr-data").count() > 1
    slow, held = page.context.new_page(), []

    def hold(route: Route) -> None:
        held.append(route)

    slow.route("**/scripts/site/page.js", hold)
    slow.goto(page.url, wait_until="commit")
    part = slow.locator(".fr-data").first
    unfold(part.locator("summary"))
    assert part.locator("table").count() == 0
    while not held:
        slow.wait_for_timeout(10)
    held[0].continue_()
    expect(part.locator("table")).to_be_visible()
    assert seen.problems == []
