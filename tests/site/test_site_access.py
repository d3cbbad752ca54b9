"""Whether everybody can use the site: by keyboard, by screen reader, at any width, on paper, without scripts."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from visits import COLOURS, COMMITTED, CONTRAST, SETTLED, UNFOLD, Site, Visit, narrowed, switched, violations, visit

pytestmark = pytest.mark.slow

FEW_ROWS = """() => document.querySelectorAll("main tbody, main .fr-claims")
    .forEach((list) => [...list.children].slice(3).forEach((row) => row.remove()))"""
"""Leaves the first of long tables and lists: the search for overlaps would look at each of thousands alike."""
FEW_ALIKE = r"""() => {
  const shapes = new Set(JSON.parse(sessionStorage.shapes ?? "[]"));
  const parts = document.querySelectorAll("main :is(details, dl > div, figure, li + li, p, svg *, table, tr + tr)");
  for (const part of [...parts].reverse()) {
    const texts = part.outerHTML.replace(/>[^<]*[^<\s][^<]*</g, ">text<");
    const shape = texts.replace(/ (?!class|fill|hidden|role|style)[\w-]+="[^"]*"/g, "");
    if (shapes.has(shape)) part.remove();
    shapes.add(shape);
  }
  sessionStorage.shapes = JSON.stringify([...shapes]);
}"""
"""Leaves one of parts that differ in their texts alone, on whatever page, the innermost first: axe is slow."""
FEW_TEXTS = """() => {
  const styles = new Set(JSON.parse(sessionStorage.styles ?? "[]"));
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (text.parentElement.closest("p, li, dd")?.querySelector("a")) continue;  // links must differ from words around
    let style = "";
    for (let part = text.parentElement; part; part = part.parentElement) {
      const attributes = ["class", "fill", "style"].map((name) => part.getAttribute(name));
      style += [part.tagName, ...attributes, part.matches(":nth-child(even)")].join();
    }
    if (styles.has(style)) text.data = "";
    styles.add(style);
  }
  sessionStorage.styles = JSON.stringify([...styles]);
}"""
"""Leaves one of texts of the same style, on whatever page: axe looks at the colours of each for milliseconds."""
SHIFTS = """
window.shifted = 0;
new PerformanceObserver(list => { for (const each of list.getEntries()) window.shifted += each.value; })
  .observe({ type: 'layout-shift', buffered: true });
"""
OVERLAPS = """() => {
  const IGNORED = "script, style, .fr-hidden, .md-search, .md-header, .md-tabs, .md-sidebar, thead";
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || parent.closest(IGNORED)) continue;
    if (!parent.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    let list = parent;  // that scrolls: what lies beyond its edges is not seen
    while (list && !["auto", "scroll"].includes(getComputedStyle(list).overflowY)) list = list.parentElement;
    const seen = list?.getBoundingClientRect() ?? { top: -Infinity, bottom: Infinity };
    for (const box of range.getClientRects()) {
      const [top, bottom] = [Math.max(box.top, seen.top), Math.min(box.bottom, seen.bottom)];
      if (box.width < 5 || bottom - top < 5) continue;
      boxes.push([box.left + 1, top + 3, box.right - 1, bottom - 3, node.data.trim()]);
    }
  }
  boxes.sort((a, b) => a[1] - b[1]);
  const found = [];
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j][1] < boxes[i][3]; j++) {
      if (boxes[i][4] === boxes[j][4]) continue;  // a text and its halo
      if (boxes[i][0] < boxes[j][2] && boxes[j][0] < boxes[i][2]) found.push(boxes[i][4] + ' / ' + boxes[j][4]);
    }
  }
  return found;
}"""
FOCUSABLE = """() => {
  const kinds = ["a[href]", "button", "input", "select", "summary", "[tabindex='0']"];
  const all = document.querySelectorAll(kinds.map(kind => "main " + kind).join());
  let count = 0;
  for (const one of all) {
    if (one.disabled || one.hidden || !one.checkVisibility({ visibilityProperty: true })) continue;
    if (one.type === 'radio' && !one.checked) continue;
    one.dataset.order = count++;
  }
  return count;
}"""
LOOKS = 6
OF_ANY = ("404.html", "dictionary.html", "method.html", "methodology.html", "run.html")
"""Pages that say the same of any results."""
MARKUP = "img[src=x], a[href^='javascript'], h1 b, main b"
"""What the text of the odd runs would be as elements."""
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const near = one.nextElementSibling && getComputedStyle(one.nextElementSibling);
  const seen = style.outlineStyle !== 'none' || (near && near.outlineStyle !== 'none');
  return [one.dataset.order ?? '', seen, one.outerHTML.slice(0, 120)];
}"""


