"""A file of trials, or a run's folder, held against every rule. This runs in the guarded process (``guard``).

A single file is read in batches, and everything that is wrong with it is listed. Many small runs at once are only
cleared, all of them or none, for which their rows lie in one table. Rules that need sound values come after those that
say whether values are sound.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from feedrate.schema.columns import TABLES
from feedrate.share.validation import caps, pages, parquet, row_rules, run_rules
from feedrate.share.validation import flags as validation_flags
from feedrate.share.validation import manifest as validation_manifest
from feedrate.share.validation.findings import Finding, Refused, Rule, Validated, quote
from feedrate.share.validation.parquet import Opened, open_table
from feedrate.share.validation.row_rules import IDENTITIES, VALUES, broken
from feedrate.share.validation.rows import Rows
from feedrate.share.validation.run_rules import RUN_COLUMNS, TRACE_COLUMNS, Traces, check_run
from feedrate.store.manifest import RunManifest

RUN, TRIALS = "run.json", "trials.parquet"
FILES = (RUN, *(f"{table}.parquet" for table in TABLES))
"""What a run's folder holds."""
FOLDER = Rule("folder", "A run's folder holds run.json and the three tables, nothing else, and is no link.")
SAME_MANIFEST = Rule("same_manifest", "run.json and the three tables hold the same manifest.")
PLACE = Rule("place", "A run's folder has its id for a name, below a folder named for its machine.")
SOME_TRIALS = Rule("some_trials", "It holds a trial at least.")
RULES: tuple[Rule, ...] = (
    *parquet.RULES,
    *pages.RULES,
    *validation_manifest.RULES,
    *(FOLDER, SAME_MANIFEST, PLACE, SOME_TRIALS),
    *(*row_rules.VALUES, *row_rules.IDENTITIES),
    *(*run_rules.RUN_RULES, *run_rules.TRACE_RULES),
)
"""Every rule that a file is refused by, in the order in which they are tried."""


def judge(path: Path, *, in_place: bool = False) -> Validated:
    """Hold a file of trials, or a run's folder, against every rule; ``in_place``: it must lie where it says."""
    result = Validated(str(path))
    try:
        files = _files(path)
        data = parquet.read(files[TRIALS])
        result = replace(result, sha256=hashlib.sha256(data).hexdigest())
        trials = open_table(data, "trials", TRIALS)
        columns = {*RUN_COLUMNS, *(TRACE_COLUMNS if RUN in files else ())}
        findings, kept = _check_trials(trials, columns)
        if not findings and RUN in files:
            findings = [*_check_folder(path, files, trials, in_place), *_check_traces(files, trials, kept)]
    except Refused as error:
        return replace(result, findings=(error.finding,))
    result = replace(result, rows=trials.count, findings=tuple(findings))
    run = trials.manifest
    return replace(result, run_id=run.run_id, machine_id=run.machine.machine_id) if result.valid else result


def flags(path: Path, results: Path) -> list[Finding]:
    """List what looks odd in a file that keeps to every rule."""
    file = _files(path)[TRIALS]
    return list(validation_flags.flags(open_table(parquet.read(file), "trials", file.name), results))


def admit(passed: Mapping[str, str | None]) -> tuple[dict[str, str], dict[str, Validated]]:
    """Validate the folders of many small runs: together, and one by one where something is wrong.

    Args:
        passed: folder to the hash with which it passed these rules before; it is not validated again with the same.

    Returns:
        Folder to the hash of its files, for those that pass, and the results of the others.

    Raises:
        MemoryError: they take more than they may.
    """
    contents = {folder: _read(Path(folder)) for folder in passed}
    digests = {folder: _digest(Path(folder), files) for folder, files in contents.items() if files}
    others = {folder: contents[folder] for folder in passed if digests.get(folder, "") != passed[folder]}
    if not others or _all_valid(others):
        return digests, {}
    judged = {folder: judge(Path(folder), in_place=True) for folder in others}
    refused = {folder: each for folder, each in judged.items() if not each.valid}
    return {folder: each for folder, each in digests.items() if folder not in refused}, refused


def _read(folder: Path) -> dict[str, bytes] | None:
    """Read the files of a run's folder; None where they are not what such a folder holds."""
    try:
        return {name: parquet.read(path) for name, path in _files(folder).items()}
    except Refused:
        return None


def _digest(folder: Path, files: Mapping[str, bytes]) -> str:
    """Hash what the rules look at: the files, and the place, which is part of one."""
    whole = hashlib.sha256(json.dumps(_place(folder)).encode())
    for name in FILES:
        whole.update(hashlib.sha256(files.get(name, b"")).digest())
    return whole.hexdigest()


