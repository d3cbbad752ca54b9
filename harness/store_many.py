"""Some columns of many stored runs at once: what ten thousand runs hold fits into memory in parts alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.records import TABLES
from harness.store import _nullable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def rows(folders: Sequence[Path], columns: Sequence[str], name: str = "trials") -> pd.DataFrame:
    """Read columns of the tables of some runs, in their order.

    Args:
        folders: of runs that have ended; at least one.
        columns: of ``records.TABLES[name]``; one that came to the table after a run was written is null there.
        name: ``trials``, ``steps`` or ``telemetry``.

    Returns:
        Their rows, with nullable types (``pd.NA`` is null).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
    known = {column.name: types[column.dtype] for column in TABLES[name]}
    schema = pa.schema([pa.field(column, known[column]) for column in columns])
    held = []
    for folder in folders:
        with pq.ParquetFile(folder / f"{name}.parquet") as file:
            held.append(_complete(file.read(list(columns), use_threads=False), schema))
    frame: pd.DataFrame = pa.concat_tables(held).to_pandas(types_mapper=_nullable().get)
    return frame


def _complete(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring a table's columns into the order of a schema; those that it lacks are null."""
    import pyarrow as pa

    there = set(table.column_names)
    columns = [
        table.column(field.name) if field.name in there else pa.nulls(table.num_rows, field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
