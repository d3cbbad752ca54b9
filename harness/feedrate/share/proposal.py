"""A pull request that adds runs, reviewed as data: what merging it would change, and whether that may be published.

It is read out of git's objects, with the code of the branch that it wants to change. Nothing of it is checked out,
imported, executed or followed: a path is a name, a symbolic link is refused for being one, and a size is known before
anything is read. Texts of its own are printed through ``findings.quote`` alone.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from feedrate.schema.errors import FeedrateError, InputError
from feedrate.schema.words import plural
from feedrate.share import pull_request
from feedrate.share.validation import guard
from feedrate.share.validation.caps import FILE_BYTES, MANIFEST_BYTES
from feedrate.share.validation.findings import MACHINE_ID, RUN_ID, quote
from feedrate.share.validation.validator import FILES, RUN
from feedrate.store import marks
from feedrate.store.marks import FILE_MOST, Labelled, Withdrawn
from feedrate.store.runs import RESULTS

RUNS_MOST = 20
"""Runs that one pull request may add."""
BYTES_MOST = FILE_BYTES.most
"""All that it adds, together."""
PARTS = {name: MANIFEST_BYTES.most if name == RUN else FILE_BYTES.most for name in FILES}
"""Files of a run's folder and the most bytes of each."""
_RUN = rf"results/(?P<machine>{MACHINE_ID})/(?P<run>{RUN_ID})"
RECORDED = re.compile(rf"{_RUN}/(?P<part>{'|'.join(map(re.escape, PARTS))})")
"""Path of a file that a sweep wrote."""
MARK = re.compile(rf"{_RUN}\.(?P<kind>label|withdrawn)\.json")
"""Path of a file beside a run that its submitter may add."""
FILES_EACH = 6
"""Of a run: its folder's four, a label and a withdrawal."""


@dataclass(frozen=True, slots=True)
class Change:
    """One file that merging would change."""

    path: str
    status: str
    """As git names it: ``A`` is added."""
    mode: str
    """As git writes it: ``100644`` is a plain file."""
    blob: str


def review(checkout: Path, console: Console, results: Path = RESULTS) -> None:
    """Say what a pull request would add, and refuse it where a rule is broken.

    Args:
        checkout: a git checkout whose HEAD is the merge of the pull request into its base (two parents, base first).
        console: for the report.
        results: published runs, beside which a new one may look odd.

    Raises:
        InputError: it may not be merged as it is, with every reason.
        FeedrateError: git does not answer.
    """
    changes = _changes(checkout)
    if len(changes) > RUNS_MOST * FILES_EACH:
        raise InputError(f"this pull request changes {len(changes):,} files; expected at most {RUNS_MOST} runs at once")
    runs = _runs(changes)
    problems = [problem for change in changes for problem in _misplaced(change)]
    if not problems:
        published = _published(checkout)
        problems = [
            *_too_large(checkout, changes),
            *_incomplete(changes, runs, published),
            *_published_twice(changes, runs, published),
        ]
    if not problems:
        problems = _broken_rules(checkout, changes, runs, results, console)
    if problems:
        raise InputError("this pull request cannot be merged as it is:" + "".join(f"\n- {each}" for each in problems))
    say(console, f"{plural(len(changes), 'file')} added, {plural(len(runs), 'run')} among them. All rules hold.")


def _changes(checkout: Path) -> list[Change]:
    """List what the merge changes, by git's own word; a renamed file is one that goes and one that comes."""
    output = _git(checkout, "diff-tree", "-r", "-z", "--no-renames", "--raw", "HEAD^1", "HEAD").decode(errors="replace")
    facts = output.split("\0")[:-1]
    changes = []
    for fact, path in zip(facts[::2], facts[1::2], strict=True):
        _, mode, _, blob, status = fact.removeprefix(":").split(" ")
        changes.append(Change(path, status, mode, blob))
    return changes


def _runs(changes: Sequence[Change]) -> dict[str, set[str]]:
    """Folders of runs that are added, each with its files."""
    runs: dict[str, set[str]] = {}
    for change in changes:
        if RECORDED.fullmatch(change.path):
            folder, _, part = change.path.rpartition("/")
            runs.setdefault(folder, set()).add(part)
    return runs


def _published(checkout: Path) -> dict[str, str]:
    """Folder of every run of the base to its trials (their blob)."""
    output = _git(checkout, "ls-tree", "-r", "-z", "--full-tree", "HEAD^1", "results/").decode(errors="replace")
    published = {}
    for line in output.split("\0"):
        facts, _, path = line.partition("\t")
        if path.endswith("/trials.parquet"):
            published[path.rpartition("/")[0]] = facts.split(" ")[2]
    return published


