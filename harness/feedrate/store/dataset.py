"""Tables that only grow: parquet files below one folder, written once, and one file that says which of them count.

``state.json`` names the files of all tables, and its replacement is the only commit: before it nothing has happened,
after it everything has, whenever a writer is killed. Files that it does not name were left by such a writer, or were
merged since; the next writer removes them, so that those who read meanwhile find them still. DuckDB answers questions;
it reads of the files what a question needs.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from feedrate.schema.columns import Column
from feedrate.schema.errors import InputError
from feedrate.store.migration import arrow_schema
from feedrate.store.runs import CHECKED, write_whole

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MANY = 16
"""Small files of one folder that are merged."""
SMALL_BYTES = 8 * 2**20
"""Files from this size on stay as they are."""
GROUP_ROWS = 100_000
"""Of a merged file's row groups."""
MEMORY = "400MB"
"""What DuckDB may take before it writes to disk."""
FORMAT = 2
"""Of the state and of what the tables mean."""
_STATE, _LOCK = "state.json", ".lock"


class _State(NamedTuple):
    """What counts."""

    generation: int
    """The number of the last commit."""
    files: tuple[str, ...]
    """By their path below the folder: ``<table>/…/<generation>.parquet``."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Tables below a folder, which need not be there yet."""

    folder: Path
    tables: Mapping[str, Sequence[Column]]
    """Each table's columns; one that a file does not have yet is null."""

    @property
    def kept(self) -> bool:
        """Whether anything was ever written."""
        return (self.folder / _STATE).is_file()

    @property
    def generation(self) -> int:
        """The number of the last commit; 0 before the first."""
        return self._state().generation

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the tables for writing, waiting for another writer, and remove what an earlier one left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keep = {self.folder / name for name in (*self._state().files, _STATE, _LOCK)}
            for path in [path for path in self.folder.rglob("*") if path.is_file() and path not in keep]:
                path.unlink()
            yield

    def append(self, rows: Iterable[tuple[str, str, pa.Table]]) -> None:
        """Add rows to tables in one commit; only while :meth:`writing`.

        Args:
            rows: of a table, where in it (a folder such as ``month=2026-01``, or nothing), what; each becomes a file.
        """
        state = self._state()
        number = state.generation + 1
        made = [self._write(str(Path(table) / place), number, [part]) for table, place, part in rows if part.num_rows]
        self._commit(_State(number, (*state.files, *made)))

    def compact(self) -> int:
        """Merge the small files of each folder where there are many, and return how many were merged."""
        with self.writing():
            state, small = self._state(), defaultdict[str, list[str]](list)
            for name in state.files:
                if (self.folder / name).stat().st_size < SMALL_BYTES:
                    small[name.rpartition("/")[0]].append(name)
            merged = {place: names for place, names in small.items() if len(names) >= MANY}
            if merged:
                number = state.generation + 1
                made = [self._write(place, number, self._groups(names)) for place, names in merged.items()]
                gone = {name for names in merged.values() for name in names}
                self._commit(_State(number, (*(name for name in state.files if name not in gone), *made)))
            return sum(map(len, merged.values()))

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open every table as the view ``<table>_files``; folders such as ``month=2026-01`` are columns."""
        import duckdb

        state = self._state()
        with duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(self.folder / ".spill")}) as database:
            for table, columns in self.tables.items():
                empty = database.from_arrow(arrow_schema(columns).empty_table())
                empty.create_view(f"{table}_files")
                if paths := [str(self.folder / name) for name in state.files if name.startswith(f"{table}/")]:
                    files = database.read_parquet(paths, hive_partitioning=True, union_by_name=True)
                    files.create_view(f"{table}_files", replace=True)
            yield database

    def _state(self) -> _State:
        if not self.kept:
            return _State(0, ())
        path = self.folder / _STATE
        said = json.loads(path.read_bytes())
        if said["format"] != FORMAT:
            raise InputError(
                f"{path}: format {said['format']}; expected {FORMAT}. Remove {self.folder}: everything in it is made "
                "anew from the runs"
            )
        return _State(said["generation"], tuple(said["files"]))

    def _commit(self, state: _State) -> None:
        write_whole(self.folder / _STATE, json.dumps({"format": FORMAT, **state._asdict()}, indent=0).encode())

    def _write(self, place: str, number: int, groups: Iterable[pa.Table]) -> str:
        """Write a file whole, a row group each, and give its path below the folder."""
        import pyarrow.parquet as pq

        name = f"{place}/{number:08d}.parquet"
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.tmp")
        schema = arrow_schema(self.tables[name.partition("/")[0]])
        with pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer:
            for group in groups:
                writer.write_table(group.select(schema.names).cast(schema))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        return name

    def _groups(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Rows of some files of one table, so many at a time: together they may not fit into memory."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = arrow_schema(self.tables[names[0].partition("/")[0]])
        held = [schema.empty_table()]
        for name in names:
            with pq.ParquetFile(self.folder / name, **CHECKED) as file:
                for number in range(file.num_row_groups):
                    held.append(file.read_row_group(number))
                    if sum(map(len, held)) >= GROUP_ROWS:
                        yield pa.concat_tables(held, promote_options="default")
                        held = [schema.empty_table()]
        if len(held) > 1:
            yield pa.concat_tables(held, promote_options="default")
