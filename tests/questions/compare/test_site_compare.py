"""The page Compare in a real browser: files that are dropped on it, what it says of them, and that they stay there."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import visits
from dropping import give, made, ready, result
from playwright.sync_api import Browser, Page, expect

from feedrate.analysis import machines
from feedrate.questions.compare.analysis import CAUTIONS, repeated
from feedrate.store import runs

pytestmark = pytest.mark.slow

DRAWN = ".fr-explore-chart [aria-label=dot] path"
READ = """() => [...document.querySelectorAll("article *")]
  .filter((part) => part.checkVisibility() && (!part.matches("option") || part.selected))
  .filter((part) => !part.closest("svg, script, style, .fr-hidden, details:not([open]) > :not(summary)"))
  .flatMap((part) => [...part.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data))
  .join(" ").split(/\\s+/).filter((word) => /[A-Za-z]/.test(word)).length"""
"""How many words a reader sees: of lists what is chosen, and nothing of what is folded or drawn."""
WIDE = "box => box.clientWidth"
TOUCHING = """texts => {
  const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
  const touch = (a, b) => a.left < b.right + 2 && b.left < a.right + 2 && a.top < b.bottom && b.top < a.bottom;
  const after = (at) => boxes.slice(at + 1);
  return boxes.flatMap(([one, a], at) => after(at).filter(([, b]) => touch(a, b)).map(([other]) => [one, other]));
}"""


def tables(sites: dict[str, Any], file: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The published run that the page chooses beside a file of a CPU, and the file."""
    mine = next(run for run in sites["main"].runs if run.manifest.device == "cpu")
    return mine.table("trials"), pq.read_table(file).to_pandas(types_mapper=runs.nullable().get)


def test_a_file_is_compared_with_the_published_run_that_is_like_it(
    page: Page, sites: dict[str, Any], other: Path
) -> None:
    """A file stands beside a run of its device: ratio, interval, counts and marks are Python's; what differs."""
    give(page, other)
    said = result(page)
    cells = machines.compare(*tables(sites, other))
    total = machines.overall(cells)
    assert f"over {total.n} settings" in said
    assert f"B is {total.value:.2f}× ({total.low:.2f}–{total.high:.2f}) as fast as A" in said
    assert page.locator(DRAWN).count() == min(total.n, 10) + 1
    page.locator(DRAWN).nth(1).hover()
    tip = page.locator(".fr-explore-chart [aria-label=tip]")
    expect(tip).to_have_text(re.compile(r"B ÷ A [\d.]+× \([\d.]+–[\d.]+\)"))
    rows = [row.locator("td").all_text_contents() for row in page.locator(".fr-explore-table tbody tr").all()]
    wanted = sorted(cells["ratio"], reverse=True)[: len(rows)]
    assert [row[1] for row in rows] == [f"{ratio:.2f}×" for ratio in wanted]
    inside = page.locator(".fr-compare-result").text_content() or ""
    page.locator("summary", has_text="Facts: ").click()
    facts = page.get_by_role("group", name="What differs between them")
    row = facts.locator("tr", has_text=re.compile("^hardware threads")).locator("td").all_text_contents()
    assert row == ["hardware threads", "16", "4"]
    assert "hardware threads" in page.locator(".fr-compare-sides").inner_text()
    assert "This page knows the verdicts of published runs alone" in inside


def test_a_link_names_files_by_their_hash_and_asks_for_them(page: Page, browser: Browser, other: Path) -> None:
    """A drop is a choice of a file, whose name the address does not hold; elsewhere it asks for the file again.

    A link to a place on the page changes neither comparison nor address.
    """
    page.evaluate(
        """bytes => {
          const held = new DataTransfer();
          held.items.add(new File([new Uint8Array(bytes)], "dropped.parquet"));
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }));
        }""",
        list(other.read_bytes()),
    )
    said, link = result(page), page.url
    page.evaluate("location.hash = 'compare'")
    page.wait_for_url(link)
    assert result(page) == said
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    assert f"b=sha256%3A{digest}" in link or f"b=sha256:{digest}" in link
    assert "dropped" not in link
    again = browser.new_page()
    again.goto(link)
    again.get_by_text(f"begins with {digest[:12]}").wait_for()
    give(again, other)
    assert result(again) == said
    assert again.url == link
    again.close()


def test_without_scripts_the_command_is_there(sites: dict[str, Any], browser: Browser) -> None:
    """Without scripts the page says which command compares, and has no empty frame."""
    page = visits.visit(browser, sites["main"], java_script_enabled=False).open("compare.html")
    assert "feedrate compare A B" in page.locator("main").inner_text()
    assert page.locator(".fr-compare").is_hidden()


