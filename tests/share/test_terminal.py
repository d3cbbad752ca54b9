"""What commands show: of a run before it is submitted, and of files that were validated."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from submitting import Place, prepared, printed
from typer.testing import CliRunner

from feedrate.cli import app
from feedrate.schema import redaction
from feedrate.schema.errors import InputError
from feedrate.share import submission
from feedrate.share import terminal as share_terminal
from feedrate.share.validation.findings import Finding, Validated
from feedrate.store import marks, runs

CHECKED = submission._validate


@pytest.fixture
def place(tmp_path: Path, fake_run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from prepared(tmp_path, fake_run, monkeypatch)


def test_everything_that_will_be_public_is_shown(place: Place) -> None:
    """Every value of run.json is printed but for the lists that are counted, every file with its bytes, every text."""
    shown = " ".join(place.submit(answer=False).split())
    run = runs.find(str(place.run))
    written = json.loads((place.run / "run.json").read_bytes())
    facts = submission.prepare(run).facts
    for name, value in facts:
        assert " ".join(f"{name} {value}".split()) in shown, name
    named = {name.partition(".")[0] for name, _ in facts}
    assert {name for name, value in written.items() if value not in ([], {})} <= named
    for name in submission.FILES:
        assert f"{(place.run / name).stat().st_size:,}" in shown
    failed = run.table("trials").dropna(subset=["error_message"])
    assert len(failed)
    for text in failed["error_message"].unique():
        assert text in shown


def test_no_text_of_a_trial_is_left_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty different texts are printed; where there are more, a file that is named has all of them."""
    for count in (share_terminal.TEXTS, share_terminal.TEXTS + 1):
        texts = {f"error number {number}": 1 for number in range(count)}
        monkeypatch.setattr(submission, "free_texts", lambda _, texts=texts: texts)
        shown = place.submit(answer=False)
        path = place.root / "build" / f"texts-{place.run.name}.txt"
        if count == share_terminal.TEXTS:
            assert all(f"1 ×  {text}\n" in shown for text in texts)
            assert not path.exists()
        else:
            assert f"all of which are in {path}" in " ".join(shown.split())
            assert [line.split("×  ")[1] for line in path.read_text().splitlines()] == list(texts)


def test_what_reviewers_will_look_at_is_shown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is valid and odd is submitted with its oddity said beforehand."""
    flag = Finding("fast", "flag", "samples_per_s", "9", "at most 4")
    monkeypatch.setattr(submission, "_validate", CHECKED)
    monkeypatch.setattr(submission.guard, "check", lambda *_: Validated("", findings=(flag,)))
    assert f"Odd, and for reviewers to look at: {flag}" in place.submit(answer=False)


def test_what_looks_like_a_name_of_this_machine_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name that slipped through is shown apart, before anybody answers."""
    assert "looks like a name" not in place.submit(answer=False)
    path = place.run / "run.json"
    path.write_text(path.read_text().replace('"command": "make sweep"', '"command": "make sweep on node17"'))
    monkeypatch.setattr(socket, "gethostname", lambda: "node17.example.org")
    redaction._own_names.cache_clear()
    shown = place.submit(answer=False)
    assert "looks like a name" in shown
    assert "command: make sweep on node17" in shown


def test_a_name_in_a_label_or_a_note_is_said(place: Place) -> None:
    """What the submitter typed goes into the pull request's text, so it is looked at too."""
    shown = place.submit(answer=False, label="zelda's box", note="on workhorse, quiet")
    assert "looks like a name" in shown
    assert "label: zelda's box" in shown
    assert "note: on workhorse, quiet" in shown


@pytest.mark.parametrize("damage", ["withdrawn", "incomplete", "renamed", "long"])
def test_what_may_not_be_published_is_refused_before_anything_is_asked(place: Place, damage: str) -> None:
    """A run that was withdrawn, lacks a file or was renamed, and a text that is too long, are errors with a reason."""
    more: dict[str, str] = {}
    if damage == "withdrawn":
        marks.withdraw(place.run, "wrong disk")
        words = r"was withdrawn on .* \(wrong disk\)"
    elif damage == "incomplete":
        (place.run / "steps.parquet").unlink()
        words = "steps.parquet: is missing"
    elif damage == "renamed":
        place.run = place.run.rename(place.run.with_name("renamed"))
        words = "expected a folder of that name"
    else:
        more, words = {"note": "x" * 501}, r"NOTE= \(--note\): 501 characters"
    with pytest.raises(InputError, match=words):
        place.submit(**more)
    assert place.files == []
    assert not (place.root / "gh.log").exists()


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that keeps every rule (tests/share/validation has the rules) and looks odd."""
    path = tmp_path / "trials.parquet"
    path.touch()
    flag = Finding("fast", "flag", "samples_per_s", "9", "at most 4")
    found = Validated(str(path), None, "20260202T000000Z-bbbb", "xeon-2", 1, (flag,))
    monkeypatch.setattr(share_terminal.guard, "check_all", lambda paths, _: (found for _ in paths))
    return path


def test_a_path_that_names_nothing_does_not_stop_the_others(odd: Path, tmp_path: Path) -> None:
    """It is refused with its reason, also where machines read, and the exit status is that of refused files."""
    (tmp_path / "empty").mkdir()
    for more in ([], ["--json"]):
        done = CliRunner().invoke(app, ["validate", str(tmp_path / "no"), str(odd), str(tmp_path / "empty"), *more])
        assert done.exit_code == 2
        if more:
            said = json.loads(done.stdout)
            assert (said["valid"], said["refused"]) == (1, 2)
            assert [each["valid"] for each in said["files"]] == [False, False, True]
            assert said["files"][0]["findings"][0]["got"] == "no such file"
            assert said["files"][1]["findings"][0]["got"] == "holds no run"
        else:
            assert "1 valid, 2 refused." in done.stdout


def test_what_is_odd_is_held_against_what_is_usual(odd: Path, tmp_path: Path) -> None:
    """A flag says what was found and what others have; counts agree with their nouns."""
    said = printed(lambda console: share_terminal.validate([odd], tmp_path, console))
    assert "of xeon-2, 1 trial, 1 flag for a reviewer" in said
    assert "samples_per_s: 9\n    usual: at most 4 (rule fast)" in said
