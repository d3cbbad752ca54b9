"""The only reader and writer of ``results/``, and with ``remote`` of stores.

A run lives in ``results/<machine_id>/<run_id>/``. While it is measured there is a ``plan.json`` and an fsynced
journal, a line a trial. When it ends the journal becomes parquet, each file written to a temporary name and renamed,
``run.json`` last: a folder with ``run.json`` is whole, and nothing in it is ever edited. A journal that was cut off
mid-line loses that line and no other.

What ``make bench`` found is one file: ``results/<machine_id>/bench/<time>.json``.

Of a store everything is read as from a folder. What is measured for one is written into its ``outbox``, a folder here.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedrate.schema import plugins
from feedrate.schema.columns import TABLES, Column
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
"""How every table is opened, as options of ``pyarrow.parquet.ParquetFile``: a page whose bytes changed since it was
written is an error."""
GROUP_ROWS = 2_000
"""Of trials, after which a row group ends: what a file says of each column of each group is most of a small one."""
_NAMED = 8
"""Runs that a message lists at most, the newest."""
_AGAIN = "What was written before is kept: mend this and type the same command again"


def home() -> Path:
    """Where runs lie, wherever the command is typed: in the checkout that feedrate runs from, else in this folder."""
    return plugins.ROOT / RESULTS if (plugins.ROOT / "matrix.yaml").is_file() else RESULTS


def outbox(results: Path) -> Path:
    """Where runs are measured: a folder itself, or for a store a folder here, until the store has them."""
    if not location.remote(results):
        return results
    return home() / ".outbox" / hashlib.sha256(location.identity(results).encode()).hexdigest()[:12]


@contextmanager
def _writing(path: Path, kept: str = _AGAIN) -> Iterator[None]:
    """Turn a disk that is full or closed into a message that says what was kept."""
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else (error.strerror or str(error))
        raise EnvironmentFault(
            f"{path}: cannot write: {reason}; expected a writable folder with free space. {kept}"
        ) from error


def write_whole(path: Path, data: bytes, kept: str = _AGAIN) -> None:
    """Write a file so that a reader sees all of it or none.

    Raises:
        EnvironmentFault: the disk or the store cannot be written.
    """
    if location.remote(path):
        location.put(path, data)
        return
    temporary = path.with_name(f"{path.name}.tmp")
    with _writing(path, kept):
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def make_folder(folder: Path, *, exist_ok: bool = True) -> Path:
    """Make a folder and those above it.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    if not location.remote(folder):  # of a store the names of files make folders
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=exist_ok)
    return folder


def _entries(journal: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal, decoded one by one."""
    with journal.open("rb") as file:
        yield from (json.loads(line) for line in file if line.endswith(b"\n"))


class Journal:
    """The finished trials of a run that has not ended: JSON lines, synced to disk one by one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.jsonl"
        with _writing(self.path):
            self._file = self.path.open("ab", buffering=0)
            data = self.path.read_bytes()
            self._file.truncate(data.rfind(b"\n") + 1)  # a line that was cut off is lost

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one trial and return when the disk has it.

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
        return _entries(self.path)

    def close(self) -> None:
        """Let go of the file; the journal stays until the run is written."""
        self._file.close()


def journal_chunks(folder: Path, trials: int = 200) -> Iterator[list[dict[str, Any]]]:
    """Read a run's journal so many trials at a time: a long run's steps do not fit into memory at once."""
    entries = _entries(folder / "journal.jsonl")
    while chunk := list(itertools.islice(entries, trials)):
        yield chunk


@contextmanager
def machine_lock(results: Path, machine_id: str) -> Iterator[Path]:
    """Hold a machine's folder: two sweeps at once would measure each other.

    Yields:
        ``results/<machine_id>``, or that of a store's outbox, which exists and can be written.

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
            raise InputError(
                f"{folder}: another sweep is running here (process {lock.read().strip() or 'unknown'}); expected one "
                "at a time, as two would measure each other. Wait for it or stop it"
            ) from error
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


def schema(columns: Iterable[Column], manifest: RunManifest) -> pa.Schema:
    """Give a table's columns as they are written, with what their run says of itself."""
    embedded = {MANIFEST_KEY: manifest.model_dump_json().encode()}
    return arrow_schema(columns).with_metadata(embedded)


def encoding(table: str) -> dict[str, Any]:
    """Say how a table is written.

    Trials are what people hand around and what a site reads of every run: many short columns, which Snappy, known to
    every reader, opens four times as fast as Zstandard for 8 % more room. Times of single steps hardly repeat: split by
    bytes and compressed hard, which takes half a second a run, they take 40 % less room. Every page carries its
    checksum. These are options of ``pyarrow.parquet.ParquetWriter``.
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
    folder: Path,
    manifest: RunManifest,
    chunks: Iterable[Mapping[str, list[dict[str, Any]]]],
    report: bytes = b"",
) -> StoredRun:
    """Write a run that has ended: its parquet files, then ``run.json``; then drop plan and journal.

    ``chunks`` are rows of ``trials``, ``steps`` and ``telemetry``; a column that a row lacks is null. Each chunk is a
    row group of the last two; of trials, whose rows are few, ``GROUP_ROWS`` and more are one. ``report`` is what was
    said of a script (``report_of``).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = {name: schema(columns, manifest) for name, columns in TABLES.items()}
    temporary = {name: folder / f"{name}.parquet.tmp" for name in TABLES}
    make_folder(folder)
    with _writing(folder):
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(pq.ParquetWriter(path, schemas[name], **encoding(name)))
                for name, path in temporary.items()
            }
            trials: list[pa.Table] = []
            for tables in chunks:
                made = {name: pa.Table.from_pylist(tables[name], schemas[name]) for name in writers}
                trials.append(made.pop("trials"))
                if sum(map(len, trials)) >= GROUP_ROWS:
                    writers["trials"].write_table(pa.concat_tables(trials))
                    trials = []
                for name, table in made.items():
                    writers[name].write_table(table)
            if trials:
                writers["trials"].write_table(pa.concat_tables(trials))
        for name, path in temporary.items():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.replace(folder / f"{name}.parquet")
    if report:
        write_whole(report_of(folder), report)
    write_whole(folder / "run.json", manifest.model_dump_json(indent=1).encode() + b"\n")
    _drop_journal(folder)
    return StoredRun(folder, manifest)


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
        raise InputError(
            f"{path}: {str(error).splitlines()[0]}; expected a table as it was written. The file was changed or "
            "damaged since: bring back a copy of it, or move its folder away"
        ) from error


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
    return [path.parent for path in _ended(results)]


