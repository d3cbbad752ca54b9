"""The end of a sweep on the terminal: counts agree with their nouns, and what is said of a run is so."""

from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from feedrate.analysis import noise
from feedrate.analysis.estimates import rows_of
from feedrate.pages.runs import RunView
from feedrate.pages.tasks import set_words
from feedrate.questions.summary import terminal as summary_terminal
from feedrate.schema import words
from feedrate.store import runs


def said(fake_run: ModuleType, folder: Path, **what: object) -> str:
    """What the terminal shows of a made-up run."""
    fake = fake_run.Fake(**what)
    fake_run.write(folder, fake)
    console = Console(width=200, record=True, file=io.StringIO())
    summary_terminal.show(runs.find(fake.run_id, folder), console)
    return console.export_text()


@pytest.mark.slow
def test_one_of_a_thing_is_one(fake_run: ModuleType, tmp_path: Path) -> None:
    """One block and one worker stand in the singular."""
    text = said(fake_run, tmp_path, batches=(8,), workers=(1,), blocks=1, fails="none", asked_only=True)
    assert ", 1 whole repetition, measurements" in text
    assert "batch 8, 1 worker" in text
    assert "1 workers" not in text
    assert "1 settings" not in text
    assert "(no interval, n\u00a0=\u00a01)" in text
    assert words.INTERVALS in text


@pytest.mark.slow
def test_a_grade_is_explained_as_it_is_given(fake_run: ModuleType, tmp_path: Path) -> None:
    """The worst criterion decides, of as many as there are; rates say their blocks."""
    text = said(fake_run, tmp_path, batches=(8, 32), fails="none")
    assert f"(A best, D worst; the worst of {len(noise.CRITERIA)} criteria decides)" in text
    assert ", n\u00a0=\u00a06)" in text


@pytest.mark.slow
def test_the_best_is_one_of_those_that_are_as_good(fake_run: ModuleType, tmp_path: Path) -> None:
    """Rates are the settings' own, gains are cross-fitted; with few blocks no gain is told."""
    text = said(fake_run, tmp_path / "many", fails="none")
    (view,) = (RunView(run) for run in runs.runs(tmp_path / "many"))
    best = rows_of(view.headlines)
    assert text.count("\n  best: ") == len(best)
    assert all(f"  {set_words(row)}\n" in text for row in best)
    assert any("ties with " in set_words(row) for row in best)
    few = said(fake_run, tmp_path / "few", blocks=3, fails="none")
    assert "without repacking: needs 4 repetitions" in few
    assert "×" not in few


def test_a_sweep_of_facts_alone_has_its_end(fake_run: ModuleType, tmp_path: Path) -> None:
    """Checks have no throughput, and no best setting is told of them."""
    fake = fake_run.Fake(suites=("claims",), claims=("workers",), blocks=1, fails="none")
    file = fake_run.write(tmp_path, fake) / "trials.parquet"
    trials = pq.read_table(file)
    pq.write_table(trials.filter(pc.is_valid(trials["fact"])), file)
    console = Console(width=200, record=True, file=io.StringIO())
    summary_terminal.show(runs.find(fake.run_id, tmp_path), console)
    text = console.export_text()
    assert "Grade " in text
    assert "best: " not in text.replace("at best: ", "")
