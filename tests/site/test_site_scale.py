"""Very many results: what is shown in full and in short, pages that mkdocs never sees, results that are made up."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from visits import everybody

from feedrate.bench import generated
from feedrate.pages import markup, processes, selection
from feedrate.pages import runs as pages_runs
from feedrate.pages.markup import Page
from feedrate.pages.summaries import update
from feedrate.site import brief
from feedrate.site import build as site_build
from feedrate.site.publish import publish
from feedrate.store import marks
from feedrate.store import runs as store_runs

MACHINES, FEATURED, DETAILED = 9, 2, 3


@dataclass
class Built:
    """A site of more machines than are shown in full."""

    results: Path
    folder: Path

    @property
    def runs(self) -> list[store_runs.StoredRun]:
        """Newest first."""
        return list(reversed(store_runs.runs(self.results)))

    def text(self, path: str) -> str:
        return (self.folder / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Nine made-up machines and a run of a single trial, with room for two machines and three runs in full."""
    root = tmp_path_factory.mktemp("many")
    generated.write(root / "results", MACHINES)
    fake = fake_run.Fake(run_id="20260101T000000Z-one", blocks=1, fails="none")
    tables = fake_run.rows(fake)
    tables["trials"] = tables["trials"][:1]
    run = fake_run.manifest(fake, tables["trials"]).model_copy(update={"started_at": "2027-01-01T00:00:00Z"})
    folder = root / "results" / run.machine.machine_id / run.run_id
    folder.mkdir(parents=True)
    store_runs.write_run(folder, run, [tables])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "MACHINES", FEATURED)
        patch.setattr(selection, "DETAILED", DETAILED)
        patch.setattr(brief, "ROWS", 4)
        yield Built(root / "results", site_build.build(root / "results", root / "build", everybody))


@pytest.mark.slow
def test_every_run_and_machine_has_a_page_and_its_files(built: Built) -> None:
    """In full or in short, each run has its page with its raw files byte for byte, and each machine has its own."""
    for run in built.runs:
        text = built.text(f"runs/{markup.slug(run.manifest.run_id)}.html")
        assert run.manifest.run_id in text
        for name in ("run.json", "trials.parquet", "steps.parquet", "telemetry.parquet"):
            assert f'href="../runs/{run.manifest.run_id}/{name}"' in text
            copied = built.folder / "runs" / run.manifest.run_id / name
            assert copied.read_bytes() == (run.folder / name).read_bytes()
        assert (built.folder / "machines" / f"{markup.slug(run.manifest.machine.machine_id)}.html").is_file()


@pytest.mark.slow
def test_what_is_left_out_is_said_and_reached(built: Built) -> None:
    """Home, suites, claims and the lists say how many are shown and lead to the rest; the lists hold every run once."""
    for path in ("index.html", "claims.html", "suites/loader.html"):
        text = built.text(path)
        assert f"Only the {FEATURED} machines that were measured last are shown" in text, path
        assert f"All {MACHINES + 1} machines" in text, path
        assert "machines/all-1.html" in text, path
    lists = sorted(built.folder.glob("runs/all-*.html"))
    assert len(lists) == math.ceil((MACHINES + 1) / 4)
    listed = [found for path in lists for found in re.findall(r'<td[^>]*><div><a href="([^"]+)', path.read_text())]
    pages = [name for name in listed if name.startswith("../runs/")]
    assert sorted(pages) == sorted(f"../runs/{markup.slug(run.manifest.run_id)}.html" for run in built.runs)


@pytest.mark.slow
def test_short_pages_are_of_those_that_were_measured_long_ago(built: Built) -> None:
    """The newest runs are shown in full, with a grade; all others in short, which says so and why."""
    short = {
        run.manifest.run_id
        for run in built.runs
        if "This page is short" in built.text(f"runs/{run.manifest.run_id}.html")
    }
    assert short == {run.manifest.run_id for run in built.runs} - {run.manifest.run_id for run in _newest(built)}
    assert all("Grade" in built.text(f"runs/{run.manifest.run_id}.html") for run in _newest(built))


def _newest(built: Built) -> list[store_runs.StoredRun]:
    return sorted(built.runs, key=lambda run: run.manifest.started_at, reverse=True)[:DETAILED]


@pytest.mark.slow
def test_a_short_pages_number_is_the_records(built: Built) -> None:
    """Its best rate is the geometric mean over blocks of the fastest cell, recomputed from the raw file, with n."""
    run = sorted(built.runs, key=lambda run: run.manifest.started_at)[0]
    trials = run.table("trials")
    logs = np.log(trials.loc[trials["mode"].eq("train"), "samples_per_s"].astype(float))
    rates = logs.groupby(trials["cell_id"])
    row = built.text(f"runs/{run.manifest.run_id}.html").partition("real training")[2].partition("</tr>")[0]
    assert f"{float(f'{math.exp(rates.mean().max()):.3g}'):,.0f}" in row
    assert f">{generated.BLOCKS}</td>" in row


