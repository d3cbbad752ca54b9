"""The page "All hardware" in a real browser: a rare machine among twenty thousand runs is found, and little is read."""

from __future__ import annotations

import gzip
import os
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from visits import Site, Visit, everybody, narrowed, visit

from feedrate.bench import browser as bench_browser
from feedrate.bench import generated
from feedrate.bench.site import BEFORE_KB
from feedrate.questions.hardware import page as hardware_page
from feedrate.site import build as site_build
from feedrate.site import scripts
from feedrate.site.serve import served
from feedrate.store import summaries
from feedrate.store.migration import arrow_schema
from feedrate.store.runs import folders
from feedrate.store.summaries import CELLS, RUNS, Summary

MADE_UP, ROWS, CROWD, LONG_AGO_NS = 20_000, 500, hardware_page.KINDS + 100, 10**18
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
MACHINE = "rare-x1-wonder-9-12c-0a1b2c3d"
RARE = {
    "machine_id": MACHINE,
    "run_id": "20250607T080900Z-7f7f",
    "started_at": "2025-06-07T08:09:00+00:00",
    "device": "cuda",
    "protocol_version": 2,
    "cpu": f"Wonder 9 {HOSTILE}",
    "gpu": "Rare X1",
    "cores": 12,
    "storage": "nvme",
}
FOUND = "#fr-hardware tbody tr"
FIELD, STATUS = "#fr-hardware input", "#fr-hardware [role=status]"
FILE = re.compile(r"runs-\d+[.]parquet")


