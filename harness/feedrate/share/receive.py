"""The one file that ``make submit`` makes where no pull request can be opened, validated as data and then stored.

Whoever sends it is a stranger: names of entries are held against the names that a run has, sizes against their caps
while they are read (what an archive declares is not believed), and the run against the rules before a byte of it is
written below ``results/``. Nothing that is there is replaced.
"""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from feedrate.schema.errors import InputError
from feedrate.share.proposal import BYTES_MOST, FILES_EACH, MARK, PARTS, RECORDED, say
from feedrate.share.validation import guard
from feedrate.share.validation.findings import quote
from feedrate.share.validation.validator import RUN
from feedrate.store import marks, runs
from feedrate.store.marks import FILE_MOST, Labelled

_PLAIN = (0, 0o100000)
"""Kinds of an entry that are a plain file: not stated, or stated to be one."""


def receive(archive: Path, console: Console, results: Path = runs.RESULTS) -> None:
    """Put the run of an archive, as ``submission.pack`` writes it, below ``results/``.

    Raises:
        InputError: it is not what ``make submit`` makes, breaks a rule, or the run is there already.
        EnvironmentFault: the disk cannot be written.
    """
    files = _read(archive)
    (folder,) = {path.rpartition("/")[0] for path in files if RECORDED.fullmatch(path)}
    _, machine_id, run_id = folder.split("/")
    target = results / machine_id / run_id
    if target.exists() or marks.place(target, "label").exists():
        raise InputError(f"{target}: is there already; a run is published once, and nothing of it is replaced")
    if other := next(results.glob(f"*/{run_id}/{RUN}"), None):
        raise InputError(f"{archive}: has the run id of {other.parent}; expected one that no other run has")
    text = files.pop(f"{folder}.label.json", None)
    label = marks.parse(text, Labelled, f"{archive}: label") if text else Labelled()
    _validate(folder, files, archive, results, console)
    runs.store(target, {path.rpartition("/")[2]: data for path, data in files.items()})
    if label.label or label.note:
        marks.label(target, label.label, label.note)
    say(console, f"{target} was taken in: make site shows it.")


def _read(archive: Path) -> dict[str, bytes]:
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
    parts = [path.rpartition("/") for path in files if RECORDED.fullmatch(path)]
    folders = {folder for folder, _, _ in parts}
    labels = {path.removesuffix(".label.json") for path in files if MARK.fullmatch(path)}
    if {part for _, _, part in parts} != set(PARTS) or len(folders) != 1 or labels - folders:
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


def _validate(folder: str, files: Mapping[str, bytes], archive: Path, results: Path, console: Console) -> None:
    """Hold a run against the rules, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="feedrate-") as place:
        run = Path(place, folder)
        run.mkdir(parents=True)
        for path, data in files.items():
            Path(place, path).write_bytes(data)
        validated = guard.check(run, results, in_place=True)
    if not validated.valid:
        raise InputError(f"{archive}: is not valid:" + "".join(f"\n- {finding}" for finding in validated.refusals))
    for flag in validated.flags:
        say(console, f"Odd, look at it: {flag}")
