"""What strangers propose, as pull request or archive, is data: runs that are whole, new and valid, and nothing else."""

from __future__ import annotations

import io
import json
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from submitting import make_faster, measured, printed

from feedrate.schema.errors import FeedrateError, InputError
from feedrate.share import proposal, submission
from feedrate.share.validation.findings import Finding, Validated
from feedrate.store import marks

HOSTILE = '<script>alert(1)</script>\x1b[31m::set-output name=a::b"; rm -rf ~'
FILES = ("run.json", "trials.parquet", "steps.parquet", "telemetry.parquet")
OLD, NEW = "results/epyc-1/20260101T000000Z-aaaa", "results/xeon-2/20260202T000000Z-bbbb"
PLAIN = json.dumps({"label": "Workstation", "note": ""})
CHECK = proposal.guard.check


class Repository:
    """A repository with one published run, and a branch that wants to change it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.put(OLD, "old")
        self.write("README.md", "feedrate\n")
        self.commit("First")
        self.git("checkout", "-q", "-b", "proposal")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *who, *words], cwd=self.root, capture_output=True, text=True, check=True).stdout

    def write(self, path: str, text: str) -> Path:
        whole = self.root / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(text)
        return whole

    def link(self, path: str, target: str) -> None:
        (self.root / path).unlink()
        (self.root / path).symlink_to(target)

    def put(self, folder: str, text: str, files: tuple[str, ...] = FILES) -> None:
        for name in files:
            self.write(f"{folder}/{name}", f"{text} {name}")

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def look(self) -> str:
        """Merge the branch, as GitHub does to show what would become of it, and look at that."""
        self.merge()
        return self.said()

    def merge(self) -> None:
        self.commit("Proposal")
        self.git("checkout", "-q", "main")
        self.git("merge", "-q", "--no-ff", "-m", "Merge", "proposal")

    def said(self) -> str:
        return printed(lambda console: proposal.review(self.root, console))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture(autouse=True)
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What was held against the rules: here everything keeps them (tests/share/validation has the rules themselves)."""
    seen: list[dict[str, str]] = []

    def check(folder: Path, results: Path | None = None, *, in_place: bool = False) -> Validated:
        seen.append({path.name: path.read_text() for path in folder.iterdir()})
        flag = Finding("fast", "flag", "samples_per_s", "9", "less")
        return Validated(str(folder), None, folder.name, folder.parent.name, 1, (flag,))

    monkeypatch.setattr(proposal.guard, "check", check)
    return seen


def test_whole_new_runs_pass_and_are_held_against_the_rules(
    repository: Repository, looked_at: list[dict[str, str]]
) -> None:
    """A run with its label passes; the rules saw its bytes and no others; flags are for reviewers."""
    repository.put(NEW, "new")
    repository.write(f"{NEW}.label.json", PLAIN)
    text = repository.look()
    assert "5 files added, 1 run among them. All rules hold." in text
    assert "for reviewers to look at: samples_per_s" in text
    assert looked_at == [{name: f"new {name}" for name in FILES}]


def test_a_published_run_may_be_withdrawn_and_reviewers_are_told(repository: Repository) -> None:
    """The tombstone of a run that is there needs no run in the same pull request."""
    repository.write(f"{OLD}.withdrawn.json", json.dumps({"why": "wrong disk", "on": "2026-11-22"}))
    assert "20260101T000000Z-aaaa is to be withdrawn: 'wrong disk'" in repository.look()


