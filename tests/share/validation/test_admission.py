"""Which runs the site shows, which are refused and why, and what is remembered of those that passed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.share.validation import admission
from feedrate.store import marks
from feedrate.store.marks import FILE_MOST


def found(folders: list[Path]) -> tuple[list[Path], dict[Path, str]]:
    """The runs that are admitted, and the rule by which each of the others is refused."""
    admitted = admission.admit(folders)
    return list(admitted.folders), {Path(each.path): each.findings[0].rule for each in admitted.refused}


def test_an_invalid_run_is_left_out(results: list[Path]) -> None:
    """The others are admitted in their order; the one that is refused says why."""
    first, wrong, third = results
    assert found(results) == ([first, third], {wrong: "range"})
    assert admission.admit([]).folders == ()


@pytest.mark.slow
def test_a_copy_in_another_place_is_refused(results: list[Path], tmp_path: Path) -> None:
    """Files that pass in their own place do not bring in a copy of them, nor does a link to them."""
    first, wrong, third = results
    copy = first.parents[1] / "other-machine" / first.name
    shutil.copytree(first, copy)
    linked = tmp_path / "linked" / first.parent.name / first.name
    linked.parents[1].mkdir()
    linked.parent.symlink_to(first.parent)
    link = first.with_name("20270101T000000Z-link")
    link.symlink_to(first)
    admitted, refused = found([*results, copy, linked, link])
    assert admitted == [first, third]
    assert refused == {wrong: "range", copy: "place", linked: "place", link: "plain_file"}


def test_an_id_that_two_machines_claim_is_shown_of_neither(results: list[Path], fake_run: ModuleType) -> None:
    """Pages are named for a run's id: nobody takes over another's page."""
    first, _, third = results
    fake = fake_run.Fake(run_id=first.name, blocks=1, batches=(8,), cores=64)
    forged = fake_run.write(first.parents[1], fake)
    assert found([first, forged, third]) == ([third], {first: admission.UNIQUE.name, forged: admission.UNIQUE.name})
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
    (finding,) = admitted.refused[0].findings
    assert finding.rule == admission.BESIDE.name
    assert f"{bad.name}.{kind}.json: {words}" in str(finding)
