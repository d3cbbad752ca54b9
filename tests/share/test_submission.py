"""What is published is what was shown, once, by a pull request that touches nobody's working tree, or as one file."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console
from submitting import Place, make_faster, measured, prepared

from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.share import pull_request, submission
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
    """The branch is main and the run's files, byte by byte; the user's checkout is as it was."""
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


def test_the_commit_does_not_carry_what_git_is_configured_with(place: Place) -> None:
    """Author and committer are the account and its no-reply address; name and e-mail of the user stay at home."""
    place.submit()
    told = place.git("cat-file", "-p", place.branch, of=place.remote)
    assert told.count("ann <ann@users.noreply.github.com>") == 2
    assert "real.name" not in told + (place.root / "body.md").read_text()


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
    assert "a fork of it, which will be made in your account ann" in " ".join(place.submit().split())
    assert place.branch in place.git("branch", "--list", "run/*", of=place.fork)
    assert place.git("branch", "--list", "run/*", of=place.remote) == ""
    assert f"--head ann:{place.branch}" in (place.root / "gh.log").read_text()
    with pytest.raises(InputError, match="was submitted already and waits"):
        place.submit()


def test_a_run_is_published_once(place: Place) -> None:
    """One that waits in a pull request, or is on the base branch, is refused, with or without gh."""
    place.submit()
    with pytest.raises(InputError, match=r"was submitted already and waits: https://github\.com/lab/feedrate/pull/7;"):
        place.submit()
    place.opened.unlink()
    place.git("push", "-q", "origin", f"{place.git('rev-parse', place.branch, of=place.remote).strip()}:main")
    place.git("update-ref", "-d", f"refs/heads/{place.branch}", of=place.remote)
    with pytest.raises(InputError, match=rf"was submitted already \(results/.*{place.run.name}"):
        place.submit()
    (place.root / "bin" / "gh").unlink()
    place.git("fetch", "-q", "origin")
    with pytest.raises(InputError, match="was submitted already"):
        place.submit()
    assert place.files == []


def test_the_same_trials_under_another_name_are_the_same_run(place: Place) -> None:
    """Bytes that are published stay published, whatever their folder is called."""
    other = place.checkout / "results" / "other" / "trials.parquet"
    other.write_bytes((place.run / "trials.parquet").read_bytes())
    place.git("add", str(other))
    place.git("commit", "-q", "-m", "Second")
    place.git("push", "-q", "origin", "main")
    with pytest.raises(InputError, match=r"was submitted already \(results/other/trials\.parquet\)"):
        place.submit()


@pytest.mark.parametrize("right", ["WRITE", "READ"])
def test_a_branch_without_an_open_pull_request_locks_nobody_out(
    place: Place, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    """Where the last step failed, or a pull request was closed, the same command pushes again and opens one."""
    monkeypatch.setenv("GH_RIGHT", right)
    (place.root / "down").touch()
    printed = " ".join(place.submit(label="first").split())
    assert "No pull request was opened: gh pr create: HTTP 502: try again" in printed
    assert "type the same command again" in printed
    (place.root / "down").unlink()
    assert "Submitted: https://github.com/lab/feedrate/pull/7" in place.submit(label="second")
    place.opened.unlink()
    assert "Submitted: https://github.com/lab/feedrate/pull/7" in place.submit(label="third")
    path = f"results/{place.run.parent.name}/{place.run.name}.label.json"
    pushed = place.remote if right == "WRITE" else place.fork
    assert "third" in place.git("cat-file", "blob", f"{place.branch}:{path}", of=pushed)


def test_a_stranger_s_pull_request_of_the_same_name_locks_nobody_out(place: Place) -> None:
    """Pull requests are listed by the name of their branch; one from another fork is not the submitter's."""
    place.opened.write_text(
        '[{"url": "https://example.org/1", "headRepositoryOwner": {"login": "mallory"}},'
        ' {"url": "https://example.org/2", "headRepositoryOwner": null}]'
    )
    assert "Submitted: https://github.com/lab/feedrate/pull/7" in place.submit()


