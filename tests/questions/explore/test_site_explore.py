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

import pandas as pd
import pytest
import visits
from playwright.sync_api import Browser, Page, expect

from feedrate.analysis.measures import estimate_measures
from feedrate.charts.plot import unlike
from feedrate.charts.theme import PALETTE
from feedrate.pages.runs import load_runs
from feedrate.pages.selection import select
from feedrate.questions.explore import page as explore_page
from feedrate.questions.explore.run_files import path_of, run_file
from feedrate.schema.plugins import names
from feedrate.site.serve import served

pytestmark = pytest.mark.slow

NEW = "20260109T030405Z-new"
FORMATS = "feedrate.formats"
HEX = "hex => `rgb(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(', ')})`"
DRAWN = ".fr-explore-chart [aria-label=dot] path"


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
    page.locator("details.fr-explore-filters, details.fr-explore-runs").evaluate_all(
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
    """Throughput against workers by batch size, of the newest run that asks about machines; at a place of it, too."""
    said, address = state(page), page.url
    page.goto("about:blank")
    page.goto(f"{address.partition('#')[0]}#fr-explore-main")
    expect(page).to_have_url(address)
    ready(page)
    assert (said["metric"], said["x"], said["colour"]) == (["samples_per_s"], ["num_workers"], ["storage_format"])
    message = page.locator(".fr-explore-view .fr-message").inner_text()
    label = page.locator(".fr-explore-view [role=img]").get_attribute("aria-label") or ""
    assert re.search(r"Highest: [\d.,]+ samples/s \([\d.,]+–[\d.,]+, n = \d+\)", message)
    assert message in label
    assert page.locator("#fr-explore-plain").is_hidden()
    tones = {name: PALETTE[tint.removeprefix("var(--fr-")[:-1]] for name, (tint, _) in unlike(names(FORMATS)).items()}
    for entry in page.locator(".fr-legend li").all():
        light = page.evaluate(HEX, tones[entry.inner_text().split()[-1]][0])
        assert entry.locator("span").evaluate("sign => getComputedStyle(sign).color") == light
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
    assert state(page)["colour"] == ["storage_format"]
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
    assert "The filter batch_size leaves nothing" in said
    assert re.search(r"without it there are \d+ settings", said)
    assert page.locator(".fr-explore-view").is_hidden()
    after(page, page.get_by_role("button", name="all values of batch_size").click)
    expect(page.locator(DRAWN)).to_have_count(before)


def test_the_address_is_the_whole_choice(page: Page, browser: Browser) -> None:
    """What was chosen by hand is shown by its address elsewhere: same controls, same marks, same numbers."""
    choose(page, "metric", "fetch_us")
    choose(page, "x", "num_workers")
    choose(page, "facet", "")
    choose(page, "colour", "storage_format")
    tick(page, "batch_size", "8")
    page.get_by_role("button", name="Waiting for data (fetch)", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_count(1)
    address, shown, table = page.url, marks(page), body(page)
    assert {"run", "ran", "metric", "x", "colour", "facet", "y_scale", "sort"} <= set(state(page))
    again = browser.new_page()
    again.goto(address)
    ready(again)
    assert again.url == address
    assert marks(again) == shown
    assert body(again) == table
    again.close()


def test_an_old_link_means_the_same_after_new_results(
    sites: dict[str, Any], browser: Browser, fake_run: ModuleType, tmp_path: Path
) -> None:
    """A link of yesterday, of what the page opened with, shows the same marks when its machine has a newer run.

    Beside the newer run, which read other images, it warns of that; neither of them alone differs from itself.
    """
    page = ready(visits.visit(browser, sites["main"]).open("explore.html"))
    link, shown = page.url.partition("explore.html")[2], marks(page)
    shutil.copytree(sites["main"].results, tmp_path / "results")
    new = fake_run.Fake(
        run_id=NEW,
        workers=(0, 1, 2, 4),
        batches=(4, 8, 32, 512),
        suites=("loader", "storage"),
        device="cuda",
        data_hash="f" * 16,
    )
    fake_run.write(tmp_path / "results", new)
    shutil.copytree(sites["main"].folder, folder := tmp_path / "site", ignore=shutil.ignore_patterns("figures", "runs"))
    everyone = select(load_runs(tmp_path / "results"))
    texts = {path_of(view): run_file(view) for view in everyone.every}
    made = explore_page.page(everyone, texts)
    for path, text in (made.files | texts).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
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
        assert later.locator(".fr-explore-problems").is_hidden()
        tick(later, "run", NEW)
        warned = later.locator(".fr-explore-problems")
        expect(warned).to_contain_text("These settings differ in data_hash: do not compare them.")
        assert "workload_version" not in warned.inner_text()
        later.close()


def test_numbers_are_given_on_hover_and_controls_keep_the_focus(page: Page) -> None:
    """Pointing at a mark says its numbers; a control that was used by keyboard is still the one that has the focus.

    A logarithmic scale is offered and drawn where values are positive and lie apart.
    """
    page.locator(DRAWN).nth(1).hover()
    tip = page.locator(".fr-explore-chart [aria-label=tip]")
    tip.get_by_text("n = ").wait_for()
    assert re.search(r"samples/s \([\d.,]+–[\d.,]+, n = \d+\)", tip.text_content() or "")
    page.locator(".fr-explore input[name=log]").focus()
    after(page, lambda: page.keyboard.press("Space"))
    assert page.evaluate("document.activeElement.name") == "log"
    assert state(page)["y_scale"] == ["log"]
    choose(page, "metric", "startup_ms")
    assert len({row[-4] for row in body(page)}) == 1
    expect(page.locator(".fr-explore input[name=log]")).to_have_count(0)
    expect(page.locator(".fr-explore-chart [aria-label='y-axis tick label'] text").first).to_have_text("0")


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
    views = load_runs(sites["main"].results)
    truth = pd.concat(estimate_measures(view.trials) for view in views).set_index(["run_id", "cell_id"])
    for row in told["rows"]:
        cell = truth.loc[(row["run"], row["cell_id"])]
        assert row["samples_per_s"] == pytest.approx(cell["samples_per_s"], rel=1e-4)
        assert row["samples_per_s_low"] == pytest.approx(cell["samples_per_s_lo"], rel=2e-4)
        assert row["samples_per_s_n"] == cell["n"]
