"""Very many runs in one table: a row a cell of a run, in a few parquet files that only come and go whole.

``results/compact/`` holds nothing that the runs do not. ``state.json`` names the files that count and what marks say of
runs, and its replacement is the only commit, whenever a writer is killed. Files that it does not name were left by such
a writer, or were merged since; the next writer removes them, so that those who read meanwhile find them still.

Each call of :func:`append` lists the names in all machines' folders, and opens the runs that have no row yet. Files lie
in a folder a year of the run's start; small ones are merged with what is new once there are many.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from feedrate.schema.columns import AXIS_COLUMNS, Column
from feedrate.schema.errors import InputError
from feedrate.store import marks
from feedrate.store.runs import RESULTS, make_folder, write_whole
from feedrate.store.tables import arrow_schema

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

FOLDER = "compact"
TOGETHER = 1_000
"""New runs that are estimated together and committed at once."""
MANY, SMALL_BYTES = 32, 2**20
"""So many files below this size are merged: rows of all are in memory meanwhile, some ten times as large."""
GROUP_ROWS = 100_000
MEMORY = "400MB"
"""What DuckDB may take before it writes to disk."""
FORMAT = 1
_STATE, _LOCK = "state.json", ".lock"
_NO_MACHINES = (FOLDER, "cluster", ".outbox")

RUN: tuple[Column, ...] = (
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
"""What every row says of its run."""
CELLS: tuple[Column, ...] = (
    *RUN,
    Column("first", "bool", "Whether it is the first row of its run: runs are counted by these."),
    Column("cell_id", "string", "Hash of the axes that apply and differ from their defaults."),
    Column("suite", "string", "The suite that asked for the cell."),
    Column("workload_version", "int64", "Version of the workload."),
    *AXIS_COLUMNS,
    Column("asked", "bool", "Whether the matrix asked for the cell, which others (a ceiling, the control) only serve."),
    Column("n", "int64", "Blocks that ended well."),
    Column("failed", "int64", "Trials that did not end well."),
    Column("samples_per_s", "float64", "Geometric mean over blocks.", "samples/s"),
    Column("lo", "float64", "Lower end of its 95 % interval, Student's t; null where n < 2.", "samples/s"),
    Column("hi", "float64", "Upper end.", "samples/s"),
)
_YEAR = Column("year", "string", "Of the start; the name of the folder.")
_MARKS = (*RUN[:2], Column("tier", "string", ""), Column("hidden", "bool", ""))
_USUAL = (marks.SELF_REPORTED, False)
_VIEWS = """
CREATE VIEW every AS
  SELECT f.*, coalesce(tier, 'self-reported') AS tier, coalesce(hidden, false) AS hidden
  FROM files f LEFT JOIN marks USING (machine_id, run_id);
CREATE VIEW cells AS SELECT * EXCLUDE (hidden) FROM every WHERE NOT hidden;
CREATE VIEW runs AS SELECT * FROM cells WHERE first;
CREATE VIEW known AS SELECT machine_id, run_id, started_at, tier FROM every WHERE first;
"""
_NEWEST = """
(SELECT machine_id, run_id FROM known ORDER BY started_at DESC, run_id DESC LIMIT $most)
UNION
(SELECT machine_id, run_id FROM known WHERE tier = 'reference' ORDER BY started_at DESC, run_id DESC LIMIT $most)
"""
_ABSENT = "SELECT machine_id, run_id FROM {} ANTI JOIN {} USING (machine_id, run_id) ORDER BY run_id, machine_id"
Estimate = Callable[[Sequence[Path]], "pa.Table"]
"""Gives the rows (``CELLS``) of the runs in some folders; a run without any is asked for again by the next call."""


class Appended(NamedTuple):
    """New runs, which have rows now, others that got none, and of all those that are withdrawn, gone or damaged."""

    runs: int
    left_out: int
    hidden: int


@dataclass(frozen=True, slots=True)
class _State:
    """What counts: the last commit's number, paths such as ``year=2026/<number>-0.parquet``, unusual runs' marks."""

    number: int = 0
    files: tuple[str, ...] = ()
    marks: tuple[tuple[str, str, str, bool], ...] = ()


def kept(folder: Path) -> bool:
    """Tell whether anything was ever written into a data set's folder."""
    return (folder / _STATE).is_file()


def append(estimate: Estimate, results: Path = RESULTS, folder: Path | None = None) -> Appended:
    """Bring a data set, by default ``compact`` in the store, to what lies there: new runs, marks, runs that are gone.

    Nothing new writes nothing; another writer is waited for. One of another version is an InputError.
    """
    folder = folder or results / FOLDER
    with _writing(folder):
        before = _state(folder)
        listed, marked = _listed(results)
        with _opened(folder) as database:
            database.from_arrow(listed).create_view("listed")
            new = database.execute(_ABSENT.format("listed", "known")).fetchall()
            gone = database.execute(_ABSENT.format("known", "listed")).fetchall()
        standing = {name: beside for name in marked if (beside := _standing(results.joinpath(*name))) != _USUAL}
        standing |= dict.fromkeys(gone, (marks.SELF_REPORTED, True))
        state = replace(before, marks=tuple(sorted((*name, *beside) for name, beside in standing.items())))
        if state != before:
            _commit(folder, state)
        paths = [path for name in new if ((path := results.joinpath(*name)) / "run.json").is_file()]
        count = 0
        for at in range(0, len(paths), TOGETHER):
            rows = estimate(paths[at : at + TOGETHER])
            count += sum(rows["first"].to_pylist())
            put(rows, folder)
        return Appended(count, len(paths) - count, sum(hidden for *_, hidden in state.marks))


