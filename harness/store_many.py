"""Some columns of many stored runs at once: what ten thousand runs hold fits into memory in parts alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.migration import arrow_schema, complete
from harness.records import TABLES
from harness.store import nullable

if TYPE_CHECKING:
    import pandas as pd


def rows(folders: Sequence[Path], columns: Sequence[str], name: str = "trials") -> pd.DataFrame:
    """Read columns of the tables of some runs, in their order.

    Args:
        folders: of runs that have ended; at least one.
        columns: of ``records.TABLES[name]``.
        name: ``trials``, ``steps`` or ``telemetry``.

    Returns:
        Their rows, with nullable types (``pd.NA`` is null).

    Raises:
        InputError: a file is not one that feedrate wrote (``migration.complete``).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    known = {column.name: column for column in TABLES[name]}
    schema = arrow_schema(known[column] for column in columns)
    held = []
    for folder in folders:
        path = folder / f"{name}.parquet"
        with pq.ParquetFile(path) as file:
            held.append(complete(file.read(list(columns), use_threads=False), schema, path))
    frame: pd.DataFrame = pa.concat_tables(held).to_pandas(types_mapper=nullable().get)
    return frame
