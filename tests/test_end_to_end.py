"""The main job, whole and real: photographs → sweep → site → browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import skimage.data
from playwright.sync_api import Browser
from visits import Site, Visit, visit

from feedrate.analysis.estimates import cells
from feedrate.charts.embed import cell_text
from feedrate.schema.plugins import ROOT
from feedrate.site import build as site_build
from feedrate.site.serve import served
from feedrate.store import runs

MATRIX = """
version: 1
protocol: {warmup_s: 0.05, window_s: 0.1, min_steps: 2, blocks: [1, 1], timeout_s: 30}
suites:
  loader:
    - {mode: load, workload: div2k, patch_size: 32, n_samples: 64, storage_format: [png, lmdb], batch_size: 8,
       num_workers: [0, 1]}
    - {mode: train, workload: div2k, patch_size: 16, scale: 3, n_samples: 32, batch_size: 8}
profiles: {quick: {}}
"""


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
    options = ["--matrix", str(root / "matrix.yaml"), *folders, "--results", str(root / "results")]
    command = [sys.executable, "-m", "feedrate", "sweep", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    site_build.build(root / "results", root / "build")
    return Swept(root, done.stdout)


@pytest.fixture
def seen(swept: Swept, browser: Browser) -> Iterator[Visit]:
    """The site in a browser; at the end nothing may have gone wrong on it."""
    folder = swept.root / "build" / "site"
    with served(folder) as address:
        opened = visit(browser, Site(swept.results, folder, address))
        yield opened
    assert opened.problems == []


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
