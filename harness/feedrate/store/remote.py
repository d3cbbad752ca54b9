"""Results between this machine and a store (``location``): handed in once they are whole, copied where all is read.

What is measured for a store is written as for a folder, into the store's outbox here: a journal is synced line by line
and locked, which no store offers. When a run has ended it is handed in: its tables, then ``run.json``, without which no
reader sees it, each put whole; only then does it leave the outbox. Whatever ends this in between, the next sweep for
that store hands in what is left. One that is there with another content is never overwritten. What a script's report
says of code of the user's (``runs.report_of``) stays in the outbox.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from pathlib import Path

from feedrate.schema.columns import TABLES
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.store import location, marks, runs

_RUN = "run.json"
_PARTS = (*(f"{table}.parquet" for table in TABLES), _RUN)
COPIES = Path("build/store")
"""Where copies of stores lie, one a store."""
_AT_ONCE = 16
"""Runs that are copied together: what is lost of a copy that is cut."""
_NAME = r"[A-Za-z0-9][\w.+-]*"
_PART = re.compile(rf"(?P<folder>{_NAME}/{_NAME})/(?:{'|'.join(map(re.escape, _PARTS))})", re.ASCII)
_SMALL = re.compile(rf"{_NAME}/(?:bench/{_NAME}\.json|{_NAME}\.(?:{'|'.join(marks.KINDS)})\.json)", re.ASCII)
"""Bench records and marks: small files, of which marks change."""


def hand_in(ended: Path, results: Path) -> Path:
    """Put a run's folder, or a bench record's file, from the outbox into its store: where it lies now.

    Raises:
        InputError: another run of this name is there.
        EnvironmentFault: the store did not take it; it stays where it is.
    """
    if not location.remote(results):
        return ended
    target = results / ended.relative_to(runs.outbox(results)).as_posix()
    try:
        if ended.is_file():
            location.put(target, ended)
            ended.unlink()
        else:
            _put_run(ended, target)
            shutil.rmtree(ended)
    except EnvironmentFault as fault:
        raise EnvironmentFault(f"{fault}. {_left(ended)}") from fault
    return target


def _left(ended: Path) -> str:
    return f"Nothing is lost: {ended} is whole, and the next sweep for this store hands it in"


def require_handed_in(folder: Path, results: Path) -> None:
    """Refuse to end well, with an EnvironmentFault, where a store did not take a run."""
    if location.remote(results) and not location.remote(folder):
        raise EnvironmentFault(f"{results}: the store did not take the run, for the reason above. {_left(folder)}")


def _put_run(folder: Path, target: Path) -> None:
    if location.is_file(target / _RUN):
        if location.contents([target / _RUN]) == [(folder / _RUN).read_bytes()]:
            return
        expected = f"expected none, as nothing is overwritten. {folder} stays: move one of them away"
        raise InputError(f"{target}: holds another run of this name; {expected}")
    for name in _PARTS:
        location.put(target / name, folder / name)


def hand_in_left(results: Path, machine_id: str) -> list[Path]:
    """Hand in what earlier sweeps of a machine left in a store's outbox: call it under ``runs.machine_lock``."""
    if not location.remote(results):
        return []
    outbox = runs.outbox(results) / machine_id
    left = [*(path.parent for path in outbox.glob(f"*/{_RUN}")), *outbox.glob("bench/*.json")]
    return [hand_in(path, results) for path in sorted(left)]


def copy(results: Path, into: Path = COPIES) -> Path:
    """Give all results of a store as a folder below another, for what reads every byte; a folder is given back.

    Runs, which never change, are fetched once; marks anew each time, and what the store lost goes.

    Raises:
        EnvironmentFault: the store cannot be read.
    """
    if not location.remote(results):
        return results
    here = into / runs.outbox(results).name
    here.mkdir(parents=True, exist_ok=True)
    with (here / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _update(here, results)
    return here


def _update(here: Path, results: Path) -> None:
    names, box = location.listing(results), runs.outbox(results)
    whole = {match["folder"] for name in names if (match := _PART.fullmatch(name)) and name.endswith(f"/{_RUN}")}
    for path in [path.parent for path in here.glob(f"*/*/{_RUN}")]:
        if path.relative_to(here).as_posix() not in whole:
            shutil.rmtree(path)
    _fetch_runs(results, sorted(folder for folder in whole if not (here / folder).exists()), set(names), here)
    small = [name for name in names if _SMALL.fullmatch(name)]
    for path in [*here.glob("*/*.json"), *here.glob("*/bench/*.json")]:
        path.unlink()
    _fetch(results, small, here)
    for report in box.glob("*/*.report.json"):
        shutil.copy(report, here / report.relative_to(box))


def _fetch_runs(results: Path, folders: list[str], names: set[str], here: Path) -> None:
    """Copy whole runs, so that a folder under a run's name holds all of it."""
    arriving = here / ".arriving"
    for at in range(0, len(folders), _AT_ONCE):
        shutil.rmtree(arriving, ignore_errors=True)
        group = folders[at : at + _AT_ONCE]
        parts = [f"{folder}/{name}" for folder in group for name in _PARTS]
        _fetch(results, [name for name in parts if name in names], arriving)
        for folder in group:
            (here / folder).parent.mkdir(exist_ok=True)
            (arriving / folder).rename(here / folder)
    shutil.rmtree(arriving, ignore_errors=True)


def _fetch(results: Path, names: list[str], into: Path) -> None:
    for folder in {(into / name).parent for name in names}:
        folder.mkdir(parents=True, exist_ok=True)
    if names:
        location.get(results, names, into)
