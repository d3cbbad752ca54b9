"""The built site in a real browser: headless Chromium against made-up runs."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from visits import COMMITTED, Site, Visit, broken_links, policies, unfold, visit

from feedrate.charts.embed import MOST_ROWS
from feedrate.pages.runs import load_runs
from feedrate.plan import suite
from feedrate.questions.runs.facts import runs_table
from feedrate.questions.suites import page as suites_page
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.site import build as site_build
from feedrate.site import scripts
from feedrate.store import marks, runs

pytestmark = pytest.mark.slow

TOPICS = ("index", "claims", "compare", "data", "accuracy", "methodology", "dictionary", "run", "404")


@pytest.mark.parametrize("name", ["main", "odd", "empty", COMMITTED])
def test_links_and_policy_hold_on_every_page(name: str, sites: dict[str, Site]) -> None:
    """Every link leads to a file and an id that are there; one strict content security policy holds on all pages."""
    site = sites[name]
    assert {f"{topic}.html" for topic in TOPICS} <= set(site.pages)
    assert not [path for path in site.folder.rglob("*") if "<" in path.name]
    assert broken_links(site) == []
    (policy,) = policies(site)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_every_chart_has_picture_message_and_table(sites: dict[str, Site], browser: Browser) -> None:
    """Without scripts every chart is a picture with a text alternative, its message, and its numbers as a table."""
    seen = visit(browser, sites["main"], java_script_enabled=False)
    page = seen.open(path := "suites/loader.html")
    figures = page.locator(".fr-figure").all()
    assert len(figures) == suites_page.CHARTED * len(suite.load("loader").charts)
    for figure in figures:
        figure.scroll_into_view_if_needed()
        figure.locator("svg:visible").first.wait_for()  # what was out of sight is laid out
        for panel in figure.locator(".fr-panel").all():
            chart = panel.locator(".fr-chart")
            message = panel.locator(".fr-message").text_content() or ""
            assert message in (chart.get_attribute("aria-label") or "")
            assert chart.get_attribute("role") == "img"
            assert any(character.isdigit() for character in message)
            picture = chart.locator("svg:visible")
            assert picture.count() == 1
            assert picture.locator("path").count() > 1  # marks alone
            assert chart.locator("[aria-hidden=true] svg").count() == chart.locator("svg").count()
        unfold(figure.locator(".fr-data summary"))
        rows = figure.locator("tbody tr:has(td)").count()
        link = figure.locator(".fr-data a[download]").get_attribute("href") or ""
        text = (sites["main"].folder / path).parent.joinpath(link).read_text(encoding="utf-8")
        assert rows == min(len(list(csv.reader(io.StringIO(text)))) - 1, MOST_ROWS) > 0
    assert seen.problems == []


_SETTLED = (
    "() => new Promise((settled) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(settled))))"
)


def test_pictures_come_alive_in_place(seen: Visit) -> None:
    """Pointed at or focused, a picture is drawn by Vega at the same place and size, and numbers show on hover."""
    page = seen.open("suites/loader.html")
    for place, figure in enumerate(page.locator(".fr-figure").all()[-5:]):
        chart = figure.locator(".fr-chart").first
        chart.scroll_into_view_if_needed()
        page.evaluate(_SETTLED)  # what has come near is laid out
        before = chart.bounding_box()
        if place % 2:
            chart.focus()
        else:
            chart.hover()
        chart.locator(".fr-live svg").wait_for()
        assert chart.bounding_box() == before
        assert chart.locator(".fr-static").count() == 0
    chart.locator(".mark-symbol path").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "samples per second" in tooltip.inner_text()


def test_a_link_leads_to_its_figure(sites: dict[str, Site], browser: Browser) -> None:
    """Also to the last of a long page, whose figures before it were never laid out."""
    page = visit(browser, sites["main"]).open("suites/loader.html")
    name = page.locator(".fr-figure:not(.fr-empty)").last.get_attribute("id")
    page.goto("about:blank")
    page.goto(f"{sites['main'].address}suites/loader.html#{name}")
    expect(page.locator(f"#{name} figcaption")).to_be_in_viewport()


def test_pictures_follow_the_theme(sites: dict[str, Site], browser: Browser) -> None:
    """Switching to dark recolours paper, text, scroll bars and pictures, static and live; none is drawn again."""
    seen = visit(browser, sites["main"], color_scheme="light")
    page = seen.open("suites/loader.html")
    page.locator(".fr-chart").first.hover()
    page.locator(".fr-live svg").wait_for()
    colour = "element => getComputedStyle(element).fill"
    labels = (page.locator(".fr-live text").first, page.locator(".fr-static text").first)
    light = [label.evaluate(colour) for label in labels]
    scheme = "getComputedStyle(document.documentElement).colorScheme"
    assert page.evaluate(scheme) == "light"
    page.locator("label[title='Switch to the dark theme']").click()
    page.locator("body[data-md-color-scheme=slate]").wait_for()
    dark = [label.evaluate(colour) for label in labels]
    assert light[0] == light[1]
    assert dark[0] == dark[1]
    assert light[0] != dark[0]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 24, 29)"
    assert page.evaluate(scheme) == "dark"
    assert seen.problems == []


def test_a_foreign_folder_is_not_deleted(tmp_path: Path) -> None:
    """A build into a folder that holds something else is refused, and what is there stays."""
    precious = tmp_path / "site" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    with pytest.raises(InputError, match="did not make"):
        site_build.build(tmp_path / "results", tmp_path)
    assert precious.read_text() == "mine"


def test_the_committed_results_make_a_site(sites: dict[str, Site]) -> None:
    """Every run under results/ has its page, every bench record its figures; claims weigh 150 kB, gzipped, at most."""
    built = sites[COMMITTED].folder
    assert not (built / "suites" / "claims.html").exists()  # the suite of claims has its page at the top alone
    assert len(gzip.compress((built / "claims.html").read_bytes())) <= 150_000
    pages = {path.stem for path in (built / "runs").glob("*.html")}
    assert {run.manifest.run_id for run in runs.runs(ROOT / "results")} <= pages
    accuracy = (built / "accuracy.html").read_text(encoding="utf-8")
    for folder in ROOT.glob("results/*/bench"):
        assert any(path.name in accuracy for path in folder.glob("*.json")), folder


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


def opened(browser: Browser, results: Path) -> Page:
    """The list of runs with the script, as the site has it."""
    page = browser.new_page()
    page.set_content(runs_table(load_runs(results), "data.md"))
    scripts.bundle(results.parent / "scripts", ("site/tiers.js",))
    page.add_script_tag(path=results.parent / "scripts" / "site" / "tiers.js", type="module")
    return page


def test_rows_of_a_tier_can_be_chosen(browser: Browser, fake_run: ModuleType, tmp_path: Path) -> None:
    """A box leaves the runs of its tier and says how many those are; none or both leave all."""
    for run_id in ("one", "two", "three"):
        fake_run.write(tmp_path, fake_run.Fake(run_id=run_id, blocks=1, batches=(8,)))
    page = opened(browser, tmp_path)
    assert page.locator("input").count() == 0
    page.close()
    marks.set_tier(runs.find("two", tmp_path).folder, marks.REFERENCE)
    page = opened(browser, tmp_path)
    rows = page.locator("tbody tr:visible")
    assert page.locator("label").all_inner_texts() == ["reference 1", "self-reported 2"]
    assert rows.count() == 3
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert rows.count() == 1
    assert "two" in rows.inner_text()
    assert page.locator(".fr-filter-said").inner_text() == "1 of 3 rows are shown."
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert rows.count() == 3
    page.close()
