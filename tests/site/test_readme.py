"""The README says what the records say."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from feedrate.pages.runs import RunView
from feedrate.plan import suite
from feedrate.plan.claim import NEVER, untestable
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.site import readme
from feedrate.store.marks import not_withdrawn
from feedrate.store.runs import runs

WORDS = 1000


@pytest.mark.slow
def test_every_number_comes_from_the_run_it_names() -> None:
    """The table is recomputed from the run that it names and must be the same to the letter.

    From nothing else: whoever sweeps has a run more under results/ than the README knows.
    """
    view = readme.view()
    named = re.search(r"run `([^`]+)`", view)
    assert named, "README.md names no run"
    (run,) = [run for run in not_withdrawn(runs(ROOT / "results")) if run.manifest.run_id == named[1]]
    assert view == readme.block([RunView(run)])


def test_it_is_short() -> None:
    """At most 1,000 words, of which the first command comes before the second screen."""
    text = readme.README.read_text(encoding="utf-8")
    assert len(text.split()) <= WORDS
    assert text.index("feedrate run -- python train.py") < len(text) / 3


def test_what_is_said_of_all_claims_holds() -> None:
    """Of what is not generated: how many claims there are and can be tested."""
    text = " ".join(readme.README.read_text(encoding="utf-8").split())
    claims = [claim for _, claim in suite.claims().values()]
    assert f"{len(claims)} sentences of widely read documents and common advice" in text
    without = [claim for claim in claims if untestable(claim.on("cpu"), "cpu") is None]
    assert f"{len(without)} of them can be tested without a GPU" in text
    apart = [claim for claim in claims if claim.needs in NEVER]
    assert f"{len(apart)} on no single machine" in text


def test_the_figure_is_of_published_runs() -> None:
    """The opening figure is an SVG that stands in the repository, and it names its runs."""
    picture = readme.FIGURE.read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    named = set(re.findall(r"\d{8}T\d{6}Z-[0-9a-f]{4}", picture))
    assert named
    assert named <= {path.name for path in (ROOT / "results").glob("*/*")}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the README that is written in its place, and the figure beside it."""
    copy = tmp_path / "README.md"
    copy.write_text(readme.README.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(readme, "README", copy)
    monkeypatch.setattr(readme, "FIGURE", tmp_path / "opening.svg")
    return copy


@pytest.mark.slow
def test_readme_and_figure_are_written_together(show: Callable[..., RunView], written: Path) -> None:
    """Both name the run; what stands around the marks stays."""
    view, before = show(fails="none"), written.read_text(encoding="utf-8")
    run = readme.write(view.run.folder.parents[1])
    assert f"run `{run.manifest.run_id}`, grade " in readme.view()
    assert f"; `{run.manifest.command}` repeats it." in readme.view()
    assert run.manifest.run_id in readme.FIGURE.read_text(encoding="utf-8")
    after = written.read_text(encoding="utf-8")
    assert before.partition("<!--")[0] == after.partition("<!--")[0]
    assert before.rpartition("-->")[2] == after.rpartition("-->")[2]


def test_a_figure_that_cannot_be_drawn_changes_nothing(show: Callable[..., RunView], written: Path) -> None:
    """README and figure are of the same runs: where one cannot be made both stay as they were."""
    before = written.read_text(encoding="utf-8")
    with pytest.raises(InputError, match="two numbers of workers"):
        readme.write(show(fails="all").run.folder.parents[1])
    assert written.read_text(encoding="utf-8") == before
    assert not readme.FIGURE.exists()


@pytest.mark.slow
def test_the_table_says_what_a_run_is(show: Callable[..., RunView]) -> None:
    """An emulated step is explained where there is one; one repetition is shown without an interval, and said."""
    sleep = "A sleep stands in for a GPU's step."
    assert sleep not in readme.block([show(fails="none", device="cuda")])
    text = readme.block([show(fails="none", blocks=1)])
    assert sleep in text
    assert "(no interval) |" in text
    assert "1 repetition;" in text
    assert "nan" not in text


def test_every_profile_can_be_found() -> None:
    """`make` lists the profiles that matrix.yaml has, all of them."""
    listed = re.search(r"PROFILE=([a-z|]+) SUITE", (ROOT / "Makefile").read_text())
    assert listed
    assert set(listed[1].split("|")) == set(yaml.safe_load((ROOT / "matrix.yaml").read_text())["profiles"])


def test_results_stay_small() -> None:
    """What is committed under results/ is at most 40 MB, no file more than 5 MB; what a user measured counts not.

    Without a repository (a downloaded archive) all that lies there counts.
    """
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "results"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    paths = [ROOT / name for name in tracked.stdout.split("\0") if name] or (ROOT / "results").rglob("*")
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    assert sum(sizes) <= 40e6
    assert max(sizes) <= 5e6
