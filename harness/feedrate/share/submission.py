"""A run, published as a pull request or as one file: what would be public, to the byte, and whether it may be.

What is sent are the bytes that ``prepare`` read. Git's plumbing and GitHub's ``gh`` make a pull request of them without
touching anybody's working tree: blobs, tree and commit are written beside the checkout's own (a temporary index; no
branch, stash or hook). The commit carries the GitHub account's name and its no-reply address, not the name and address
that git is configured with: those were not asked for. Where no pull request can be opened, one file is made that can be
attached anywhere; it is the same whenever it is made.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.redaction import names_someone, one_line
from feedrate.share.validation import guard
from feedrate.share.validation.findings import MACHINE_ID, RUN_ID
from feedrate.share.validation.validator import FILES
from feedrate.store import marks
from feedrate.store.marks import Labelled
from feedrate.store.runs import StoredRun, write_whole

LONG = {
    "suites": "the axes and values that were asked for",
    "contrasts": "an axis, two cell ids, blocks, why it stopped",
    "claims": "a claim's name, blocks, why it stopped",
    "cell_seconds": "a cell id and seconds",
    "cell_spread": "a cell id and two numbers",
}
"""Fields of the manifest that are counted and not listed: what an entry of each holds."""
_DAWN = (1980, 1, 1, 0, 0, 0)
"""The earliest moment that a zip file can name: the same run gives the same file."""
_TIMEOUT_S = 300
_WRITERS = ("ADMIN", "MAINTAIN", "WRITE")
_AS_GH = ("-c", "credential.helper=", "-c", "credential.helper=!gh auth git-credential")


@dataclass(frozen=True, slots=True)
class Submission:
    """A run that may be published."""

    run: StoredRun
    folder: str
    """Its folder in the repository: ``results/<machine_id>/<run_id>``."""
    files: Mapping[str, bytes]
    """Path in the repository to content: the run's files, and its label where it has one."""
    label: Labelled

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Everything that ``run.json`` says, by name; fields of ``LONG`` by their number of entries."""
        facts: list[tuple[str, str]] = []
        for name, value in json.loads(self.files[f"{self.folder}/run.json"]).items():
            if name in LONG:
                facts.append((name, f"{len(value):,} entries, each {LONG[name]}"))
            else:
                facts += _flat(name, value)
        return facts

    @property
    def title(self) -> str:
        """Of its pull request."""
        return f"Run {self.run.manifest.run_id} of {self.run.manifest.machine.machine_id}"

    @property
    def _measured(self) -> str:
        run = self.run.manifest
        if found := run.search:
            return (
                f"a search among {found.settings:,} settings of a training script's loader (`{run.command}`), "
                f"{found.trials:,} trials"
            )
        if run.script:
            return f"the loop of a training script (`{run.command}`) in {run.blocks:,} stretches"
        suites = ", ".join(sorted(run.suites)) or "no suite"
        trials = sum(run.outcomes.values())
        return f"{run.cells:,} cells of {suites} in up to {run.blocks:,} blocks, {trials:,} trials"

    @property
    def body(self) -> str:
        """The text of its pull request."""
        run = self.run.manifest
        paragraphs = [
            *filter(None, (self.label.label, self.label.note)),
            f"`{self.folder}`: {self._measured}, measured on {run.started_at[:10]} by feedrate {run.feedrate_version} "
            f"(protocol {run.protocol_version}).",
            "Made with `make submit`, which checked it.",
        ]
        return "\n\n".join(paragraphs) + "\n"


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _flat(f"{name}.{key}", part)
    elif isinstance(value, list):
        for part in value:
            yield from _flat(name, part)
    else:
        yield name, "unknown" if value is None else str(value)


def prepare(run: StoredRun, label: str = "", note: str = "") -> Submission:
    """Read a run as it would be published. Writes nothing.

    Raises:
        InputError: it was withdrawn, renamed, is not whole or not valid, or a text is too long.
    """
    beside = marks.about(run.folder)
    if beside.withdrawn:
        raise InputError(
            f"{run.manifest.run_id}: was withdrawn on {beside.withdrawn.on} ({beside.withdrawn.why}); a withdrawn run "
            "is not published. Measure again and submit that run"
        )
    labelled = Labelled(label=beside.label, note=beside.note)
    if label or note:
        labelled = marks.labelled(label or beside.label, note or beside.note)
    machine_id, run_id = run.manifest.machine.machine_id, run.manifest.run_id
    if not re.fullmatch(MACHINE_ID, machine_id) or not re.fullmatch(RUN_ID, run_id):
        raise InputError(f"{run.folder}: {machine_id!r}, run {run_id!r}; expected ids that feedrate made")
    if run.folder.name != run_id:
        raise InputError(f"{run.folder}: holds run {run_id}; expected a folder of that name. Rename it back")
    _validate(run)
    folder = f"results/{machine_id}/{run_id}"
    files = {f"{folder}/{name}": (run.folder / name).read_bytes() for name in FILES}
    if labelled.label or labelled.note:
        files[f"{folder}.label.json"] = marks.encode(labelled)
    return Submission(run, folder, files, labelled)


def _validate(run: StoredRun) -> None:
    """Hold a run against the rules for files of others."""
    validated = guard.check(run.folder, run.folder.parents[1])
    if not validated.valid:
        listed = "".join(f"\n  {finding}" for finding in validated.findings)
        raise InputError(f"{run.folder}: is not valid and was not published:{listed}")


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
    path = out / f"submission-{submission.run.manifest.run_id}.zip"
    write_zip(buffer := io.BytesIO(), sorted(submission.files.items()))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"{out}: {error.strerror}; expected a folder (--out). Nothing was published") from error
    write_whole(path, buffer.getvalue(), "--out names another. Nothing was published")
    return path


def write_zip(file: IO[bytes], files: Iterable[tuple[str, bytes]]) -> None:
    """Write files, name and content, as a zip that is the same whenever it is made."""
    # Parquet is compressed already, and what a compressor makes of the rest may differ between its versions.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files:
            entry = zipfile.ZipInfo(name, _DAWN)
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3
            archive.writestr(entry, data)


class Unable(Exception):
    """Why no pull request can be opened from here, in a clause; what was to be proposed is still there."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a run gets from a checkout into a pull request."""

    checkout: Path
    login: str
    """Of the account that will open it."""
    base: str
    """The repository on GitHub, OWNER/NAME."""
    address: str
    """Its URL."""
    branch: str
    """Its default branch."""
    commit: str
    """The newest commit of that branch."""
    writable: bool
    """Whether the account may push to it; else it pushes to its fork."""