def _misplaced(change: Change) -> Iterator[str]:
    """Whether a file may be where it is, by its name and kind alone."""
    if change.status != "A":
        yield f"{quote(change.path)} is there already; nothing that was published is changed or removed"
    elif change.mode != "100644":
        yield f"{quote(change.path)} has mode {quote(change.mode)}; expected a plain file (100644), no link, no program"
    elif change.path.endswith(".tier.json"):
        yield f"{quote(change.path)}: tiers come from the maintainers, in a commit of their own"
    elif not RECORDED.fullmatch(change.path) and not MARK.fullmatch(change.path):
        yield (
            f"{quote(change.path)} is no part of a run; expected results/MACHINE/RUN/ with {', '.join(PARTS)}, or "
            "results/MACHINE/RUN.label.json or .withdrawn.json beside it, and nothing else"
        )


def _too_large(checkout: Path, changes: Sequence[Change]) -> Iterator[str]:
    total = 0
    for change in changes:
        size = int(_git(checkout, "cat-file", "-s", change.blob))
        total += size
        most = PARTS.get(change.path.rpartition("/")[2], FILE_MOST)
        if size > most:
            yield f"{change.path} has {size:,} bytes; expected at most {most:,}"
    if total > BYTES_MOST:
        yield f"all files together have {total:,} bytes; expected at most {BYTES_MOST:,}. Propose fewer runs at once"


def _incomplete(changes: Sequence[Change], runs: dict[str, set[str]], published: dict[str, str]) -> Iterator[str]:
    """Whether every run is whole, every label comes with its run, and every withdrawal is of a run that is there."""
    if len(runs) > RUNS_MOST:
        yield f"{len(runs)} runs are added; expected at most {RUNS_MOST} at once"
    for folder, parts in runs.items():
        if missing := sorted(set(PARTS) - parts):
            yield f"{folder} lacks {', '.join(missing)}; expected the whole folder as the sweep wrote it"
    for change in changes:
        if beside := MARK.fullmatch(change.path):
            run = f"results/{beside['machine']}/{beside['run']}"
            if run not in runs and run not in published:
                yield f"{change.path} speaks of a run that is not there"
            elif run not in runs and beside["kind"] == "label":
                yield f"{change.path}: a label comes with its run, in one pull request; {run} is published already"


def _published_twice(changes: Sequence[Change], runs: dict[str, set[str]], published: dict[str, str]) -> Iterator[str]:
    """Whether the same trials, or the same run id, are published elsewhere or added twice."""
    known = {blob: folder for folder, blob in published.items()}
    ids = {folder.rpartition("/")[2]: folder for folder in published}
    for folder in runs:  # pages, tiers and links know a run by its id alone
        if (other := ids.setdefault(folder.rpartition("/")[2], folder)) != folder:
            yield f"{folder} has the run id of {other}; expected one that no other run has"
    for change in changes:
        if change.path.endswith("/trials.parquet"):
            folder = change.path.rpartition("/")[0]
            if (other := known.setdefault(change.blob, folder)) != folder:
                yield f"{folder} holds the trials of {other}; a run is published once"


def _broken_rules(
    checkout: Path, changes: Sequence[Change], runs: dict[str, set[str]], results: Path, console: Console
) -> list[str]:
    """Write what is added into an empty folder, under names that were checked, and hold it against the rules."""
    problems = []
    with tempfile.TemporaryDirectory(prefix="feedrate-") as folder:
        for change in changes:
            path = Path(folder, change.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_git(checkout, "cat-file", "blob", change.blob))
            if beside := MARK.fullmatch(change.path):
                try:
                    _read_beside(path.read_bytes(), beside, console)
                except InputError as error:
                    problems.append(str(error))
        for run in runs:
            validated = guard.check(Path(folder, run), results, in_place=True)
            problems += [f"{run}: {finding}" for finding in validated.refusals]
            for flag in validated.flags:
                say(console, f"- {run}: for reviewers to look at: {flag}")
    return problems


def _read_beside(text: bytes, beside: re.Match[str], console: Console) -> None:
    """Hold a label or a withdrawal against its form."""
    if beside["kind"] == "label":
        marks.parse(text, Labelled, beside[0])
    else:
        why = marks.parse(text, Withdrawn, beside[0]).why
        say(console, f"- for reviewers to look at: {beside['run']} is to be withdrawn: {quote(why)}")


def say(console: Console, text: str) -> None:
    """Print a line as it stands."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _git(checkout: Path, *words: str) -> bytes:
    try:
        return pull_request.git(checkout, *words)
    except pull_request.Unable as error:
        raise FeedrateError(
            f"{checkout}: {quote(str(error))}; expected a merge with its parents (fetch-depth: 2)"
        ) from error
