"""A pull request that adds runs, looked at as data: what merging it would change, and whether that may be published.

It is read out of git's objects, with the code of the branch that it wants to change. Nothing of it is checked out,
imported, executed or followed: a path is a name, a symbolic link is refused for being one, and a size is known before
anything is read. Texts of its own are printed through ``findings.shown`` alone.
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
from feedrate.share.validation import check
from feedrate.share.validation.caps import FILE_BYTES, MANIFEST_BYTES
from feedrate.share.validation.findings import MACHINE_ID, RUN_ID, shown
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
SAID = re.compile(rf"{_RUN}\.(?P<kind>label|withdrawn)\.json")
FILES_EACH = 6
"""Of a run: its folder's four, a label and a withdrawal."""


@dataclass(frozen=True, slots=True)
class Added:
    """One file that merging would change."""

    path: str
    status: str
    """As git names it: ``A`` is added."""
    mode: str
    """As git writes it: ``100644`` is a plain file."""
    blob: str


def look(checkout: Path, console: Console, results: Path = RESULTS) -> None:
    """Say what a pull request would add, and refuse it where a rule is broken.

    Args:
        checkout: a git checkout whose HEAD is the merge of the pull request into its base (two parents, base first).
        console: where it goes.
        results: published runs, beside which a new one may look odd.

    Raises:
        InputError: it may not be merged as it is, with every reason.
        FeedrateError: git does not answer.
    """
    added = list(_changes(checkout))
    if len(added) > RUNS_MOST * FILES_EACH:
        raise InputError(f"this pull request changes {len(added):,} files; expected at most {RUNS_MOST} runs at once")
    problems = [problem for each in added for problem in _placed(each)]
    if not problems:
        problems = [*_sized(checkout, added), *_whole(checkout, added), *_twice(checkout, added)]
    if not problems:
        with tempfile.TemporaryDirectory(prefix="feedrate-") as folder:
            problems = list(_read(checkout, added, (Path(folder), results), console))
    if problems:
        raise InputError("this pull request cannot be merged as it is:" + "".join(f"\n- {each}" for each in problems))
    runs = plural(len(_runs(added)), "run")
    _say(console, f"{plural(len(added), 'file')} added, {runs} among them. All rules hold.")


def _changes(checkout: Path) -> Iterator[Added]:
    """What the merge changes, by git's own word; a file that was renamed is one that goes and one that comes."""
    words = _git(checkout, "diff-tree", "-r", "-z", "--no-renames", "--raw", "HEAD^1", "HEAD").decode(errors="replace")
    facts = iter(words.split("\0"))
    for told in facts:
        if told:
            _, mode, _, blob, status = told.removeprefix(":").split(" ")
            yield Added(next(facts), status, mode, blob)


def _placed(each: Added) -> Iterator[str]:
    """Whether a file may be where it is, by its name and kind alone."""
    if each.status != "A":
        yield f"{shown(each.path)} is there already; nothing that was published is changed or removed"
    elif each.mode != "100644":
        yield f"{shown(each.path)} has mode {shown(each.mode)}; expected a plain file (100644), no link, no program"
    elif each.path.endswith(".tier.json"):
        yield f"{shown(each.path)}: tiers come from the maintainers, in a commit of their own"
    elif not RECORDED.fullmatch(each.path) and not SAID.fullmatch(each.path):
        yield (
            f"{shown(each.path)} is no part of a run; expected results/MACHINE/RUN/ with {', '.join(PARTS)}, or "
            "results/MACHINE/RUN.label.json or .withdrawn.json beside it, and nothing else"
        )


def _sized(checkout: Path, added: Sequence[Added]) -> Iterator[str]:
    total = 0
    for each in added:
        size = int(_git(checkout, "cat-file", "-s", each.blob))
        total += size
        most = PARTS.get(each.path.rpartition("/")[2], FILE_MOST)
        if size > most:
            yield f"{each.path} has {size:,} bytes; expected at most {most:,}"
    if total > BYTES_MOST:
        yield f"all files together have {total:,} bytes; expected at most {BYTES_MOST:,}. Propose fewer runs at once"