def route(checkout: Path) -> Route:
    """Find out how a pull request can be opened. Proposes nothing.

    Raises:
        Unable: it cannot.
    """
    for tool, name in (("git", "git"), ("gh", "gh, GitHub's command line,")):
        if not shutil.which(tool):
            raise Unable(f"{name} is not installed")
    if not git(checkout, "remote").strip():
        raise Unable("this checkout has no remote")
    login = _gh(checkout, "api", "user", "--jq", ".login").strip()
    try:
        here = json.loads(_gh(checkout, "repo", "view", "--json", "nameWithOwner,parent"))
        parent = here["parent"]
        base = f"{parent['owner']['login']}/{parent['name']}" if parent else here["nameWithOwner"]
        fields = "url,defaultBranchRef,viewerPermission"
        about = json.loads(_gh(checkout, "repo", "view", base, "--json", fields))
        address, branch = about["url"], about["defaultBranchRef"]["name"]
        writable = about["viewerPermission"] in _WRITERS
    except (ValueError, KeyError, TypeError) as error:
        raise Unable("gh repo view does not describe the repository") from error
    git(checkout, *_AS_GH, "fetch", "-q", "--no-tags", address, f"refs/heads/{branch}")
    commit = git(checkout, "rev-parse", "FETCH_HEAD").decode().strip()
    return Route(checkout, login, base, address, branch, commit, writable)


def check_new(way: Route, submission: Submission) -> None:
    """Refuse a run that is published already.

    Raises:
        InputError: it is.
    """
    run_id = submission.run.manifest.run_id
    listed = git(way.checkout, "ls-tree", "-r", "-z", "--name-only", "--full-tree", way.commit, "results/").decode()
    if there := [path for path in listed.split("\0") if run_id in path.split("/")]:
        raise InputError(
            f"{run_id}: was submitted already ({there[0]}); a run is published once. make sweep makes another"
        )


def propose(way: Route, submission: Submission) -> str:
    """Open a pull request, and give its address.

    Raises:
        Unable: a step failed, or one is open already.
    """
    made, address, owner = _commit(way, submission), way.address, ""
    if not way.writable:
        _gh(way.checkout, "repo", "fork", way.base, "--clone=false")  # which is content with one that is there
        fork, owner = f"{way.login}/{way.base.partition('/')[2]}", f"{way.login}:"
        address = _gh(way.checkout, "repo", "view", fork, "--json", "url", "--jq", ".url").strip()
    branch = submission.folder.replace("results", "run", 1)
    git(way.checkout, *_AS_GH, "push", "-q", "--no-verify", address, f"+{made}:refs/heads/{branch}")
    where = ("--repo", way.base, "--base", way.branch, "--head", f"{owner}{branch}", "--title", submission.title)
    return _gh(way.checkout, "pr", "create", *where, "--body-file", "-", given=submission.body).strip()


def _commit(way: Route, submission: Submission) -> str:
    """Write a commit on top of the base branch that adds files and changes nothing else."""
    who = {"NAME": way.login, "EMAIL": f"{way.login}@users.noreply.github.com"}
    with tempfile.TemporaryDirectory(prefix="feedrate-") as folder:
        more = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        more |= {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in who.items()}

        def plumb(*words: str, given: bytes = b"") -> str:
            return git(way.checkout, *words, given=given, more=more).decode().strip()

        plumb("read-tree", way.commit)
        for path, data in submission.files.items():
            blob = plumb("hash-object", "-w", "--stdin", given=data)
            plumb("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        tree = plumb("write-tree")
        return plumb("commit-tree", tree, "-p", way.commit, "-F", "-", given=f"{submission.title}\n".encode())


def _gh(checkout: Path, *words: str, given: str = "") -> str:
    own = {"GH_PROMPT_DISABLED": "1", "NO_COLOR": "1"}
    return _run(["gh", *words], checkout, given.encode(), own).decode(errors="replace")


def git(checkout: Path, *words: str, given: bytes = b"", more: Mapping[str, str] | None = None) -> bytes:
    """Run git on a checkout, whatever repository the caller's own variables name.

    Raises:
        Unable: it failed.
    """
    return _run(["git", *words], checkout, given, more or {})


def _run(command: list[str], checkout: Path, given: bytes, more: Mapping[str, str]) -> bytes:
    """Run a tool that asks nothing; git's own variables of whoever called do not reach it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**own, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8", **more}
    name = " ".join([word for word in command if not word.startswith("-") and "credential" not in word][:3])
    try:
        done = subprocess.run(
            command, cwd=checkout, input=given, capture_output=True, env=environment, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unable(f"{name}: {error}") from error
    if done.returncode:
        said = one_line(done.stderr.decode(errors="replace"))[-300:]
        raise Unable(f"{name}: {said or f'exit status {done.returncode}'}")
    return done.stdout