def one_of_each(pages: list[str]) -> list[str]:
    """A page of every kind: all of the top, and one of each folder."""
    first = {page.rpartition("/")[0]: page for page in reversed(pages) if "/" in page}
    return [*(page for page in pages if "/" not in page), *first.values()]


def unfit(page: Page, width: int) -> list[str]:
    """What is wider than the screen, and which texts lie on one another when the layout has come to rest."""
    wide = narrowed(page, width)
    found: list[str] = page.evaluate(OVERLAPS)
    for _ in range(LOOKS):  # a picture that is drawn anew for the width may come late
        if not found:
            break
        page.wait_for_timeout(500)
        found = page.evaluate(OVERLAPS)
    return [f"{wide} px wide"] * (wide > width) + found


def wrong_in(page: Page) -> list[str]:
    """Markup of records that has become elements, and how many headings a page has in place of one."""
    count = page.locator("h1").count()
    elements = page.locator(MARKUP).evaluate_all("all => all.map(({ outerHTML }) => outerHTML)")
    scripts = page.locator("script", has_text="owned").all_inner_texts()
    return [f"{count} headings"] * (count != 1) + elements + scripts


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "widths"), [("main", (768,)), ("odd", (360,)), ("empty", (360,)), (COMMITTED, (360, 1920))]
)
def test_everybody_can_read_every_page(
    name: str, widths: tuple[int, ...], sites: dict[str, Site], browser: Browser
) -> None:
    """Pages, unfolded and with a live picture, fit the screen; nothing overlaps or fails; markup of records is text.

    Pages of the committed results are accessible by axe's rules in both themes; what the theme cannot change is not
    looked at twice.
    """
    view = sites[name]
    seen = visit(browser, view, color_scheme="light")
    faults: dict[tuple[str, object], list[str]] = {}
    marked = 0
    of_results = [path for path in view.pages if path not in OF_ANY]
    for path in one_of_each(view.pages) if name == COMMITTED else of_results:
        page = seen.open(path)
        expect(page.locator("[aria-busy]:visible")).to_have_count(0)  # the result of Compare is grey until it is there
        page.evaluate(UNFOLD)
        marked += "<script>document.title=" in page.inner_text("body")
        faults[path, "markup"] = wrong_in(page)
        page.evaluate(FEW_ROWS)
        if (chart := page.locator(".fr-chart:visible").first).count():
            chart.focus()
            chart.locator(".fr-live svg").wait_for()
        faults |= {(path, width): unfit(page, width) for width in widths}
        if name == COMMITTED:
            faults |= {(path, theme): rules for theme, rules in inaccessible(page).items()}
    assert {where: wrong for where, wrong in faults.items() if wrong} == {}
    assert seen.problems == []
    assert (marked >= 3) == (name == "odd")


def inaccessible(page: Page) -> dict[str, list[str]]:
    """What axe finds, of parts alike in one of them, and of texts alike in one of them in either theme."""
    page.evaluate(FEW_ALIKE)
    page.evaluate(SETTLED)
    faults = {"either": violations(page, but=CONTRAST)}
    page.evaluate(FEW_TEXTS)
    faults["light"] = violations(page, CONTRAST)
    switched(page, "slate")
    faults["dark"] = violations(page, *COLOURS)
    switched(page, "default")
    return faults


