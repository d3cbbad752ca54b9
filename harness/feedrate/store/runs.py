"""The only reader and writer of ``results/``, and with ``remote`` of stores.

A run lives in ``results/<machine_id>/<run_id>/``. While it is measured there is a ``plan.json`` and an fsynced
journal, a line a trial. When it ends the journal becomes parquet, each file written to a temporary name and renamed,
``run.json`` last: a folder with ``run.json`` is whole, and nothing in it is ever edited.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from feedrate.schema import plugins
from feedrate.schema.columns import TABLES
from feedrate.schema.errors import EnvironmentFault, InputError, expected_one_of
from feedrate.store import location
from feedrate.store.bench_record import BenchRecord
from feedrate.store.manifest import Dataset, RunManifest, read_manifest
from feedrate.store.tables import MANIFEST_KEY, arrow_schema, complete

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


RESULTS = Path("results")
CHECKED: dict[str, Any] = {"page_checksum_verification": True}
"""How pyarrow opens every table: a page whose bytes changed since it was written is an error."""
GROUP_ROWS = 2_000
"""Of trials, after which a row group ends: what a file says of each column of each group is most of a small one."""
_NAMED = 8
"""Runs that a message lists at most, the newest."""


def home() -> Path:
    """Where runs lie, wherever the command is typed: in the checkout that feedrate runs from, else in this folder."""
    return plugins.ROOT / RESULTS if (plugins.ROOT / "matrix.yaml").is_file() else RESULTS


def outbox(results: Path) -> Path:
    """Where runs are measured: a folder itself, or for a store a folder here, until the store has them."""
    if not location.remote(results):
        return results
    return home() / ".outbox" / hashlib.sha256(location.identity(results).encode()).hexdigest()[:12]


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn a disk that is full or closed into a message that says what was kept."""
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else (error.strerror or error)
        expected = "expected a writable folder with free space"
        advice = "What was written before is kept: mend this and type the same command again"
        raise EnvironmentFault(f"{path}: cannot write: {reason}; {expected}. {advice}") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file to write, of which a reader sees all or nothing; an EnvironmentFault where that cannot be."""
    temporary = path.with_name(f"{path.name}.tmp")
    with _writing(path):
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, here or in a store, so that a reader sees all of it or none.

    Raises:
        EnvironmentFault: the disk or the store cannot be written.
    """
    if location.remote(path):
        location.put(path, data)
        return
    with replacing(path) as file:
        file.write(data)


def make_folder(folder: Path, *, exist_ok: bool = True) -> Path:
    """Make a folder and those above it; an EnvironmentFault where that cannot be."""
    if not location.remote(folder):  # of a store the names of files make folders
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=exist_ok)
    return folder


class Journal:
    """The finished trials of a run that has not ended: JSON lines, synced to disk one by one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.jsonl"
        with _writing(self.path):
            self._file = self.path.open("ab", buffering=0)
            data = self.path.read_bytes()
            self._file.truncate(data.rfind(b"\n") + 1)  # a line that was cut off is lost

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one trial and return when the disk has it; where it is full, what was appended before stays readable.

        Raises:
            EnvironmentFault: the disk is full or gone; what was appended before stays readable.
        """
        left = memoryview(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        with _writing(self.path):
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())

    def entries(self) -> Iterator[dict[str, Any]]:
        """Read the trials back one by one, in the order in which they ended."""
        return itertools.chain.from_iterable(journal_chunks(self.path.parent))

    def close(self) -> None:
        """Let go of the file; the journal stays until the run is written."""
        self._file.close()


def journal_chunks(folder: Path, trials: int = 200) -> Iterator[list[dict[str, Any]]]:
    """Read a run's journal so many trials at a time: a long run's steps do not fit into memory at once."""
    with (folder / "journal.jsonl").open("rb") as file:
        entries = (json.loads(line) for line in file if line.endswith(b"\n"))
        while chunk := list(itertools.islice(entries, trials)):
            yield chunk


@contextmanager
def machine_lock(results: Path, machine_id: str) -> Iterator[Path]:
    """Hold a machine's folder, or that of a store's outbox, which can be written: two sweeps measure each other.

    Raises:
        InputError: another sweep holds it.
        EnvironmentFault: it cannot be written.
    """
    folder = make_folder(outbox(results) / machine_id)
    with _writing(folder):
        lock = (folder / ".lock").open("a+")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            other = f"another sweep is running here (process {lock.read().strip() or 'unknown'})"
            expected = "expected one at a time, as two would measure each other. Wait for it or stop it"
            raise InputError(f"{folder}: {other}; {expected}") from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield folder


def begin(machine_folder: Path, run_id: str, plan: Mapping[str, Any]) -> Path:
    """Create a run's folder with its ``plan.json``; the run can be resumed from then on."""
    folder = make_folder(machine_folder / run_id, exist_ok=False)
    write_whole(folder / "plan.json", json.dumps(plan, indent=1, sort_keys=True).encode())
    return folder


