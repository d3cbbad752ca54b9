"""What strangers want to publish, reviewed as data: a pull request that adds runs, or the one file of ``make submit``.

A pull request is read out of git's objects, with the code of the branch that it wants to change. Nothing of it is
checked out, imported, executed or followed: a path is a name, a symbolic link is refused for being one, and a size is
known before anything is read. Of an archive, names are held against the names that a run has and sizes against their
caps while they are read, as what it declares is not believed. Texts of strangers are printed through ``findings.quote``
alone, nothing that is there is replaced, and nothing is written below ``results/`` before the rules have seen it.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from feedrate.schema.errors import FeedrateError, InputError
from feedrate.schema.words import plural
from feedrate.share import submission
from feedrate.share.validation import guard
from feedrate.share.validation.caps import FILE_BYTES, MANIFEST_BYTES
from feedrate.share.validation.findings import MACHINE_ID, RUN_ID, quote
from feedrate.share.validation.validator import FILES, RUN
from feedrate.store import marks, place, remote, runs
from feedrate.store.marks import FILE_MOST, Labelled, Withdrawn

RUNS_MOST = 20
"""Runs that one pull request may add."""
BYTES_MOST = FILE_BYTES.most
"""All that is added, together."""
PARTS = {name: MANIFEST_BYTES.most if name == RUN else FILE_BYTES.most for name in FILES}
"""Files of a run's folder and the most bytes of each."""
_RUN = rf"results/(?P<machine>{MACHINE_ID})/(?P<run>{RUN_ID})"
RECORDED = re.compile(rf"(?P<folder>{_RUN})/(?P<part>{'|'.join(map(re.escape, PARTS))})")
"""Path of a file that a sweep wrote."""
MARK = re.compile(rf"(?P<folder>{_RUN})\.(?P<kind>label|withdrawn)\.json")
"""Path of a file beside a run that its submitter may add."""
FILES_EACH = 6
"""Of a run: its folder's four, a label and a withdrawal."""
_PLAIN = (0, 0o100000)
"""Kinds of an archive's entry that are a plain file: not stated, or stated to be one."""


@dataclass(frozen=True, slots=True)
class Change:
    """One file that merging would change."""

    path: str
    status: str
    """As git names it: ``A`` is added."""
    mode: str
    """As git writes it: ``100644`` is a plain file."""
    blob: str


def review(checkout: Path, console: Console, results: Path = runs.RESULTS) -> None:
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
    added: dict[str, set[str]] = {}
    for match in filter(None, (RECORDED.fullmatch(change.path) for change in changes)):
        added.setdefault(match["folder"], set()).add(match["part"])
    problems = [problem for change in changes for problem in _misplaced(change)]
    if not problems:
        published = _published(checkout)
        problems = [
            *_too_large(checkout, changes),
            *_incomplete(changes, added, published),
            *_published_twice(changes, added, published),
        ]
    if not problems:
        problems = _broken_rules(checkout, changes, added, results, console)
    if problems:
        raise InputError("this pull request cannot be merged as it is:" + "".join(f"\n- {each}" for each in problems))
    _say(console, f"{plural(len(changes), 'file')} added, {plural(len(added), 'run')} among them. All rules hold.")


def _changes(checkout: Path) -> list[Change]:
    """List what the merge changes, by git's own word; a renamed file is one that goes and one that comes."""
    output = _git(checkout, "diff-tree", "-r", "-z", "--no-renames", "--raw", "HEAD^1", "HEAD").decode(errors="replace")
    facts = output.split("\0")[:-1]
    changes = []
    for fact, path in zip(facts[::2], facts[1::2], strict=True):
        _, mode, _, blob, status = fact.removeprefix(":").split(" ")
        changes.append(Change(path, status, mode, blob))
    return changes


