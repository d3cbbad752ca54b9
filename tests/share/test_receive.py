"""A run that a stranger sends as one file is taken in whole and valid, or nothing below results/ changes."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from pathlib import Path

import pytest
from submitting import make_faster, measured, printed

from feedrate.schema.errors import InputError
from feedrate.share import receive, submission
from feedrate.share.validation.findings import Validated
from feedrate.store import marks

FOLDER = "results/xeon-2/20260202T000000Z-bbbb"
FILES = ("run.json", "trials.parquet", "steps.parquet", "telemetry.parquet")
Entries = dict[str, bytes]
CHECK = receive.guard.check


def entries() -> Entries:
    """What an archive of one run holds."""
    return {f"{FOLDER}/{name}": name.encode() for name in FILES}


def packed(path: Path, held: Entries, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return path


@pytest.fixture(autouse=True)
def valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything keeps the rules, which tests/share/validation has."""

    def check(folder: Path, results: Path | None = None, *, in_place: bool = False) -> Validated:
        return Validated(str(folder), None, folder.name, folder.parent.name, 1)

    monkeypatch.setattr(receive.guard, "check", check)


def take_in(archive: Path, results: Path) -> str:
    return printed(lambda console: receive.receive(archive, console, results))


def test_a_run_is_taken_in_with_its_label(tmp_path: Path) -> None:
    """Its folder gets the bytes that were sent, its label lies beside it, and nothing else is there."""
    label = {f"{FOLDER}.label.json": marks.encode(marks.labelled("Workstation", "two fans"))}
    results = tmp_path / "results"
    assert "was taken in" in take_in(packed(tmp_path / "a.zip", entries() | label, zipfile.ZIP_DEFLATED), results)
    run = tmp_path / FOLDER
    assert {path.name: path.read_bytes() for path in run.iterdir()} == {name: name.encode() for name in FILES}
    assert marks.about(run).label == "Workstation"
    assert sorted(path.name for path in run.parent.iterdir()) == [run.name, f"{run.name}.label.json"]


def test_a_run_is_taken_in_once(tmp_path: Path) -> None:
    """What is there is not replaced."""
    archive = packed(tmp_path / "a.zip", entries())
    take_in(archive, tmp_path / "results")
    with pytest.raises(InputError, match="is there already"):
        take_in(archive, tmp_path / "results")


def test_a_run_id_is_one_run_s_alone(tmp_path: Path) -> None:
    """A run of another machine does not take the id, and with it the page, of one that is there."""
    other = tmp_path / "results" / "epyc-1" / FOLDER.rpartition("/")[2]
    other.mkdir(parents=True)
    (other / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"a\.zip: has the run id of .*epyc-1/20260202T000000Z-bbbb"):
        take_in(packed(tmp_path / "a.zip", entries()), tmp_path / "results")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["epyc-1"]


def test_the_rules_are_those_of_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run as it was measured is taken in; with one number changed nothing is written."""
    monkeypatch.setattr(receive.guard, "check", CHECK)
    files = dict(submission.prepare(measured()).files)
    assert "was taken in" in take_in(packed(tmp_path / "a.zip", files), tmp_path / "results")
    shutil.rmtree(tmp_path / "results")
    name = next(path for path in files if path.endswith("/trials.parquet"))
    (tmp_path / "faster").write_bytes(files[name])
    make_faster(tmp_path / "faster")
    with pytest.raises(InputError, match=r"(?s)is not valid:.*samples_per_s"):
        take_in(packed(tmp_path / "b.zip", files | {name: (tmp_path / "faster").read_bytes()}), tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_the_sum_of_all_files_is_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no file is too large and all of them together are, that is what is said."""
    held = dict.fromkeys(entries(), b"0" * 1_000)
    archive = packed(tmp_path / "a.zip", held, zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(receive, "BYTES_MOST", 3_000)
    with pytest.raises(InputError, match=r"a\.zip: holds more than 3,000 bytes"):
        take_in(archive, tmp_path / "results")


OTHER = "results/xeon-2/20260203T000000Z-cccc"
ADDED: list[Entries] = [
    {"results/../../owned": b"x"},
    {"/etc/owned": b"x"},
    {"results\\..\\owned": b"x"},
    {"harness/feedrate/cli.py": b"x"},
    {f"{FOLDER}.tier.json": b"{}"},
    {f"{FOLDER}.withdrawn.json": b"{}"},
    {f"{OTHER}/run.json": b"x"},
    {f"{OTHER}.label.json": b"{}"},
    {f"{FOLDER}.label.json": json.dumps({"label": "a\x1b[31m"}).encode()},
    {f"{FOLDER}.label.json": b" " * 10_000_000},
    {f"results/xeon-2/run-{number}/run.json": b"x" for number in range(1000)},
]
"""What no archive of a run holds."""


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("added", [*ADDED, None])
def test_anything_else_changes_nothing(tmp_path: Path, added: Entries | None, compression: int) -> None:
    """A path that leads elsewhere, a file too many, too few or too large: refused, and nothing is written."""
    held = entries() | (added or {})
    if added is None:
        del held[f"{FOLDER}/steps.parquet"]
    archive = packed(tmp_path / "a.zip", held, compression)
    (tmp_path / "results").mkdir()
    with pytest.raises(InputError, match=r"a\.zip"):
        take_in(archive, tmp_path / "results")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "results"]
    assert list((tmp_path / "results").iterdir()) == []


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    """An entry that says it is a symbolic link is none of a run's files."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in entries().items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, data)
    with pytest.raises(InputError, match="expected files of results/MACHINE/RUN/"):
        take_in(tmp_path / "a.zip", tmp_path / "results")


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "nothing", "folder"])
def test_what_is_no_archive_is_said(tmp_path: Path, damage: str) -> None:
    """A file that is cut off, damaged, of another kind or missing is an error that names it."""
    path = packed(tmp_path / "a.zip", entries())
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "nothing":
        flipped = data.replace(b"trials.parquet", b"trials.parquex", 1)
        path.write_bytes({"cut": data[:-30], "flipped": flipped, "text": b"hello"}[damage])
    with pytest.raises(InputError, match=r"a\.zip: .*expected"):
        take_in(path, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_run_lies_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is named as the manifest in it says."""
    monkeypatch.setattr(receive.guard, "check", CHECK)
    held = {f"{FOLDER}/{path.name}": path.read_bytes() for path in measured().folder.iterdir()}
    with pytest.raises(InputError, match=r"is not valid:\n- .*\(rule place\)"):
        take_in(packed(tmp_path / "a.zip", held), tmp_path / "results")
