"""What is published is what was shown, once, by a pull request that touches nobody's working tree, or as one file."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console
from submitting import Place, make_faster, measured, prepared

from feedrate.schema import redaction
from feedrate.schema.errors import InputError
from feedrate.share import submission
from feedrate.share import terminal as share_terminal
from feedrate.store import marks, runs


@pytest.fixture
def place(tmp_path: Path, fake_run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from prepared(tmp_path, fake_run, monkeypatch)


def state(place: Place) -> tuple[str, ...]:
    """All that a user sees of a checkout."""
    seen = ("status", "--porcelain"), ("rev-parse", "HEAD"), ("for-each-ref",), ("worktree", "list"), ("stash", "list")
    return tuple(place.git(*words) for words in seen)


def test_a_run_is_proposed_with_its_folder_and_nothing_else(place: Place) -> None:
    """The branch is main and the run's files, byte by byte, without the user's name; the checkout is as it was."""
    before = state(place)
    printed = place.submit()
    assert "https://github.com/lab/feedrate/pull/7" in printed
    assert state(place) == before
    assert place.files == []
    folder = f"results/{place.run.parent.name}/{place.run.name}"
    changed = place.git("diff-tree", "-r", "--name-status", "main", place.branch, of=place.remote).splitlines()
    assert changed == [f"A\t{folder}/{name}" for name in sorted(submission.FILES)]
    for name in submission.FILES:
        held = subprocess.run(
            ["git", "cat-file", "blob", f"{place.branch}:{folder}/{name}"],
            cwd=place.remote,
            capture_output=True,
            check=True,
        )
        assert held.stdout == (place.run / name).read_bytes()
    told = place.git("cat-file", "-p", place.branch, of=place.remote)
    assert told.count("ann <ann@users.noreply.github.com>") == 2
    assert "real.name" not in told + (place.root / "body.md").read_text()


def test_of_a_script_its_name_is_published(place: Place, fake_script: ModuleType) -> None:
    """The preview says that neither code nor paths nor the report go with it, and none does."""
    place.run = fake_script.write(place.checkout / "results", fake_script.Script())
    printed = " ".join(place.submit().split())
    assert "its name alone is published: no code, no path, no argument, and not its report" in printed
    assert "This looks like a name" not in printed
    folder = f"results/{place.run.parent.name}/{place.run.name}"
    added = place.git("diff-tree", "-r", "--name-only", "main", place.branch, of=place.remote).splitlines()
    assert added == [f"{folder}/{name}" for name in sorted(submission.FILES)]


def test_a_label_and_a_note_go_with_it(place: Place) -> None:
    """They lie beside the run, here and in the pull request, and stand in its text."""
    printed = place.submit(label="Workstation", note="two fans")
    assert "label “Workstation”, note “two fans”" in printed
    path = f"results/{place.run.parent.name}/{place.run.name}.label.json"
    said = json.loads(place.git("cat-file", "blob", f"{place.branch}:{path}", of=place.remote))
    assert said == {"label": "Workstation", "note": "two fans"}
    assert marks.about(place.run).label == "Workstation"
    body = (place.root / "body.md").read_text()
    assert "Workstation" in body
    assert "two fans" in body


def test_who_may_not_push_proposes_from_a_fork(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch goes to a fork of the account, which is made if need be; the repository itself gets none."""
    monkeypatch.setenv("GH_RIGHT", "READ")
    for _ in range(2):
        assert "from a fork of it in your account" in " ".join(place.submit().split())
        assert place.branch in place.git("branch", "--list", "run/*", of=place.fork)
    assert place.git("branch", "--list", "run/*", of=place.remote) == ""
    assert f"--head ann:{place.branch}" in (place.root / "gh.log").read_text()


def test_a_run_is_published_once(place: Place) -> None:
    """One that is on the base branch is refused."""
    place.submit()
    place.git("push", "-q", "origin", f"{place.git('rev-parse', place.branch, of=place.remote).strip()}:main")
    with pytest.raises(InputError, match=rf"was submitted already \(results/.*{place.run.name}"):
        place.submit()
    assert place.files == []


