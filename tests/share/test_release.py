"""All runs as one archive that can be cited."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.schema.errors import InputError
from feedrate.share import release
from feedrate.store import marks, runs

NAMES = ("20260102T030405Z-0001", "20260103T030405Z-0002", "20260104T030405Z-0003")


@pytest.fixture(scope="module")
def results(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, one that was withdrawn, and one that breaks a rule."""
    folder = tmp_path_factory.mktemp("results")
    for name in NAMES:
        fake_run.write(folder, fake_run.Fake(name, fails="none"))
    marks.withdraw(runs.find(NAMES[1], folder).folder, "the disk was failing")
    table = runs.find(NAMES[2], folder).folder / "steps.parquet"
    table.write_bytes(table.read_bytes()[:-9])
    return folder


def test_the_archive_holds_what_keeps_the_rules(results: Path, tmp_path: Path) -> None:
    """Unpacked it is a folder of results like any other: the marks are there, a broken run is not."""
    made = release.make(results, tmp_path / "out")
    assert (made.runs, made.refused) == (2, 1)
    with zipfile.ZipFile(made.archive) as archive:
        archive.extractall(tmp_path / "there")
    there = runs.runs(tmp_path / "there" / "results")
    assert [run.folder.name for run in there] == list(NAMES[:2])
    assert there[0].table("trials").equals(runs.find(NAMES[0], results).table("trials"))
    withdrawn = marks.about(there[1].folder).withdrawn
    assert withdrawn
    assert "the disk was failing" in str(withdrawn)


def test_the_same_runs_give_the_same_archive(results: Path, tmp_path: Path) -> None:
    """To the byte, and its checksum is what sha256sum says."""
    first, second = (release.make(results, tmp_path / name).archive for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    assert hashlib.sha256(first.read_bytes()).hexdigest() in (tmp_path / "first" / "SHA256SUMS").read_text()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=first.parent, check=True)


def test_zenodo_is_told_what_it_asks_for(results: Path, tmp_path: Path) -> None:
    """The required fields of a deposit, the newest run's date, and how much was measured."""
    release.make(results, tmp_path)
    told = json.loads((tmp_path / "zenodo.json").read_bytes())["metadata"]
    assert {"title", "upload_type", "description", "creators", "access_right", "license"} <= told.keys()
    newest = runs.find(NAMES[1], results).manifest
    assert told["publication_date"] == newest.ended_at[:10]
    assert told["description"].startswith("2 runs of feedrate on 1 machine")


def test_without_a_run_nothing_is_written(tmp_path: Path) -> None:
    """The message says what makes one."""
    with pytest.raises(InputError, match=r"no run that can be released; .* make sweep"):
        release.make(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