def _all_valid(contents: Mapping[str, Mapping[str, bytes] | None]) -> bool:
    """Validate small runs together, by the contents of their folders."""
    try:
        runs = [_decode(Path(folder), files) for folder, files in contents.items() if files]
    except (Refused, OSError):
        return False
    if len(runs) < len(contents):
        return False
    rows = {table: _together(table, runs) for table in TABLES}
    traces = Traces(rows["trials"])
    findings = chain(
        chain.from_iterable(broken(VALUES, each, "") for each in rows.values()),
        broken(IDENTITIES, rows["trials"], ""),
        chain.from_iterable(check_run(_select(run.tables["trials"], run.manifest), "") for run in runs),
        chain.from_iterable(traces.check(table, [rows[table]]) for table in ("steps", "telemetry")),
    )
    return next(findings, None) is None


def _files(path: Path) -> dict[str, Path]:
    """The files of a run's folder, or the one file of trials."""
    if path.is_symlink() or not path.is_dir():
        return {TRIALS: path}
    names = sorted(entry.name for entry in islice(os.scandir(path), 100))
    if names != sorted(FILES):
        other = [name for name in names if name not in FILES] or [f"no {min(set(FILES) - set(names))}"]
        raise FOLDER.refused("the folder", quote(other[0]), ", ".join(FILES))
    return {name: path / name for name in FILES}


def _check_trials(file: Opened, columns: set[str]) -> tuple[list[Finding], Rows | None]:
    """Hold all trials against the rules, and keep some of their columns; the first rows that break one end it."""
    kept: list[pa.Table] = []
    for rows in file.rows():
        if findings := [*broken(VALUES, rows, file.where)] or [*broken(IDENTITIES, rows, file.where)]:
            return findings, None
        kept.append(_select(rows.table, file.manifest, columns).table)
    if not kept:
        return [SOME_TRIALS.finding(file.where, "no rows", "one trial at least")], None
    trials = Rows("trials", pa.concat_tables(kept), [file.manifest])
    return [*check_run(trials, file.where)], trials


def _check_folder(path: Path, files: Mapping[str, Path], trials: Opened, in_place: bool) -> Iterator[Finding]:
    """Hold run.json and the names of the folders against the manifest of the trials."""
    own, _ = validation_manifest.read_manifest(parquet.read(files[RUN], caps.MANIFEST_BYTES), RUN)
    if own != trials.fields:
        yield SAME_MANIFEST.finding(RUN, "another manifest", "that of trials.parquet")
    if in_place:
        yield from _check_place(path, trials.manifest)


def _check_place(folder: Path, run: RunManifest) -> Iterator[Finding]:
    wanted = f"{run.machine.machine_id}/{run.run_id}"
    got, linked = _place(folder)
    if got != wanted or linked:
        yield PLACE.finding("the folder", quote(got) + " behind a link" * linked, wanted)


def _place(folder: Path) -> tuple[str, bool]:
    """The names of a run's folder and of the one around it, and whether that is a link."""
    whole = folder.absolute()
    return "/".join(whole.parts[-2:]), whole.parent.is_symlink()


def _check_traces(files: Mapping[str, Path], trials: Opened, kept: Rows | None) -> Iterator[Finding]:
    """Hold steps and samples against their trials; rows behind the first that are not sound are not looked at."""
    if kept is None:
        return
    traces = Traces(kept)
    for name in ("steps", "telemetry"):
        where = f"{name}.parquet"
        file = open_table(parquet.read(files[where]), name, where)
        if file.fields != trials.fields:
            yield SAME_MANIFEST.finding(where, "another manifest", "that of trials.parquet")
            return
        unsound: list[Finding] = []
        yield from traces.check(name, _sound(file, unsound))
        yield from unsound


def _sound(file: Opened, unsound: list[Finding]) -> Iterator[Rows]:
    """The rows of a table as long as their values are sound; findings about the first that are not are noted."""
    for rows in file.rows():
        unsound += broken(VALUES, rows, file.where)
        if unsound:
            return
        yield rows


def _select(table: pa.Table, run: RunManifest, columns: Collection[str] = RUN_COLUMNS) -> Rows:
    """Trials of one run, as far as some rules need them."""
    return Rows("trials", table.select([name for name in table.column_names if name in columns]), [run])


class _Run(NamedTuple):
    """A small run, decoded."""

    manifest: RunManifest
    tables: Mapping[str, pa.Table]


def _decode(folder: Path, files: Mapping[str, bytes]) -> _Run:
    own, manifest = validation_manifest.read_manifest(files[RUN], RUN)
    tables: dict[str, pa.Table] = {}
    for name in TABLES:
        where = f"{name}.parquet"
        file = open_table(files[where], name, where)
        if file.fields != own:
            raise SAME_MANIFEST.refused(where, "another manifest", "that of run.json")
        tables[name] = file.decoded()
    if not len(tables["trials"]) or next(_check_place(folder, manifest), None):
        raise PLACE.refused("the folder", "another place", "its own, with a trial")
    return _Run(manifest, tables)


def _together(name: str, runs: Sequence[_Run]) -> Rows:
    """The rows of one table of all runs."""
    tables = [run.tables[name] for run in runs]
    run_of = np.repeat(np.arange(len(runs)), [len(table) for table in tables])
    return Rows(name, pa.concat_tables(tables, promote_options="default"), [run.manifest for run in runs], run_of)
