"""What is said of a run later lies beside it: plain text, read as data, and the run itself is never touched."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.store import marks, runs
from feedrate.store.marks import LABEL_MOST, NOTE_MOST, REFERENCE, SELF_REPORTED, Beside, Withdrawn, mark_file

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def run(tmp_path: Path, fake_run: ModuleType) -> Path:
    """The folder of a run."""
    folder: Path = fake_run.write(tmp_path / "results", fake_run.Fake(blocks=1, batches=(8,)))
    return folder


def hashed(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_everything_said_is_read_back_and_the_run_is_not_touched(run: Path) -> None:
    """Label, tier and withdrawal lie beside the folder; its files keep every byte, and lists of runs see one run."""
    before = hashed(run)
    assert marks.about(run) == Beside(SELF_REPORTED, "", "", None)
    marks.label(run, "  Office\n workstation ", "quiet\x1b[31m night\u202e")
    marks.set_tier(run, REFERENCE)
    marks.withdraw(run, "The disk was failing.", lambda: NOON)
    assert marks.about(run) == Beside(
        REFERENCE, "Office workstation", "quiet night", Withdrawn(why="The disk was failing.", on="2026-11-22")
    )
    assert hashed(run) == before
    assert len(runs.runs(run.parents[1])) == 1
    assert runs.unfinished(run.parent) == []
    assert {*run.parent.iterdir()} == {run, *(mark_file(run, kind) for kind in marks.KINDS)}


@pytest.mark.parametrize(
    ("label", "note", "words"),
    [
        ("x" * (LABEL_MOST + 1), "", r"--label: 61 characters; expected at most 60"),
        ("", "x" * (NOTE_MOST + 1), r"--note: 501 characters; expected at most 500"),
        (" \n\x00 ", "\u200b", r"--label: nothing was given; .*--note"),
    ],
)
def test_texts_are_capped(run: Path, label: str, note: str, words: str) -> None:
    """What is too long or nothing is refused with the cap, and nothing is written."""
    with pytest.raises(InputError, match=words):
        marks.label(run, label, note)
    assert not mark_file(run, "label").exists()


def test_a_label_takes_the_place_of_an_earlier_one(run: Path) -> None:
    """Texts at their cap, of the widest characters, are read back; of a newer label no earlier note stays."""
    marks.label(run, "\U0001f525" * LABEL_MOST, '"' * NOTE_MOST)
    longest = marks.about(run)
    assert (len(longest.label), len(longest.note)) == (LABEL_MOST, NOTE_MOST)
    marks.label(run, "second")
    assert (marks.about(run).label, marks.about(run).note) == ("second", "")


def test_a_run_is_withdrawn_once_and_with_a_reason(run: Path) -> None:
    """No reason, no withdrawal; a second one is refused and the first stays."""
    with pytest.raises(InputError, match=r"--why: nothing was given; expected the defect"):
        marks.withdraw(run, "  ")
    assert marks.about(run).withdrawn is None
    marks.withdraw(run, "wrong disk", lambda: NOON)
    with pytest.raises(InputError, match="was withdrawn on 2026-11-22 already: wrong disk"):
        marks.withdraw(run, "again")
    assert marks.about(run).withdrawn == Withdrawn(why="wrong disk", on="2026-11-22")


def test_a_tier_can_be_taken_back(run: Path) -> None:
    """The newest word counts; other words are refused with those that are known."""
    for tier in (REFERENCE, SELF_REPORTED):
        marks.set_tier(run, tier)
        assert marks.about(run).tier == tier
    with pytest.raises(InputError, match=r"tier 'referense': expected one of .*did you mean 'reference'"):
        marks.set_tier(run, "referense")


DAMAGED = {
    "label": (
        *("{", "[]", "[" * 5_000, '{"label": 7}', '{"label": "a", "more": 1}', '{"label": "a  b"}'),
        *(json.dumps({"label": text}) for text in ("x" * (LABEL_MOST + 1), "two\nlines")),
        *(json.dumps({"note": text}) for text in ("\u202egnp", "x" * 9_000)),
    ),
    "tier": ('{"tier": "gold"}', "{}"),
    "withdrawn": (
        *("{}", '{"why": "", "on": "2026-11-22"}'),
        *(f'{{"why": "a", "on": "{day}"}}' for day in ("<b>today</b>", "2026-99-99", "٢٠٢٦-١١-٢٢")),
    ),
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in DAMAGED.items() for text in texts])
def test_what_others_put_there_is_refused_with_its_name(run: Path, kind: str, text: str) -> None:
    """A file that is damaged, too large, not plain text or says what is not known is an error, not a page."""
    mark_file(run, kind).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"{run.name}\.{kind}\.json: "):
        marks.about(run)


def test_a_link_is_not_followed_and_a_folder_not_written(run: Path, tmp_path: Path) -> None:
    """A symbolic link beside a run leads nowhere; where nothing can be written, file and cause are named."""
    (tmp_path / "elsewhere").write_text('{"label": "mine"}')
    mark_file(run, "label").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="expected a plain file"):
        marks.about(run)
    mark_file(run, "label").unlink()
    mark_file(run, "label").mkdir()
    with pytest.raises(EnvironmentFault, match=r"label\.json: cannot write"):
        marks.label(run, "a")


def test_what_was_withdrawn_no_longer_stands(tmp_path: Path, fake_run: ModuleType) -> None:
    """Verdicts in the terminal and the README draw on the runs that are left, in their order."""
    ids = [f"2026010{day}T030405Z-fake" for day in (2, 3, 4)]
    folders = [fake_run.write(tmp_path, fake_run.Fake(run_id=name, blocks=1, batches=(8,))) for name in ids]
    marks.withdraw(folders[1], "wrong disk")
    assert [run.folder for run in marks.not_withdrawn(runs.runs(tmp_path))] == [folders[0], folders[2]]