@pytest.mark.parametrize("right", ["WRITE", "READ"])
def test_a_branch_without_a_pull_request_locks_nobody_out(
    place: Place, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    """Where the last step failed, the same command pushes again and opens one."""
    monkeypatch.setenv("GH_RIGHT", right)
    (place.root / "down").touch()
    printed = " ".join(place.submit(label="first").split())
    assert "No pull request was opened: gh pr create: HTTP 502: try again" in printed
    assert "type the same command again" in printed
    (place.root / "down").unlink()
    assert "Submitted: https://github.com/lab/feedrate/pull/7" in place.submit(label="second")
    path = f"results/{place.run.parent.name}/{place.run.name}.label.json"
    pushed = place.remote if right == "WRITE" else place.fork
    assert "second" in place.git("cat-file", "blob", f"{place.branch}:{path}", of=pushed)


@pytest.mark.parametrize("lacking", ["gh", "git", "login", "answer", "remote", "fork", "push"])
def test_without_a_way_there_is_one_file(place: Place, lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is missing, the reason is said and one file is made that unpacks to the run."""
    if lacking in ("gh", "git"):
        (place.root / "bin" / lacking).unlink()
    elif lacking == "login":
        (place.root / "bin" / "gh").write_text("#!/bin/sh\necho 'please run: gh auth login' >&2\nexit 4\n")
    elif lacking == "answer":
        (place.root / "bin" / "gh").write_text("#!/bin/sh\necho '[7]'\n")
    elif lacking == "remote":
        subprocess.run([shutil.which("git") or "git", "remote", "remove", "origin"], cwd=place.checkout, check=True)
    elif lacking == "fork":
        monkeypatch.setenv("GH_RIGHT", "READ")
        place.fork.write_text("in the way")
    else:
        hook = place.remote / "hooks" / "pre-receive"
        hook.write_text("#!/bin/sh\necho 'not today' >&2\nexit 1\n")
        hook.chmod(0o755)
    printed = " ".join(place.submit().split())
    words = {
        "gh": "gh, GitHub's command line, is not installed",
        "git": "git is not installed",
        "login": "gh auth login",
        "answer": "gh repo view does not describe the repository",
        "remote": "has no remote",
        "fork": "gh repo fork",
        "push": "No pull request was opened: git push",
    }
    assert words[lacking] in printed
    (path,) = place.files
    assert str(path) in printed
    with zipfile.ZipFile(path) as archive:
        assert {name.rpartition("/")[2] for name in archive.namelist()} == set(submission.FILES)
        for name in archive.namelist():
            assert archive.read(name) == (place.checkout / name).read_bytes()


def test_no_is_no(place: Place) -> None:
    """Without a yes nothing is written or pushed: no file, no branch, no label."""
    before = state(place)
    assert "Nothing was published." in place.submit(answer=False, label="Workstation")
    assert state(place) == before
    assert place.files == []
    assert place.git("branch", "--list", "run/*", of=place.remote) == ""
    assert not marks.place(place.run, "label").exists()


def test_nobody_is_no_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can answer, the command says how to answer beforehand."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(InputError, match=r"nobody is there to answer; --yes"):
        share_terminal.confirm(Console(file=io.StringIO()))


def test_the_file_is_the_same_whenever_it_is_made(place: Place, tmp_path: Path) -> None:
    """The same run gives the same bytes, whatever the time and the files' own dates."""
    first = submission.pack(submission.prepare(runs.find(str(place.run))), tmp_path / "a").read_bytes()
    os.utime(place.run / "run.json", (1, 1))
    again = submission.pack(submission.prepare(runs.find(str(place.run))), tmp_path / "b").read_bytes()
    assert first == again


def test_a_run_that_breaks_a_rule_is_not_published(tmp_path: Path) -> None:
    """A run as it was measured passes the rules for what comes from others; with one number changed it does not."""
    stored = measured()
    folder = tmp_path / stored.folder.parent.name / stored.folder.name
    shutil.copytree(stored.folder, folder)
    assert list(submission.prepare(runs.find(str(folder))).files.values()) == [
        (stored.folder / name).read_bytes() for name in submission.FILES
    ]
    make_faster(folder / "trials.parquet")
    with pytest.raises(InputError, match=r"(?s)is not valid and was not published:.*samples_per_s"):
        submission.prepare(runs.find(str(folder)))


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


def test_what_looks_like_a_name_of_this_machine_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name that slipped through, or was typed into a label, is shown apart, before anybody answers."""
    assert "looks like a name" not in place.submit(answer=False)
    path = place.run / "run.json"
    path.write_text(path.read_text().replace('"command": "make sweep"', '"command": "make sweep on node17"'))
    monkeypatch.setattr(socket, "gethostname", lambda: "node17.example.org")
    redaction._own_names.cache_clear()
    shown = place.submit(answer=False, label="zelda's box", note="on node17, quiet")
    assert "looks like a name" in shown
    assert "command: make sweep on node17" in shown
    assert "label: zelda's box" in shown
    assert "note: on node17, quiet" in shown


@pytest.mark.parametrize("damage", ["withdrawn", "renamed", "long"])
def test_what_may_not_be_published_is_refused_before_anything_is_asked(place: Place, damage: str) -> None:
    """A run that was withdrawn or renamed, and a text that is too long, are errors with a reason."""
    more: dict[str, str] = {}
    if damage == "withdrawn":
        marks.withdraw(place.run, "wrong disk")
        words = r"was withdrawn on .* \(wrong disk\)"
    elif damage == "renamed":
        place.run = place.run.rename(place.run.with_name("renamed"))
        words = "expected a folder of that name"
    else:
        more, words = {"note": "x" * 501}, r"--note: 501 characters"
    with pytest.raises(InputError, match=words):
        place.submit(**more)
    assert place.files == []
    assert not (place.root / "gh.log").exists()
