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

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from harness import pull_request, redaction, report_submit, store, store_beside, submit
from harness.errors import InputError
from harness.incoming.findings import Finding, Validated
from harness.registry import ROOT

CHECKED = submit._checked
GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_LOG"
case "$*" in
"api user"*) echo ann ;;
"repo view --json"*) echo '{"nameWithOwner":"lab/feedrate","parent":null}' ;;
"repo view lab/feedrate"*) printf '{"nameWithOwner":"lab/feedrate","url":"%s","defaultBranchRef":{"name":"main"},\
"viewerPermission":"%s"}' "$GH_BASE" "$GH_RIGHT" ;;
"repo view ann/feedrate"*) [ -d "$GH_FORK" ] && printf '{"nameWithOwner":"ann/feedrate","url":"%s",\
"defaultBranchRef":{"name":"main"},"viewerPermission":"ADMIN"}' "$GH_FORK" ;;
"repo fork lab/feedrate --clone=false") git clone -q --bare "$GH_BASE" "$GH_FORK" ;;
"pr list"*) if [ -f "$GH_OPEN" ]; then /bin/cat "$GH_OPEN"; else echo '[]'; fi ;;
"pr create"*)
    if [ -f "$GH_DOWN" ]; then echo 'HTTP 502: try again' >&2; exit 1; fi
    case "$*" in *"--head ann:"*) owner=ann ;; *) owner=lab ;; esac
    /bin/cat > "$GH_BODY"
    echo https://github.com/lab/feedrate/pull/7
    printf '[{"url":"https://github.com/lab/feedrate/pull/7","headRepositoryOwner":{"login":"%s"}}]' $owner \\
        > "$GH_OPEN" ;;
*) echo "fake gh: $*" >&2; exit 1 ;;
esac
"""
"""GitHub's command line, as far as it is asked: one repository, one account, at most one open pull request."""


@dataclass
class Place:
    """A checkout with a remote, and an account on a made-up GitHub."""

    root: Path
    run: Path

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    @property
    def remote(self) -> Path:
        return self.root / "lab.git"

    @property
    def fork(self) -> Path:
        return self.root / "ann.git"

    def git(self, *words: str, of: Path | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=of or self.checkout, capture_output=True, text=True, check=True)
        return done.stdout

    def submit(self, answer: bool = True, **more: Any) -> str:
        """What is printed."""
        printed = Console(file=io.StringIO(), width=200)
        report_submit.of_run(
            str(self.run),
            printed,
            checkout=self.checkout,
            out=self.root / "build",
            ask=lambda _: answer,
            **more,
        )
        assert isinstance(printed.file, io.StringIO)
        return printed.file.getvalue()

    @property
    def opened(self) -> Path:
        """The list of open pull requests."""
        return self.root / "open.json"

    @property
    def branch(self) -> str:
        return f"run/{self.run.parent.name}/{self.run.name}"

    @property
    def files(self) -> list[Path]:
        """What was made to be attached."""
        return list((self.root / "build").glob("*"))


