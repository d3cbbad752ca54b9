"""The page Compare in a real browser: files that are dropped on it, what it says of them, and that they stay there."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import visits
from beside import times
from dropping import give, made, ready, result
from playwright.sync_api import Browser, Page, expect

from feedrate.analysis import machines
from feedrate.bench import interactive
from feedrate.pages.runs import load_runs
from feedrate.pages.selection import select
from feedrate.pages.verdicts import load_verdicts
from feedrate.questions.compare import page as compare_page
from feedrate.questions.compare.analysis import repeated
from feedrate.store import marks, runs

ROWS, BLOCKS = 100_000, 20
MOST, HELD_UP = 20, 5
"""Times as long, for a hundred times as many rows: 4 to 7 was seen of the first picture, 1 to 2 of the longest task."""
DRAWN = ".fr-compare-cells .fr-explore-live .mark-symbol path"


def tables(sites: dict[str, Any], file: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The published run that the page chooses beside a file of a CPU, and the file."""
    mine = next(run for run in sites["main"].runs if run.manifest.device == "cpu")
    return mine.table("trials"), pq.read_table(file).to_pandas(types_mapper=runs.nullable().get)


def test_a_file_is_compared_with_the_published_run_that_is_like_it(
    page: Page, sites: dict[str, Any], other: Path
) -> None:
    """A dropped file stands beside a run of its device; ratio, interval and counts are those of the Python package."""
    give(page, other)
    said = result(page)
    cells = machines.compare(*tables(sites, other))
    total = machines.overall(cells)
    assert f"Over {total.cells} cells" in said
    assert f"B is {total.ratio:.2f} times as fast as A (95 % interval {total.lo:.2f} to {total.hi:.2f}" in said
    assert page.locator(DRAWN).count() == min(total.cells, 40) + 1
    rows = [row.locator("td").all_text_contents() for row in page.locator(".fr-compare-cells tbody tr").all()]
    wanted = sorted(cells["ratio"], reverse=True)[: len(rows)]
    assert [row[1] for row in rows] == [f"× {ratio:.2f}" for ratio in wanted]


def test_why_and_what_differs_are_said(page: Page, other: Path) -> None:
    """Stages side by side, what holds cells back, best settings, facts that differ, and no verdict made up."""
    give(page, other)
    result(page)
    inside = page.locator(".fr-compare-result").text_content() or ""
    for wanted in ("Loading alone, all workers", "The best settings of each", "What holds the training"):
        assert wanted in inside, wanted
    facts = page.get_by_role("group", name="What differs between the two")
    row = facts.locator("tr", has_text=re.compile("^hardware threads")).locator("td").all_text_contents()
    assert row == ["hardware threads", "16", "4"]
    assert "hardware threads" in page.locator(".fr-compare-sides").inner_text()
    assert "this page knows the verdicts of published machines alone" in inside


@pytest.mark.slow
def test_what_does_not_match_is_listed_with_its_reason(page: Page, sites: dict[str, Any]) -> None:
    """Cells of another device or of one run alone are counted and listed by reason, none is dropped in silence."""
    a, b = (f"run:{run.manifest.run_id}" for run in sites["main"].runs)
    page.locator("select[name=a]").select_option(a)
    page.locator("select[name=b]").select_option(b)
    page.get_by_role("heading", name="What was not compared").wait_for()
    said = page.locator(".fr-compare-result").text_content() or ""
    assert "different device: cpu in A, cuda in the other" in said
    folded = page.locator(".fr-compare-fold", has_text="different device").first
    folded.locator("summary").click()
    assert folded.locator("li").count() > 0


@pytest.mark.slow
def test_a_link_names_files_by_their_hash_and_asks_for_them(page: Page, browser: Browser, other: Path) -> None:
    """The address holds no file name; opened elsewhere it asks for the file, and shows the same when it is given."""
    give(page, other)
    said, link = result(page), page.url
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    assert f"b=sha256%3A{digest}" in link or f"b=sha256:{digest}" in link
    assert other.name not in link
    again = browser.new_page()
    again.goto(link)
    again.get_by_text(f"begins with {digest[:12]}").wait_for()
    give(again, other)
    assert result(again) == said
    assert again.url == link
    again.close()


