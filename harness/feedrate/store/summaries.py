"""Summaries of very many runs: a row a cell of a run, in a data set that grows by what is new.

It lies in ``results/summaries/`` and holds nothing that the runs do not: the folder may be removed and made anew.
``cells`` has a row for every cell of every run, with what a search asks of its machine beside it, and ``runs`` a row
for every run; both lie in a folder a month of the run's start (``month=2026-01``). ``marks`` says who vouches for a run
and whether it is hidden, ``machines`` when the folder of each machine was listed. A later row of these two takes the
place of an earlier one, by the commit that it came with, its ``generation``.

What is new is seen without a list of all runs. Whatever comes into a machine's folder or leaves it changes the time of
that folder (``st_mtime_ns``), whoever did it: a sweep, a mark, ``git pull``. Only folders whose time differs from that
in ``machines`` are listed, and of those only runs that no row names are opened. A time younger than ``SETTLED_S`` may
hide a second change of the same tick: that folder is listed once more. A mark that is overwritten in its place, as
feedrate never does, is not seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from feedrate.schema.columns import AXIS_COLUMNS, Column
from feedrate.schema.errors import InputError
from feedrate.store import marks
from feedrate.store.dataset import Dataset
from feedrate.store.marks import SELF_REPORTED
from feedrate.store.migration import arrow_schema
from feedrate.store.runs import RESULTS

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "summaries"
_OTHERS = (FOLDER, "cluster")
"""Folders of a store that are no machine's."""
SETTLED_S = 2.0
"""Age of a folder's time from which on it tells of every change: file systems count in ticks of up to this."""
TOGETHER = 1_000
"""Machines whose new runs are summarised together and committed at once."""
_BESIDE_RUNS = "bench"
"""A folder of a machine that is no run."""
_AGAIN, _GONE = 0, -1
"""In place of a folder's time: it must be listed again; it is gone."""

RUNS: tuple[Column, ...] = (
    Column("machine_id", "string", "The machine, readable and unique."),
    Column("run_id", "string", "The run, by the time of its start."),
    Column("started_at", "string", "When the run began, ISO 8601, UTC."),
    Column("device", "string", "cpu or cuda."),
    Column("protocol_version", "int64", "Semantics of the measurement; cells of others are not compared."),
    Column("cpu", "string", "Model of the processor."),
    Column("gpu", "string", "Name of the accelerator; null without one."),
    Column("cores", "int64", "Hardware threads."),
    Column("storage", "string", "Class of the disk under the data (nvme, ssd, network …); null where not known."),
)
"""What is said of a run, in both tables."""
CELLS: tuple[Column, ...] = (
    *RUNS,
    Column("cell_id", "string", "Hash of the axes that apply and differ from their defaults."),
    Column("suite", "string", "The suite that asked for the cell."),
    Column("workload_version", "int64", "Version of the workload."),
    *AXIS_COLUMNS,
    Column("asked", "bool", "Whether the matrix asked for the cell, which others (a ceiling, the control) only serve."),
    Column("n", "int64", "Blocks that ended well."),
    Column("failed", "int64", "Trials that did not end well."),
    Column("mean_log", "float64", "Mean over blocks of log throughput (samples/s)."),
    Column("var_log", "float64", "Its variance between blocks, n - 1 in the denominator; null where n < 2."),
    Column("samples_per_s", "float64", "Geometric mean over blocks.", "samples/s"),
    Column("lo", "float64", "Lower end of its 95 % interval, Student's t; null where n < 2.", "samples/s"),
    Column("hi", "float64", "Upper end.", "samples/s"),
)
_NEWER = Column("generation", "int64", "The commit that the row came with.")
_MARKS: tuple[Column, ...] = (
    *RUNS[:2],
    Column("tier", "string", "Who vouches for the run."),
    Column("hidden", "bool", "Whether it was withdrawn or removed, or has a damaged file beside it."),
    _NEWER,
)
_MACHINES = (RUNS[0], Column("mtime_ns", "int64", "Time of the machine's folder when it was listed.", "ns"), _NEWER)
_TABLES = {"cells": CELLS, "runs": RUNS, "marks": _MARKS, "machines": _MACHINES}
_VIEWS = """
CREATE VIEW standing AS
  SELECT machine_id, run_id, arg_max(tier, generation) AS tier, arg_max(hidden, generation) AS hidden
  FROM marks_files GROUP BY machine_id, run_id;
CREATE VIEW known AS
  SELECT f.*, coalesce(tier, 'self-reported') AS tier, coalesce(hidden, false) AS hidden
  FROM runs_files f LEFT JOIN standing USING (machine_id, run_id);
CREATE VIEW runs AS SELECT * EXCLUDE (hidden) FROM known WHERE NOT hidden;
CREATE VIEW cells AS
  SELECT f.*, coalesce(tier, 'self-reported') AS tier
  FROM cells_files f LEFT JOIN standing USING (machine_id, run_id) WHERE NOT coalesce(hidden, false);
"""
_LISTED = "SELECT machine_id, arg_max(mtime_ns, generation) FROM machines_files GROUP BY machine_id"
_KNOWN = "SELECT machine_id, run_id, tier, hidden FROM known WHERE machine_id IN (SELECT unnest(?::VARCHAR[]))"