def _hardware(names: random.Random) -> dict[str, str]:
    return {"gpu": f"Accelerator {names.randbytes(5).hex()}", "cpu": f"Common {names.randbytes(8).hex()} @ 2.00GHz"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of two runs with pages, of very many that only summaries know, and of more kinds than the page lists.

    One of those that it does not list is rare.
    """
    root = tmp_path_factory.mktemp("hardware")
    results = root / "results"
    generated.write_summaries(results, MADE_UP)
    names = random.Random(7)  # of hardware: they compress badly
    planted = [RARE, *(RARE | {"machine_id": f"crowd-{at}", **_hardware(names)} for at in range(CROWD))]
    machines = dict.fromkeys((str(run["machine_id"]) for run in planted), LONG_AGO_NS)
    for name in machines:
        (results / name).mkdir()
        os.utime(results / name, ns=(LONG_AGO_NS, LONG_AGO_NS))
    runs = pa.Table.from_pylist(planted, arrow_schema(RUNS))
    summaries.put(Summary(arrow_schema(CELLS).empty_table(), runs), machines, results)
    generated.write(results, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardware_page, "ROWS", ROWS)
        folder = site_build.build(results, root / "build", everybody)
    with served(folder) as address:
        yield Site(results, folder, address)


FILES = [
    {"gpu": ["Rare X1"], "cpu": ["Wonder 9"], "cores": ["12"], "device": ["cuda"]},
    {"gpu": ["", "Rare X1"], "cpu": None, "cores": ["12", "64"], "device": ["cpu", "cuda"]},
    {"gpu": [""], "cpu": ["Example 32x7763", "Wonder 7"], "cores": ["64"], "device": ["cpu"]},
]
"""What an index says of three files, of which one has more processors than it lists."""
PLAN = """async ([files, text, exact]) => {
  const found = (await import("/hardware/files.js")).plan(files, text, exact);
  return found.files.map((file) => files.indexOf(file));
}"""


@pytest.mark.parametrize(
    ("text", "exact", "files"),
    [
        ("", [["gpu", ""]], [1, 2]),
        ("", [["device", "cuda"], ["cores", "64"]], [1]),
        ("", [["cpu", "Wonder 7"]], [1, 2]),
        ("WONDER 9", [], [0, 1]),
        ("wonder rare", [], [0, 1]),
        ("wonder", [["cores", "64"]], [1, 2]),
        ("20260101T000000Z-7763", [], [0, 1, 2]),
        ("made-up", [], [0, 1, 2]),
        (MACHINE, [], [0, 1]),
        ("2x-rare-x1-wonder-9-12c-0a1b2c3d", [], [0, 1]),
        ("wonder-7-64c-00007763", [], [1, 2]),
        ("unknown-64c-0a1b2c3d", [], [1, 2]),
    ],
)
def test_no_file_that_may_hold_a_run_is_passed_over(
    text: str, exact: list[list[str]], files: list[int], scripts_page: Page
) -> None:
    """Files are chosen by words of hardware, by choices by what a machine's id says; what is not known may be."""
    assert scripts_page.evaluate(PLAN, [FILES, text, exact]) == files


@pytest.fixture(scope="module")
def scripts_page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a folder in which the script that chooses files lies."""
    folder = tmp_path_factory.mktemp("scripts")
    scripts.bundle(folder, ("hardware/files.js",))
    with served(folder) as address:
        opened = browser.new_page()
        opened.goto(address)
        yield opened
        opened.close()


class Reading:
    """A visit to the page that notes which files it reads."""

    def __init__(self, browser: Browser, shown: Site, **options: object) -> None:
        self.seen: Visit = visit(browser, shown, **options)  # type: ignore[arg-type]
        self.files: list[str] = []
        self.page: Page = self.seen.page
        self.page.on("request", lambda request: self.files.extend(FILE.findall(request.url)))
        self.seen.open("hardware.html")

    def find(self, words: str) -> None:
        self.page.locator(FIELD).fill(words)

    def found(self, count: int) -> None:
        expect(self.page.locator(FOUND)).to_have_count(count)


@pytest.fixture
def reading(browser: Browser, shown: Site) -> Iterator[Reading]:
    """The page, opened, with a cache of its own."""
    made = Reading(browser, shown)
    yield made
    made.page.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("words", ["rare x1", "WONDER", MACHINE], ids=["accelerator", "processor", "machine"])
def test_a_rare_machine_is_found_in_few_files(words: str, reading: Reading, shown: Site) -> None:
    """Among all files at most three are read, once each; nothing is before a word is typed; its names stay text."""
    assert len(list((shown.folder / "hardware").glob("*.parquet"))) > MADE_UP / ROWS
    page = reading.page
    page.wait_for_load_state("networkidle")
    assert reading.files == []
    reading.find(words)
    reading.found(1)
    assert 1 <= len(reading.files) <= 3
    assert len(set(reading.files)) == len(reading.files)
    text = page.locator(FOUND).inner_text()
    assert all(str(RARE[name]) in text for name in ("machine_id", "run_id", "cpu", "gpu", "cores", "device", "storage"))
    assert "2025-06-07 08:09" in text
    assert page.locator("#fr-hardware img").count() == 0
    assert page.title() != "owned"
    assert reading.seen.problems == []


@pytest.mark.slow
def test_the_page_is_light(shown: Site) -> None:
    """With as many kinds as it lists, and room for a larger index, it keeps to what a page may weigh before a touch."""
    assert "Rare X1" not in (shown.folder / "hardware.html").read_text(encoding="utf-8")
    chromium = bench_browser.browser_path()
    assert chromium is not None
    with ThreadPoolExecutor(1) as apart:  # Playwright runs once in a thread
        (cost,) = apart.submit(bench_browser.page_costs, shown.folder, ["hardware.html"], chromium, 0).result()
    index = len(gzip.compress((shown.folder / hardware_page.INDEX).read_bytes(), 6))
    assert cost.before_bytes + hardware_page.INDEX_LIMIT - index <= 1000 * BEFORE_KB


@pytest.mark.slow
def test_what_has_a_page_is_linked_and_what_has_none_is_copied(reading: Reading, shown: Site) -> None:
    """The run of a page leads to it; of any other, machine and run can be copied."""
    page = reading.page
    (run, *_) = folders(shown.results)
    reading.find(run.name)
    expect(page.locator(STATUS)).to_contain_text("press Search to read them all")
    assert reading.files == []
    page.get_by_role("button", name="Search").click()
    expect(page.locator(STATUS)).to_contain_text("1 run found")
    assert len(reading.files) > MADE_UP / ROWS
    page.locator(FOUND).get_by_role("link", name=run.name).click()
    page.wait_for_url(f"**/runs/{run.name}.html")
    page.go_back()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    reading.find(MACHINE)
    page.get_by_role("button", name="Copy machine and run").click()
    expect(page.get_by_role("button", name="Copy machine and run")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"{MACHINE}/{RARE['run_id']}"
    assert reading.seen.problems == []


@pytest.mark.slow
def test_the_keyboard_is_enough(reading: Reading) -> None:
    """Tab goes from the field over the choices to the button; a choice and Enter search; many runs are cut."""
    page = reading.page
    page.locator(FIELD).focus()
    for name in ("gpu", "cpu", "cores", "device"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.name") == name
    page.keyboard.press("c")
    assert page.evaluate("document.activeElement.value") in ("=cpu", "=cuda")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(STATUS)).to_contain_text("more: narrow the search")
    reading.found(200)
    began = page.locator(f"{FOUND} td:first-child").all_inner_texts()
    assert began == sorted(began, reverse=True)
    assert reading.seen.problems == []


@pytest.mark.slow
def test_the_choices_count_what_is_there(reading: Reading, shown: Site) -> None:
    """A choice of each kind leaves the runs that the summaries have of it; nothing at all is said to be nothing."""
    page = reading.page
    asked = "SELECT count(*) AS n FROM runs WHERE gpu = 'Accelerator 80' AND cores = 64"
    (wanted,) = summaries.query(asked, results=shown.results)["n"].to_pylist()
    page.locator("select[name=gpu]").select_option("=Accelerator 80")
    page.locator("select[name=cores]").select_option("=64")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(STATUS)).to_contain_text(f"{wanted:,} run")
    before = len(reading.files)
    reading.find("rare x1")
    expect(page.locator(STATUS)).to_contain_text("No run matches")
    reading.found(0)
    assert len(reading.files) == before


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_named(reading: Reading) -> None:
    """One that is missing and one that is broken are named, with what to do; the next search reads them again."""
    page = reading.page

    def broken(route: Route) -> None:
        route.fulfill(status=200, body=b"PAR1 nothing PAR1") if reading.files[1:] else route.fulfill(status=404)

    page.route("**/*.parquet", broken)
    for reason in ("404 Not Found", "its footer"):
        reading.find("rare" if reason[0] == "4" else "rare x")
        fault = page.locator("#fr-hardware [role=alert]")
        expect(fault).to_contain_text(reason)
        expect(fault).to_contain_text(FILE)
        expect(fault).to_contain_text("Search again")
    expect(page.locator(STATUS)).to_contain_text("No run was found in what could be read")
    page.unroute("**/*.parquet")
    page.get_by_role("button", name="Search").click()
    reading.found(1)
    expect(page.locator("#fr-hardware [role=alert]")).to_be_empty()


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_what_is_found(theme: str, browser: Browser, shown: Site) -> None:
    """Axe finds no fault in either theme, and on a phone nothing is wider than the screen."""
    made = Reading(browser, shown, color_scheme=theme)
    made.find("rare x1")
    made.found(1)
    found = Axe().run(made.page, "#fr-hardware", {"resultTypes": ["violations"]}).response["violations"]
    assert found == []
    assert narrowed(made.page, 360) <= 360
    made.page.context.close()


@pytest.mark.slow
def test_without_scripts_the_table_stands(browser: Browser, shown: Site) -> None:
    """No empty frame is seen, and every kind of hardware is, with its files."""
    made = Reading(browser, shown, java_script_enabled=False)
    assert not made.page.locator("#fr-hardware").is_visible()
    assert "Accelerator 80" in made.page.locator("main table").inner_text()
    made.page.context.close()