def _runs(added: Sequence[Added]) -> dict[str, set[str]]:
    """Folders of runs that are added, each with its files."""
    found: dict[str, set[str]] = {}
    for each in added:
        if RECORDED.fullmatch(each.path):
            folder, _, part = each.path.rpartition("/")
            found.setdefault(folder, set()).add(part)
    return found


def _whole(checkout: Path, added: Sequence[Added]) -> Iterator[str]:
    """Whether every run is whole, every label comes with its run, and every withdrawal is of a run that is there."""
    runs = _runs(added)
    if len(runs) > RUNS_MOST:
        yield f"{len(runs)} runs are added; expected at most {RUNS_MOST} at once"
    there = {folder for folder, _ in _published(checkout)}
    for folder, parts in runs.items():
        if missing := sorted(set(PARTS) - parts):
            yield f"{folder} lacks {', '.join(missing)}; expected the whole folder as the sweep wrote it"
    for each in added:
        if found := SAID.fullmatch(each.path):
            run = f"results/{found['machine']}/{found['run']}"
            if run in runs:
                continue
            if run not in there:
                yield f"{each.path} speaks of a run that is not there"
            elif found["kind"] == "label":
                yield f"{each.path}: a label comes with its run, in one pull request; {run} is published already"


def _published(checkout: Path) -> Iterator[tuple[str, str]]:
    """Folder and trials (their blob) of every run of the base."""
    words = _git(checkout, "ls-tree", "-r", "-z", "--full-tree", "HEAD^1", "results/").decode(errors="replace")
    for told in words.split("\0"):
        facts, _, path = told.partition("\t")
        if path.endswith("/trials.parquet"):
            yield path.rpartition("/")[0], facts.split(" ")[2]


def _twice(checkout: Path, added: Sequence[Added]) -> Iterator[str]:
    """Whether the same trials, or the same run id, are published elsewhere or added twice."""
    published = dict(_published(checkout))
    known = {blob: folder for folder, blob in published.items()}
    ids = {folder.rpartition("/")[2]: folder for folder in published}
    for folder in _runs(added):  # pages, tiers and links know a run by its id alone
        if (other := ids.setdefault(folder.rpartition("/")[2], folder)) != folder:
            yield f"{folder} has the run id of {other}; expected one that no other run has"
    for each in added:
        if each.path.endswith("/trials.parquet"):
            folder = each.path.rpartition("/")[0]
            if (other := known.setdefault(each.blob, folder)) != folder:
                yield f"{folder} holds the trials of {other}; a run is published once"


def _read(checkout: Path, added: Sequence[Added], places: tuple[Path, Path], console: Console) -> Iterator[str]:
    """Write what is added into an empty folder, under names that were looked at, and hold it against the rules."""
    folder, results = places
    for each in added:
        path = folder / each.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_git(checkout, "cat-file", "blob", each.blob))
        if found := SAID.fullmatch(each.path):
            yield from _said(path.read_bytes(), found, console)
    for run in _runs(added):
        seen = check.check(folder / run, results, placed=True)
        yield from (f"{run}: {finding}" for finding in seen.refusals)
        for flag in seen.flags:
            _say(console, f"- {run}: for reviewers to look at: {flag}")


def _said(text: bytes, found: re.Match[str], console: Console) -> Iterator[str]:
    """Hold a label or a withdrawal against its form."""
    try:
        if found["kind"] == "label":
            marks.checked(text, Labelled, found[0])
        else:
            why = marks.checked(text, Withdrawn, found[0]).why
            _say(console, f"- for reviewers to look at: {found['run']} is to be withdrawn: {shown(why)}")
    except InputError as error:
        yield str(error)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _git(checkout: Path, *words: str) -> bytes:
    try:
        return pull_request.git(checkout, *words)
    except pull_request.Unable as error:
        raise FeedrateError(
            f"{checkout}: {shown(str(error))}; expected a merge with its parents (fetch-depth: 2)"
        ) from error