@pytest.mark.slow
def test_two_files_stand_side_by_side_and_can_be_swapped(
    page: Page, fake_run: ModuleType, tmp_path: Path, other: Path
) -> None:
    """Two files at once become A and B; swapped, the ratio is turned round."""
    second = made(fake_run, tmp_path, "20260105T030405Z-eight", factor=3.0, cores=8)
    give(page, other, second)
    before = float(re.findall(r"B is ([\d.]+) times", result(page))[0])
    turned = """() => {
      const button = [...document.querySelectorAll("button")].find(({ textContent }) => textContent === "Swap A and B");
      button.click();
      return document.querySelector(".fr-compare-result").ariaBusy;
    }"""
    assert page.evaluate(turned) == "true"  # what stands there is of the pair before
    expect(page.locator(".fr-compare-result .fr-answer")).not_to_contain_text(f"B is {before:.2f} times")
    assert float(re.findall(r"B is ([\d.]+) times", result(page))[0]) == pytest.approx(1 / before, abs=0.02)
    assert len(page.locator("select[name=a] optgroup[label='Your files'] option").all()) == 2


@pytest.mark.slow
def test_a_drop_is_a_choice_of_files(page: Page, other: Path) -> None:
    """Dropped anywhere on the page, a file is read as one that was chosen."""
    page.evaluate(
        """bytes => {
          const held = new DataTransfer();
          held.items.add(new File([new Uint8Array(bytes)], "dropped.parquet"));
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }));
        }""",
        list(other.read_bytes()),
    )
    assert "times as fast" in result(page)


def test_without_scripts_the_command_is_there(sites: dict[str, Any], browser: Browser) -> None:
    """Without scripts the page says which command compares, and has no empty frame."""
    page = visits.visit(browser, sites["main"], java_script_enabled=False).open("compare.html")
    assert "make compare A=RUN B=RUN" in page.locator("main").inner_text()
    assert page.locator(".fr-compare").is_hidden()


@pytest.mark.slow
def test_two_runs_of_one_machine_are_said_to_be(
    page: Page, sites: dict[str, Any], fake_run: ModuleType, tmp_path: Path
) -> None:
    """Two runs of one machine: the page says so, and how well they repeat each other as Python counts it."""
    again = made(fake_run, tmp_path, "20260106T030405Z-again", factor=1.02)
    give(page, again)
    result(page)
    found = repeated(machines.compare(*tables(sites, again)))
    said = page.locator(".fr-compare-result").inner_text()
    assert "These are two runs of one machine: what differs is how well a run can be repeated." in said
    assert f"agree within {found.half_within_pct:.1f} %; {found.hold} of {found.cells} intervals hold one" in said


@pytest.mark.slow
def test_a_place_on_the_page_leaves_what_is_compared(page: Page, other: Path) -> None:
    """A link to a place on the page, as the one that skips to its content, changes neither comparison nor address."""
    give(page, other)
    said, link = result(page), page.url
    page.evaluate("location.hash = 'compare'")
    page.wait_for_url(link)
    assert result(page) == said
    assert page.locator("select[name=b]").input_value().startswith("sha256:")


@pytest.mark.slow
def test_a_comparison_that_cannot_be_explained_stands(sites: dict[str, Any], browser: Browser, other: Path) -> None:
    """More numbers than may be held are refused; where those of the explanation are too many, the comparison stays."""
    for held, said in ((0, "numbers of what is compared; at most 0 are kept"), (None, "Why cannot be shown")):
        seen = visits.visit(browser, sites["main"])
        seen.page.route("**/compare/index.json*", capped(held, sites, other))
        page = ready(seen.open("compare.html"))
        give(page, other)
        if held is None:
            assert "times as fast" in result(page)
        expect(page.locator(".fr-compare-refused, .fr-compare-result:not([hidden])").last).to_contain_text(said)


def capped(held: int | None, sites: dict[str, Any], other: Path) -> Callable[[Any], None]:
    """Give the index with another cap of numbers that are held: as given, or just enough to compare two runs."""

    def answer(route: Any) -> None:
        index = route.fetch().json()
        given = index["reader"]
        sizes = ((len(table), table["cell_id"].nunique()) for table in tables(sites, other))
        enough = sum(rows * (len(given["first"]) + 1) + cells * len(given["axes"]) for rows, cells in sizes)
        given["caps"]["held"] = enough if held is None else held
        route.fulfill(json=index)

    return answer