def _published(checkout: Path) -> dict[str, str]:
    """Folder of every run of the base to its trials (their blob)."""
    output = _git(checkout, "ls-tree", "-r", "-z", "--full-tree", "HEAD^1", "results/").decode(errors="replace")
    lines = [line.partition("\t") for line in output.split("\0")]
    return {
        path.removesuffix("/trials.parquet"): facts.split(" ")[2]
        for facts, _, path in lines
        if path.endswith("/trials.parquet")
    }


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
        if size > (most := PARTS.get(change.path.rpartition("/")[2], FILE_MOST)):
            yield f"{change.path} has {size:,} bytes; expected at most {most:,}"
    if total > BYTES_MOST:
        yield f"all files together have {total:,} bytes; expected at most {BYTES_MOST:,}. Propose fewer runs at once"


def _incomplete(changes: Sequence[Change], added: dict[str, set[str]], published: dict[str, str]) -> Iterator[str]:
    """Whether every run is whole, every label comes with its run, and every withdrawal is of a run that is there."""
    if len(added) > RUNS_MOST:
        yield f"{len(added)} runs are added; expected at most {RUNS_MOST} at once"
    for folder, parts in added.items():
        if missing := sorted(set(PARTS) - parts):
            yield f"{folder} lacks {', '.join(missing)}; expected the whole folder as the sweep wrote it"
    for mark in filter(None, (MARK.fullmatch(change.path) for change in changes)):
        folder = mark["folder"]
        if folder not in added and folder not in published:
            yield f"{mark[0]} speaks of a run that is not there"
        elif folder not in added and mark["kind"] == "label":
            yield f"{mark[0]}: a label comes with its run, in one pull request; {folder} is published already"


def _published_twice(changes: Sequence[Change], added: dict[str, set[str]], published: dict[str, str]) -> Iterator[str]:
    """Whether the same trials, or the same run id, are published elsewhere or added twice."""
    trials = {blob: folder for folder, blob in published.items()}
    ids = {folder.rpartition("/")[2]: folder for folder in published}
    for folder in added:  # pages, tiers and links know a run by its id alone
        if (other := ids.setdefault(folder.rpartition("/")[2], folder)) != folder:
            yield f"{folder} has the run id of {other}; expected one that no other run has"
    for change in changes:
        folder, _, part = change.path.rpartition("/")
        if part == "trials.parquet" and (other := trials.setdefault(change.blob, folder)) != folder:
            yield f"{folder} holds the trials of {other}; a run is published once"


def _broken_rules(
    checkout: Path, changes: Sequence[Change], added: dict[str, set[str]], results: Path, console: Console
) -> list[str]:
    """Hold what is added against the rules; say what reviewers should look at."""
    files = {change.path: _git(checkout, "cat-file", "blob", change.blob) for change in changes}
    problems = []
    for mark in filter(None, map(MARK.fullmatch, files)):
        try:
            if mark["kind"] == "label":
                marks.parse(files[mark[0]], Labelled, mark[0])
            else:
                why = marks.parse(files[mark[0]], Withdrawn, mark[0]).why
                _say(console, f"- for reviewers to look at: {mark['run']} is to be withdrawn: {quote(why)}")
        except InputError as error:
            problems.append(str(error))
    for folder in added:
        refusals, flags = _validate({path: files[path] for path in files if path.startswith(f"{folder}/")}, results)
        problems += [f"{folder}: {refusal}" for refusal in refusals]
        for flag in flags:
            _say(console, f"- {folder}: for reviewers to look at: {flag}")
    return problems


def _validate(files: Mapping[str, bytes], results: Path) -> tuple[list[str], list[str]]:
    """Hold the files of one run, under names that were checked, against the rules: why not, and what is odd."""
    with tempfile.TemporaryDirectory(prefix="feedrate-") as place:
        for path, data in files.items():
            Path(place, path).parent.mkdir(parents=True, exist_ok=True)
            Path(place, path).write_bytes(data)
        validated = guard.check(Path(place, next(iter(files))).parent, results, in_place=True)
    return [str(finding) for finding in validated.refusals], [str(finding) for finding in validated.flags]