def test_nothing_moves_when_pictures_come_alive(sites: dict[str, Site], browser: Browser) -> None:
    """From the first paint on, with every picture of a page drawn anew, nothing shifts."""
    for width in (360, 1280):
        seen = visit(browser, sites["main"], width)
        seen.page.add_init_script(SHIFTS)
        for path in ("index.html", "suites/loader.html"):
            page = seen.open(path)
            for chart in page.locator(".fr-chart:visible").all()[:2]:
                chart.focus()
                chart.locator(".fr-live svg").wait_for()
            page.wait_for_timeout(100)
            assert page.evaluate("window.shifted") == 0, (path, width)
        assert seen.problems == []


def test_tab_reaches_everything_and_shows_where_it_is(seen: Visit) -> None:
    """Every link, button, field, picture and scrolling table has the focus once, visibly, and none keeps it."""
    for path in ("index.html", "data.html"):
        page = seen.open(path)
        wanted = page.evaluate(FOCUSABLE)
        reached: set[str] = set()
        for _ in range(wanted + 40):
            page.keyboard.press("Tab")
            order, visible, html = page.evaluate(FOCUSED)
            reached.add(order)
            assert visible or not order, (path, html)
        assert {str(order) for order in range(wanted)} <= reached, path


def test_the_drawer_of_a_phone_opens_by_keyboard(sites: dict[str, Site], browser: Browser) -> None:
    """Its links are neither seen nor reached while it is shut; its button is reached, named, and tells and opens it.

    So do the keys that press any button.
    """
    seen = visit(browser, sites["main"], width=360)
    page = seen.open("methodology.html")
    link = page.locator(".md-sidebar--primary a[href='accuracy.html']")
    reached = "link => { link.focus(); return document.activeElement === link }"
    assert not link.evaluate(reached)
    button = page.get_by_role("button", name="Navigation")
    for key, shut in (("Enter", "false"), ("Space", "true"), ("Space", "false")):
        expect(button).to_have_attribute("aria-expanded", shut)
        button.press(key)
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(link).to_be_in_viewport()
    assert link.evaluate(reached)
    link.press("Enter")
    page.wait_for_url("**/accuracy.html")
    assert seen.problems == []


def test_paper_is_white(sites: dict[str, Site], browser: Browser) -> None:
    """Printed from the dark theme, a page is dark on white, with its figures and without what only screens need."""
    page = visit(browser, sites["main"], color_scheme="dark").open("index.html")
    page.emulate_media(media="print")
    colours = "element => [getComputedStyle(element).backgroundColor, getComputedStyle(element).color]"
    assert page.locator("body").evaluate(colours)[0] == "rgb(255, 255, 255)"
    ink = page.locator("h1").evaluate(colours)[1]
    assert max(map(int, ink.removeprefix("rgb(").removesuffix(")").split(","))) < 80
    assert page.locator(".fr-chart svg:visible").count() >= 1
    assert page.locator(".md-header").is_hidden()
    assert page.locator(".fr-tabs").is_hidden()


def test_search_finds_a_suite_and_a_column(seen: Visit) -> None:
    """The search finds words of a question and of the dictionary; its index is loaded for who turns to search alone."""
    page, asked = seen.page, []
    page.on("request", lambda request: asked.append(Path(request.url).name))
    seen.open("methodology.html")
    page.wait_for_load_state("networkidle")
    assert "search_index.json" not in asked
    field = page.locator(".md-search__input")
    field.click()
    for words, place in (
        ("GPU busy", "suites/loader"),
        ("prefetch_factor", "dictionary.html"),
        ("how many workers", "suites/loader"),
    ):
        field.fill("")
        field.press_sequentially(words, delay=5)
        page.locator(f".md-search-result__link[href*='{place}']").first.wait_for()
    seen.open("dictionary.html?h=prefetch_factor")
    page.locator("article mark").first.wait_for()
    assert asked.count("search_index.json") == 2


def test_every_beginning_of_a_word_can_be_searched(sites: dict[str, Site], browser: Browser) -> None:
    """The index has no word over which the search fails, as lunr.js does over some that have digits in them."""
    seen = visit(browser, sites[COMMITTED])
    field = seen.open("methodology.html").locator(".md-search__input")
    field.click()
    for letter in f"{string.ascii_lowercase}{string.digits}":
        field.press_sequentially(letter)
        seen.page.wait_for_timeout(60)
        field.press("Backspace")
    seen.page.wait_for_timeout(300)
    assert seen.problems == []
