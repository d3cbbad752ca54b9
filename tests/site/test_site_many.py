"""Very many results: which runs have pages, what does not grow, and the table in which a rare machine is found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import many_runs
import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect
from visits import COLOURS, Site, broken_links, everybody, narrowed, policies, switched, violations, visit

from feedrate.pages import selection
from feedrate.questions.machines import store as machines_store
from feedrate.site import build as site_build
from feedrate.site import content as site_content
from feedrate.site.serve import served
from feedrate.store import compact, marks
from feedrate.store.runs import folders
from feedrate.store.tables import arrow_schema

pytestmark = pytest.mark.slow

MACHINES, SHOWN, MADE_UP = 3, 1, 101
"""Machines with a run each; runs that have pages; machines that only the data set knows."""
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
RARE = {
    "machine_id": "rare-x1-wonder-9-12c-0a1b2c3d",
    "run_id": "20240607T080900Z-7f7f",
    "started_at": "2024-06-07T08:09:00+00:00",
    "device": "cuda",
    "cpu": f"Wonder 9 {HOSTILE}",
    "gpu": "Rare X1",
    "cores": 12,
    "storage": "nvme",
    "first": True,
}
ROWS, FIELD, STATUS = ".fr-machines tbody tr", "#fr-hardware input", "#fr-hardware [role=status]"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with room for one run and two machines; the oldest run is a reference, and one machine is rare."""
    root = tmp_path_factory.mktemp("many")
    results, data = root / "results", root / "build" / compact.FOLDER
    many_runs.write_compact(results, MADE_UP * many_runs.RUNS_A_MACHINE)
    compact.put(pa.Table.from_pylist([RARE], arrow_schema(compact.CELLS)), results / compact.FOLDER)
    (results / str(RARE["machine_id"])).mkdir()
    (results / str(RARE["machine_id"]) / str(RARE["run_id"])).touch()
    data.parent.mkdir()
    (results / compact.FOLDER).rename(data)  # an earlier build made it
    many_runs.write(results, MACHINES, suites=("collate",), batches=(8,), blocks=2)
    marks.set_tier(folders(results)[0], marks.REFERENCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_build, "SHOWN", SHOWN)
        patch.setattr(selection, "MACHINES", 2)
        patch.setattr(site_content, "MACHINES", 2)
        folder = site_build.build(results, root / "build", everybody)
    with served(folder) as address:
        yield Site(results, folder, address)


def test_the_newest_and_reference_runs_have_pages(built: Site) -> None:
    """Each has its raw files byte for byte; a table has all machines, and the store itself is only read."""
    reference, *others = folders(built.results)
    shown = {reference, *others[-SHOWN:]}
    assert {path.stem for path in (built.folder / "runs").glob("*Z-*.html")} == {run.name for run in shown}
    for run in shown:
        assert "Grade" in built.text(f"runs/{run.name}.html")
        for name in ("run.json", "trials.parquet", "steps.parquet", "telemetry.parquet"):
            assert (built.folder / "runs" / run.name / name).read_bytes() == (run / name).read_bytes()
    assert len(json.loads(built.text(machines_store.FILE))["rows"]) == MACHINES + MADE_UP + 1
    assert all(run.name in built.text("compare.html") for run in (reference, *others))
    assert not (built.results / compact.FOLDER).exists()


def test_links_and_policy_hold_on_every_page(built: Site) -> None:
    """Every link within the site leads to a file that is there; all pages have the one content security policy."""
    assert broken_links(built) == []
    assert len(policies(built)) == 1


def test_navigation_and_search_do_not_grow(built: Site) -> None:
    """Pages of runs are in neither, however many there are; the lists of runs and machines are."""
    index = json.loads(built.text("search/search_index.json"))
    locations = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"suites/collate.html", "data.html", "compare.html"} <= locations
    linked = set(re.findall(r'href="([^"#]+)', built.text("methodology.html").partition("<article")[0]))
    assert not [path for path in locations | linked if path.startswith("runs/")]


def test_a_rare_machine_is_found(browser: Browser, built: Site) -> None:
    """Nothing is read before a word is typed, and then one file; what the record says stays text."""
    assert "Rare X1" not in built.text("compare.html")
    seen = visit(browser, built)
    read: list[str] = []
    seen.page.on("request", lambda request: read.append(request.url) if machines_store.FILE in request.url else None)
    page = seen.open("compare.html")
    page.wait_for_load_state("networkidle")
    expect(page.locator(ROWS)).to_have_count(machines_store.LISTED)
    assert read == []
    for words in ("rare x1", "WONDER nvme", str(RARE["machine_id"]), str(RARE["run_id"])):
        page.locator(FIELD).fill(words)
        expect(page.locator(STATUS)).to_have_text("1 row.")
        expect(page.locator(ROWS)).to_have_count(1)
        assert page.locator(ROWS).locator("img").count() == 0
        row = page.locator(ROWS).inner_text()
        for name in ("machine_id", "run_id", "cpu", "gpu", "cores", "device", "storage"):
            assert str(RARE[name]) in row
    page.locator(FIELD).fill("made-up")
    expect(page.locator(STATUS)).to_contain_text(f"{MADE_UP} rows, of which 100 are shown")
    page.locator(FIELD).fill("nowhere")
    expect(page.locator(STATUS)).to_contain_text("No machine matches")
    page.locator(FIELD).fill("")
    expect(page.locator(ROWS)).to_have_count(machines_store.LISTED)
    assert len(read) == 1
    assert page.title() != "owned"
    newest = folders(built.results)[-1].name
    page.locator(FIELD).fill(newest)
    page.locator(ROWS).get_by_role("link", name=newest).click()
    page.wait_for_url(f"**/runs/{newest}.html")
    assert seen.problems == []


def test_everybody_can_read_what_was_found(browser: Browser, built: Site) -> None:
    """Axe finds no fault in either theme, and on a phone nothing is wider than the screen."""
    page = visit(browser, built, color_scheme="light").open("compare.html")
    page.locator(FIELD).fill("rare x1")
    expect(page.locator(ROWS)).to_have_count(1)
    assert violations(page) == []
    switched(page, "slate")
    assert violations(page, *COLOURS) == []
    assert narrowed(page, 360) <= 360