@pytest.mark.slow
def test_everything_works_by_keyboard(page: Page, other: Path) -> None:
    """The file chooser, both lists and the marks are reached and used without a pointer."""
    page.locator("#fr-compare-input").focus()
    assert page.locator(".fr-compare-choose").evaluate("one => getComputedStyle(one).outlineStyle") != "none"
    give(page, other)
    result(page)
    page.locator(".fr-compare-cells [role=img]").focus()
    page.keyboard.press("Home")
    first = page.locator(".fr-explore-readout").inner_text()
    page.keyboard.press("End")
    last = page.locator(".fr-explore-readout").inner_text()
    assert re.search(r"95 % interval .*; n = \d+ and \d+\)", first)
    said = page.locator(".fr-compare-cells .fr-message").inner_text()
    assert len(re.findall(r"; n = \d+ and \d+\)", said)) == 2
    assert first != last


def large(other: Path, rows: int, target: Path) -> Path:
    """A run of so many trials, all columns of the table, with rates of their own."""
    table = pq.read_table(other)
    good = table.filter(pc.equal(table["outcome"], "ok"))
    cells = good.slice(0, 60)
    again = rows // len(cells)
    whole = pa.concat_tables([cells] * again)
    draw = np.random.default_rng(7)
    rates = whole["samples_per_s"].to_numpy() * np.exp(draw.normal(0, 0.02, len(whole)))
    block = np.repeat(np.arange(again) % BLOCKS, len(cells))
    for name, values in (("samples_per_s", rates), ("block", block)):
        whole = whole.set_column(whole.schema.get_field_index(name), whole.schema.field(name), pa.array(values))
    pq.write_table(whole.replace_schema_metadata(table.schema.metadata), target, compression="zstd")
    return target


@pytest.mark.slow
def test_a_large_file_is_soon_shown(sites: dict[str, Any], browser: Browser, other: Path, tmp_path: Path) -> None:
    """100,000 rows of all columns take a few times what 1,000 take; the page is held up for hardly longer at a time."""
    seen = visits.visit(browser, sites["main"])
    many, few = (large(other, rows, tmp_path / f"{rows}.parquet") for rows in (ROWS, ROWS // 100))

    def look(path: Path) -> interactive.ComparedFile:
        return interactive.give_file(ready(seen.open("compare.html")), path)

    assert times(lambda: look(many).drawn_ms, lambda: look(few).drawn_ms, MOST) <= MOST
    assert times(lambda: look(many).longest_ms, lambda: look(few).longest_ms, HELD_UP) <= HELD_UP
    cells = machines.compare(*tables(sites, many))
    assert f"B is {machines.overall(cells).ratio:.2f} times" in result(seen.page)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_accessible_and_fits(theme: str, sites: dict[str, Any], browser: Browser, other: Path) -> None:
    """With a comparison on it the page has no fault by axe's rules, in either theme, from 360 to 1920 pixels."""
    from axe_playwright_python.sync_playwright import Axe

    seen = visits.visit(browser, sites["main"], color_scheme=theme)
    page = ready(seen.open("compare.html"))
    give(page, other)
    result(page)
    page.evaluate(visits.UNFOLD)
    found = Axe().run(page).response["violations"]
    assert [f"{each['id']}: {[node['html'][:160] for node in each['nodes']][:3]}" for each in found] == []
    for width in (360, 768, 1280, 1920):
        assert visits.narrowed(page, width) <= width
    assert seen.problems == []


def test_a_withdrawn_run_is_not_offered(fake_run: ModuleType, tmp_path: Path) -> None:
    """A run that was withdrawn cannot be chosen any more; before, it could."""
    folder = fake_run.write(tmp_path, fake_run.Fake(blocks=1, batches=(8,)))

    def offered() -> int:
        everyone = select(load_runs(tmp_path))
        files = compare_page.page(everyone, load_verdicts(everyone.of_claims())).files
        return len(json.loads(str(files[compare_page.INDEX]))["published"])

    assert offered() == 1
    marks.withdraw(folder, "measured beside other work")
    assert offered() == 0
