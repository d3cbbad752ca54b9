"""Tables as files hold them: Arrow's types of the columns in ``schema.columns``, and what a file of ours must have.

A file says its schema version in its manifest, which lies inside each parquet file and beside them as ``run.json``.
Files of one version are read, ``columns.SCHEMA_VERSION``: whatever changes a column, a type or a field of the manifest
makes a new one, and ``tests/store/schema.json`` lists what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from feedrate.schema.columns import SCHEMA_VERSION, Column
from feedrate.schema.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST_KEY = b"feedrate"
"""The key of the manifest in the metadata of every parquet file."""


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Give columns as Arrow knows them, each with its unit and meaning."""
    import pyarrow as pa

    types = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
    return pa.schema([pa.field(c.name, types[c.dtype], metadata={"unit": c.unit, "doc": c.doc}) for c in columns])


def complete(table: pa.Table, schema: pa.Schema, where: object) -> pa.Table:
    """Give the columns of ``schema`` that a table must have, in their order; ``where`` names the file in messages.

    Raises:
        InputError: a column is missing or of another type.
    """
    import pyarrow as pa

    for field in schema:
        at = table.schema.get_field_index(field.name)
        if at < 0 or table.schema.field(at).type != field.type:
            problem = "is missing" if at < 0 else f"holds {table.schema.field(at).type}"
            raise InputError(
                f"{where}: column '{field.name}' {problem}; expected {field.type} as schema version {SCHEMA_VERSION} "
                "has it. The file was changed after it was written: leave that run out"
            )
    return pa.Table.from_arrays([table.column(name) for name in schema.names], schema=schema)
