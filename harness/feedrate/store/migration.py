"""Files of earlier schema versions, read as files of this one: the only place that knows how they differ.

A file says its version in its manifest, which lies inside the file and beside it as ``run.json``.

- Version 1 (feedrate 0.1): a table has the columns that ``columns.TABLES`` had on the day of the run. Columns came,
  none went and none changed its type, so that what is missing is a column of nulls.
- Version 2: every column is there, and the manifest names the oldest feedrate that reads it.
- Version 3: trials have the axes ``memory_limit_mib``, ``read_ahead_kib`` and ``ddp_buckets``.
- Version 4: a training script can be a workload: axis ``script``; ``worker_getitem_ns`` and ``batches_ready``.
- Version 5: the manifest says what searches found, ``tuned``.
- Version 6: trials have the axis ``scaled_decode``, ``first_step_ns``, ``gpu_energy_ns``, ``gpu_allocations`` and
  ``pinned_allocations``.
- Version 7: a run may be one node's part of a cluster's sweep: ``cluster``, and the machine's ``node``.
- Version 8: trials have the axis ``nodes``.
- Version 9: the axis ``loader`` stands in the place of ``worker_kind``: ``torch`` was ``process``, ``threads`` was
  ``thread``. Ids of cells stayed.

Whatever changes a column, a type or a field of the manifest makes a new version. ``tests/golden`` holds files of each
version and the list of what the newest holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import from_json

from feedrate import __version__
from feedrate.schema.columns import NEEDS_FEEDRATE, SCHEMA_VERSION, Column
from feedrate.schema.errors import InputError
from feedrate.schema.redaction import one_line
from feedrate.store.manifest import RunManifest

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST_KEY = b"feedrate"
"""The key of the manifest in the metadata of every parquet file."""
READ = tuple(range(1, SCHEMA_VERSION + 1))
"""Schema versions that this feedrate reads."""
_CAME_WITH = {
    **dict.fromkeys(("memory_limit_mib", "read_ahead_kib", "ddp_buckets"), 3),
    **dict.fromkeys(("script", "worker_getitem_ns", "batches_ready"), 4),
    **dict.fromkeys(("scaled_decode", "first_step_ns", "gpu_energy_ns", "gpu_allocations", "pinned_allocations"), 6),
    "nodes": 8,
}
"""Column to the version that it came with; all others are older than version 2."""
_FIELDS_CAME_WITH: dict[str, tuple[int, bool | set[str]]] = {
    "tuned": (5, True),
    "cluster": (7, True),
    "machine": (7, {"node"}),
}
"""The same of fields of the manifest; of one that is older the fields in it that came later."""
RENAMED = "worker_kind", "loader", {"process": "torch", "thread": "threads"}
"""An axis as it was called before version 9, as it is called now, and its values of then and now."""
_RENAMED_IN = 9
_SHOWN = 80
"""Characters of a name that a stranger's file may give to a field."""
_NEWEST = 9_999
"""A larger number is no schema version."""
_RELEASE = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}")
"""A version of feedrate; what else a stranger's file has in its place is not repeated."""


def manifest(text: bytes | str, where: object) -> RunManifest:
    """Read a manifest of this schema version or an earlier one, and make it one of this version.

    It is JSON, as ``run.json`` or the metadata of a parquet file holds it; ``where`` names the file in messages.

    Raises:
        InputError: it is no manifest, of another version, or needs a newer feedrate.
    """
    try:
        return RunManifest.model_validate(_upgraded(_fields(text, where), where))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        place = one_line(".".join(map(str, first["loc"])))[:_SHOWN] or "the whole"
        raise _no_manifest(where, f"{place}: {first['msg']}{more}") from error


def _no_manifest(where: object, problem: str) -> InputError:
    return InputError(
        f"{where}: not a run manifest: {problem}; expected one that feedrate wrote, unchanged. Leave that run out"
    )


def _fields(text: bytes | str, where: object) -> dict[str, Any]:
    try:
        fields = from_json(text)
    except ValueError as error:
        raise _no_manifest(where, f"no JSON ({error})") from error
    if not isinstance(fields, dict):
        raise _no_manifest(where, f"found a {type(fields).__name__}, expected an object")
    return fields


def _upgraded(fields: dict[str, Any], where: object) -> dict[str, Any]:
    """Bring the fields of a manifest into this version."""
    version = _version(fields, where)
    if version > 1 and not _release(fields.get("needs_feedrate")):
        got = "no version of feedrate" if "needs_feedrate" in fields else "missing"
        raise _no_manifest(where, f"needs_feedrate is {got}, which schema version {version} has")
    return {**current_fields(fields, version), "schema_version": SCHEMA_VERSION, "needs_feedrate": NEEDS_FEEDRATE}


