"""The table of all machines in a real browser: a rare machine among very many runs is found in one file."""

from __future__ import annotations

from collections.abc import Iterator

import many_runs
import pyarrow as pa
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect
from visits import Site, everybody, narrowed, visit

from feedrate.questions.machines import store as machines_store
from feedrate.site import build as site_build
from feedrate.site.serve import served
from feedrate.store import compact
from feedrate.store.runs import folders
from feedrate.store.tables import arrow_schema

pytestmark = pytest.mark.slow

MADE_UP = 2_000
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
FOUND, FIELD, STATUS = ".fr-machines tbody tr", "#fr-hardware input", "#fr-hardware [role=status]"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of two runs with pages, and of very many that only the data set knows; the oldest is of a rare machine."""
    root = tmp_path_factory.mktemp("hardware")
    results = root / "results"
    many_runs.write_compact(results, MADE_UP)
    compact.put(pa.Table.from_pylist([RARE], arrow_schema(compact.CELLS)), results / compact.FOLDER)
    (results / str(RARE["machine_id"])).mkdir()
    (results / str(RARE["machine_id"]) / str(RARE["run_id"])).touch()
    many_runs.write(results, 2)
    folder = site_build.build(results, root / "build", everybody)
    with served(folder) as address:
        yield Site(results, folder, address)


def test_a_rare_machine_is_found(browser: Browser, shown: Site) -> None:
    """Nothing is read before a word is typed, and then one file; what the record says stays text."""
    assert "Rare X1" not in (shown.folder / "compare.html").read_text(encoding="utf-8")
    seen = visit(browser, shown)
    read: list[str] = []
    seen.page.on("request", lambda request: read.append(request.url) if machines_store.FILE in request.url else None)
    page = seen.open("compare.html")
    page.wait_for_load_state("networkidle")
    expect(page.locator(FOUND)).to_have_count(machines_store.LISTED)
    assert read == []
    for words in ("rare x1", "WONDER nvme", str(RARE["machine_id"]), str(RARE["run_id"])):
        page.locator(FIELD).fill(words)
        expect(page.locator(STATUS)).to_have_text("1 row.")
        expect(page.locator(FOUND)).to_have_count(1)
        assert page.locator(FOUND).locator("img").count() == 0
        text = page.locator(FOUND).inner_text()
        assert all(
            str(RARE[name]) in text for name in ("machine_id", "run_id", "cpu", "gpu", "cores", "device", "storage")
        )
    page.locator(FIELD).fill("made-up")
    expect(page.locator(STATUS)).to_contain_text(f"{MADE_UP // many_runs.RUNS_A_MACHINE} rows, of which 100 are shown")
    page.locator(FIELD).fill("nowhere")
    expect(page.locator(STATUS)).to_contain_text("No machine matches")
    page.locator(FIELD).fill("")
    expect(page.locator(FOUND)).to_have_count(machines_store.LISTED)
    assert len(read) == 1
    assert page.title() != "owned"
    (run, _) = folders(shown.results)
    page.locator(FIELD).fill(run.name)
    page.locator(FOUND).get_by_role("link", name=run.name).click()
    page.wait_for_url(f"**/runs/{run.name}.html")
    assert seen.problems == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_it(theme: str, browser: Browser, shown: Site) -> None:
    """Axe finds no fault in either theme, and on a phone nothing is wider than the screen."""
    page = visit(browser, shown, color_scheme=theme).open("compare.html")
    for words in ("", "rare x1"):
        page.locator(FIELD).fill(words)
        expect(page.locator(FOUND)).to_have_count(1 if words else machines_store.LISTED)
        assert Axe().run(page, "main", {"resultTypes": ["violations"]}).response["violations"] == []
        assert narrowed(page, 360) <= 360
