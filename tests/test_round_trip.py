"""What two people do with feedrate, whole and real: sweep, submit, unpack, validate, publish, compare."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import visits
from dropping import give, ready, result
from playwright.sync_api import Browser
from typed import harness

from feedrate.analysis import machines
from feedrate.machine.identity import usable_cores
from feedrate.schema.columns import TABLES
from feedrate.site import build as site_build
from feedrate.site.serve import served
from feedrate.store import runs
from feedrate.store.manifest import RunManifest

pytestmark = pytest.mark.slow

MATRIX = """
version: 1
protocol: {warmup_s: 0.05, window_s: 0.1, min_steps: 2, blocks: [2, 2], timeout_s: 30}
suites:
  loader:
    - {mode: load, workload: div2k_standin, patch_size: 16, n_samples: 64, storage_format: [png, lmdb], batch_size: 8,
       num_workers: [0, 2]}
    - {mode: train, workload: div2k_standin, patch_size: 16, n_samples: 64, storage_format: lmdb, batch_size: 8}
profiles: {quick: {}}
"""
OTHER = "Example 1000 1-Core"
"""What the second machine is called: the first one, held to one of its cores."""


def relabelled(run: runs.StoredRun, results: Path) -> Path:
    """Write a run again as that of a machine with another processor, ids and all."""
    machine = run.manifest.machine.model_copy(update={"cpu_model": OTHER, "cores_logical": 1})
    manifest = RunManifest.model_validate(run.manifest.model_dump() | {"machine": machine.model_dump()})
    rows = {name: run.table(name).astype(object) for name in TABLES}
    rows["trials"]["machine_id"] = manifest.machine.machine_id
    tables = {
        name: [{key: value for key, value in row.items() if value == value and value is not None} for row in records]
        for name, records in (
            (name, frame.where(frame.notna(), None).to_dict("records")) for name, frame in rows.items()
        )
    }
    folder = results / manifest.machine.machine_id / manifest.run_id
    folder.mkdir(parents=True)
    runs.write_run(folder, manifest, [tables])
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two machines, each below a folder of its own: ``here`` and ``there``."""
    folder = tmp_path_factory.mktemp("round-trip")
    (folder / "matrix.yaml").write_text(MATRIX)
    common = ["sweep", "--matrix", str(folder / "matrix.yaml"), "--data-root", str(folder / "data"), "--results"]
    harness(*common, str(folder / "here"))
    harness(*common, str(folder / "measured"), cores={min(usable_cores())})
    (measured,) = runs.runs(folder / "measured")
    relabelled(measured, folder / "there")
    return folder


@pytest.fixture(scope="module")
def published(place: Path) -> Path:
    """Results into which the first machine's run came as one submitted file."""
    (mine,) = runs.runs(place / "here")
    given = ["--label", "my box", "--yes", "--out", str(place / "out"), "--results", str(place / "here")]
    # Without gh nothing can be proposed to anybody.
    told = harness("submit", mine.manifest.run_id, *given, path=place)
    (archive,) = (place / "out").glob("submission-*.zip")
    assert archive.name in told.replace("\n", "")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(place / "published")
    return place / "published" / "results"


@pytest.fixture
def address(published: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The site of what was published, served."""
    folder = site_build.build(published, tmp_path / "build")
    with served(folder) as found:
        yield found, folder


def test_what_was_submitted_is_what_was_measured(place: Path, published: Path) -> None:
    """The run that is published keeps the rules, byte for byte as the sweep wrote it, with its label beside it."""
    (mine,), (theirs,) = runs.runs(place / "here"), runs.runs(published)
    for path in mine.folder.iterdir():
        assert (theirs.folder / path.name).read_bytes() == path.read_bytes()
    assert "2 valid, 0 refused." in harness("validate", str(published), str(place / "there"))
    assert "my box" in theirs.folder.with_name(f"{theirs.folder.name}.label.json").read_text()


def test_another_machine_s_file_is_compared_in_the_browser(
    place: Path, published: Path, address: tuple[str, Path], browser: Browser
) -> None:
    """The other machine's file, dropped on the published site, gives the ratio that the command and Python give."""
    (other,), (mine,) = runs.runs(place / "there"), runs.runs(published)
    seen = visits.visit(browser, visits.Site(published, address[1], address[0]))
    page = ready(seen.open("compare.html"))
    give(page, other.folder / "trials.parquet")
    said = result(page)
    overall = machines.overall(machines.compare(mine.table("trials"), other.table("trials")))
    assert overall.n > 4
    assert f"{overall.n} settings" in said
    assert f"B is {overall.value:.2f}× ({overall.low:.2f}–{overall.high:.2f}) as fast as A" in said
    assert OTHER in page.locator(".fr-compare").inner_text()
    printed = harness(
        "compare", mine.manifest.run_id, str(other.folder / "trials.parquet"), "--results", str(published)
    )
    (times,) = re.findall(r"B is ([\d.]+)× \([\d.–]+\) as fast as A:", " ".join(printed.split()))
    assert float(times) == pytest.approx(overall.value, rel=0.02)
    assert seen.problems == []
