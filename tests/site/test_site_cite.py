"""Citing from a page in a real browser: downloads, hashes, copied citations, links, and all that without scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, expect
from visits import Site, Visit, unfold, visit

from feedrate.charts.citation import data_hash

pytestmark = pytest.mark.slow

HOME = "index.html"
BEGINS = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF-", ".json": b"{"}


def form(part: Locator, name: str) -> str:
    """A citation as it can be selected."""
    return part.locator(f"[data-form='{name}'] pre").text_content() or ""


def test_downloads_open_and_the_citation_holds_their_hash(seen: Visit) -> None:
    """Every kind of file comes down; the hash of the CSV stands in the page, in each form and in the picture."""
    figure = seen.open(HOME).locator("#workers")
    unfold(figure.locator(".fr-cite summary"))
    printed = figure.locator(".fr-foot code").inner_text()
    contents = {}
    for link in figure.locator(".fr-files a").all():
        with seen.page.expect_download() as coming:
            link.click()
        contents[Path(coming.value.suggested_filename).suffix] = coming.value.path().read_bytes()
    assert set(contents) == {*BEGINS, ".csv"}
    assert data_hash(contents[".csv"]) == printed
    assert printed.encode() in contents[".svg"]
    for suffix, begin in BEGINS.items():
        assert contents[suffix].startswith(begin)
    assert "concat" in json.loads(contents[".json"])
    for name in ("Plain text", "Markdown", "BibTeX"):
        assert printed in form(figure, name)


def test_a_citation_is_copied_with_its_whole_address(sites: dict[str, Site], browser: Browser) -> None:
    """A button, reached by keyboard, copies a form; that is said aloud; the address in it leads to the figure.

    An address of this machine alone would lead nobody there: it stays out.
    """
    shown = sites["main"]
    seen = visit(browser, shown, permissions=["clipboard-read", "clipboard-write"])
    page = seen.open(HOME)
    figure = page.locator("#workers")
    assert "{index.html#workers}" in form(figure, "BibTeX")
    public, page = "https://feedrate.example/", page.context.new_page()
    page.route(f"{public}**", lambda asked: asked.fulfill(path=shown.folder / urlsplit(asked.request.url).path[1:]))
    page.goto(f"{public}{HOME}")
    figure = page.locator("#workers")
    unfold(figure.locator(".fr-cite summary"))
    figure.get_by_role("button", name="Copy as BibTeX").focus()
    page.keyboard.press("Enter")
    expect(figure.get_by_role("status")).to_have_text("BibTeX copied.")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == form(figure, "BibTeX")
    address = re.search(r"url\s*= \{(.*)\}", copied)
    assert address
    assert address[1] == f"{public}index.html#workers"
    page.goto(address[1])
    expect(page.locator("#workers:target")).to_be_in_viewport()
    assert seen.problems == []


def test_without_scripts_every_figure_can_be_cited(sites: dict[str, Site], browser: Browser) -> None:
    """Without scripts every figure has its link, its files and citations, with an address below the site's."""
    seen = visit(browser, sites["main"], java_script_enabled=False)
    page = seen.open("data.html")
    links = page.locator("#figures tbody a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    for path in (HOME, "suites/loader.html"):
        seen.open(path)
        for figure in page.locator(".fr-figure:has(.fr-cite)").all():
            name = figure.get_attribute("id")
            assert links.count(f"{path}#{name}") == 1
            assert f"{path}#{name}" in form(figure, "BibTeX")
            assert figure.locator(".fr-foot a").get_attribute("href") == f"#{name}"
            assert figure.locator("button").count() == 0
            assert figure.locator(".fr-files a").count() == 5
        assert (
            page.locator(".fr-figure .fr-panel").count() == page.locator(".fr-figure:has(.fr-cite) .fr-panel").count()
        )


def test_the_page_lists_every_figure(sites: dict[str, Site], browser: Browser) -> None:
    """Data lists each figure once, on a phone too, cites the project and a run, and links the bibliography."""
    shown = sites["main"]
    page = visit(browser, shown, width=360).open("data.html")
    unfold(page.locator("#figures summary"))
    names = page.locator("#figures tbody td:first-child code").all_inner_texts()
    assert len(names) == len(set(names)) >= 10
    assert {path.stem for path in (shown.folder / "figures").glob("*.svg")} == {name.strip() for name in names}
    assert page.locator(".fr-forms").count() == 2
    run = form(page.locator(".fr-forms").nth(1), "Plain text")
    assert re.search(r" runs/\S+\.html$", run)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("a[href='figures/figures.bib']").count() == 1