NEXT = "results/xeon-2/20260203T000000Z-cccc"
OWN_NAME = f"results/xeon-2/{HOSTILE.replace('/', '')}"
REFUSED: list[tuple[Callable[[Repository], object], str]] = [
    (lambda r: r.write("harness/feedrate/cli.py", "import os"), r"'harness/feedrate/cli\.py' is no part of a run"),
    (lambda r: r.write(".github/workflows/submission.yml", "on: push"), r"submission\.yml' is no part of a run"),
    (lambda r: r.write(f"{OLD}/run.json", "{}"), r"run\.json' is there already"),
    (lambda r: (r.root / OLD / "steps.parquet").unlink(), r"steps\.parquet' is there already"),
    (lambda r: (r.root / OLD).rename(r.root / f"{OLD}-moved"), r"run\.json' is there already"),
    (lambda r: r.link(f"{NEW}/run.json", "/etc/passwd"), r"run\.json' has mode '120000'"),
    (lambda r: (r.root / NEW / "run.json").chmod(0o755), r"run\.json' has mode '100755'"),
    (lambda r: r.write(f"{NEW}.tier.json", '{"tier": "reference"}'), "tiers come from the maintainers"),
    (lambda r: r.write(f"{NEW}/index.html", "<script>"), r"index\.html' is no part of a run"),
    (lambda r: r.write(f"{OWN_NAME}/run.json", "{}"), "is no part of a run"),
    (lambda r: r.write("results/.git-hooks/x/run.json", "{}"), "is no part of a run"),
    (lambda r: r.write("results/xeon-2/bench/20260202T000000Z.json", "{}"), "is no part of a run"),
    (lambda r: r.put("results/xeon-2/my-run", "other"), "is no part of a run"),
    (lambda r: (r.root / NEW / "telemetry.parquet").unlink(), r"lacks telemetry\.parquet"),
    (lambda r: r.put(NEXT, "new"), "holds the trials of results/xeon-2/20260202T000000Z-bbbb"),
    (
        lambda r: r.write(f"{NEW}/trials.parquet", "old trials.parquet"),
        "holds the trials of results/epyc-1/20260101T000000Z-aaaa",
    ),
    (lambda r: r.write("results/xeon-2/20260909T000000Z-dddd.label.json", PLAIN), "speaks of a run that is not there"),
    (
        lambda r: r.write(f"{NEW}.label.json", json.dumps({"label": HOSTILE[:40]})),
        r"label\.json: label: .*control characters",
    ),
    (lambda r: r.write(f"{NEW}.label.json", " " * 10_000), "has 10,000 bytes; expected at most 8,192"),
    (
        lambda r: [r.put(f"results/xeon-2/20260203T0000{number:02}Z-cccc", str(number)) for number in range(21)],
        "expected at most 20 at once",
    ),
    (
        lambda r: r.put(f"results/xeon-2/{OLD.rpartition('/')[2]}", "other"),
        "xeon-2/20260101T000000Z-aaaa has the run id of results/epyc-1/20260101T000000Z-aaaa",
    ),
    (
        lambda r: r.put(f"results/arm-3/{NEW.rpartition('/')[2]}", "other"),
        "has the run id of results/.*/20260202T000000Z-bbbb",
    ),
    (lambda r: r.write(f"{OLD}.label.json", PLAIN), r"aaaa\.label\.json: a label comes with its run"),
]
"""What is changed beside a new run, and the reason for which it is refused."""


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_anything_else_is_refused_with_its_reason(
    repository: Repository, change: Callable[[Repository], object], words: str
) -> None:
    """One file too many spoils the whole, and no text of a stranger's reaches the terminal as it is."""
    repository.put(NEW, "new")
    change(repository)
    with pytest.raises(InputError, match=words) as caught:
        repository.look()
    assert "\x1b" not in str(caught.value)
    assert not any(line.startswith("::") for line in str(caught.value).splitlines())