@pytest.mark.slow
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


@pytest.mark.slow
def test_navigation_and_search_do_not_grow(built: Built) -> None:
    """Pages of runs and machines, and their lists, are in neither, however many there are; their indexes are."""
    index = json.loads(built.text("search/search_index.json"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"suites/loader.html", "runs/index.html", "machines/index.html"} <= places
    linked = set(re.findall(r'href="([^"#]+)', built.text("methodology.html").partition("<article")[0]))
    for place in (*places, *linked):
        assert not place.startswith(("runs/", "machines/")) or place.endswith("/index.html")


@pytest.mark.slow
def test_a_page_that_mkdocs_never_saw_is_what_it_would_have_made(tmp_path: Path) -> None:
    """The same body through mkdocs and through an empty page gives the same bytes: headings, contents, raw HTML."""
    body = (
        '<p class="fr-eyebrow">Run</p>\n\n# A &#60;b&#62; run\n\n<ul><li>one\n\n# no heading</li></ul>\n'
        "## First { #first }\n\n<p>text</p>\n\n### Below &#38; under { #below }\n\n## Last { #last }\n\n- a list\n"
    )
    ways = [
        Page(f"runs/{name}.md", "A <b> run", body, listed=name == "seen", hide=("navigation",))
        for name in ("seen", "put")
    ]
    home = Page("index.md", "Home", "# Home\n")
    docs, target = tmp_path / "docs", tmp_path / "site"
    docs.mkdir()
    publish(site_build.SOURCE, docs, target, [{"Home": "index.md"}], [home, *ways])
    seen, made = ((target / "runs" / f"{name}.html").read_text(encoding="utf-8") for name in ("seen", "put"))
    assert made == seen
    assert '<a href="#below" class="md-nav__link">' in made


def test_made_up_results_are_what_the_store_writes(tmp_path: Path) -> None:
    """They are read back as any run, about a hundred rows each; other machines differ; the same seed gives the same."""
    rows = generated.write(tmp_path / "a", 3)
    runs = store_runs.runs(tmp_path / "a")
    assert len({run.manifest.machine.machine_id for run in runs}) == len(runs) == 3
    assert {run.manifest.device for run in runs} == {"cpu", "cuda"}
    trials = [run.table("trials") for run in runs]
    assert sum(map(len, trials)) == rows >= 300
    for frame in trials:
        phases = frame[[name for name in frame if name.startswith("host_") and name.endswith("_ns")]]
        ended = phases.drop(columns="host_drain_ns").fillna(0).sum(axis=1)
        assert (ended - frame["wall_ns"]).abs().max() == 0
        assert (frame["samples"] / frame["wall_ns"] * 1e9 / frame["samples_per_s"] - 1).abs().max() < 1e-9
        assert frame["trial_id"].is_unique
    generated.write(tmp_path / "b", 3)
    for run, again in zip(runs, store_runs.runs(tmp_path / "b"), strict=True):
        pd.testing.assert_frame_equal(run.table("trials"), again.table("trials"))
        assert run.manifest == again.manifest


@pytest.mark.slow
def test_with_room_for_all_everything_is_shown_in_full(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few machines leave nothing out; of many runs of one machine those of each suite that are newest are featured."""
    monkeypatch.setattr(selection, "MACHINES", 100)
    monkeypatch.setattr(selection, "DETAILED", 0)
    everyone = selection.select(pages_runs.load_runs(built.results))
    assert everyone.featured == everyone.detailed == everyone.every
    assert not everyone.brief
    assert brief.placeholders(everyone) == []


@pytest.mark.slow
def test_processes_estimate_what_one_does(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """Split over processes, the cells of all runs are the same, in the same order."""
    alone = selection.cells(built.runs)
    monkeypatch.setattr(selection, "_PART", 3)
    monkeypatch.setattr(processes, "_FEW", 0)
    pd.testing.assert_frame_equal(selection.cells(built.runs), alone)


@pytest.mark.slow
def test_a_store_with_summaries_shows_the_newest_runs(
    fake_run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a store is summarised, pages are made of its newest and reference runs alone; the others are in files."""
    results = tmp_path / "results"
    generated.write(results, 4)
    old, *others = store_runs.folders(results)
    marks.set_tier(old, marks.REFERENCE)
    update(results, everybody)
    monkeypatch.setattr(site_build, "SHOWN", 2)
    folder = site_build.build(results, tmp_path / "build", everybody)
    assert {path.stem for path in (folder / "runs").glob("*Z-*.html")} == {old.name, *(run.name for run in others[-2:])}
    text = (folder / "hardware.html").read_text(encoding="utf-8")
    assert "all 4 runs" in text
    assert pq.read_table(folder / "hardware" / "runs-0001.parquet").num_rows == 4
    assert 'href="hardware.html"' in (folder / "index.html").read_text(encoding="utf-8")