def _ended(results: Path) -> list[Path]:
    return _by_age(location.glob(results, "*/*/run.json"))


def _by_age(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (path.parent.name, path))


def runs(results: Path = RESULTS, only: Collection[Path] | None = None) -> list[StoredRun]:
    """List the runs that have ended, oldest first; those in the folders ``only`` alone, without a list of the others.

    Raises:
        InputError: a ``run.json`` cannot be understood, or needs a newer feedrate.
    """
    return _stored(_ended(results) if only is None else _by_age(folder / "run.json" for folder in only))


def _stored(paths: Sequence[Path]) -> list[StoredRun]:
    texts = zip(paths, location.contents(paths), strict=True)
    return [StoredRun(path.parent, read_manifest(text, path)) for path, text in texts]


def at(folder: Path) -> StoredRun:
    """Open the run that has ended in a folder.

    Raises:
        InputError: its ``run.json`` cannot be understood, or needs a newer feedrate.
    """
    return _stored([folder / "run.json"])[0]


def find(run: str, results: Path = RESULTS) -> StoredRun:
    """Find one run that has ended by its id, its folder or that folder's URL.

    Raises:
        InputError: there is none, or several machines have one of this id.
    """
    if run and location.is_file(path := location.parse(run) / "run.json"):
        return at(path.parent.resolve())
    ended = _ended(results)
    manifests = [path for path in ended if path.parent.name == run]
    if len(manifests) == 1:
        return _stored(manifests)[0]
    if manifests:
        raise InputError(
            f"{run}: {len(manifests)} machines have a run of this id; name its folder: {manifests[0].parent}, …"
        )
    newest = [path.parent.name for path in ended[-_NAMED:]]
    wrong = f"'{run}': no such run under {results}" if run else "RUN is missing"
    if not newest:
        raise InputError(f"{wrong}; {results} holds none yet: make sweep makes one")
    expected = expected_one_of(run, newest) if run else f"expected the id of a run, such as {newest[-1]}"
    raise InputError(f"{wrong}; {expected}, or the folder of one")


def store(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the folder of a run that somebody else measured and that was validated; it is not there yet.

    ``files`` are name to content; ``run.json``, with which the run is whole, is written last.

    Raises:
        EnvironmentFault: the disk cannot be written.
    """
    make_folder(folder, exist_ok=False)
    try:
        for name, data in sorted(files.items(), key=lambda pair: pair[0] == "run.json"):
            write_whole(folder / name, data)
    except EnvironmentFault:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def write_bench(results: Path, record: BenchRecord) -> Path:
    """Write what ``make bench`` found on a machine, whole or not at all.

    Returns:
        The file: ``results/<machine_id>/bench/<time>.json``, or that of a store's outbox; with the record's sections
        in its name where another began in the same second.

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

    return _frame(pa.concat_tables(location.concurrently(read, folders)))
