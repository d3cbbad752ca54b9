"""All runs as one archive that can be cited."""

from __future__ import annotations

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


@pytest.mark.slow
def test_the_archive_holds_what_keeps_the_rules(fake_run: ModuleType, tmp_path: Path) -> None:
    """Unpacked it is a folder of results: marks are there, a broken run is not; the same runs give the same bytes.

    Its checksum is what sha256sum says, and its metadata are what Zenodo asks for.
    """
    results = tmp_path / "results"
    for name in NAMES:
        fake_run.write(results, fake_run.Fake(name, fails="none", blocks=1, batches=(8,)))
    marks.withdraw(runs.find(NAMES[1], results).folder, "the disk was failing")
    table = runs.find(NAMES[2], results).folder / "steps.parquet"
    table.write_bytes(table.read_bytes()[:-9])
    made, again = (release.make(results, tmp_path / name) for name in ("out", "again"))
    assert (made.runs, made.refused) == (2, 1)
    assert made.archive.read_bytes() == again.archive.read_bytes()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=made.archive.parent, check=True)
    with zipfile.ZipFile(made.archive) as archive:
        archive.extractall(tmp_path / "there")
    there = runs.runs(tmp_path / "there" / "results")
    assert [run.folder.name for run in there] == list(NAMES[:2])
    assert there[0].table("trials").equals(runs.find(NAMES[0], results).table("trials"))
    assert "the disk was failing" in str(marks.about(there[1].folder).withdrawn)
    about = json.loads((tmp_path / "out" / "zenodo.json").read_bytes())["metadata"]
    assert {"title", "upload_type", "description", "creators", "access_right", "license"} <= about.keys()
    assert about["publication_date"] == there[1].manifest.ended_at[:10]
    assert about["description"].startswith("2 runs of feedrate on 1 machine")


def test_without_a_run_nothing_is_written(tmp_path: Path) -> None:
    """The message says what makes one."""
    with pytest.raises(InputError, match=r"no run that can be released; .* make sweep"):
        release.make(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
