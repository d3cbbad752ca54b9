"""The main job, whole and real: photographs → sweep → parquet → site → browser."""

from __future__ import annotations

from pathlib import Path

import pytest
import skimage.data
from playwright.sync_api import Browser
from typed import harness
from visits import Site, visit

from feedrate.analysis.estimates import cells
from feedrate.charts.embed import cell_text
from feedrate.site.serve import served
from feedrate.store import runs

MATRIX = """
version: 1
protocol: {warmup_s: 0.05, window_s: 0.2, min_steps: 2, blocks: [1, 2], timeout_s: 30}
suites:
  loader:
    - {mode: load, workload: div2k, patch_size: 32, n_samples: 64, storage_format: [png, lmdb], batch_size: 8,
       num_workers: [0, 1]}
    - {mode: train, workload: div2k, patch_size: 16, scale: 3, n_samples: 32, batch_size: 8}
profiles: {quick: {}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over photographs of scikit-image, nested and among junk, and the site of its results."""
    folder = tmp_path_factory.mktemp("end-to-end")
    photographs = folder / "photographs" / "nested"
    photographs.mkdir(parents=True)
    for name in ("astronaut.png", "coffee.png", "rocket.jpg", "retina.jpg"):
        source = Path(skimage.data.__file__).with_name(name)
        (photographs / name).write_bytes(source.read_bytes())
    (photographs.parent / "broken.jpg").write_bytes(b"not a photograph")
    (folder / "matrix.yaml").write_text(MATRIX)
    places = ["--results", str(folder / "results"), "--data-root", str(folder / "data")]
    printed = harness("sweep", "--matrix", str(folder / "matrix.yaml"), *places, "--data", str(folder / "photographs"))
    (folder / "printed").write_text(printed)
    harness("site", "--results", str(folder / "results"), "--out", str(folder / "build"))
    return folder


def test_photographs_are_swept_under_their_own_name(place: Path) -> None:
    """A folder is the workload `folder`, never div2k; what was skipped is listed, and published without its name."""
    (run,) = runs.runs(place / "results")
    assert set(run.table("trials")["workload"]) == {"folder"}
    assert set(run.manifest.outcomes) == {"ok"}
    assert "skipped broken.jpg: neither PNG, JPEG nor WebP" in (place / "printed").read_text()
    published = run.manifest.model_dump_json()
    assert "broken.jpg" not in published
    assert "skipped a file: neither PNG, JPEG nor WebP" in published


def test_both_formats_hold_the_same_pixels(place: Path) -> None:
    """Png and lmdb were packed from the same samples: their hashes agree."""
    (run,) = runs.runs(place / "results")
    hashes = {data.data_hash for data in run.manifest.datasets if "p32" in data.name}
    assert len(hashes) == 1


def test_the_site_opens_clean_and_shows_the_records_numbers(place: Path, browser: Browser) -> None:
    """Nothing goes wrong on any kind of page; the throughput chart's table holds the estimates, as people read them."""
    (run,) = runs.runs(place / "results")
    folder = place / "build" / "site"
    with served(folder) as address:
        seen = visit(browser, Site(place / "results", folder, address))
        for path in ("index.html", "data.html", f"runs/{run.manifest.run_id}.html", "suites/loader.html"):
            seen.open(path).wait_for_load_state("networkidle")
        shown = seen.page.locator("body").inner_text() + (seen.page.locator("body").text_content() or "")
    assert seen.problems == []
    estimates = cells(run.table("trials"))
    for _, row in estimates[(estimates["storage_format"] == "png") & (estimates["mode"] == "load")].iterrows():
        assert cell_text(float(row["samples_per_s"])) in shown