def _git(checkout: Path, *words: str) -> bytes:
    try:
        return submission.git(checkout, *words)
    except submission.Unable as error:
        raise FeedrateError(
            f"{checkout}: {quote(str(error))}; expected a merge with its parents (fetch-depth: 2)"
        ) from error


def receive(archive: Path, console: Console, results: Path = runs.RESULTS) -> None:
    """Put the run of an archive, as ``submission.pack`` writes it, below ``results/``.

    Raises:
        InputError: it is not what ``make submit`` makes, breaks a rule, or the run is there already.
        EnvironmentFault: the disk cannot be written.
    """
    files = _unpack(archive)
    (folder,) = {match["folder"] for match in map(RECORDED.fullmatch, files) if match}
    text = files.pop(f"{folder}.label.json", None)
    label = marks.parse(text, Labelled, f"{archive}: label") if text else Labelled()
    _, machine_id, run_id = folder.split("/")
    target = results / machine_id / run_id
    if target.exists() or marks.place(target, "label").exists():
        raise InputError(f"{target}: is there already; a run is published once, and nothing of it is replaced")
    if other := next(iter(place.glob(results, f"*/{run_id}/{RUN}")), None):
        raise InputError(f"{archive}: has the run id of {other.parent}; expected one that no other run has")
    refusals, flags = _validate(files, remote.copy(results))
    if refusals:
        raise InputError(f"{archive}: is not valid:" + "".join(f"\n- {refusal}" for refusal in refusals))
    for flag in flags:
        _say(console, f"Odd, look at it: {flag}")
    runs.store(target, {path.rpartition("/")[2]: data for path, data in files.items()})
    if label.label or label.note:
        marks.label(target, label.label, label.note)
    _say(console, f"{target} was taken in: make site shows it.")


def _unpack(archive: Path) -> dict[str, bytes]:
    """Read every entry of an archive; one that may not be there spoils the whole."""
    try:
        if (size := archive.stat().st_size) > BYTES_MOST:
            raise InputError(f"{archive}: {size:,} bytes; expected at most {BYTES_MOST:,}")
        with zipfile.ZipFile(archive) as held:
            files = dict(_entries(archive, held))
    except OSError as error:
        raise InputError(f"{archive}: {error.strerror or 'cannot be read'}; expected a zip file") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise InputError(f"{archive}: {quote(str(error))}; expected a zip file as make submit makes it") from error
    parts = list(filter(None, map(RECORDED.fullmatch, files)))
    folders = {match["folder"] for match in parts}
    labels = {match["folder"] for match in map(MARK.fullmatch, files) if match}
    if {match["part"] for match in parts} != set(PARTS) or len(folders) != 1 or labels - folders:
        raise InputError(f"{archive}: does not hold one whole run; expected {', '.join(PARTS)} of one folder")
    return files


def _entries(archive: Path, held: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """Read entries that are plain files of a run, in a compression that is known."""
    infos = held.infolist()
    if len(infos) > FILES_EACH or len({info.filename for info in infos}) < len(infos):
        raise InputError(f"{archive}: {len(infos):,} entries; expected those of one run, each once")
    total = 0
    for info in infos:
        path, beside = info.filename, MARK.fullmatch(info.filename)
        plain = info.external_attr >> 16 & 0o170000 in _PLAIN
        named = RECORDED.fullmatch(path) or (beside and beside["kind"] == "label")
        if not named or not plain or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{archive}: {quote(path)}: expected files of results/MACHINE/RUN/ and no others")
        most = PARTS.get(path.rpartition("/")[2], FILE_MOST)
        with held.open(info) as file:
            data = file.read(most + 1)
        total += len(data)
        if len(data) > most:
            raise InputError(f"{archive}: {quote(path)} is larger than the {most:,} bytes that it may have")
        if total > BYTES_MOST:
            raise InputError(f"{archive}: holds more than {BYTES_MOST:,} bytes; expected those of one run")
        yield path, data


def _say(console: Console, text: str) -> None:
    """Print a line as it stands."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
