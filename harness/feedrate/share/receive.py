"""The one file that ``make submit`` makes where no pull request can be opened, looked at as data and then taken in.

Whoever sends it is a stranger: names of entries are held against the names that a run has, sizes against their caps
while they are read (what an archive declares is not believed), and the run against the rules before a byte of it is
written below ``results/``. Nothing that is there is replaced.

Which runs the website may show: those that keep to every rule, and beside which nothing is damaged.

A file beside a run is read by every page that names the run; one that cannot be read leaves out that run, with the
reason, and not the whole site. What it wanted to say is not guessed: it may have been a withdrawal.
"""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from feedrate.schema.errors import InputError
from feedrate.share.proposal import BYTES_MOST, FILES_EACH, PARTS, RECORDED, SAID
from feedrate.share.validation import check
from feedrate.share.validation.check import Admitted
from feedrate.share.validation.findings import Finding, Rule, Validated, shown
from feedrate.share.validation.validator import RUN
from feedrate.store import marks, runs
from feedrate.store.marks import FILE_MOST, Labelled

_PLAIN = (0, 0o100000)
"""Kinds of an entry that are a plain file: not said, or said to be one."""


def take_in(archive: Path, console: Console, results: Path = runs.RESULTS) -> None:
    """Put the run of an archive below ``results/``.

    Args:
        archive: as ``submit.pack`` writes it.
        console: where it goes.
        results: where runs lie.

    Raises:
        InputError: it is not what ``make submit`` makes, breaks a rule, or the run is there already.
        EnvironmentFault: the disk cannot be written.
    """
    files = _files(archive)
    (folder,) = {path.rpartition("/")[0] for path in files if RECORDED.fullmatch(path)}
    _, machine_id, run_id = folder.split("/")
    target = results / machine_id / run_id
    if target.exists() or marks.place(target, "label").exists():
        raise InputError(f"{target}: is there already; a run is published once, and nothing of it is replaced")
    if other := next(results.glob(f"*/{run_id}/{RUN}"), None):
        raise InputError(f"{archive}: has the run id of {other.parent}; expected one that no other run has")
    label = files.pop(f"{folder}.label.json", None)
    said = marks.checked(label, Labelled, f"{archive}: label") if label else Labelled()
    _hold(folder, files, archive, results, console)
    runs.take_in(target, {path.rpartition("/")[2]: data for path, data in files.items()})
    if said.label or said.note:
        marks.label(target, said.label, said.note)
    console.print(f"{target} was taken in: make site shows it.", markup=False, highlight=False, soft_wrap=True)


def _files(archive: Path) -> dict[str, bytes]:
    """Read every entry of an archive; one that may not be there spoils the whole."""
    try:
        if (size := archive.stat().st_size) > BYTES_MOST:
            raise InputError(f"{archive}: {size:,} bytes; expected at most {BYTES_MOST:,}")
        with zipfile.ZipFile(archive) as held:
            files = dict(_entries(archive, held))
    except OSError as error:
        raise InputError(f"{archive}: {error.strerror or 'cannot be read'}; expected a zip file") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise InputError(f"{archive}: {shown(str(error))}; expected a zip file as make submit makes it") from error
    parts = [path.rpartition("/") for path in files if RECORDED.fullmatch(path)]
    folders = {folder for folder, _, _ in parts}
    labels = {path.removesuffix(".label.json") for path in files if SAID.fullmatch(path)}
    if {part for _, _, part in parts} != set(PARTS) or len(folders) != 1 or labels - folders:
        raise InputError(f"{archive}: does not hold one whole run; expected {', '.join(PARTS)} of one folder")
    return files


def _entries(archive: Path, held: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    infos = held.infolist()
    if len(infos) > FILES_EACH or len({info.filename for info in infos}) < len(infos):
        raise InputError(f"{archive}: {len(infos):,} entries; expected those of one run, each once")
    total = 0
    for info in infos:
        if not _may_be(info):
            raise InputError(f"{archive}: {shown(info.filename)}: expected files of results/MACHINE/RUN/ and no others")
        most = PARTS.get(info.filename.rpartition("/")[2], FILE_MOST)
        with held.open(info) as file:
            data = file.read(most + 1)
        total += len(data)
        if len(data) > most:
            raise InputError(f"{archive}: {shown(info.filename)} is larger than the {most:,} bytes that it may have")
        if total > BYTES_MOST:
            raise InputError(f"{archive}: holds more than {BYTES_MOST:,} bytes; expected those of one run")
        yield info.filename, data


def _may_be(info: zipfile.ZipInfo) -> bool:
    """Whether an entry is named like a file of a run, and is a plain file in a compression that is known."""
    said = SAID.fullmatch(info.filename)
    named = RECORDED.fullmatch(info.filename) or (said and said["kind"] == "label")
    kind = info.external_attr >> 16 & 0o170000
    return bool(named) and kind in _PLAIN and info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def _hold(folder: str, files: Mapping[str, bytes], archive: Path, results: Path, console: Console) -> None:
    """Hold a run against the rules, in a folder of its own that goes again."""
    with tempfile.TemporaryDirectory(prefix="feedrate-") as place:
        run = Path(place, folder)
        run.mkdir(parents=True)
        for path, data in files.items():
            Path(place, path).write_bytes(data)
        found = check.check(run, results, placed=True)
    if not found.valid:
        raise InputError(f"{archive}: is not valid:" + "".join(f"\n- {finding}" for finding in found.refusals))
    for flag in found.flags:
        console.print(f"Odd, look at it: {flag}", markup=False, highlight=False, soft_wrap=True)


BESIDE = Rule("beside", "What lies beside a run's folder is as feedrate writes it.")


def admitted(folders: Sequence[Path], remembered: Path | None = None) -> Admitted:
    """Say which runs may be shown.

    Args:
        folders: of runs.
        remembered: a file that remembers what passed (``check.admitted``).
    """
    found = check.admitted(folders, remembered)
    damaged = {folder: why for folder in found.folders if (why := _damaged(folder))}
    return Admitted(
        tuple(folder for folder in found.folders if folder not in damaged),
        (*found.refused, *(Validated(str(folder), findings=(why,)) for folder, why in damaged.items())),
    )


def _damaged(folder: Path) -> Finding | None:
    try:
        marks.about(folder)
    except InputError as error:
        got, _, wanted = str(error).removeprefix(f"{folder.parent}/").partition("; expected ")
        return Finding(BESIDE.name, "refused", "beside the folder", got, wanted or "what feedrate writes there")
    return None