def current_fields(fields: dict[str, Any], version: int) -> dict[str, Any]:
    """Give what a manifest says of axes by the names of today."""
    if version >= _RENAMED_IN:
        return fields
    words = {RENAMED[0]: RENAMED[1]}
    return fields | {name: _respelled(fields[name], words) for name in ("suites", "contrasts") if name in fields}


def _respelled(value: Any, words: dict[str, str]) -> Any:
    """Replace names and texts by those of today; below the axis these are its values."""
    earlier, _, values = RENAMED
    if isinstance(value, dict):
        return {
            words.get(name, name): _respelled(inner, values if name == earlier else words)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_respelled(inner, words) for inner in value]
    return words.get(value, value) if isinstance(value, str) else value


def _version(fields: dict[str, Any], where: object) -> int:
    """Tell the schema version of a manifest, and refuse one that this feedrate cannot read."""
    version, versions = fields.get("schema_version"), f"{READ[0]} to {READ[-1]}"
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= _NEWEST:
        raise _no_manifest(where, f"no schema_version, expected {versions}")
    needs = _release(fields.get("needs_feedrate"))
    if version in READ and _parts(needs) <= _parts(__version__):
        return version
    written = _release(fields.get("feedrate_version")) or "of an unknown version"
    raise InputError(
        f"{where}: written by feedrate {written} in schema version {version}; this is feedrate {__version__} and reads "
        f"versions {versions}: needs {f'feedrate ≥ {needs}' if needs else 'a newer feedrate'}. Update feedrate "
        "(git pull) and type the same command again"
    )


def _release(value: object) -> str:
    return value if isinstance(value, str) and _RELEASE.fullmatch(value) else ""


def _parts(release: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, release.split("."))))


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Give columns as Arrow knows them, each with its unit and meaning."""
    import pyarrow as pa

    types = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
    return pa.schema([pa.field(c.name, types[c.dtype], metadata={"unit": c.unit, "doc": c.doc}) for c in columns])


def complete(table: pa.Table, schema: pa.Schema, where: object) -> pa.Table:
    """Bring a table of this schema version or an earlier one into the columns of ``schema``, and no others.

    One that came after the file was written is null throughout; ``where`` names the file in messages.

    Raises:
        InputError: a column is missing from a file that must have it, or of another type.
    """
    import pyarrow as pa

    if not set(schema.names) <= set(table.column_names):
        version = _embedded(table, where)
        table = current_table(table, version)
        if taken := missing([name for name in schema.names if name not in table.column_names], version):
            raise InputError(
                f"{where}: column '{taken[0]}' is missing; expected every column of schema version {version}. The file "
                "was changed after it was written: leave that run out"
            )
    there = set(table.column_names)
    columns = [
        table.column(field.name) if field.name in there else pa.nulls(table.num_rows, field.type) for field in schema
    ]
    for field, column in zip(schema, columns, strict=True):
        if column.type != field.type:
            raise InputError(
                f"{where}: column '{field.name}' holds {column.type}, expected {field.type}. The file was changed "
                "after it was written: leave that run out"
            )
    return pa.Table.from_arrays(columns, schema=schema)


def current_column(name: str, version: int) -> str:
    """Give a column of a file of a schema version its name of today."""
    return RENAMED[1] if version < _RENAMED_IN and name == RENAMED[0] else name


def stored_columns(columns: Iterable[str]) -> list[str]:
    """Name the columns under which files of any version hold what is asked for."""
    return [name for column in columns for name in ((column, RENAMED[0]) if column == RENAMED[1] else (column,))]


def current_table(table: pa.Table, version: int) -> pa.Table:
    """Give the columns of a table of a schema version their names and values of today, plain or in dictionaries."""
    import pyarrow as pa

    earlier, now, values = RENAMED
    if version >= _RENAMED_IN or earlier not in table.column_names:
        return table
    column, at = table.column(earlier), table.schema.get_field_index(earlier)
    coded = column.dictionary_encode()
    words = [[values.get(old, old) for old in chunk.dictionary.to_pylist()] for chunk in coded.chunks]
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, pa.array(own, coded.type.value_type))
        for chunk, own in zip(coded.chunks, words, strict=True)
    ]
    return table.set_column(at, now, pa.chunked_array(chunks, coded.type).cast(column.type))


def missing(columns: Iterable[str], version: int) -> list[str]:
    """Of columns that a file does not have, those that a file of its schema version must have."""
    return [column for column in columns if 1 < version >= _CAME_WITH.get(column, 2)]


def fields_of(run: RunManifest, version: int) -> dict[str, Any]:
    """Give the fields of a manifest as a file of its schema version has them; one of version 1 may lack some."""
    later = {name: what for name, (came, what) in _FIELDS_CAME_WITH.items() if 1 < version < came}
    return run.model_dump(mode="json", exclude=later) | {"schema_version": version}


def _embedded(table: pa.Table, where: object) -> int:
    """Tell the schema version of a table by the manifest in its metadata."""
    return _version(_fields((table.schema.metadata or {}).get(MANIFEST_KEY, b""), where), where)