def prepared(folder: Path, datasets: Iterable[Dataset], runtime: Mapping[str, Any]) -> None:
    """Add to ``plan.json`` what the manifest needs of a run that another sweep closes."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    facts = {"datasets": [dataset.model_dump(mode="json") for dataset in datasets], "runtime": runtime}
    write_whole(folder / "plan.json", json.dumps(plan | facts, indent=1, sort_keys=True).encode())


def discard(folder: Path) -> None:
    """Remove a run in which nothing was measured."""
    _drop_journal(folder)
    folder.rmdir()


def _drop_journal(folder: Path) -> None:
    for name in ("plan.json", "journal.jsonl"):
        (folder / name).unlink(missing_ok=True)


def unfinished(machine_folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """List runs that began and did not end, oldest first, with their ``plan.json``."""
    begun = (path for path in sorted(machine_folder.glob("*/plan.json")) if not path.with_name("run.json").exists())
    return [(path.parent, json.loads(path.read_text(encoding="utf-8"))) for path in begun]


def encoding(table: str) -> dict[str, Any]:
    """Say how ``pyarrow.parquet.ParquetWriter`` writes a table: every page with its checksum.

    Trials are what people hand around and what a site reads of every run: many short columns, which Snappy, known to
    every reader, opens four times as fast as Zstandard for 8 % more room. Times of single steps hardly repeat: split by
    bytes and compressed hard, which takes half a second a run, they take 40 % less room.
    """
    checked = {"write_page_checksum": True}
    numbers = [column.name for column in TABLES[table] if column.dtype in ("int64", "float64")]
    others = [column.name for column in TABLES[table] if column.name not in numbers]
    if table == "trials":
        return checked | {"compression": "snappy", "use_dictionary": others}
    split = dict.fromkeys(numbers, "BYTE_STREAM_SPLIT")
    hard = {"compression": "zstd", "compression_level": 19}
    return checked | hard | {"use_dictionary": others, "column_encoding": split}


def report_of(folder: Path) -> Path:
    """Where what was said of a script lies: beside its run, as it names code of the user's and is never published."""
    return folder.with_name(f"{folder.name}.report.json")


def new_id(moment: datetime) -> str:
    """Name a run that begins at a moment (UTC): no other of its machine has the name."""
    return f"{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def write_run(
    folder: Path, manifest: RunManifest, chunks: Iterable[Mapping[str, list[dict[str, Any]]]], report: bytes = b""
) -> StoredRun:
    """Write a run that has ended: its parquet files, then ``run.json``; then drop plan and journal.

    ``chunks`` are rows of ``trials``, ``steps`` and ``telemetry``; a column that a row lacks is null. Each chunk is a
    row group of the last two; of trials, whose rows are few, ``GROUP_ROWS`` and more are one. ``report`` is what was
    said of a script (``report_of``).
    """
    make_folder(folder)
    with _writing(folder):
        _write_tables(folder, manifest, chunks)
        for name in TABLES:
            path = folder / f"{name}.parquet.tmp"
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.replace(folder / f"{name}.parquet")
    if report:
        write_whole(report_of(folder), report)
    write_whole(folder / "run.json", manifest.model_dump_json(indent=1).encode() + b"\n")
    _drop_journal(folder)
    return StoredRun(folder, manifest)