_NEWEST = """
(SELECT machine_id, run_id FROM known ORDER BY started_at DESC, run_id DESC LIMIT $most)
UNION
(SELECT machine_id, run_id FROM known WHERE tier = 'reference' ORDER BY started_at DESC, run_id DESC LIMIT $most)
"""


class Summary(NamedTuple):
    """What some runs are summed up in."""

    cells: pa.Table
    """The columns ``CELLS``."""
    runs: pa.Table
    """The columns ``RUNS``; a run without a row in it is opened again by the next :func:`add`."""


@dataclass(frozen=True, slots=True)
class Added:
    """What a call of :func:`add` found."""

    runs: int = 0
    """New ones, which have rows now."""
    left_out: int = 0
    """Runs that were opened and got no row."""
    marked: int = 0
    """Runs that became hidden or visible, or whose tier changed."""

    def __add__(self, other: Added) -> Added:
        return Added(self.runs + other.runs, self.left_out + other.left_out, self.marked + other.marked)


class _Standing(NamedTuple):
    """What marks say of a run; the default of a run that has none."""

    tier: str = SELF_REPORTED
    hidden: bool = False


class _Seen(NamedTuple):
    """A machine's folder."""

    mtime_ns: int
    """Its time before it was listed, ``_AGAIN`` or ``_GONE``."""
    runs: Mapping[str, _Standing] = {}
    """Those that have ended, with what lies beside each."""


def kept(results: Path = RESULTS) -> bool:
    """Tell whether a store has summaries."""
    return _dataset(results).kept


def add(summarise: Callable[[Sequence[Path]], Summary], results: Path = RESULTS) -> Added:
    """Bring the summaries to what lies in a store: new runs, marks, runs that are gone.

    Args:
        summarise: gives the rows of new runs, from their folders.
        results: the store. Another writer of its summaries is waited for.

    Raises:
        InputError: the summaries are of another version.
        EnvironmentFault: the disk cannot be written.
    """
    dataset, found = _dataset(results), Added()
    with dataset.writing():
        with dataset.opened() as database:
            listed = dict(database.execute(_LISTED).fetchall())
        changed = _changed(results, listed)
        for at in range(0, len(changed), TOGETHER):
            found += _add(dataset, {name: listed.get(name) for name in changed[at : at + TOGETHER]}, summarise)
    return found


def put(summary: Summary, machines: Mapping[str, int], results: Path = RESULTS) -> None:
    """Add rows of runs that have none yet, made elsewhere than by :func:`add`.

    Args:
        summary: of the runs.
        machines: time (``st_mtime_ns``) of each machine's folder, in which no other runs lie.
        results: the store.

    Raises:
        InputError: the summaries are of another version.
        EnvironmentFault: the disk cannot be written.
    """
    dataset = _dataset(results)
    with dataset.writing():
        looked = [{"machine_id": name, "mtime_ns": mtime_ns} for name, mtime_ns in machines.items()]
        dataset.append(_parts(summary, (), looked, dataset.generation + 1))


def compact(results: Path = RESULTS) -> int:
    """Merge small files where there are many, and return how many were merged; no answer changes.

    Raises:
        InputError: the summaries are of another version.
        EnvironmentFault: the disk cannot be written.
    """
    return _dataset(results).compact()


def newest(most: int, results: Path = RESULTS) -> list[Path]:
    """Give the folders of so many of the newest runs, and of as many reference runs at most, oldest first.

    Withdrawn runs are among them, so that their pages can say why; runs that are gone are not.
    """
    with _dataset(results).opened() as database:
        database.execute(_VIEWS)
        found = database.execute(_NEWEST, {"most": most}).fetchall()
    folders = (results / machine / run for machine, run in found)
    return sorted((each for each in folders if (each / "run.json").is_file()), key=lambda each: (each.name, each))


def query(sql: str, parameters: Sequence[object] = (), results: Path = RESULTS) -> pa.Table:
    """Ask the summaries in DuckDB's SQL.

    Args:
        sql: a question to the views ``cells`` (``CELLS``) and ``runs`` (``RUNS``), each with ``tier`` and ``month``;
            hidden runs have no rows in them.
        parameters: what stands for each ``?`` in it.
        results: the store; one without summaries has no rows.
    """
    with _dataset(results).opened() as database:
        database.execute(_VIEWS)
        return database.sql(sql, params=list(parameters)).to_arrow_table()


def _dataset(results: Path) -> Dataset:
    return Dataset(results / FOLDER, _TABLES)