@pytest.mark.slow
def test_the_rules_are_those_of_every_run(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run as it was measured may be merged; with one number changed it may not, whatever its names and sizes."""
    monkeypatch.setattr(proposal.guard, "check", CHECK)
    stored = measured()
    folder = repository.root / "results" / stored.folder.parent.name / stored.folder.name
    shutil.copytree(stored.folder, folder)
    repository.merge()
    assert "4 files added, 1 run among them. All rules hold." in repository.said()
    repository.git("reset", "-q", "--hard", "HEAD^1")
    repository.git("checkout", "-q", "proposal")
    make_faster(folder / "trials.parquet")
    with pytest.raises(InputError, match=rf"(?s)cannot be merged.*{stored.folder.name}: .*samples_per_s"):
        repository.look()


def test_the_caller_s_own_repository_is_not_looked_at(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called from a hook, where git names another repository by variables, it is the checkout that is read."""
    repository.put(NEW, "new")
    repository.merge()
    monkeypatch.setenv("GIT_DIR", str(repository.root / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository.root / "nowhere"))
    assert "4 files added" in repository.said()


def test_what_breaks_a_rule_is_refused(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reason of the rules is listed below its run."""
    finding = Finding("closure", "refused", "wall_ns", "-1", "more than 0")
    monkeypatch.setattr(proposal.guard, "check", lambda folder, *_, **more: Validated(str(folder), findings=(finding,)))
    repository.put(NEW, "new")
    with pytest.raises(InputError, match=rf"{NEW}: wall_ns: -1; expected more than 0"):
        repository.look()


def test_a_run_lies_where_it_says(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is named as the manifest in it says: nobody's run is put below another machine."""
    monkeypatch.setattr(proposal.guard, "check", CHECK)
    shutil.copytree(measured().folder, repository.root / NEW)
    with pytest.raises(InputError, match=rf"{NEW}: .*\(rule place\)"):
        repository.look()


def test_size_is_known_before_anything_is_read(
    repository: Repository, looked_at: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file over its cap, or all of them together, never reach the rules."""
    repository.put(NEW, "new")
    monkeypatch.setitem(proposal.PARTS, "steps.parquet", 10)
    monkeypatch.setattr(proposal, "BYTES_MOST", 50)
    words = r"(?s)steps\.parquet has 17 bytes; expected at most 10.*together have 68 bytes"
    with pytest.raises(InputError, match=words):
        repository.look()
    assert looked_at == []


def test_a_checkout_that_is_no_merge_is_said(tmp_path: Path) -> None:
    """Without git's answer there is an error that says what was expected, and no traceback."""
    with pytest.raises(FeedrateError, match="expected a merge with its parents"):
        proposal.review(tmp_path, Console(file=io.StringIO()))


Entries = dict[str, bytes]


def entries() -> Entries:
    """What an archive of one run holds."""
    return {f"{NEW}/{name}": name.encode() for name in FILES}


def packed(path: Path, held: Entries, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return path


def take_in(archive: Path, results: Path) -> str:
    return printed(lambda console: proposal.receive(archive, console, results))


def test_a_run_is_taken_in_with_its_label(tmp_path: Path) -> None:
    """Its folder gets the bytes that were sent, its label lies beside it, and nothing else is there."""
    label = {f"{NEW}.label.json": marks.encode(marks.labelled("Workstation", "two fans"))}
    results = tmp_path / "results"
    assert "was taken in" in take_in(packed(tmp_path / "a.zip", entries() | label, zipfile.ZIP_DEFLATED), results)
    run = tmp_path / NEW
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
    other = tmp_path / "results" / "epyc-1" / NEW.rpartition("/")[2]
    other.mkdir(parents=True)
    (other / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"a\.zip: has the run id of .*epyc-1/20260202T000000Z-bbbb"):
        take_in(packed(tmp_path / "a.zip", entries()), tmp_path / "results")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["epyc-1"]


def test_an_archive_meets_the_rules_of_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run as it was measured is taken in; with one number changed nothing is written."""
    monkeypatch.setattr(proposal.guard, "check", CHECK)
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
    monkeypatch.setattr(proposal, "BYTES_MOST", 3_000)
    with pytest.raises(InputError, match=r"a\.zip: holds more than 3,000 bytes"):
        take_in(archive, tmp_path / "results")


OTHER = "results/xeon-2/20260203T000000Z-cccc"
ADDED: list[Entries] = [
    {"results/../../owned": b"x"},
    {"/etc/owned": b"x"},
    {"results\\..\\owned": b"x"},
    {"harness/feedrate/cli.py": b"x"},
    {f"{NEW}.tier.json": b"{}"},
    {f"{NEW}.withdrawn.json": b"{}"},
    {f"{OTHER}/run.json": b"x"},
    {f"{OTHER}.label.json": b"{}"},
    {f"{NEW}.label.json": json.dumps({"label": "a\x1b[31m"}).encode()},
    {f"{NEW}.label.json": b" " * 10_000_000},
    {f"results/xeon-2/run-{number}/run.json": b"x" for number in range(1000)},
]
"""What no archive of a run holds."""


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("added", [*ADDED, None])
def test_anything_else_changes_nothing(tmp_path: Path, added: Entries | None, compression: int) -> None:
    """A path that leads elsewhere, a file too many, too few or too large: refused, and nothing is written."""
    held = entries() | (added or {})
    if added is None:
        del held[f"{NEW}/steps.parquet"]
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


def test_an_archive_lies_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is named as the manifest in it says."""
    monkeypatch.setattr(proposal.guard, "check", CHECK)
    held = {f"{NEW}/{path.name}": path.read_bytes() for path in measured().folder.iterdir()}
    with pytest.raises(InputError, match=r"is not valid:\n- .*\(rule place\)"):
        take_in(packed(tmp_path / "a.zip", held), tmp_path / "results")