def _write_tables(folder: Path, manifest: RunManifest, chunks: Iterable[Mapping[str, list[dict[str, Any]]]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    embedded = {MANIFEST_KEY: manifest.model_dump_json().encode()}
    schemas = {name: arrow_schema(columns).with_metadata(embedded) for name, columns in TABLES.items()}
    waiting: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(pq.ParquetWriter(folder / f"{name}.parquet.tmp", held, **encoding(name)))
            for name, held in schemas.items()
        }
        for tables in itertools.chain(chunks, [None]):
            for name, groups in waiting.items():
                if tables:
                    groups.append(pa.Table.from_pylist(tables[name], schemas[name]))
                least = GROUP_ROWS if tables and name == "trials" else 1  # a group without rows has no place in a file
                if sum(map(len, groups)) >= least:
                    writers[name].write_table(pa.concat_tables(groups))
                    groups.clear()


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that has ended."""

    folder: Path
    manifest: RunManifest

    def table(self, name: str, trials: Iterable[str] | None = None) -> pd.DataFrame:
        """Read ``trials``, ``steps`` or ``telemetry`` with nullable types, of all trials or of those that are named.

        Raises:
            InputError: the file is not one that feedrate wrote (``tables.complete``), or changed since.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        path = self.folder / f"{name}.parquet"
        wanted = None if trials is None else pc.field("trial_id").isin(pa.array(trials, pa.string()))
        with _reading(path), location.opened(path) as source:
            table = pq.read_table(source, filters=wanted, **CHECKED)
        return _frame(complete(table, arrow_schema(TABLES[name]), path))

    def suites(self) -> list[str]:
        """List the suites that trials of the run were made for, by name; nothing else of the table is read."""
        return sorted(rows([self.folder], ["suite"])["suite"].dropna().unique())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn a table that cannot be decoded, or whose pages fail their checksums, into a message that says what to do."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        was = f"{path}: {str(error).splitlines()[0]}; expected a table as it was written"
        advice = "The file was changed or damaged since: bring back a copy of it, or move its folder away"
        raise InputError(f"{was}. {advice}") from error


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(types_mapper=nullable().get)
    return frame


def nullable() -> dict[pa.DataType, Any]:
    """Give the pandas type, with nulls, of each type that a table has.

    A site picks rows from tables thousands of times: with Arrow's strings a build takes a quarter longer.
    """
    import pandas as pd
    import pyarrow as pa

    return {
        pa.string(): pd.StringDtype("python"),
        pa.int64(): pd.Int64Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }


def folders(results: Path = RESULTS) -> list[Path]:
    """List the folders of the runs that have ended, oldest first."""
    return _by_age(path.parent for path in location.glob(results, "*/*/run.json"))


def _by_age(folders: Iterable[Path]) -> list[Path]:
    return sorted(folders, key=lambda folder: (folder.name, folder))


def runs(results: Path = RESULTS, only: Collection[Path] | None = None) -> list[StoredRun]:
    """List the runs that have ended, oldest first; those in the folders ``only`` alone, without a list of the others.

    Raises:
        InputError: a ``run.json`` cannot be understood, or needs a newer feedrate.
    """
    paths = [folder / "run.json" for folder in (folders(results) if only is None else _by_age(only))]
    texts = zip(paths, location.contents(paths), strict=True)
    return [StoredRun(path.parent, read_manifest(text, path)) for path, text in texts]


def at(folder: Path) -> StoredRun:
    """Open the run that has ended in a folder; errors as of ``runs``.

    Raises:
        InputError: its ``run.json`` cannot be understood, or needs a newer feedrate.
    """
    return runs(only=[folder])[0]


def find(run: str, results: Path = RESULTS) -> StoredRun:
    """Find one run that has ended by its id, its folder or that folder's URL.

    Raises:
        InputError: there is none, or several machines have one of this id.
    """
    if run and location.is_file(path := location.parse(run) / "run.json"):
        return at(path.parent.resolve())
    ended = folders(results)
    matches = [folder for folder in ended if folder.name == run]
    if len(matches) == 1:
        return at(matches[0])
    if matches:
        raise InputError(f"{run}: {len(matches)} machines have a run of this id; name its folder: {matches[0]}, …")
    newest = [folder.name for folder in ended[-_NAMED:]]
    wrong = f"'{run}': no such run under {results}" if run else "RUN is missing"
    if not newest:
        raise InputError(f"{wrong}; {results} holds none yet: make sweep makes one")
    expected = expected_one_of(run, newest) if run else f"expected the id of a run, such as {newest[-1]}"
    raise InputError(f"{wrong}; {expected}, or the folder of one")


def write_bench(results: Path, record: BenchRecord) -> Path:
    """Write what ``make bench`` found into ``results/<machine_id>/bench/<time>.json``, or that of a store's outbox.

    The file has the record's sections in its name where another began in the same second.

    Raises:
        EnvironmentFault: the disk cannot be written.
    """
    path = outbox(results) / record.machine.machine_id / "bench" / f"{record.name}.json"
    if path.exists():
        path = path.with_stem("-".join((record.name, *record.sections)))
    make_folder(path.parent)
    write_whole(path, record.model_dump_json(indent=1).encode() + b"\n")
    return path


def benches(results: Path = RESULTS) -> list[BenchRecord]:
    """List what ``make bench`` found, of all machines, oldest first.

    Raises:
        InputError: a record cannot be understood.
    """
    records = []
    paths = sorted(location.glob(results, "*/bench/*.json"), key=lambda p: (p.name, p))
    for path, text in zip(paths, location.contents(paths), strict=True):
        try:
            records.append(BenchRecord.model_validate_json(text))
        except ValueError as error:
            raise InputError(f"{path}: not a bench record of this version: {error}; move the file away") from error
    return records


def rows(folders: Sequence[Path], columns: Sequence[str], name: str = "trials") -> pd.DataFrame:
    """Read some columns of a table of one run or many, with nullable types: whole tables of all fit into no memory.

    Raises:
        InputError: a file is not one that feedrate wrote (``tables.complete``), or changed since.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    by_name = {column.name: column for column in TABLES[name]}
    schema = arrow_schema(by_name[column] for column in columns)

    def read(folder: Path) -> pa.Table:
        path = folder / f"{name}.parquet"
        with _reading(path), location.opened(path) as source, pq.ParquetFile(source, **CHECKED) as file:
            table = file.read(list(columns), use_threads=False)
        return complete(table, schema, path)

    return _frame(pa.concat_tables(map(read, folders)))
