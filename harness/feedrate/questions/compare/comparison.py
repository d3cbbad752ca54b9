"""Two runs compared: which runs two names stand for, and everything that their records say of each other.

A name is a machine's id, a run's id, a run's folder or a ``trials.parquet``. Of all pairs that two names allow, the two
runs with most cells in common are taken, of equals the newest; a reader who wants others names the runs. Files
from elsewhere than ``results/`` come from others: a guarded process validates them before they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from feedrate.analysis import noise
from feedrate.analysis.blocks import successful
from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import judge_claims
from feedrate.analysis.machines import CELL, OF_SCRIPT, SAME_IN_BOTH, one_setting
from feedrate.analysis.storage import believable
from feedrate.plan import suite
from feedrate.plan.claim import Claims
from feedrate.questions.compare.analysis import Compared, claims, compared
from feedrate.schema import plugins
from feedrate.schema.columns import TRIALS
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.schema.redaction import one_line
from feedrate.share import validator
from feedrate.store import location, marks, runs, tables
from feedrate.store.manifest import RunManifest, read_manifest

EXPECTED = "a machine's id, a run's id, a run's folder or a trials.parquet"
_NAMED = 8
"""Machines, and runs, that a message lists at most."""
_SHOWN = 80
"""Characters of a wrong name that a message repeats."""
_NEWEST = 100
"""Runs of a machine of which one is chosen."""
_MOST_ESTIMATES = 20_000_000
"""Cells × blocks of a run: all of them lie in memory at once."""


@dataclass(frozen=True)
class Side:
    """One of the two runs, or a candidate for it; its trials are read when they are needed."""

    manifest: RunManifest
    read: Callable[[Sequence[str] | None], pd.DataFrame]
    """Reads some columns of the trials, or all."""
    beside: marks.Beside

    @property
    def run_id(self) -> str:
        """Its id, fit to be printed."""
        return one_line(self.manifest.run_id)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Rows of ``columns.TRIALS``."""
        return self.read(None)

    @cached_property
    def grade(self) -> str:
        """How quiet its machine was: A to D."""
        return noise.grade(self.trials, self.manifest.control).letter

    @cached_property
    def cells(self) -> frozenset[tuple[object, ...]]:
        """Each cell with an estimate: its id, device, and what must agree before it is compared."""
        names = [*CELL, *SAME_IN_BOTH]
        ended = successful(self.read([*names, *OF_SCRIPT, "outcome", "samples_per_s"]))
        settings = one_setting(ended)[names].drop_duplicates().astype(object)
        return frozenset(settings.where(settings.notna(), None).itertuples(index=False, name=None))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, B held against A."""

    a: Side
    b: Side
    found: Compared
    verdicts: pd.DataFrame
    """A row a claim that both tested: ``analysis.claims``."""
    claims: Claims
    notes: Sequence[str]
    """Why these runs were taken, and what speaks against them."""


def compare(a: str, b: str, results: Path) -> Comparison:
    """Compare what two names stand for.

    Raises:
        InputError: a name stands for nothing, a file is not valid, both are one run, a run is empty or too large, or no
            cell can be compared.
    """
    of_a, of_b = candidates(a, "A", results), candidates(b, "B", results)
    pairs = [(one, other) for one in of_a for other in of_b if one.manifest.run_id != other.manifest.run_id]
    if not pairs:
        raise InputError(f"A and B are the same run, {of_a[0].run_id}; expected two. make sweep makes another")
    one, other = max(pairs, key=_rank) if len(pairs) > 1 else pairs[0]
    notes = [*_notes("A", one, len(of_a)), *_notes("B", other, len(of_b))]
    first, second = ((trials, cells_with_ceilings(trials)) for trials in map(believable, (one.trials, other.trials)))
    # Suites whose settings are none to choose from: there for claims, or for feedrate itself.
    unranked = [name for name in plugins.names("feedrate.suites") if not suite.for_machines(name)]
    comparison = compared(first, second, unranked)
    if not len(comparison.cells):
        reasons = "; ".join(f"{n} {reason}" for reason, n in comparison.unmatched["reason"].value_counts().items())
        raise InputError(
            f"A (run {one.run_id}) and B (run {other.run_id}) have no setting in common that can be compared: "
            f"{one_line(reasons)}. Expected two runs of one suite, or of one script by its name, on one kind of device "
            "and the same data"
        )
    asked = suite.claims()
    return Comparison(one, other, comparison, claims(_verdicts(one, asked), _verdicts(other, asked)), asked, notes)


def candidates(text: str, letter: str, results: Path) -> list[Side]:
    """List the runs that a name stands for: one, or those of a machine, the newest first.

    Raises:
        InputError: it stands for nothing, or for a file that is not valid.
    """
    if not text:
        raise InputError(f"{letter} is missing; expected {EXPECTED}: feedrate compare A B")
    try:
        path = location.parse(text)
        if location.remote(path) or path.exists():
            return [_at(path, letter, results)]
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or the home of nobody
        pass
    folders = runs.folders(results)[::-1]
    if of_machine := [folder for folder in folders if folder.parent.name == text]:
        return _of_machine(of_machine, letter)
    if named := [_stored(folder) for folder in folders if folder.name == text]:
        return named
    names = [*dict.fromkeys(folder.parent.name for folder in folders)][:_NAMED]
    names += [folder.name for folder in folders[:_NAMED]]
    others = expected_one_of(text, names) if names else f"{results} holds no run yet: make sweep makes one"
    raise InputError(f"{letter}={one_line(text)[:_SHOWN]}: names nothing; expected {EXPECTED}; {others}")


def _at(path: Path, letter: str, results: Path) -> Side:
    """The run at a path; that of a file below ``results`` has the marks beside its folder."""
    if location.remote(path):
        if not location.is_file(path / "run.json"):
            raise InputError(f"{letter}={path}: no run's folder; expected {EXPECTED}")
        return _stored(path)
    folder = path if path.is_dir() else path.parent
    inside = not location.remote(results) and folder.resolve().is_relative_to(results.resolve())
    if inside and (folder / "run.json").is_file():
        return _stored(folder)
    file = path / "trials.parquet" if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{letter}={path}: a folder without a run; expected {EXPECTED}")
    return _of_others(file, letter)


def _stored(folder: Path) -> Side:
    """A run below ``results/``."""
    run = runs.at(folder)
    return Side(
        run.manifest,
        lambda names: run.table("trials") if names is None else runs.rows([folder], names),
        marks.about(folder),
    )


def _of_machine(folders: Sequence[Path], letter: str) -> list[Side]:
    """The newest runs of a machine, without those that were withdrawn."""
    kept = [run for run in map(_stored, folders[:_NEWEST]) if run.beside.withdrawn is None]
    if not kept:
        machine = folders[0].parent.name
        raise InputError(f"{letter}={machine}: its runs were withdrawn; expected a machine with one that counts")
    return kept


def _of_others(file: Path, letter: str) -> Side:
    """A run from elsewhere."""
    import pyarrow.parquet as pq

    checked = validator.check(file)
    if not checked.valid:
        raise InputError(f"{letter}={file}: no valid result: {checked.findings[0]}; feedrate validate says all")
    table = pq.read_table(file, **runs.CHECKED)
    manifest = read_manifest(table.schema.metadata[tables.MANIFEST_KEY], file)
    whole = tables.complete(table, tables.arrow_schema(TRIALS), file)
    frame: pd.DataFrame = whole.to_pandas(types_mapper=runs.nullable().get)
    return Side(manifest, lambda names: frame if names is None else frame[list(names)], marks.Beside())


def _rank(pair: tuple[Side, Side]) -> tuple[object, ...]:
    """Most cells in common first, then the newest, B after A."""
    begun = [(run.manifest.started_at, run.manifest.run_id) for run in pair]
    return len(pair[0].cells & pair[1].cells), max(begun), min(begun), begun[1]


def _notes(letter: str, side: Side, of: int) -> Iterator[str]:
    """Say why a run was taken, of so many candidates, and what speaks against it; refuse one that is too large."""
    cells, blocks = side.trials["cell_id"].nunique(), side.trials["block"].nunique()
    if not 0 < cells * blocks <= _MOST_ESTIMATES:
        raise InputError(
            f"{letter}: run {side.run_id} holds {cells:,} settings in {blocks:,} repetitions; expected 1 to "
            f"{_MOST_ESTIMATES:,} settings × repetitions"
        )
    if of > 1:
        yield (
            f"{letter} names a machine. Of its {of} newest runs, {side.run_id} shares most settings with the other "
            "side; of several such runs it is the newest."
        )
    if withdrawn := side.beside.withdrawn:
        yield f"{letter}'s run was withdrawn on {withdrawn.on}: {withdrawn.why}"


def _verdicts(side: Side, asked: Claims) -> pd.DataFrame:
    """The verdicts of a run by itself."""
    return judge_claims([observe(side.trials, asked, side.manifest.untestable)], asked).claims
