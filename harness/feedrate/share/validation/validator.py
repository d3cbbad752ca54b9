"""A file of trials, or a run's folder, held against every rule. This runs in the guarded process (``guard``).

A single file is looked at row by row of its batches and everything that is wrong is said; many runs at once are only
cleared, all of them or none, for which their rows lie in one frame. Rules that need sound values come after those that
say whether values are sound.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from feedrate.schema.columns import TABLES
from feedrate.share.validation import (
    caps,
    identities,
    parquet,
    ranges,
    sizes,
    totals,
    traces,
)
from feedrate.share.validation import (
    flags as validation_flags,
)
from feedrate.share.validation import manifest as validation_manifest
from feedrate.share.validation.findings import Finding, Refused, Rule, Validated, shown
from feedrate.share.validation.parquet import Opened
from feedrate.share.validation.rows import Rows, any_broken, broken, refused
from feedrate.share.validation.totals import Ledger
from feedrate.share.validation.traces import Trials
from feedrate.store.manifest import RunManifest

RUN = "run.json"
FILES = (RUN, *(f"{table}.parquet" for table in TABLES))
"""What a run's folder holds."""
FOLDER = Rule("folder", "A run's folder holds run.json and the three tables, nothing else, and is no link.")
SAME_MANIFEST = Rule("same_manifest", "run.json and the three tables hold the same manifest.")
PLACE = Rule("place", "A run's folder has its id for a name, below a folder named for its machine.")
SOME_TRIALS = Rule("some_trials", "It holds a trial at least.")
RULES = (FOLDER, SAME_MANIFEST, PLACE, SOME_TRIALS)


def judge(path: Path, *, placed: bool = False) -> Validated:
    """Hold a file of trials, or a run's folder, against every rule.

    Raises:
        MemoryError: it takes more than it may.
    """
    found = Validated(str(path))
    try:
        files = _files(path)
        data = parquet.read(files["trials.parquet"])
        found = replace(found, sha256=hashlib.sha256(data).hexdigest())
        trials = parquet.opened(data, "trials", "trials.parquet")
        del data
        run = trials.manifest
        findings, kept = _trials(trials, keep=RUN in files)
        if not findings and RUN in files:
            findings = [*_folder(path, files, trials, placed), *(_traces(files, trials, kept) if kept else ())]
    except Refused as error:
        return replace(found, findings=(error.finding,))
    found = replace(found, rows=trials.rows, findings=tuple(findings))
    return replace(found, run_id=run.run_id, machine_id=run.machine.machine_id) if found.valid else found


def flags(path: Path, results: Path) -> list[Finding]:
    """List what looks odd in a file that keeps to every rule.

    Raises:
        MemoryError: it takes more than it may.
    """
    file = _files(path)["trials.parquet"]
    return list(validation_flags.flags(parquet.opened(parquet.read(file), "trials", file.name), results))


def clear(folders: Sequence[Path]) -> dict[str, str] | None:
    """Look at many small runs together and say whether nothing is wrong with any.

    Raises:
        MemoryError: together they take more than they may.
    """
    try:
        runs = [_whole(folder) for folder in folders]
    except (Refused, OSError):
        return None
    sources = [run.manifest for run in runs]
    rows = {table: _together(table, runs, sources) for table in TABLES}
    trials = rows["trials"]
    if any(any_broken(ranges.RULES, each) for each in rows.values()) or any_broken(identities.RULES, trials):
        return None
    if next(_of_runs(trials, sources), None):
        return None
    kept = Trials()
    kept.add(trials)
    if any(next(check(iter([rows[name]]), kept, name), None) for name, check in traces.CHECKS.items()):
        return None
    return {str(folder): run.digest for folder, run in zip(folders, runs, strict=True)}


def digest(folder: Path) -> str | None:
    """Hash the files of a run's folder; None where they are not what such a folder holds."""
    try:
        return _digest(folder, {name: parquet.read(path) for name, path in _files(folder).items()})
    except Refused:
        return None


def _digest(folder: Path, data: Mapping[str, bytes]) -> str:
    """Hash what the rules look at: the files, and the place, which is part of one."""
    whole = hashlib.sha256(json.dumps(_lies(folder)).encode())
    for name in FILES:
        whole.update(hashlib.sha256(data[name]).digest())
    return whole.hexdigest()


def _files(path: Path) -> dict[str, Path]:
    """The files of a run's folder, or the one file of trials."""
    if path.is_symlink() or not path.is_dir():
        return {"trials.parquet": path}
    names = sorted(entry.name for entry, _ in zip(os.scandir(path), range(100), strict=False))
    if tuple(names) != tuple(sorted(FILES)):
        other = [name for name in names if name not in FILES] or [f"no {min(set(FILES) - set(names))}"]
        raise Refused(FOLDER.name, "the folder", shown(other[0]), ", ".join(FILES))
    return {name: path / name for name in FILES}


