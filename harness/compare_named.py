"""What the two names of a comparison stand for: a machine's id, a run's id, a run's folder or a ``trials.parquet``.

What lies elsewhere than below ``results/`` comes from others: it is validated by a guarded process before it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from harness import migration, store, store_beside, store_many
from harness.analysis.blocks import good
from harness.analysis.machines import CELL, SAME_IN_BOTH
from harness.errors import InputError, expected_one_of
from harness.incoming import check, opened
from harness.incoming.findings import Refused
from harness.manifest import RunManifest
from harness.records import TRIALS
from harness.redaction import one_line

EXPECTED = "a machine's id, a run's id, a run's folder or a trials.parquet"
_FILE = "trials.parquet"
_NAMED = 8
"""Machines, and runs, that a message lists at most."""
_SHOWN = 80
"""Characters of a wrong name that a message repeats."""
_LOOKED_AT = 100
"""Runs of a machine of which one is chosen, the newest."""


class Named:
    """A run that a name stands for, read as far as it is asked for."""

    def __init__(
        self,
        manifest: RunManifest,
        trials: Callable[[], pd.DataFrame],
        some: Callable[[Sequence[str]], pd.DataFrame],
        about: store_beside.Beside,
    ) -> None:
        """Take what is known of a run.

        Args:
            manifest: what it says of itself.
            trials: reads its rows of ``records.TRIALS``.
            some: reads some of their columns.
            about: what is said of it.
        """
        self.manifest, self.trials, self.about = manifest, trials, about
        self._some = some

    @classmethod
    def stored(cls, folder: Path) -> Named:
        """Take a run below ``results/``."""
        run = store.find(str(folder))
        return cls(
            run.manifest,
            lambda: run.table("trials"),
            lambda names: store_many.rows([folder], names),
            store_beside.about(folder),
        )

    @property
    def run_id(self) -> str:
        """Its id, fit to be printed."""
        return one_line(self.manifest.run_id)

    @cached_property
    def cells(self) -> frozenset[tuple[object, ...]]:
        """What tells each cell with an estimate, and what must agree before it is compared."""
        names = [*CELL, *SAME_IN_BOTH]
        known = good(self._some([*names, "outcome", "samples_per_s"]))[names].drop_duplicates().astype(object)
        return frozenset(known.where(known.notna(), None).itertuples(index=False, name=None))


def named(text: str, letter: str, results: Path) -> list[Named]:
    """List the runs that a name stands for: one, or those of a machine, the newest first.

    Args:
        text: the name.
        letter: A or B, for messages.
        results: where runs lie.

    Raises:
        InputError: it stands for nothing, for several runs of one id, or for a file that is not valid.
    """
    if not text:
        raise InputError(f"{letter}= is missing; expected {EXPECTED}: make compare A=… B=…")
    if (path := _path(text)) is not None:
        return _at(path, letter, results)
    folders = _newest_first(results.glob("*/*/run.json"))
    if of_machine := [folder for folder in folders if folder.parent.name == text]:
        return _that_count(of_machine, letter)
    places = [folder for folder in folders if folder.name == text]
    if len(places) > 1:
        raise InputError(
            f"{letter}={text}: {len(places)} machines have a run of this id; expected one: name its folder, such as "
            f"{places[0]}"
        )
    if places:
        return [Named.stored(places[0])]
    known = [*dict.fromkeys(folder.parent.name for folder in folders)][:_NAMED]
    known += [folder.name for folder in folders[:_NAMED]]
    others = expected_one_of(text, known) if known else f"{results} holds no run yet: make sweep makes one"
    raise InputError(f"{letter}={_short(text)}: names nothing; expected {EXPECTED}; {others}")


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _newest_first(manifests: Iterable[Path]) -> list[Path]:
    """Folders of runs; ids begin with the moment at which a run began."""
    return sorted((path.parent for path in manifests), key=lambda folder: folder.name, reverse=True)


def _path(text: str) -> Path | None:
    """The file or folder that a name is the path of; None for anything else."""
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or the home of nobody
        return None


def _at(path: Path, letter: str, results: Path) -> list[Named]:
    """The runs at a path; a run's file below ``results`` is the run, with what is said of it beside its folder."""
    folder = path.parent if path.name == _FILE and path.is_file() else path
    if folder.is_dir() and folder.resolve().is_relative_to(results.resolve()):
        if (folder / "run.json").is_file():
            return [Named.stored(folder)]
        if of_machine := _newest_first(path.glob("*/run.json")):
            return _that_count(of_machine, letter)
    file = path / _FILE if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{letter}={path}: a folder without a run; expected {EXPECTED}")
    return [_of_others(file, letter)]


def _that_count(folders: Sequence[Path], letter: str) -> list[Named]:
    """The newest runs of a machine, those left out that were withdrawn."""
    kept = [run for run in map(Named.stored, folders[:_LOOKED_AT]) if run.about.withdrawn is None]
    if not kept:
        machine = folders[0].parent.name
        raise InputError(f"{letter}={machine}: its runs were withdrawn; expected a machine with one that counts")
    return kept


def _of_others(file: Path, letter: str) -> Named:
    """A run from elsewhere."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = check.check(file)
    if not found.valid:
        first, *more = found.refusals
        rest = f" ({len(more)} more: python -m harness validate says all)" if more else ""
        raise InputError(f"{letter}={file}: no valid result: {first}{rest}")
    try:
        data = opened.read(file)
    except Refused as error:
        raise InputError(f"{letter}={file}: {error}") from error
    if hashlib.sha256(data).hexdigest() != found.sha256:
        raise InputError(f"{letter}={file}: changed while it was looked at; expected a file that nobody writes")
    table = pq.read_table(pa.BufferReader(data))
    manifest = migration.manifest(table.schema.metadata[migration.MANIFEST_KEY], file)
    whole = migration.complete(table, migration.arrow_schema(TRIALS), file)
    frame: pd.DataFrame = whole.to_pandas(types_mapper=store.nullable().get)
    return Named(manifest, lambda: frame, lambda names: frame[list(names)], store_beside.Beside())
