"""Which runs the site shows, which are refused and why, and what is remembered of those that passed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.schema.plugins import ROOT
from feedrate.share.validation import admission
from feedrate.store import marks
from feedrate.store.marks import FILE_MOST


def found(folders: list[Path], memory: Path | None = None) -> tuple[list[Path], dict[Path, str]]:
    """The runs that are admitted, and the rule by which each of the others is refused."""
    admitted = admission.admit(folders, memory)
    return list(admitted.folders), {Path(each.path): each.refusals[0].rule for each in admitted.refused}


def test_an_invalid_run_is_left_out(results: list[Path], tmp_path: Path) -> None:
    """The others are admitted in their order; the one that is refused says why; both again from what is remembered."""
    first, wrong, third = results
    for _ in range(2):
        assert found(results, tmp_path / "build" / "checked.json") == ([first, third], {wrong: "range"})
    assert admission.admit([]).folders == ()


@pytest.mark.slow
def test_a_copy_in_another_place_is_refused_every_time(results: list[Path], tmp_path: Path) -> None:
    """Files that passed in their own place do not bring in a copy of them: not at once, not from what is remembered."""
    first, wrong, third = results
    copy = first.parents[1] / "other-machine" / first.name
    shutil.copytree(first, copy)
    linked = tmp_path / "linked" / first.parent.name / first.name
    linked.parents[1].mkdir()
    linked.parent.symlink_to(first.parent)
    for _ in range(2):
        admitted, refused = found([*results, copy, linked], tmp_path / "checked.json")
        assert admitted == [first, third]
        assert refused == {wrong: "range", copy: "place", linked: "place"}


@pytest.mark.slow
def test_a_link_to_a_run_is_not_followed(results: list[Path]) -> None:
    """A folder that is a link does not bring what it leads to onto the site."""
    link = results[0].with_name("20270101T000000Z-link")
    link.symlink_to(results[0])
    admitted, refused = found([*results, link])
    assert link not in admitted
    assert link in refused


def test_an_id_that_two_machines_claim_is_shown_of_neither(
    results: list[Path], fake_run: ModuleType, tmp_path: Path
) -> None:
    """Pages are named for a run's id: nobody takes over another's page, and what is remembered changes nothing."""
    first, _, third = results
    fake = fake_run.Fake(run_id=first.name, blocks=1, batches=(8,), cores=64)
    forged = fake_run.write(first.parents[1], fake)
    for _ in range(2):
        admitted = admission.admit([first, forged, third], tmp_path / "checked.json")
        assert admitted.folders == (third,)
        assert [refused.refusals[0].rule for refused in admitted.refused] == [admission.UNIQUE.name] * 2
        assert forged.parent.name in admitted.refused[0].refusals[0].got
    assert admission.admit([first, third]).folders == (first, third)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("label", " " * (FILE_MOST + 1), "8,193 bytes; expected a plain file of at most 8,192 bytes"),
        ("label", json.dumps({"label": "two\nlines"}), "label: Value error, holds control characters"),
        ("withdrawn", "{", "the whole: Invalid JSON"),
    ],
)
def test_a_damaged_file_beside_a_run_leaves_out_that_run(results: list[Path], kind: str, text: str, words: str) -> None:
    """The run is refused by a rule of its own, with the file and what is wrong with it; the others may be shown."""
    good, _, bad = results
    marks.label(good, "Workstation")
    marks.place(bad, kind).write_text(text)
    admitted = admission.admit([good, bad])
    assert admitted.folders == (good,)
    (finding,) = admitted.refused[0].refusals
    assert finding.rule == admission.BESIDE.name
    assert f"{bad.name}.{kind}.json: {words}" in str(finding)


@pytest.mark.slow
def test_what_is_remembered_is_the_content(results: list[Path], tmp_path: Path) -> None:
    """A run that passed and was changed afterwards is validated again; a memory of other rules counts nothing."""
    memory = tmp_path / "checked.json"
    assert results[0] in admission.admit(results, memory).folders
    held = json.loads(memory.read_text())
    assert len(held["passed"]) == 2
    (results[0] / "run.json").write_text("{}")
    assert admission.admit(results, memory).folders == (results[2],)
    for text in ("[]", json.dumps(held | {"rules": "others"})):
        memory.write_text(text)
        assert admission.admit(results, memory).folders == (results[2],)


def test_the_rules_are_where_they_are_looked_for() -> None:
    """Every file of feedrate that the reader loads is hashed, so that no change of a rule is missed by what passed."""
    code = (
        "import sys; from pathlib import Path; from feedrate.share.validation import guard, validator; "
        "[validator.judge(Path(path)) for path in sys.argv[1:]]; "
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'feedrate'), sep='\\n')"
    )
    runs = [str(path) for path in (ROOT / "results").glob("*/*") if (path / "run.json").exists()][:2]
    done = subprocess.run([sys.executable, "-c", code, *runs], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {Path(line) for line in done.stdout.splitlines()}
    assert len(files) > 20
    assert {path.name for path in files - set(admission.rule_files())} == set()
    assert all(path.is_file() for path in admission.rule_files())