def _changed(results: Path, listed: Mapping[str, int]) -> list[str]:
    """Machines whose folder is not as it was listed, or is gone."""
    with os.scandir(results) as entries:
        machines = (each for each in entries if each.is_dir() and each.name not in _OTHERS and each.name[0] != ".")
        there = {each.name: each.stat().st_mtime_ns for each in machines}
    gone = (name for name, mtime_ns in listed.items() if name not in there and mtime_ns != _GONE)
    return sorted([*(name for name, mtime_ns in there.items() if listed.get(name) != mtime_ns), *gone])


def _add(dataset: Dataset, listed: Mapping[str, int | None], summarise: Callable[[Sequence[Path]], Summary]) -> Added:
    """Bring the rows of some machines to what lies in their folders, in one commit."""
    results = dataset.folder.parent
    known = _known(dataset, list(listed))
    seen = {name: _look(results / name, known[name]) for name in listed}
    new = [results / name / run for name in listed for run in seen[name].runs if run not in known[name]]
    summary = summarise(new) if new else Summary(*(arrow_schema(each).empty_table() for each in (CELLS, RUNS)))
    named = set(zip(*(summary.runs[key].to_pylist() for key in ("machine_id", "run_id")), strict=True))
    left_out = {path.parent.name for path in new if (path.parent.name, path.name) not in named}
    times = {name: _AGAIN if name in left_out else seen[name].mtime_ns for name in listed}
    marked = [
        {"machine_id": name, "run_id": run, **standing._asdict()}
        for name in listed
        for run, standing in _changes(seen[name].runs, known[name])
        if run in known[name] or (name, run) in named
    ]
    looked = [{"machine_id": name, "mtime_ns": time_ns} for name, time_ns in times.items() if time_ns != listed[name]]
    if named or marked or looked:
        dataset.append(_parts(summary, marked, looked, dataset.generation + 1))
    return Added(len(named), len(new) - len(named), len(marked))


def _known(dataset: Dataset, machines: Sequence[str]) -> dict[str, dict[str, _Standing]]:
    """Runs of some machines that have rows, with what marks say of them."""
    found: dict[str, dict[str, _Standing]] = {name: {} for name in machines}
    with dataset.opened() as database:
        database.execute(_VIEWS)
        for machine, run, *standing in database.execute(_KNOWN, [machines]).fetchall():
            found[machine][run] = _Standing(*standing)
    return found


def _look(folder: Path, known: Mapping[str, Any]) -> _Seen:
    """List a machine's folder; of runs that are known nothing is opened, nor of marks that are not there."""
    if not folder.is_dir():
        return _Seen(_GONE)
    mtime_ns = folder.stat().st_mtime_ns
    settled = time.time_ns() - mtime_ns > SETTLED_S * 1e9
    with os.scandir(folder) as entries:
        names = {entry.name: entry.is_dir() for entry in entries}
    runs = {}
    for name in sorted(name for name, is_folder in names.items() if is_folder and name != _BESIDE_RUNS):
        if name in known or (folder / name / "run.json").is_file():
            beside = any(marks.place(folder / name, kind).name in names for kind in marks.KINDS)
            runs[name] = _said_of(folder / name) if beside else _Standing()
        else:
            settled = False  # it has not ended, and its end will not change the time of this folder
    return _Seen(mtime_ns if settled else _AGAIN, runs)


def _said_of(run: Path) -> _Standing:
    """What lies beside a run; one beside which a file is damaged is hidden: it may have been a withdrawal."""
    try:
        beside = marks.about(run)
    except InputError:
        return _Standing(hidden=True)
    return _Standing(beside.tier, beside.withdrawn is not None)


def _changes(runs: Mapping[str, _Standing], known: Mapping[str, _Standing]) -> Iterator[tuple[str, _Standing]]:
    """What is said of a machine's runs now and was not before; those that are gone are hidden."""
    for run in {**runs, **known}:
        before = known.get(run, _Standing())
        standing = runs.get(run, before._replace(hidden=True))
        if standing != before:
            yield run, standing


def _parts(
    summary: Summary, marked: Sequence[Mapping[str, Any]], looked: Sequence[Mapping[str, Any]], generation: int
) -> Iterator[tuple[str, str, pa.Table]]:
    """Sort rows by what becomes a file of its own (``Dataset.append``).

    Those of one accelerator and processor lie together, so that a search for it skips what it does not need.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for table, rows in summary._asdict().items():
        ordered = rows.sort_by([(name, "ascending") for name in ("gpu", "cpu", "machine_id", "run_id")])
        months = pc.utf8_slice_codeunits(ordered["started_at"], 0, 7)
        for month in sorted(pc.unique(months).to_pylist()):
            yield table, f"month={month}", ordered.filter(pc.equal(months, month))
    for table, lines in (("marks", marked), ("machines", looked)):
        newer = [{**line, "generation": generation} for line in lines]
        yield table, "", pa.Table.from_pylist(newer, arrow_schema(_TABLES[table]))
