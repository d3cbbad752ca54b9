"""Files of this schema and protocol are read; those of others, damaged ones and what is no manifest are refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feedrate.schema.columns import PROTOCOL_VERSION, SCHEMA_VERSION, TABLES
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.store import runs
from feedrate.store.manifest import RunManifest, read_manifest

SCHEMA = Path(__file__).with_name("schema.json")


@pytest.fixture
def run(tmp_path: Path, fake_run: ModuleType) -> runs.StoredRun:
    """A run, to be damaged."""
    fake_run.write(tmp_path, fake_run.Fake(blocks=1, batches=(8,)))
    return runs.runs(tmp_path)[0]


def test_what_the_schema_holds_is_frozen() -> None:
    """Another column, type or field is another version: this list and SCHEMA_VERSION change together."""
    schema = RunManifest.model_json_schema()
    nouns = {"RunManifest": schema, **schema["$defs"]}
    assert json.loads(SCHEMA.read_bytes()) == {
        "schema_version": SCHEMA_VERSION,
        "tables": {name: {column.name: column.dtype for column in columns} for name, columns in TABLES.items()},
        "manifest": {name: sorted(noun.get("properties", {})) for name, noun in sorted(nouns.items())},
    }


def test_every_run_that_was_committed_is_read() -> None:
    """Runs under results/ have every column, and their manifests say the same as the files beside them."""
    folders = runs.folders(ROOT / "results")
    assert folders
    for name, columns in TABLES.items():
        assert list(runs.rows(folders, [column.name for column in columns][-4:], name).columns)
        for folder in folders:
            embedded = pq.read_schema(folder / f"{name}.parquet").metadata[b"feedrate"]
            assert json.loads(embedded) == json.loads((folder / "run.json").read_bytes())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"schema_version": SCHEMA_VERSION + 1, "feedrate_version": "9.9.9"},
            rf"^run\.json: written by feedrate 9\.9\.9 with schema_version {SCHEMA_VERSION + 1}; .* reads "
            rf"{SCHEMA_VERSION}\. Update feedrate \(git pull\)",
        ),
        ({"schema_version": 1, "feedrate_version": "0.1.0"}, "schema_version 1; .* Leave that run out, or measure"),
        (
            {"protocol_version": 1, "feedrate_version": "0.1.0"},
            rf"protocol_version 1; .* reads {PROTOCOL_VERSION}\. Leave that run out",
        ),
        (
            {"protocol_version": PROTOCOL_VERSION + 1},
            rf"with protocol_version {PROTOCOL_VERSION + 1}; .* Update feedrate",
        ),
        ({"schema_version": 9_999, "feedrate_version": "<script>"}, "by feedrate of an unknown version"),
    ],
)
def test_another_version_is_refused_with_what_to_do(fields: dict[str, Any], message: str) -> None:
    """The message says who wrote it, what this feedrate reads and what to do; it repeats no markup."""
    whole = {"schema_version": SCHEMA_VERSION, "protocol_version": PROTOCOL_VERSION} | fields
    with pytest.raises(InputError, match=message) as caught:
        read_manifest(json.dumps(whole), "run.json")
    assert "<script>" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"{}", b'{"schema_version": 1' + b"0" * 5_000 + b"}"),
        *(b'{"schema_version": "1"}', b'{"schema_version": true}', b'{"schema_version": NaN}'),
        f'{{"schema_version": {SCHEMA_VERSION}, "protocol_version": {PROTOCOL_VERSION}}}'.encode(),
    ],
    ids=lambda text: text[:30].decode(errors="replace"),
)
def test_what_is_no_manifest_is_said_in_one_line(text: bytes) -> None:
    """Whatever stands in its place, however deep it nests, is an error that names the file and never a traceback."""
    with pytest.raises(InputError, match=r"^run\.json: not a run manifest: ") as caught:
        read_manifest(text, "run.json")
    assert len(str(caught.value)) < 500


def test_a_name_that_a_stranger_gave_to_a_field_is_no_more_than_text(run: runs.StoredRun) -> None:
    """A field that nobody knows is named on one line, short, without what a terminal would obey."""
    fields = run.manifest.model_dump(mode="json") | {"\x1b[31m\n" + "x" * 5_000: 1}
    with pytest.raises(InputError, match="not a run manifest: x") as caught:
        read_manifest(json.dumps(fields), "run.json")
    assert len(str(caught.value)) < 500
    assert "\x1b" not in str(caught.value)


def test_a_column_that_is_missing_or_of_another_type_is_refused(run: runs.StoredRun) -> None:
    """What was taken out is not made up as null, and a type that is not the table's is said with both."""
    path = run.folder / "trials.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["evidence"]), path)
    with pytest.raises(InputError, match=r"trials\.parquet: column 'evidence' is missing; expected string"):
        run.table("trials")
    at = table.schema.get_field_index("steps")
    pq.write_table(table.set_column(at, "steps", table.column("steps").cast(pa.float64())), path)
    with pytest.raises(InputError, match="column 'steps' holds double; expected int64"):
        run.table("trials")
