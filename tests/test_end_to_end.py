"""The main job, whole and real: photographs → sweep → site → browser; slow: submit → validate → compare."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import skimage.data
from dropping import give, ready, result
from playwright.sync_api import Browser
from typed import harness
from visits import Site, Visit, visit

from feedrate.analysis import machines
from feedrate.analysis.estimates import cells
from feedrate.charts.embed import cell_text
from feedrate.schema.columns import TABLES
from feedrate.site.serve import served
from feedrate.store import runs
from feedrate.store.manifest import RunManifest

MATRIX = """
version: 1
protocol: {warmup_s: 0.05, window_s: 0.1, min_steps: 2, blocks: [2, 2], timeout_s: 30}
suites:
  loader:
    - {mode: load, workload: div2k, patch_size: 32, n_samples: 64, storage_format: [png, lmdb], batch_size: 8,
       num_workers: [0, 1]}
    - {mode: train, workload: div2k, patch_size: 16, scale: 3, n_samples: 32, batch_size: 8}
profiles: {quick: {}}
"""
OTHER = "Example 1000 1-Core"
"""What the second machine is called."""


@dataclass
class Swept:
    """A folder with photographs, the run of a sweep over them, and the site of its results."""

    root: Path
    printed: str

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def run(self) -> runs.StoredRun:
        (run,) = runs.runs(self.results)
        return run


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """A sweep over photographs of scikit-image, nested and among junk, and the site of its results."""
    root = tmp_path_factory.mktemp("end-to-end")
    photographs = root / "photographs" / "nested"
    photographs.mkdir(parents=True)
    for name in ("astronaut.png", "coffee.png", "rocket.jpg", "retina.jpg"):
        (photographs / name).write_bytes(Path(skimage.data.__file__).with_name(name).read_bytes())
    (photographs.parent / "broken.jpg").write_bytes(b"not a photograph")
    (root / "matrix.yaml").write_text(MATRIX)
    folders = ["--data", str(root / "photographs"), "--data-root", str(root / "data")]
    results = ["--results", str(root / "results")]
    printed = harness("sweep", "--matrix", str(root / "matrix.yaml"), *folders, *results)
    harness("site", *results, "--out", str(root / "build"))
    return Swept(root, printed)


@pytest.fixture
def seen(swept: Swept, browser: Browser) -> Iterator[Visit]:
    """The site in a browser; at the end nothing may have gone wrong on it."""
    folder = swept.root / "build" / "site"
    with served(folder) as address:
        opened = visit(browser, Site(swept.results, folder, address))
        yield opened
    assert opened.problems == []


@pytest.fixture(scope="module")
def other(swept: Swept) -> runs.StoredRun:
    """The same run as that of a machine with another processor, which takes several times as long for each trial."""
    machine = swept.run.manifest.machine.model_copy(update={"cpu_model": OTHER, "cores_logical": 1})
    other = {"machine": machine.model_dump(), "cell_seconds": {}, "run_id": f"{swept.run.manifest.run_id[:-4]}othr"}
    manifest = RunManifest.model_validate(swept.run.manifest.model_dump() | other)
    trials = swept.run.table("trials")
    slower = pd.Series(range(2, 2 + len(trials)), trials["trial_id"])
    tables = {}
    for name in TABLES:
        frame = swept.run.table(name)
        for column in frame.columns[frame.columns.str.endswith("_ns")]:
            frame[column] *= frame["trial_id"].map(slower)
        if name == "trials":
            frame["samples_per_s"] /= frame["trial_id"].map(slower)
            frame["machine_id"] = manifest.machine.machine_id
        for column in ("run_id", "trial_id"):
            frame[column] = frame[column].str.replace(swept.run.manifest.run_id, manifest.run_id)
        frame = frame.astype(object)
        tables[name] = frame.where(frame.notna(), None).to_dict("records")
    folder = swept.root / "other" / manifest.machine.machine_id / manifest.run_id
    folder.mkdir(parents=True)
    runs.write_run(folder, manifest, [tables])
    return runs.find(str(folder))


def test_photographs_are_swept_under_their_own_name(swept: Swept) -> None:
    """A folder is the workload `folder`, never div2k; what was skipped is listed, and published without its name."""
    assert set(swept.run.table("trials")["workload"]) == {"folder"}
    assert set(swept.run.manifest.outcomes) == {"ok"}
    assert "skipped broken.jpg: neither PNG, JPEG nor WebP" in swept.printed
    published = swept.run.manifest.model_dump_json()
    assert "broken.jpg" not in published
    assert "skipped a file: neither PNG, JPEG nor WebP" in published


def test_both_formats_hold_the_same_pixels(swept: Swept) -> None:
    """Png and lmdb were packed from the same samples: their hashes agree."""
    hashes = [data.data_hash for data in swept.run.manifest.datasets if "p32" in data.name]
    assert len(hashes) == 2
    assert len(set(hashes)) == 1


def test_the_site_opens_clean_and_shows_the_records_numbers(swept: Swept, seen: Visit) -> None:
    """Nothing goes wrong on any kind of page; the throughput chart's table holds the estimates, as people read them."""
    for path in ("index.html", "data.html", f"runs/{swept.run.manifest.run_id}.html", "suites/loader.html"):
        seen.open(path).wait_for_load_state("networkidle")
    shown = seen.page.locator("body").inner_text() + (seen.page.locator("body").text_content() or "")
    estimates = cells(swept.run.table("trials"))
    for rate in estimates.loc[estimates["storage_format"].eq("png") & estimates["mode"].eq("load"), "samples_per_s"]:
        assert cell_text(float(rate)) in shown


@pytest.mark.slow
def test_what_was_submitted_is_what_was_measured(swept: Swept, other: runs.StoredRun) -> None:
    """A submitted file unpacks to a run that keeps the rules, byte for byte as measured, with its label beside it."""
    options = ["--label", "my box", "--yes", "--out", str(swept.root / "out"), "--results", str(swept.results)]
    # Without gh nothing can be proposed to anybody.
    printed = harness("submit", swept.run.manifest.run_id, *options, path=swept.root)
    (archive,) = (swept.root / "out").glob("submission-*.zip")
    assert archive.name in printed.replace("\n", "")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(swept.root / "unpacked")
    unpacked = swept.root / "unpacked" / "results"
    (published,) = runs.runs(unpacked)
    for path in swept.run.folder.iterdir():
        assert (published.folder / path.name).read_bytes() == path.read_bytes()
    assert "2 valid, 0 refused." in harness("validate", str(unpacked), str(other.folder.parents[1]))
    assert "my box" in published.folder.with_name(f"{published.folder.name}.label.json").read_text()


@pytest.mark.slow
def test_another_machine_s_file_is_compared_in_the_browser(swept: Swept, other: runs.StoredRun, seen: Visit) -> None:
    """The other machine's file, dropped on the site, gives the ratio that the command and Python give."""
    file = other.folder / "trials.parquet"
    page = ready(seen.open("compare.html"))
    give(page, file)
    answer = result(page)
    overall = machines.overall(machines.compare(swept.run.table("trials"), other.table("trials")))
    assert overall.n > 4
    assert f"{overall.n} settings" in answer
    assert f"B is {overall.value:.2f}× ({overall.low:.2f}–{overall.high:.2f}) as fast as A" in answer
    assert OTHER in page.locator(".fr-compare").inner_text()
    printed = harness("compare", swept.run.manifest.run_id, str(file), "--results", str(swept.results))
    (times,) = re.findall(r"B is ([\d.]+)× \([\d.–]+\) as fast as A:", " ".join(printed.split()))
    assert float(times) == pytest.approx(overall.value, rel=0.02)
