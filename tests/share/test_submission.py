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
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from feedrate.cli import submissions
from feedrate.schema import redaction
from feedrate.schema.errors import InputError
from feedrate.share import rules, submission, validator
from feedrate.share.findings import FILES
from feedrate.store import marks, runs

GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_LOG"
case "$*" in
"api user"*) echo ann ;;
"repo view --json"*) echo '{"nameWithOwner":"lab/feedrate","parent":null}' ;;
"repo view lab/feedrate --json url --jq .url") echo "$GH_BASE" ;;
"repo view lab/feedrate"*) printf '{"url":"%s","defaultBranchRef":{"name":"main"},"viewerPermission":"%s"}' \\
    "$GH_BASE" "$GH_RIGHT" ;;
"repo fork lab/feedrate --clone=false") [ -d "$GH_FORK" ] || git clone -q --bare "$GH_BASE" "$GH_FORK" ;;
"repo view ann/feedrate"*) echo "$GH_FORK" ;;
"pr create"*)
    if [ -f "$GH_DOWN" ]; then echo 'HTTP 502: try again' >&2; exit 1; fi
    /bin/cat > "$GH_BODY"
    echo https://github.com/lab/feedrate/pull/7 ;;
*) echo "fake gh: $*" >&2; exit 1 ;;
esac
"""
"""GitHub's command line, as far as it is asked: one repository, one account."""


@dataclass
class Place:
    """A checkout with a remote, and an account on a made-up GitHub."""

    root: Path
    run: Path

    def __post_init__(self) -> None:
        self.checkout, self.remote, self.fork = (self.root / name for name in ("checkout", "lab.git", "ann.git"))

    def git(self, *words: str, of: Path | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=of or self.checkout, capture_output=True, text=True, check=True)
        return done.stdout

    def submit(self, answer: bool = True, **more: Any) -> str:
        """What is printed on a wide terminal."""
        console = Console(file=(text := io.StringIO()), width=200)
        ask = {"ask": lambda _: answer, "checkout": self.checkout, "out": self.root / "build"}
        submissions.publish(str(self.run), console, **ask, **more)
        return text.getvalue()

    @property
    def folder(self) -> str:
        return f"results/{self.run.parent.name}/{self.run.name}"

    @property
    def branch(self) -> str:
        return self.folder.replace("results", "run")

    @property
    def files(self) -> list[Path]:
        """What was made to be attached."""
        return list((self.root / "build").glob("*"))