@pytest.mark.parametrize("lacking", ["gh", "git", "login", "remote", "fork"])
def test_without_a_way_there_is_one_file(place: Place, lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is missing, the reason is said and one file is made that unpacks to the run."""
    if lacking in ("gh", "git"):
        (place.root / "bin" / lacking).unlink()
    elif lacking == "login":
        (place.root / "bin" / "gh").write_text("#!/bin/sh\necho 'please run: gh auth login' >&2\nexit 4\n")
    elif lacking == "remote":
        subprocess.run([shutil.which("git") or "git", "remote", "remove", "origin"], cwd=place.checkout, check=True)
    else:
        monkeypatch.setenv("GH_RIGHT", "READ")
        place.fork.write_text("in the way")
    printed = " ".join(place.submit().split())
    words = {
        "gh": "gh, GitHub's command line, is not installed",
        "git": "git is not installed",
        "login": "gh auth login",
        "remote": "has no remote",
        "fork": "gh repo fork",
    }
    assert words[lacking] in printed
    (path,) = place.files
    assert str(path) in printed
    with zipfile.ZipFile(path) as archive:
        assert {name.rpartition("/")[2] for name in archive.namelist()} == set(submission.FILES)
        for name in archive.namelist():
            assert archive.read(name) == (place.checkout / name).read_bytes()


def test_a_push_that_is_refused_leaves_the_file(place: Place) -> None:
    """Where the last step fails, the reason is given and nothing is lost."""
    hook = place.remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'not today' >&2\nexit 1\n")
    hook.chmod(0o755)
    printed = place.submit()
    assert "No pull request was opened: git push" in printed
    assert len(place.files) == 1
    assert "refs/feedrate" not in place.git("for-each-ref")


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
    with pytest.raises(InputError, match=r"nobody is there to answer; YES=1 \(--yes\)"):
        share_terminal.confirm(Console(file=io.StringIO()))


def test_the_file_is_the_same_whenever_it_is_made(place: Place, tmp_path: Path) -> None:
    """The same run gives the same bytes, whatever the time and the files' own dates."""
    prepared = submission.prepare(runs.find(str(place.run)))
    first = submission.pack(prepared, tmp_path / "a").read_bytes()
    os.utime(place.run / "run.json", (1, 1))
    again = submission.pack(submission.prepare(runs.find(str(place.run))), tmp_path / "b").read_bytes()
    assert first == again


@pytest.mark.parametrize("typed", ["on the line", "beforehand"])
def test_make_hands_on_what_was_typed(tmp_path: Path, typed: str) -> None:
    """A label, a note and a reason arrive letter by letter: no dollar is lost, no backtick is obeyed."""
    stub = tmp_path / "stub"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    text = f"""costs $5, $(id) $$HOME ${{PATH}} "quiet" it's `touch {tmp_path / "owned"}` #1 \\ %"""
    texts = {"LABEL": f"label {text}", "NOTE": f"note {text}", "WHY": f"why {text}"}
    given = [f"{name}={value}" for name, value in texts.items()] if typed == "on the line" else []
    said = ""
    for target in ("submit", "label", "withdraw"):
        done = subprocess.run(
            ["make", "-o", ".venv/ready", target, "RUN=x", f"FEEDRATE={stub}", *given],
            cwd=ROOT,
            env=os.environ | ({} if given else texts),
            capture_output=True,
            text=True,
            check=True,
        )
        said += done.stdout
    arrived = [line for line in said.splitlines() if line.startswith(("label ", "note ", "why "))]
    assert arrived == [texts[name] for name in ("LABEL", "NOTE", "LABEL", "NOTE", "WHY")]
    assert not (tmp_path / "owned").exists()


def test_a_tool_that_hangs_or_lies_is_a_reason(place: Place) -> None:
    """Output that is no answer is no traceback."""
    found = pull_request.route(place.checkout)
    for said in ("echo nonsense", "echo '{}'", "exit 0", "echo '[7]'"):
        (place.root / "bin" / "gh").write_text(f"#!/bin/sh\n{said}\n")
        with pytest.raises(pull_request.Unable):
            pull_request.route(place.checkout)
        if said != "echo '{}'":  # which is no open pull request
            with pytest.raises(pull_request.Unable):
                pull_request.waiting(found, place.branch)


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
