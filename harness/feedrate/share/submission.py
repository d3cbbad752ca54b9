"""A run, published as a pull request or as one file: what would be public, to the byte, and whether it may be.

What is sent are the bytes that ``prepare`` read. Git's plumbing and GitHub's ``gh`` make a pull request of them without
touching anybody's working tree: blobs, tree and commit are written beside the checkout's own (a temporary index; no
branch, stash or hook). The commit carries the GitHub account's name and its no-reply address, not those that git is
configured with. Where no pull request can be opened, one file is made that can be attached anywhere.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from feedrate.schema.errors import InputError
from feedrate.schema.redaction import names_someone, one_line
from feedrate.share import validator
from feedrate.share.findings import FILES
from feedrate.share.parquet import leaves
from feedrate.store import marks
from feedrate.store.marks import Labelled
from feedrate.store.runs import StoredRun, make_folder, replacing

_LONG = ("suites", "contrasts", "claims", "cell_seconds", "cell_spread")
"""Fields of the manifest that are counted and not listed."""
_TIMEOUT_S = 300
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "NO_COLOR": "1",
    "GH_PROMPT_DISABLED": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "credential.helper",
    "GIT_CONFIG_VALUE_0": "",
    "GIT_CONFIG_KEY_1": "credential.helper",
    "GIT_CONFIG_VALUE_1": "!gh auth git-credential",
}
"""Of git and gh, which ask nothing: whoever gh knows may push."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A run that may be published: its folder in the repository, and path there to content, its label's too."""

    run: StoredRun
    folder: str
    files: Mapping[str, bytes]
    label: Labelled

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Everything that ``run.json`` says, by name; long fields by their number of entries."""
        fields = json.loads(self.files[f"{self.folder}/run.json"])
        counted = [(name, f"{len(fields.pop(name)):,} entries: settings, ids, numbers") for name in _LONG]
        listed = [(path, value) for path, value in leaves(fields) if value not in ({}, [])]
        return [*((path, "unknown" if value is None else str(value)) for path, value in listed), *counted]

    @property
    def body(self) -> str:
        """The text of its pull request."""
        run = self.run.manifest
        measured = (
            f"`{self.folder}`: {sum(run.outcomes.values()):,} trials in {run.blocks:,} blocks (`{run.command}`), begun "
            f"on {run.started_at[:10]}, by feedrate {run.feedrate_version} (protocol {run.protocol_version})."
        )
        texts = (self.label.label, self.label.note, measured, "Made with `feedrate submit`, which checked it.")
        return "\n\n".join(filter(None, texts)) + "\n"


def prepare(run: StoredRun, label: str = "", note: str = "") -> Submission:
    """Read a run as it would be published; one that was withdrawn or is not valid where it lies is an error.

    Raises:
        InputError: it was withdrawn, is not valid where it lies, or a text is too long.
    """
    beside = marks.about(run.folder)
    if beside.withdrawn:
        was = f"{run.manifest.run_id}: was withdrawn on {beside.withdrawn.on} ({beside.withdrawn.why})"
        raise InputError(f"{was}; a withdrawn run is not published. Measure again and submit that run")
    labelled = Labelled(label=beside.label, note=beside.note)
    if label or note:
        labelled = marks.labelled(label or beside.label, note or beside.note)
    if findings := validator.check(run.folder, run.folder.parents[1]).findings:
        listed = "".join(f"\n  {finding}" for finding in findings)
        raise InputError(f"{run.folder}: is not valid and was not published:{listed}")
    folder = f"results/{run.manifest.machine.machine_id}/{run.manifest.run_id}"
    files = {f"{folder}/{name}": (run.folder / name).read_bytes() for name in FILES}
    if labelled.label or labelled.note:
        files[f"{folder}.label.json"] = marks.encode(labelled)
    return Submission(run, folder, files, labelled)


def free_texts(run: StoredRun) -> dict[str, int]:
    """Count the different texts of a run's trials that no table of feedrate's own lists, the most frequent first."""
    trials = run.table("trials")
    counts = Counter(text for name in ("error_kind", "error_message", "evidence") for text in trials[name].dropna())
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def own_names(submission: Submission) -> list[str]:
    """List what would be public and holds this machine's host or user name, or its home folder."""
    typed = (("label", submission.label.label), ("note", submission.label.note))
    facts = [f"{name}: {value}" for name, value in (*submission.facts, *typed) if names_someone(value)]
    return [*facts, *filter(names_someone, free_texts(submission.run))]


def pack(submission: Submission, out: Path) -> Path:
    """Write a run as one file that can be attached: a zip that unpacks at the repository's root.

    Raises:
        EnvironmentFault: the disk cannot be written.
    """
    path = make_folder(out) / f"submission-{submission.run.manifest.run_id}.zip"
    with replacing(path) as file:
        write_zip(file, sorted(submission.files.items()))
    return path