def _trials(file: Opened, *, keep: bool) -> tuple[list[Finding], Trials | None]:
    """Hold all trials against the rules; the first rows that break one end it."""
    book, kept = Ledger(file.manifest), Trials()
    for rows in _rows(file):
        findings = list(broken(ranges.RULES, rows, file.where)) or list(broken(identities.RULES, rows, file.where))
        if findings:
            return findings, None
        book.add(rows)
        if keep:
            kept.add(rows)
    if not file.rows:
        return [refused(SOME_TRIALS, file.where, "no rows", "one trial at least")], None
    return list(book.findings(file.where)), kept if keep else None


def _rows(file: Opened) -> Iterator[Rows]:
    first = 0
    for table in file.batches():
        yield Rows(file.table, table, [file.manifest], first=first)
        first += table.num_rows


def _folder(path: Path, files: Mapping[str, Path], trials: Opened, placed: bool) -> Iterator[Finding]:
    """Hold run.json and the names of the folders against the manifest of the trials."""
    own, _ = validation_manifest.read_manifest(parquet.read(files[RUN], caps.MANIFEST_BYTES), RUN)
    if own != trials.said:
        yield refused(SAME_MANIFEST, RUN, "another manifest", "that of trials.parquet")
    yield from _place(path, trials.manifest) if placed else ()


def _place(folder: Path, run: RunManifest) -> Iterator[Finding]:
    wanted = f"{run.machine.machine_id}/{run.run_id}"
    got, linked = _lies(folder)
    if got != wanted or linked:
        yield refused(PLACE, "the folder", shown(got) + " behind a link" * linked, wanted)


def _lies(folder: Path) -> tuple[str, bool]:
    """The names of a run's folder and of the one around it, and whether that is a link."""
    whole = folder.absolute()
    return "/".join(whole.parts[-2:]), whole.parent.is_symlink()


def _traces(files: Mapping[str, Path], trials: Opened, kept: Trials) -> Iterator[Finding]:
    for name, check in traces.CHECKS.items():
        where = f"{name}.parquet"
        file = parquet.opened(parquet.read(files[where]), name, where)
        if file.said != trials.said:
            yield refused(SAME_MANIFEST, where, "another manifest", "that of trials.parquet")
            return
        broken_values: list[Finding] = []
        yield from check(_sound(file, broken_values), kept, where)
        yield from broken_values


def _sound(file: Opened, findings: list[Finding]) -> Iterator[Rows]:
    """The rows of a table as long as their values are sound; what is wrong with the first that are not is noted."""
    for rows in _rows(file):
        findings += broken(ranges.RULES, rows, file.where)
        if findings:
            return
        yield rows


@dataclass(frozen=True, slots=True)
class _Run:
    """A small run, decoded."""

    manifest: RunManifest
    tables: Mapping[str, pa.Table]
    digest: str


def _whole(folder: Path) -> _Run:
    """Open and decode a run."""
    data = {name: parquet.read(path) for name, path in _files(folder).items()}
    own, manifest = validation_manifest.read_manifest(data[RUN], RUN)
    tables: dict[str, pa.Table] = {}
    for name in TABLES:
        where = f"{name}.parquet"
        file = parquet.opened(data[where], name, where)
        if file.said != own:
            raise Refused(SAME_MANIFEST.name, where, "another manifest", "that of run.json")
        tables[name] = pa.concat_tables(file.batches()) if file.rows else file.empty()
    if not len(tables["trials"]) or next(_place(folder, manifest), None):
        raise Refused(PLACE.name, "the folder", "another place", "its own, with a trial")
    return _Run(manifest, tables, _digest(folder, data))


def _together(name: str, runs: Sequence[_Run], sources: Sequence[RunManifest]) -> Rows:
    tables = [run.tables[name] for run in runs]
    source = np.repeat(np.arange(len(runs)), [len(table) for table in tables])
    return Rows(name, pa.concat_tables(tables, promote_options="default"), sources, source)


def _of_runs(trials: Rows, sources: Sequence[RunManifest]) -> Iterator[Finding]:
    """What each run breaks as a whole; the rows of a run lie together."""
    ends = np.searchsorted(trials.source, np.arange(len(sources) + 1))
    for at, manifest in enumerate(sources):
        book = Ledger(manifest)
        book.add(trials, slice(int(ends[at]), int(ends[at + 1])))
        yield from book.findings("trials.parquet")


def rules() -> Iterator[Rule]:
    """Every rule that a file is refused by, in the order in which they are tried."""
    structure = chain(parquet.RULES, sizes.RULES, validation_manifest.RULES, RULES)
    return chain(structure, ranges.RULES, identities.RULES, totals.RULES, traces.RULES)
