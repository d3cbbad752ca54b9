"""A file of trials, or a run's folder, held against every rule. This runs in the guarded process (``guard``).

A file is read in batches. Rules that need sound values come after those that say whether values are sound.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa

from feedrate.schema.columns import TABLES
from feedrate.share.validation import caps, parquet, run_rules
from feedrate.share.validation import manifest as validation_manifest
from feedrate.share.validation.findings import Finding, Refused, Rule, Validated, quote
from feedrate.share.validation.parquet import Opened, Rows, open_table
from feedrate.share.validation.rules import IDENTITIES, VALUES, broken

RUN, TRIALS = "run.json", "trials.parquet"
FILES = (RUN, *(f"{table}.parquet" for table in TABLES))
"""What a run's folder holds."""
FOLDER = Rule("folder", "A run's folder holds run.json and the three tables, nothing else, and is no link.")
SAME_MANIFEST = Rule("same_manifest", "run.json and the three tables hold the same manifest.")
PLACE = Rule("place", "A run's folder has its id for a name, below a folder named for its machine.")
SOME_TRIALS = Rule("some_trials", "It holds a trial at least.")
RULES: tuple[Rule, ...] = (
    *parquet.RULES,
    *validation_manifest.RULES,
    *(FOLDER, SAME_MANIFEST, PLACE, SOME_TRIALS),
    *(*VALUES, *IDENTITIES, *run_rules.RUN_RULES, *run_rules.TRACE_RULES, run_rules.SUMS),
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
        columns = {*run_rules.RUN_COLUMNS, *(run_rules.TRACE_COLUMNS if RUN in files else ())}
        findings, kept = _check_trials(trials, columns)
        if kept and RUN in files:
            findings = [*_check_folder(path, files, trials, in_place), *_check_traces(files, trials, kept)]
    except Refused as error:
        return replace(result, findings=(error.finding,))
    result = replace(result, rows=trials.count, findings=tuple(findings))
    run = trials.manifest
    return replace(result, run_id=run.run_id, machine_id=run.machine.machine_id) if result.valid else result


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
    """Hold all trials against the rules; where they keep to them, give some of their columns."""
    kept: list[pa.Table] = []
    for rows in file.rows():  # the first that break a rule end it
        if findings := [*broken(VALUES, rows, file.where)] or [*broken(IDENTITIES, rows, file.where)]:
            return findings, None
        kept.append(rows.table.select([name for name in rows.table.column_names if name in columns]))
    if not kept:
        return [SOME_TRIALS.finding(file.where, "no rows", "one trial at least")], None
    trials = Rows("trials", pa.concat_tables(kept), file.manifest)
    findings = [*run_rules.check_run(trials, file.where)]
    return findings, None if findings else trials


def _check_folder(path: Path, files: Mapping[str, Path], trials: Opened, in_place: bool) -> Iterator[Finding]:
    """Hold run.json and the names of the folders against the manifest of the trials."""
    own, run = validation_manifest.read_manifest(parquet.read(files[RUN], caps.MANIFEST_BYTES), RUN)
    if own != trials.fields:
        yield SAME_MANIFEST.finding(RUN, "another manifest", "that of trials.parquet")
    whole, wanted = path.absolute(), f"{run.machine.machine_id}/{run.run_id}"
    got, linked = "/".join(whole.parts[-2:]), whole.parent.is_symlink()
    if in_place and (got != wanted or linked):
        yield PLACE.finding("the folder", quote(got) + " behind a link" * linked, wanted)


def _check_traces(files: Mapping[str, Path], trials: Opened, kept: Rows) -> Iterator[Finding]:
    """Hold steps and samples against their trials; rows behind the first that are not sound are not looked at."""
    for name in ("steps", "telemetry"):
        where = f"{name}.parquet"
        file = open_table(parquet.read(files[where]), name, where)
        if file.fields != trials.fields:
            yield SAME_MANIFEST.finding(where, "another manifest", "that of trials.parquet")
            return
        unsound: list[Finding] = []
        yield from run_rules.check_traces(name, _sound(file, unsound), kept.frame(run_rules.TRACE_COLUMNS))
        yield from unsound


def _sound(file: Opened, unsound: list[Finding]) -> Iterator[Rows]:
    """The rows of a table as long as their values are sound; findings about the first that are not are noted."""
    for rows in file.rows():
        unsound += broken(VALUES, rows, file.where)
        if unsound:
            return
        yield rows