def write_zip(file: IO[bytes], files: Iterable[tuple[str, bytes]]) -> None:
    """Write files, name and content, as a zip that is the same whenever it is made."""
    # Parquet is compressed already, and what a compressor makes of the rest may differ between its versions.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files:
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.external_attr, entry.create_system = 0o100644 << 16, 3
            archive.writestr(entry, data)


class Unable(Exception):
    """Why no pull request can be opened from here, in a clause."""


class Route(NamedTuple):
    """How a run gets from a checkout into a pull request of an account on GitHub."""

    checkout: Path
    login: str
    base: str
    """The repository, OWNER/NAME."""
    head: str
    """The one that the commit is pushed to: ``base``, or a fork of it where the account may not."""
    branch: str
    """Of ``base``, the default one; ``commit`` is its newest."""
    commit: str


def route(checkout: Path, submission: Submission) -> Route:
    """Find out how a pull request can be opened; an InputError where the run is published already."""
    if not shutil.which("gh"):
        raise Unable("gh, GitHub's command line, is not installed")
    login = _run(checkout, "gh", "api", "user", "--jq", ".login")
    try:
        here = json.loads(_run(checkout, "gh", "repo", "view", "--json", "nameWithOwner,parent"))
        parent = here["parent"]
        base = f"{parent['owner']['login']}/{parent['name']}" if parent else here["nameWithOwner"]
        fields = "url,defaultBranchRef,viewerPermission"
        about = json.loads(_run(checkout, "gh", "repo", "view", base, "--json", fields))
        address, branch = about["url"], about["defaultBranchRef"]["name"]
        writable = about["viewerPermission"] in ("ADMIN", "MAINTAIN", "WRITE")
    except (ValueError, KeyError, TypeError) as error:
        raise Unable("gh repo view does not describe the repository") from error
    _run(checkout, "git", "fetch", "-q", "--no-tags", address, f"refs/heads/{branch}")
    commit = _run(checkout, "git", "rev-parse", "FETCH_HEAD")
    if _run(checkout, "git", "ls-tree", "--full-tree", commit, submission.folder):
        was = f"{submission.folder}: was submitted already"
        raise InputError(f"{was}; a run is published once. feedrate sweep makes another")
    return Route(checkout, login, base, base if writable else f"{login}/{base.partition('/')[2]}", branch, commit)


def propose(way: Route, submission: Submission) -> str:
    """Open a pull request, and give its address.

    Raises:
        Unable: a step failed, or one is open already.
    """
    run, branch = partial(_run, way.checkout), submission.folder.replace("results", "run", 1)
    title, same = f"Run {submission.folder.partition('/')[2]}", way.head == way.base
    commit = _commit(way, submission.files, title)
    if not same:
        run("gh", "repo", "fork", way.base, "--clone=false")  # which is content with one that is there
    address = run("gh", "repo", "view", way.head, "--json", "url", "--jq", ".url")
    run("git", "push", "-q", "--no-verify", address, f"+{commit}:refs/heads/{branch}")
    where = ("--repo", way.base, "--base", way.branch, "--head", branch if same else f"{way.login}:{branch}")
    return run("gh", "pr", "create", *where, "--title", title, "--body-file", "-", given=submission.body.encode())


def _commit(way: Route, files: Mapping[str, bytes], title: str) -> str:
    """Write a commit on top of the base branch that adds files and changes nothing else."""
    who = {"NAME": way.login, "EMAIL": f"{way.login}@users.noreply.github.com"}
    variables = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in who.items()}
    with tempfile.TemporaryDirectory(prefix="feedrate-") as folder:
        git = partial(_run, way.checkout, "git", variables=variables | {"GIT_INDEX_FILE": f"{folder}/index"})
        git("read-tree", way.commit)
        for path, data in files.items():
            blob = git("hash-object", "-w", "--stdin", given=data)
            git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        return git("commit-tree", git("write-tree"), "-p", way.commit, "-m", title)


def _run(checkout: Path, *command: str, given: bytes = b"", variables: Mapping[str, str] = _ENVIRONMENT) -> str:
    """Run git or gh; git's own variables of whoever called do not reach it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    name, env = " ".join(command[:3]), inherited | _ENVIRONMENT | dict(variables)
    try:
        done = subprocess.run(
            command, cwd=checkout, input=given, capture_output=True, env=env, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unable(f"{name}: {error}") from error
    if done.returncode:
        reason = one_line(done.stderr.decode(errors="replace"))[-300:]
        raise Unable(f"{name}: {reason or f'exit status {done.returncode}'}")
    return done.stdout.decode(errors="replace").strip()
