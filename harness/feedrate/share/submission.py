"""A run, made ready to be published: what would be public, to the byte, and whether it may be.

What is sent are the bytes that ``prepare`` read. They become a pull request (``pull_request``) or one file that can be
attached anywhere; that file is the same whenever it is made.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.redaction import names_someone
from feedrate.share import pull_request
from feedrate.share.pull_request import Change
from feedrate.share.validation import guard
from feedrate.share.validation.findings import MACHINE_ID, RUN_ID
from feedrate.share.validation.validator import FILES
from feedrate.store import marks
from feedrate.store.marks import Labelled
from feedrate.store.runs import StoredRun

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


@dataclass(frozen=True, slots=True)
class Submission:
    """A run that may be published."""

    run: StoredRun
    folder: str
    """Its folder in the repository: ``results/<machine_id>/<run_id>``."""
    files: Mapping[str, bytes]
    """Path in the repository to content: the run's files, and its label where it has one."""
    label: Labelled
    flags: tuple[str, ...]
    """What looks odd beside other runs: for review, no reason to refuse it."""

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

    def change(self) -> Change:
        """Give the pull request that publishes it."""
        run = self.run.manifest
        trials = sum(run.outcomes.values())
        paragraphs = [
            *filter(None, (self.label.label, self.label.note)),
            f"`{self.folder}`: {run.cells:,} cells of {', '.join(sorted(run.suites)) or 'no suite'} in up to "
            f"{run.blocks:,} blocks, {trials:,} trials, measured on {run.started_at[:10]} by feedrate "
            f"{run.feedrate_version} (protocol {run.protocol_version}).",
            "Made with `make submit`, which checked it.",
        ]
        title = f"Run {run.run_id} of {run.machine.machine_id}"
        return Change(self.files, f"run/{run.machine.machine_id}/{run.run_id}", title, "\n\n".join(paragraphs) + "\n")

    def check_new(self, checkout: Path, commit: str) -> None:
        """Refuse a run that a commit of the base branch has already, by its place or by its content."""
        recorded = [data for path, data in self.files.items() if path.startswith(f"{self.folder}/")]
        if there := pull_request.same(checkout, commit, self.files, recorded):
            raise InputError(
                f"{self.run.manifest.run_id}: was submitted already ({there[0]}); a run is published once. make sweep "
                "makes another"
            )


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
    """Read a run as it would be published. Writes nothing."""
    beside = marks.about(run.folder)
    if beside.withdrawn:
        raise InputError(
            f"{run.manifest.run_id}: was withdrawn on {beside.withdrawn.on} ({beside.withdrawn.why}); a withdrawn run "
            "is not published. Measure again and submit that run"
        )
    labelled = Labelled(label=beside.label, note=beside.note)
    if label or note:
        labelled = marks.labelled(label or beside.label, note or beside.note)
    folder = _folder(run)
    flags = _validate(run)
    files = {f"{folder}/{name}": _read(run.folder / name) for name in FILES}
    if labelled.label or labelled.note:
        files[f"{folder}.label.json"] = marks.encode(labelled)
    return Submission(run, folder, files, labelled, flags)


def _folder(run: StoredRun) -> str:
    machine_id, run_id = run.manifest.machine.machine_id, run.manifest.run_id
    for name, what, pattern in ((machine_id, "machine id", MACHINE_ID), (run_id, "run id", RUN_ID)):
        if not re.fullmatch(pattern, name):
            raise InputError(f"{run.folder}: {what} {name!r}; expected one that feedrate made. Not published")
    if run.folder.name != run_id:
        raise InputError(f"{run.folder}: holds run {run_id}; expected a folder of that name. Rename it back")
    return f"{pull_request.RESULTS}{machine_id}/{run_id}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path}: is missing; expected a whole run: {', '.join(FILES)}. Not published") from error


def _validate(run: StoredRun) -> tuple[str, ...]:
    """Hold a run against the rules for files of others, and list its flags."""
    validated = guard.check(run.folder, run.folder.parents[1])
    if not validated.valid:
        listed = "".join(f"\n  {finding}" for finding in validated.refusals)
        raise InputError(f"{run.folder}: is not valid and was not published:{listed}")
    return tuple(str(finding) for finding in validated.flags)


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
    """Write a run as one file that can be attached: a zip that unpacks at the repository's root."""
    path = out / f"submission-{submission.run.manifest.run_id}.zip"
    temporary = path.with_name(f"{path.name}.tmp")
    with _writing(path):
        # Parquet is compressed already, and what a compressor makes of the rest may differ between its versions.
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name, data in sorted(submission.files.items()):
                entry = zipfile.ZipInfo(name, _DAWN)
                entry.external_attr = 0o100644 << 16
                entry.create_system = 3
                archive.writestr(entry, data)
        temporary.replace(path)
    return path


def write_texts(run: StoredRun, lines: list[str], out: Path) -> Path:
    """Write texts of a run's trials that are too many for a terminal."""
    path = out / f"texts-{run.manifest.run_id}.txt"
    with _writing(path):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder of a file that is about to be written, and say what is wrong with the disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{path}: cannot be written: {error.strerror or error}; expected a folder with free space (OUT= names "
            "another). Nothing was published"
        ) from error