def put(rows: pa.Table, folder: Path) -> None:
    """Add rows (``CELLS``) of runs that have none yet to a data set to which nobody else writes; merge small files.

    Raises:
        InputError: the data set is of another version.
        EnvironmentFault: the disk cannot be written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    if not len(rows):
        return
    folder.mkdir(parents=True, exist_ok=True)
    state = _state(folder)
    schema = arrow_schema((*CELLS, _YEAR))
    years = ds.partitioning(pa.schema([schema.field(_YEAR.name)]), flavor="hive")
    with_year = rows.append_column(_YEAR.name, pc.utf8_slice_codeunits(rows["started_at"], 0, 4)).cast(schema)
    small = [name for name in state.files if (folder / name).stat().st_size < SMALL_BYTES]
    small = small if len(small) >= MANY else []
    merged = ds.dataset([str(folder / name) for name in small], schema, partitioning=years) if small else None
    made: list[str] = []
    ds.write_dataset(
        ds.dataset([merged, ds.dataset(with_year)]) if merged else with_year,
        folder,
        format="parquet",
        partitioning=years,
        basename_template=f"{state.number + 1:08d}-{{i}}.parquet",
        existing_data_behavior="overwrite_or_ignore",
        file_options=ds.ParquetFileFormat().make_write_options(compression="zstd", write_page_checksum=True),
        file_visitor=lambda file: made.append(str(Path(file.path).relative_to(folder))),
        max_rows_per_group=GROUP_ROWS,
    )
    for name in made:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
    files = (*(name for name in state.files if name not in small), *sorted(made))
    _commit(folder, replace(state, number=state.number + 1, files=files))


def newest(most: int, results: Path = RESULTS, folder: Path | None = None) -> list[Path]:
    """Give the folders of so many of the newest runs, and of reference runs, oldest first; withdrawn ones too."""
    with _opened(folder or results / FOLDER) as database:
        names = database.execute(_NEWEST, {"most": most}).fetchall()
    paths = (results.joinpath(*name) for name in names)
    return sorted((path for path in paths if (path / "run.json").is_file()), key=lambda path: (path.name, path))


def query(sql: str, parameters: Sequence[object] = (), folder: Path = RESULTS / FOLDER) -> pa.Table:
    """Ask a data set in DuckDB's SQL, with parameters for each ``?``; one that is not there has no rows.

    Its views are ``cells`` (``CELLS`` and ``tier``) and ``runs``, the first of the rows of each run that is not hidden.
    """
    with _opened(folder) as database:
        return database.sql(sql, params=list(parameters)).to_arrow_table()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Hold a data set for writing, waiting for another writer, and remove what an earlier one left."""
    make_folder(folder)
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keep = {folder / name for name in (*_state(folder).files, _STATE, _LOCK)}
        for path in [path for path in folder.rglob("*") if path.is_file() and path not in keep]:
            path.unlink()
        yield


@contextmanager
def _opened(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a data set as the views of ``_VIEWS``, and ``files`` of all rows."""
    import duckdb
    import pyarrow as pa

    state = _state(folder)
    with duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(folder / ".spill")}) as database:
        paths = [str(folder / name) for name in state.files]
        nothing = database.from_arrow(arrow_schema(CELLS).empty_table())
        (database.read_parquet(paths, union_by_name=True) if paths else nothing).create_view("files")
        rows = [dict(zip((column.name for column in _MARKS), mark, strict=True)) for mark in state.marks]
        database.from_arrow(pa.Table.from_pylist(rows, arrow_schema(_MARKS))).create_view("marks")
        database.execute(_VIEWS)
        yield database


def _state(folder: Path) -> _State:
    if not kept(folder):
        return _State()
    path = folder / _STATE
    state = json.loads(path.read_bytes())
    if state.pop("format") != FORMAT:
        advice = f"Remove {folder}: all in it is made anew from the runs"
        raise InputError(f"{path}: of another version; expected format {FORMAT}. {advice}")
    return _State(state["number"], tuple(state["files"]), tuple(map(tuple, state["marks"])))


def _commit(folder: Path, state: _State) -> None:
    write_whole(folder / _STATE, json.dumps({"format": FORMAT, **asdict(state)}, indent=0).encode())


def _listed(results: Path) -> tuple[pa.Table, set[tuple[str, str]]]:
    """List what may be a run in the folders of all machines, and the runs beside which a mark lies."""
    import pyarrow as pa

    with os.scandir(results) as entries:
        folders = [entry.name for entry in entries if entry.name not in _NO_MACHINES and entry.is_dir()]
    names = [(machine, name) for machine in folders for name in _names(results / machine)]
    runs = [pair for pair in names if not pair[1].endswith(".json")]
    pieces = ((machine, name.rsplit(".", 2)) for machine, name in names if name.endswith(".json"))
    marked = {(machine, run[0]) for machine, run in pieces if run[-2] in marks.KINDS}
    columns = [pa.array([pair[at] for pair in runs], pa.string()) for at in range(2)]
    return pa.table(columns, ["machine_id", "run_id"]), marked


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.name[0] != "."]


def _standing(run: Path) -> tuple[str, bool]:
    """Read a run's tier and whether it is hidden, as where a file beside it is damaged: it may be a withdrawal."""
    try:
        beside = marks.about(run)
    except InputError:
        return marks.SELF_REPORTED, True
    return beside.tier, beside.withdrawn is not None