@pytest.fixture
def place(tmp_path: Path, fake_run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A run that is not committed in a checkout of main, and ``git`` and ``gh`` alone on the path."""
    run: Path = fake_run.write(tmp_path / "checkout" / "results", fake_run.Fake(blocks=3))
    made = Place(tmp_path, run)
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
        "GH_OPEN": made.opened,
        "GH_DOWN": tmp_path / "down",
        "GH_RIGHT": "WRITE",
        "GIT_CONFIG_NOSYSTEM": "1",
        "LOGNAME": "zelda",
    }.items():
        monkeypatch.setenv(name, str(value))
    for name in [name for name in os.environ if name.startswith(("GIT_DIR", "GIT_INDEX", "GIT_WORK"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(socket, "gethostname", lambda: "workhorse.example.org")
    # What is valid is the business of tests/incoming; made-up runs are not.
    monkeypatch.setattr(submit, "_checked", lambda run: ())
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


def test_a_run_is_proposed_with_its_folder_and_nothing_else(place: Place) -> None:
    """The branch is main and the run's files, byte by byte; the user's checkout is as it was."""
    before = state(place)
    printed = place.submit()
    assert "https://github.com/lab/feedrate/pull/7" in printed
    assert state(place) == before
    assert place.files == []
    folder = f"results/{place.run.parent.name}/{place.run.name}"
    changed = place.git("diff-tree", "-r", "--name-status", "main", place.branch, of=place.remote).splitlines()
    assert changed == [f"A\t{folder}/{name}" for name in sorted(submit.FILES)]
    for name in submit.FILES:
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
    assert store_beside.about(place.run).label == "Workstation"
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
        assert {name.rpartition("/")[2] for name in archive.namelist()} == set(submit.FILES)
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
    assert not store_beside.place(place.run, "label").exists()


def test_nobody_is_no_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can answer, the command says how to answer beforehand."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(InputError, match=r"nobody is there to answer; YES=1 \(--yes\)"):
        report_submit.asked(Console(file=io.StringIO()))


def test_the_file_is_the_same_whenever_it_is_made(place: Place, tmp_path: Path) -> None:
    """The same run gives the same bytes, whatever the time and the files' own dates."""
    prepared = submit.prepare(store.find(str(place.run)))
    first = submit.pack(prepared, tmp_path / "a").read_bytes()
    os.utime(place.run / "run.json", (1, 1))
    again = submit.pack(submit.prepare(store.find(str(place.run))), tmp_path / "b").read_bytes()
    assert first == again


def test_everything_that_will_be_public_is_shown(place: Place) -> None:
    """Every value of run.json is printed but for the lists that are counted, every file with its bytes, every text."""
    printed = " ".join(place.submit(answer=False).split())
    run = store.find(str(place.run))
    written = json.loads((place.run / "run.json").read_bytes())
    for name, value in submit.facts(written):
        assert " ".join(f"{name} {value}".split()) in printed, name
    named = {name.partition(".")[0] for name, _ in submit.facts(written)}
    assert {name for name, value in written.items() if value not in ([], {})} <= named
    for name in submit.FILES:
        assert f"{(place.run / name).stat().st_size:,}" in printed
    failed = run.table("trials").dropna(subset=["error_message"])
    assert len(failed)
    for text in failed["error_message"].unique():
        assert text in printed


def test_no_text_of_a_trial_is_left_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty different texts are printed; where there are more, a file that is named has all of them."""
    for count in (report_submit.TEXTS, report_submit.TEXTS + 1):
        texts = {f"error number {number}": 1 for number in range(count)}
        monkeypatch.setattr(submit, "free_texts", lambda _, texts=texts: texts)
        printed = place.submit(answer=False)
        path = place.root / "build" / f"texts-{place.run.name}.txt"
        if count == report_submit.TEXTS:
            assert all(f"1 ×  {text}\n" in printed for text in texts)
            assert not path.exists()
        else:
            assert f"all of which are in {path}" in " ".join(printed.split())
            assert [line.split("×  ")[1] for line in path.read_text().splitlines()] == list(texts)


def test_what_reviewers_will_look_at_is_shown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is valid and odd is submitted with its oddity said beforehand."""
    flag = Finding("fast", "flag", "samples_per_s", "9", "at most 4")
    monkeypatch.setattr(submit, "_checked", CHECKED)
    monkeypatch.setattr(submit.check, "check", lambda *_: Validated("", findings=(flag,)))
    assert f"Odd, and for reviewers to look at: {flag}" in place.submit(answer=False)


def test_what_looks_like_a_name_of_this_machine_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name that slipped through is shown apart, before anybody answers."""
    assert "looks like a name" not in place.submit(answer=False)
    path = place.run / "run.json"
    path.write_text(path.read_text().replace('"command": "make sweep"', '"command": "make sweep on node17"'))
    monkeypatch.setattr(socket, "gethostname", lambda: "node17.example.org")
    redaction._own_names.cache_clear()
    printed = place.submit(answer=False)
    assert "looks like a name" in printed
    assert "command: make sweep on node17" in printed


def test_a_name_in_a_label_or_a_note_is_said(place: Place) -> None:
    """What the submitter typed goes into the pull request's text, so it is looked at too."""
    printed = place.submit(answer=False, label="zelda's box", note="on workhorse, quiet")
    assert "looks like a name" in printed
    assert "label: zelda's box" in printed
    assert "note: on workhorse, quiet" in printed


@pytest.mark.parametrize("damage", ["withdrawn", "incomplete", "renamed", "long"])
def test_what_may_not_be_published_is_refused_before_anything_is_asked(place: Place, damage: str) -> None:
    """A run that was withdrawn, lacks a file or was renamed, and a text that is too long, are errors with a reason."""
    more: dict[str, str] = {}
    if damage == "withdrawn":
        store_beside.withdraw(place.run, "wrong disk")
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
            ["make", "-o", ".venv/ready", target, "RUN=x", f"HARNESS={stub}", *given],
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


def test_runs_are_found_by_id_and_by_folder(place: Place) -> None:
    """Either names a run; a name that is none is refused with those that are near."""
    results = place.run.parents[1]
    assert store.find(place.run.name, results).folder == store.find(str(place.run), results).folder == place.run
    with pytest.raises(InputError, match=rf"no such run under .*did you mean '{place.run.name}'"):
        store.find(place.run.name[:-1], results)
    with pytest.raises(InputError, match="none yet: make sweep makes one"):
        store.find("", place.root / "nowhere")


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
    stored = min(store.runs(ROOT / "results"), key=lambda run: (run.folder / "steps.parquet").stat().st_size)
    folder = tmp_path / stored.folder.parent.name / stored.folder.name
    shutil.copytree(stored.folder, folder)
    assert set(submit.prepare(store.find(str(folder))).recorded.values()) == {
        (stored.folder / name).read_bytes() for name in submit.FILES
    }
    path = folder / "trials.parquet"
    table = pq.read_table(path)
    faster = pc.multiply(table.column("samples_per_s"), 1.5)
    pq.write_table(table.set_column(table.schema.get_field_index("samples_per_s"), "samples_per_s", faster), path)
    with pytest.raises(InputError, match=r"(?s)is not valid and was not published:.*samples_per_s"):
        submit.prepare(store.find(str(folder)))
