"""The page Explore in a real browser: what it draws, what its address says, and what a link means later."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest
import visits
from playwright.sync_api import Browser, Page, expect

from feedrate.pages.runs import load_runs
from feedrate.pages.selection import select
from feedrate.questions.explore import page as explore_page
from feedrate.site.serve import served

NEW = "20260109T030405Z-new"
DRAWN = ".fr-explore-main .fr-explore-live .mark-symbol path"


def ready(page: Page) -> Page:
    """Wait until marks are drawn."""
    page.locator(DRAWN).first.wait_for()
    return page


def choose(page: Page, name: str, value: str) -> None:
    """Choose in a list of the control bar, and wait until that is drawn."""
    after(page, lambda: page.locator(f".fr-explore select[name={name}]").select_option(value))


def after(page: Page, act: Callable[[], object]) -> None:
    """Act, and wait until what that changes is drawn."""
    count = "performance.getEntriesByName('fr-explore').length"
    before = page.evaluate(count)
    act()
    for _ in range(1200):
        if page.evaluate(count) > before:
            return
        page.wait_for_timeout(25)
    raise AssertionError("nothing was drawn")


def tick(page: Page, name: str, value: str) -> None:
    """Press a check box of a filter, and wait until that is drawn."""
    page.locator("details.fr-explore-filters, details.fr-explore-runs, details.fr-explore-machines").evaluate_all(
        "all => all.forEach(one => { one.open = true })"
    )
    after(page, page.locator(f".fr-explore label:has(input[name='{name}'][value='{value}'])").click)


def state(page: Page) -> dict[str, list[str]]:
    """What the address says."""
    pairs = (part.partition("=") for part in page.url.partition("#")[2].split("&"))
    return {unquote(name): [unquote(value) for value in values.split(",")] for name, _, values in pairs}


def marks(page: Page) -> list[str]:
    """Every cell that is drawn, with its numbers, as the downloaded table says."""
    with page.expect_download() as got:
        page.get_by_role("button", name="Download CSV").click()
    lines = Path(got.value.path()).read_text(encoding="utf-8").splitlines()
    return sorted(lines)


def body(page: Page) -> list[list[str]]:
    """The rows of the table that are shown."""
    return [row.locator("td").all_inner_texts() for row in page.locator(".fr-explore-table tbody tr").all()]


@pytest.fixture
def page(sites: dict[str, Any], browser: Browser) -> Iterator[Page]:
    """The page of two machines, of which nothing may have gone wrong in the end."""
    seen = visits.visit(browser, sites["main"])
    yield ready(seen.open("explore.html"))
    assert seen.problems == []


def test_it_opens_with_a_story(page: Page) -> None:
    """Throughput against batch size by workers, phases beside it, of the newest run that asks about machines."""
    said = state(page)
    assert (said["metric"], said["x"], said["colour"], said["beside"]) == (
        ["samples_per_s"], ["batch_size"], ["num_workers"], ["phases"],
    )  # fmt: skip
    message = page.locator(".fr-explore-main .fr-message").inner_text()
    label = page.locator(".fr-explore-main [role=img]").get_attribute("aria-label") or ""
    assert re.search(r"highest [\d.,]+ samples/s \(95 % interval [\d.,]+ to [\d.,]+, n = \d+\)", message)
    assert message.split(" Lines join")[0] in label
    assert page.locator(".fr-explore-beside .fr-explore-live .mark-rect path").count() > 5
    assert page.locator("#fr-explore-plain").is_hidden()
    assert page.locator(DRAWN).count() == len(body(page))
    for control in page.locator(".fr-explore select:visible").all():  # each has a choice
        assert control.locator("option").count() > 1
    page.locator("details.fr-explore-filters summary").click()
    for values in page.locator(".fr-explore-filters fieldset").all():
        assert values.locator("input").count() > 1


def test_a_filter_leaves_cells_everywhere_and_says_when_none(page: Page) -> None:
    """A filter takes cells out of picture and table; the one that leaves nothing is named, with what it hides."""
    before = len(body(page))
    tick(page, "batch_size", "8")
    left = len(body(page))
    assert 0 < left < before
    expect(page.locator(DRAWN)).to_have_count(left)
    assert "8" not in state(page)["batch_size"]
    address = page.url
    page.locator(".md-skip").focus()  # going to the content is no new choice
    page.keyboard.press("Enter")
    expect(page).to_have_url(address)
    assert len(body(page)) == left
    for value in ("32", "128"):
        tick(page, "batch_size", value)
    said = page.locator(".fr-explore-problems").inner_text()
    assert "filter batch_size = none of its values leaves nothing" in said
    assert re.search(r"without it there are \d+ cells", said)
    assert page.locator(".fr-explore-views").is_hidden()
    after(page, page.get_by_role("button", name="all values of batch_size").click)
    expect(page.locator(DRAWN)).to_have_count(before)


@pytest.mark.slow
def test_the_address_is_the_whole_choice(page: Page, browser: Browser) -> None:
    """What was chosen by hand is shown by its address elsewhere: same controls, same marks, same numbers."""
    choose(page, "metric", "fetch_us")
    choose(page, "x", "num_workers")
    choose(page, "colour", "storage_format")
    tick(page, "batch_size", "8")
    after(page, lambda: choose(page, "beside", "cpu_util_pct"))
    page.get_by_role("button", name="Waiting for data (fetch)", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_count(1)
    address, shown, table = page.url, marks(page), body(page)
    assert {"machine", "run", "ran", "metric", "x", "colour", "facet", "beside", "y_scale", "sort"} <= set(state(page))
    again = browser.new_page()
    again.goto(address)
    ready(again)
    assert again.url == address
    assert marks(again) == shown
    assert body(again) == table
    again.close()


@pytest.mark.slow
def test_two_quick_changes_are_both_made(page: Page) -> None:
    """A second change waits for the first."""
    page.locator("details.fr-explore-filters").evaluate("one => { one.open = true }")
    sizes = page.locator("input[name=batch_size]")
    sizes.evaluate_all("all => all.slice(0, 2).forEach(one => one.click())")
    expect(page.locator("input[name=batch_size]:checked")).to_have_count(sizes.count() - 2)


def test_an_old_link_means_the_same_after_new_results(
    sites: dict[str, Any], browser: Browser, fake_run: ModuleType, tmp_path: Path
) -> None:
    """A link of yesterday, of what the page opened with, shows the same marks when its machine has a newer run."""
    page = ready(visits.visit(browser, sites["main"]).open("explore.html"))
    link, shown = page.url.partition("explore.html")[2], marks(page)
    shutil.copytree(sites["main"].results, tmp_path / "results")
    new = fake_run.Fake(
        run_id=NEW, workers=(0, 1, 2, 4), batches=(4, 8, 32, 512), suites=("loader", "storage"), device="cuda"
    )
    fake_run.write(tmp_path / "results", new)
    shutil.copytree(sites["main"].folder, folder := tmp_path / "site", ignore=shutil.ignore_patterns("figures", "runs"))
    made = explore_page.page(select(load_runs(tmp_path / "results")))
    for path, text in made.files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(str(text), encoding="utf-8")
    index = re.compile('data-index="[^"]*"')
    (address,) = index.findall("".join(placed.html for placed in made.figures.values()))[:1]
    html = (folder / "explore.html").read_text(encoding="utf-8")
    (folder / "explore.html").write_text(index.sub(address, html), encoding="utf-8")
    with served(folder) as address:
        later = browser.new_page()
        later.goto(address + "explore.html")
        ready(later)
        assert marks(later) != shown
        assert NEW in state(later)["run"]
        later.goto("about:blank")
        later.goto(address + "explore.html" + link)
        ready(later)
        assert marks(later) == shown
        assert later.url.partition("explore.html")[2] == link
        later.close()


def test_numbers_are_given_on_hover_and_by_keyboard(page: Page) -> None:
    """Pointing and walking with the arrow keys say the numbers and light up the row; a row lights up its mark."""
    readout, hot = page.locator(".fr-explore-readout"), page.locator(".fr-explore-table tr.fr-hot")
    page.locator(DRAWN).nth(1).hover()
    page.locator("#vg-tooltip-element.visible").wait_for()
    assert "95 % interval" in page.locator("#vg-tooltip-element").inner_text()
    expect(hot).to_have_count(1)
    expect(readout).to_contain_text("n = ")
    page.mouse.move(0, 0)
    expect(hot).to_have_count(0)
    page.locator(".fr-explore-main [role=img]").focus()
    page.keyboard.press("Home")
    first = readout.inner_text()
    page.keyboard.press("ArrowRight")
    assert "95 % interval" in first
    assert readout.inner_text() != first
    page.locator(".fr-explore-table tbody tr").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".fr-explore-table tr.fr-hot:focus")).to_have_count(1)
    expect(page.locator(f"{DRAWN}[stroke='var(--fr-ink)']")).to_have_count(1)


@pytest.mark.slow
def test_the_table_sorts_pages_and_comes_down(page: Page, sites: dict[str, Any]) -> None:
    """Headings sort down, up and not at all; CSV and JSON hold exactly the marks, with whole identity and intervals."""
    head = page.get_by_role("button", name="Throughput", exact=True)
    at = page.locator(".fr-explore-table th").all_inner_texts().index("Throughput\nsamples/s")
    head.click()
    expect(page.locator("th[aria-sort=descending]")).to_have_count(1)
    values = [float(row[at].replace(",", "")) for row in body(page)]
    assert values == sorted(values, reverse=True)
    head.click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    assert [float(row[at].replace(",", "")) for row in body(page)] == sorted(values)
    head, *lines = sorted(marks(page), key=lambda line: not line.startswith("cell_id"))
    lines = list(csv.DictReader([head, *lines]))
    with page.expect_download() as got:
        page.get_by_role("button", name="Download JSON").click()
    told = json.loads(Path(got.value.path()).read_text(encoding="utf-8"))
    assert told["link"] == page.url
    assert {row["cell_id"] for row in told["rows"]} == {line["cell_id"] for line in lines}
    assert len(lines) == page.locator(DRAWN).count()
    truth = select(load_runs(sites["main"].results)).cells.set_index(["run_id", "cell_id"])
    for row in told["rows"]:
        cell = truth.loc[(row["run"], row["cell_id"])]
        assert row["samples_per_s"] == pytest.approx(cell["samples_per_s"], rel=1e-4)
        assert row["samples_per_s_low"] == pytest.approx(cell["samples_per_s_lo"], rel=2e-4)
        assert row["samples_per_s_n"] == cell["n"]


@pytest.mark.slow
def test_two_machines_stand_side_by_side(page: Page) -> None:
    """A second machine comes with its own run and panel; what differs between them is said."""
    names = [box.get_attribute("value") or "" for box in page.locator("input[name=machine]").all()]
    assert len(names) == 2
    other = next(name for name in names if name not in state(page)["machine"])
    tick(page, "machine", other)
    assert set(state(page)["machine"]) == set(names)
    assert len(state(page)["run"]) == 2
    assert "machine" in (*state(page)["facet"], *state(page)["colour"], *state(page)["x"])
    assert "Some ran on a GPU and some on a CPU" in page.locator(".fr-explore-problems").inner_text()
    for name in names:
        tick(page, "machine", name)
    assert page.locator(".fr-explore-problems").inner_text() == "No machine is chosen."
    tick(page, "machine", other)
    assert page.locator(DRAWN).count() > 3


@pytest.mark.slow
def test_words_that_nobody_knows_are_said(sites: dict[str, Any], browser: Browser) -> None:
    """Unknown machines, runs, axes, values and measures in a link are named in a sentence; the rest of it holds."""
    seen = visits.visit(browser, sites["main"])
    page = ready(seen.open("explore.html"))
    known = page.url
    wrong = {
        "colour=warp": "no axis “warp”",
        "metric=happiness": "no measure “happiness”",
        "speed=9": "no axis or setting “speed”",
        "sort=luck,ascending": "no column “luck”",
        "batch_size=8,9": "no cell with batch_size “9”",
    }
    for part in wrong:
        known = re.sub(f"&{part.partition('=')[0]}=[^&]*", "", known) + f"&{part}"
    page.goto("about:blank")
    page.goto(known)
    ready(page)
    problems = page.locator(".fr-explore-problems").inner_text()
    assert [said for said in wrong.values() if said not in problems] == []
    assert "batch_size 8" in page.locator(".fr-explore-main .fr-explore-about").inner_text()
    page.goto("about:blank")
    page.goto(re.sub("&run=[^&]*", "&run=%3Cb%3Egone", known))
    expect(page.locator(".fr-explore-problems")).to_contain_text("no run “<b>gone”")
    assert "No run is chosen" in page.locator(".fr-explore-problems").inner_text()
    assert seen.problems == []


@pytest.mark.slow
def test_a_sleep_is_called_a_sleep(sites: dict[str, Any], browser: Browser) -> None:
    """An emulated step has no forward pass: neither control, table nor legend speak of one."""
    page = visits.visit(browser, sites["main"]).open("explore.html")
    page.goto("about:blank")
    page.goto(f"{sites['main'].address}explore.html#machine={_machine(sites, 'cpu')}&ran=emulated")
    ready(page)
    text = page.locator(".fr-explore").inner_text()
    assert "Emulated step" in text
    assert "emulated step, no model" in text
    assert "Forward pass" not in text


def _machine(sites: dict[str, Any], device: str) -> str:
    found: str = next(run.manifest.machine.machine_id for run in sites["main"].runs if run.manifest.device == device)
    return found


@pytest.mark.slow
def test_odd_runs_are_shown_as_text(sites: dict[str, Any], browser: Browser, fake_run: ModuleType) -> None:
    """One block, no metrics, hostile names: every machine can be chosen, and no name becomes an element."""
    seen = visits.visit(browser, sites["odd"])
    page = ready(seen.open("explore.html"))
    page.locator("details.fr-explore-machines summary").click()
    for name in [box.get_attribute("value") or "" for box in page.locator("input[name=machine]").all()]:
        if name not in state(page)["machine"]:
            tick(page, "machine", name)
    assert page.locator(".fr-explore img, .fr-explore script, .fr-explore b").count() == 0
    assert "onerror" in page.locator(".fr-explore").inner_text()
    assert page.title() != "owned"
    assert seen.problems == []
