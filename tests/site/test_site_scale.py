"""Very many results: which runs have pages, pages that mkdocs never sees, results that are made up."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import many_runs
import pytest
from visits import everybody

from feedrate.pages import selection
from feedrate.questions.machines import store as machines_store
from feedrate.site import build as site_build
from feedrate.store import compact, marks
from feedrate.store import runs as store_runs

pytestmark = pytest.mark.slow

MACHINES, SHOWN = 6, 3


@dataclass
class Built:
    """A site of more machines than have pages."""

    results: Path
    folder: Path

    def text(self, path: str) -> str:
        return (self.folder / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Six made-up machines with a run each, with room for three runs and two machines; the oldest is a reference."""
    root = tmp_path_factory.mktemp("many")
    many_runs.write(root / "results", MACHINES)
    marks.set_tier(store_runs.folders(root / "results")[0], marks.REFERENCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_build, "SHOWN", SHOWN)
        patch.setattr(selection, "MACHINES", 2)
        patch.setattr(site_build, "MACHINES", 2)
        return Built(root / "results", site_build.build(root / "results", root / "build", everybody))


def test_the_newest_and_reference_runs_have_pages(built: Built) -> None:
    """Each has its raw files byte for byte; a table has all machines, and the store itself is only read."""
    old, *others = store_runs.folders(built.results)
    shown = {old, *others[-SHOWN:]}
    assert {path.stem for path in (built.folder / "runs").glob("*Z-*.html")} == {run.name for run in shown}
    for run in shown:
        assert "Grade" in built.text(f"runs/{run.name}.html")
        for name in ("run.json", "trials.parquet", "steps.parquet", "telemetry.parquet"):
            assert (built.folder / "runs" / run.name / name).read_bytes() == (run / name).read_bytes()
    assert len(json.loads(built.text(machines_store.FILE))["rows"]) == MACHINES
    assert all(run.name in built.text("compare.html") for run in (old, *others))
    assert not (built.results / compact.FOLDER).exists()


def test_links_and_policy_hold_on_every_page(built: Built) -> None:
    """Every link within the site leads to a file that is there; all pages have the one content security policy."""
    policies = set()
    for path in built.folder.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        policies |= set(re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text))
        assert text.count('http-equiv="Content-Security-Policy"') == 1
        assert not re.search("feedrate-?frame", text), path
        main = text.partition("<article")[2].partition("</article>")[0]
        for target in re.findall(r'href="([^"#:?]+)["#]', main):
            assert (built.folder / os.path.normpath(path.parent.relative_to(built.folder) / target)).is_file(), (
                path,
                target,
            )
    assert len(policies) == 1
    assert not list(built.folder.rglob("feedrate-frame*"))


def test_navigation_and_search_do_not_grow(built: Built) -> None:
    """Pages of runs are in neither, however many there are; the lists of runs and machines are."""
    index = json.loads(built.text("search/search_index.json"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"suites/loader.html", "data.html", "compare.html"} <= places
    linked = set(re.findall(r'href="([^"#]+)', built.text("methodology.html").partition("<article")[0]))
    for place in (*places, *linked):
        assert not place.startswith("runs/")