def test_two_runs_of_one_machine_are_compared_by_keyboard(
    page: Page, sites: dict[str, Any], fake_run: ModuleType, tmp_path: Path
) -> None:
    """The page says how well two runs of a machine repeat each other; chooser and headings work without a pointer."""
    page.locator("#fr-compare-input").focus()
    assert page.locator(".fr-compare-choose").evaluate("one => getComputedStyle(one).outlineStyle") != "none"
    again = made(fake_run, tmp_path, "20260106T030405Z-again", factor=1.02)
    give(page, again)
    result(page)
    found = repeated(machines.compare(*tables(sites, again)))
    said = page.locator(".fr-compare-result").inner_text()
    differ = f"One machine twice: settings differ by {found.half_within_pct:.1f}\u00a0% (median)"
    assert f"{differ}, {found.hold} of {found.cells} intervals contain 1×" in said
    page.locator("summary", has_text="All settings").press("Enter")
    page.get_by_role("button", name="B ÷ A").focus()
    first = page.locator(".fr-explore-table tbody td").first.inner_text()
    page.keyboard.press("Enter")
    assert page.locator(".fr-explore-table tbody td").first.inner_text() != first
    assert page.evaluate("document.activeElement.textContent") == "B ÷ A"
    said = page.locator(".fr-compare-result .fr-message").inner_text()
    assert len(re.findall(r"\(n = \d+ and \d+\)", said)) == 2


def test_it_is_accessible_and_fits(sites: dict[str, Any], browser: Browser, other: Path) -> None:
    """With a comparison on it the page has no fault by axe's rules, in either theme, from 360 to 1920 pixels."""
    seen = visits.visit(browser, sites["main"], color_scheme="light")
    page = ready(seen.open("compare.html"))
    give(page, other)
    result(page)
    page.evaluate(visits.UNFOLD)
    assert visits.violations(page) == []
    visits.switched(page, "slate")
    assert visits.violations(page, *visits.COLOURS) == []
    for width in (360, 768, 1280, 1920):
        assert visits.narrowed(page, width) <= width
    assert seen.problems == []


def test_the_choice_of_a_side_is_explained(page: Page, sites: dict[str, Any]) -> None:
    """One side alone asks for the other; why runs are grey stands beside both lists, which name that sentence."""
    a, b = (page.locator(f".fr-compare select[name={side}]") for side in "ab")
    hint = page.locator(f"#{a.get_attribute('aria-describedby')}")
    b.select_option("")
    a.select_option(sites["main"].runs[0].manifest.run_id)
    expect(page.locator(".fr-compare-status")).to_have_text("Choose B.")
    assert b.locator("option:disabled").count() > 0
    expect(hint).to_have_text("Grey runs share no setting.")
    assert b.get_attribute("aria-describedby") == a.get_attribute("aria-describedby")
    a.select_option("")
    expect(page.locator(".fr-compare-status")).to_be_empty()
    expect(hint).to_be_hidden()


def test_it_opens_with_a_pair_wherever_its_address_leads(sites: dict[str, Any], browser: Browser) -> None:
    """Opened at a place the page compares the pair that it opens with, and the place is in view.

    It says in few words what its ratio means, and names as extremes settings of several repetitions; nothing touches.
    """
    seen = visits.visit(browser, sites[visits.COMMITTED])
    page = seen.open("compare.html")
    opening, address = result(page), page.url
    assert 100 < page.evaluate(READ) <= 150
    assert "inconclusive in 97, measured once in 71" in opening
    shown = page.locator(".fr-compare-result").inner_text()
    for caution in CAUTIONS.values():
        assert caution in shown
    assert "measured once" not in (page.locator(".fr-explore-table tbody tr").first.text_content() or "")
    ends = page.locator(".fr-compare-result .fr-message").inner_text()
    assert {int(n) for n in re.findall(r"\d+(?= and|\))", ends)} <= {5, 6}
    page.goto("about:blank")
    seen.open("compare.html#machines")
    assert result(page) == opening
    assert page.url == address
    expect(page.locator("#machines")).to_be_in_viewport()
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.locator(f".fr-explore-chart svg[width='{page.locator('.fr-explore-view').evaluate(WIDE)}']").wait_for()
        boxes = page.locator(
            ".fr-explore-chart svg g[aria-label*=text i] text, .fr-explore-chart svg [aria-label*=tick] text"
        )
        assert boxes.count() > 13
        assert boxes.evaluate_all(TOUCHING) == []
    assert seen.problems == []