@pytest.fixture
def place(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A run that is not committed in a checkout of main, and ``git`` and ``gh`` alone on the path."""
    made = Place(tmp_path, tmp_path / "checkout" / "results" / run.parent.name / run.name)
    shutil.copytree(run, made.run)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git") or "")
    (tmp_path / "bin" / "gh").write_text(GH)
    (tmp_path / "bin" / "gh").chmod(0o755)
    home = tmp_path / "home of zelda"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Real Name\n\temail = real.name@example.org\n")
    for name, value in {
        "PATH": tmp_path / "bin",
        "HOME": home,
        "GH_LOG": tmp_path / "gh.log",
        "GH_BODY": tmp_path / "body.md",
        "GH_BASE": made.remote,
        "GH_FORK": made.fork,
        "GH_DOWN": tmp_path / "down",
        "GH_RIGHT": "WRITE",
        "GIT_CONFIG_NOSYSTEM": "1",
        "LOGNAME": "zelda",
    }.items():
        monkeypatch.setenv(name, str(value))
    for name in [name for name in os.environ if name.startswith(("GIT_DIR", "GIT_INDEX", "GIT_WORK"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(socket, "gethostname", lambda: "workhorse.example.org")
    # Files that were made up here harm no reader: no process of its own is started for each.
    monkeypatch.setattr(validator, "check", lambda folder, _: rules.judge(folder, in_place=True))
    redaction._own_names.cache_clear()
    made.git("init", "-q", "--bare", "-b", "main", str(made.remote), of=tmp_path)
    made.git("init", "-q", "-b", "main")
    (made.checkout / "README.md").write_text("feedrate\n")
    (made.checkout / "results" / "other").mkdir()
    (made.checkout / "results" / "other" / "run.json").write_text("{}")
    made.git("add", "README.md", "results/other")
    made.git("commit", "-q", "-m", "First")
    made.git("remote", "add", "origin", str(made.remote))
    made.git("push", "-q", "origin", "main")
    yield made
    redaction._own_names.cache_clear()


def state(place: Place) -> tuple[str, ...]:
    """All that a user sees of a checkout."""
    seen = ("status", "--porcelain"), ("rev-parse", "HEAD"), ("for-each-ref",), ("worktree", "list"), ("stash", "list")
    return tuple(place.git(*words) for words in seen)


def held(place: Place, path: str) -> bytes:
    """What the proposed branch holds."""
    shown = ["git", "cat-file", "blob", f"{place.branch}:{path}"]
    return subprocess.run(shown, cwd=place.remote, capture_output=True, check=True).stdout


def test_a_run_is_proposed_with_its_label_and_nothing_else(place: Place) -> None:
    """The branch is main and the run's files, byte by byte, without the user's name; the checkout is as it was."""
    before = state(place)
    printed = place.submit(label="Workstation", note="two fans")
    assert "https://github.com/lab/feedrate/pull/7" in printed
    assert "label: Workstation\nnote: two fans" in printed
    assert [line for line in state(place)[0].splitlines() if not line.endswith("label.json")] == before[0].splitlines()
    assert state(place)[1:] == before[1:]
    assert place.files == []
    changed = place.git("diff-tree", "-r", "--name-status", "main", place.branch, of=place.remote).splitlines()
    files = [f"{place.folder}/{name}" for name in FILES]
    assert sorted(changed) == sorted(f"A\t{file}" for file in (f"{place.folder}.label.json", *files))
    for file in files:
        assert held(place, file) == (place.checkout / file).read_bytes()
    assert json.loads(held(place, f"{place.folder}.label.json")) == {"label": "Workstation", "note": "two fans"}
    assert marks.about(place.run).label == "Workstation"
    commit, body = place.git("cat-file", "-p", place.branch, of=place.remote), (place.root / "body.md").read_text()
    assert commit.count("ann <ann@users.noreply.github.com>") == 2
    assert "real.name" not in commit + body
    assert body.startswith("Workstation\n\ntwo fans\n\n")


@pytest.mark.parametrize(("source", "kind"), [("script", "run"), ("search", "tune")])
def test_of_a_script_its_name_is_published(place: Place, sources: dict[str, Path], source: str, kind: str) -> None:
    """The preview says that no code, path or argument goes with it, nor the report, and none does."""
    place.run = place.checkout / "results" / sources[source].parent.name / sources[source].name
    shutil.copytree(sources[source], place.run)
    printed = " ".join(place.submit().split())
    assert "its name alone is published: no code, path or argument, no report" in printed
    assert "This looks like a name" not in printed
    added = place.git("diff-tree", "-r", "--name-only", "main", place.branch, of=place.remote).splitlines()
    assert added == [f"{place.folder}/{name}" for name in sorted(FILES)]
    for path in added:
        assert not any(word in held(place, path) for word in (b"somebody", b"secret", b"Image.open", b"Pictures"))
    assert f"(`feedrate {kind} -- train.py`)" in (place.root / "body.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("right", ["WRITE", "READ"])
def test_a_branch_without_a_pull_request_locks_nobody_out(
    place: Place, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    """Where the last step failed, the same command pushes again, to a fork of who may not push, and opens one."""
    monkeypatch.setenv("GH_RIGHT", right)
    (place.root / "down").touch()
    printed = " ".join(place.submit(label="first").split())
    assert ("from a fork of it in your account" in printed) == (right == "READ")
    assert "No pull request was opened: gh pr create: HTTP 502: try again" in printed
    assert "type the same command again" in printed
    (place.root / "down").unlink()
    assert "Submitted: https://github.com/lab/feedrate/pull/7" in place.submit(label="second")
    path = f"{place.folder}.label.json"
    pushed, other = (place.remote, place.fork) if right == "WRITE" else (place.fork, place.remote)
    assert "second" in place.git("cat-file", "blob", f"{place.branch}:{path}", of=pushed)
    assert not other.exists() or place.git("branch", "--list", "run/*", of=other) == ""
    assert f"--head {'' if right == 'WRITE' else 'ann:'}{place.branch}" in (place.root / "gh.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ("gh", "gh, GitHub's command line, is not installed"),
        ("login", "gh auth login"),
        ("answer", "gh repo view does not describe the repository"),
        ("push", "No pull request was opened: git push"),
    ],
)
def test_without_a_way_there_is_one_file(place: Place, lacking: str, words: str) -> None:
    """Whatever is missing, the reason is said, and one file is made that unpacks to the run and is always the same."""
    tools = place.root / "bin"
    if lacking == "gh":
        (tools / lacking).unlink()
    elif lacking in ("login", "answer"):
        failing = "echo 'please run: gh auth login' >&2\nexit 4" if lacking == "login" else "echo '[7]'"
        (tools / "gh").write_text(f"#!/bin/sh\n{failing}\n")
    else:
        hook = place.remote / "hooks" / "pre-receive"
        hook.write_text("#!/bin/sh\necho 'not today' >&2\nexit 1\n")
        hook.chmod(0o755)
    printed = " ".join(place.submit().split())
    assert words in printed
    (path,) = place.files
    assert str(path) in printed
    with zipfile.ZipFile(path) as archive:
        assert {name.rpartition("/")[2] for name in archive.namelist()} == set(FILES)
        for name in archive.namelist():
            assert archive.read(name) == (place.checkout / name).read_bytes()
    first = path.read_bytes()
    os.utime(place.run / "run.json", (1, 1))
    place.submit()
    assert path.read_bytes() == first


def test_no_is_no(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a yes nothing is written or pushed; where nobody can answer, the command says how to."""
    before = state(place)
    assert "Nothing was published." in place.submit(answer=False, label="Workstation")
    assert state(place) == before
    assert place.files == []
    assert place.git("branch", "--list", "run/*", of=place.remote) == ""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(InputError, match=r"nobody is there to answer; --yes"):
        submissions.confirm(Console(file=io.StringIO()))


def test_everything_that_will_be_public_is_shown(place: Place) -> None:
    """Every value of run.json is printed but for the lists that are counted, every file with its bytes, every text."""
    shown = " ".join(place.submit(answer=False).split())
    run = runs.find(str(place.run))
    facts = submission.prepare(run).facts
    for name, value in facts:
        assert " ".join(f"{name} {value}".split()) in shown, name
    written = json.loads((place.run / "run.json").read_bytes())
    named = {name.partition(".")[0] for name, _ in facts}
    assert {name for name, value in written.items() if value not in ([], {})} <= named
    for name in FILES:
        assert f"{(place.run / name).stat().st_size:,}" in shown
    failed = run.table("trials").dropna(subset=["error_message"])
    assert len(failed)
    for text in failed["error_message"].unique():
        assert text in shown


def test_what_looks_like_a_name_of_this_machine_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name that slipped through, or was typed into a label, is shown apart, before anybody answers."""
    assert "looks like a name" not in place.submit(answer=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "epyc.example.org")
    redaction._own_names.cache_clear()
    shown = place.submit(answer=False, label="zelda's box", note="on epyc, quiet")
    assert "looks like a name" in shown
    assert "label: zelda's box" in shown
    assert "note: on epyc, quiet" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("withdrawn", r"was withdrawn on .* \(wrong disk\)"),
        ("renamed", r"(?s)is not valid and was not published:.*Move it there"),
        ("faster", r"(?s)is not valid and was not published:.*samples_per_s"),
        ("there", "-fake: was submitted already"),
        ("long", r"--note: 501 characters"),
    ],
)
def test_what_may_not_be_published_is_refused_before_anything_is_asked(
    place: Place, corpus: ModuleType, damage: str, words: str
) -> None:
    """A run that was withdrawn, renamed, changed or published, and a text that is too long: errors with a reason."""
    if damage == "withdrawn":
        marks.withdraw(place.run, "wrong disk")
    elif damage == "renamed":
        place.run = place.run.rename(place.run.with_name("renamed"))
    elif damage == "faster":
        table = corpus.read((place.run / "trials.parquet").read_bytes())
        faster = [rate and 1.5 * rate for rate in table["samples_per_s"].to_pylist()]
        (place.run / "trials.parquet").write_bytes(corpus.written(corpus.with_values(table, "samples_per_s", faster)))
    elif damage == "there":
        place.submit()
        place.git("push", "-q", "origin", f"{place.git('rev-parse', place.branch, of=place.remote).strip()}:main")
    with pytest.raises(InputError, match=words):
        place.submit(note="x" * 501 if damage == "long" else "")
    assert place.files == []
