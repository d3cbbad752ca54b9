"""Files that are tables all the same, and hold what no run does: values, types, texts, manifests, rows.

``corpus`` gives them in turn with files of which the bytes are changed.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Named = Iterator[tuple[str, bytes]]
KEY = b"feedrate"
LONG = "x" * 100_000
TEXTS = {
    "script": '<script>document.title="owned"</script>',
    "image": '<img src=x onerror="document.title=1">',
    "attribute": "\" autofocus onfocus=document.title='owned' x=\"",
    "link": "[a](javascript:alert(1)) <javascript:alert(1)>",
    "entity": "&lt;script&gt;&#0;&amp;",
    "template": "{{7*7}} ${7*7} <%= 7*7 %> {% raw %}",
    "formula": '=HYPERLINK("http://example.org/?"&A1,"x")',
    "command": "@SUM(1+1)*cmd|' /C calc'!A0",
    "sql": "'; DROP TABLE trials; --",
    "control": "a\x00b\x07\x1b[31mred\x1b[0m\r\nnext\x7f\x9b",
    "bidi": "abc\u202egnp.exe\u2066\u2028x",
    "zalgo": "a" + "\u0301" * 400,
    "astral": "\U0001f680\ufeff\u200b\ufffd\uffff",
    "parent": "../../../../../../tmp/owned",
    "absolute": "/tmp/owned/run.json",
    "windows": "..\\..\\C:\\owned",
    "encoded": "%2e%2e%2f%2e%2e%2fowned\x00.json",
    "dots": "..",
    "prototype": "__proto__",
    "constructor": "constructor",
    "console": "[red]x[/red][link=http://example.org]y[/link][/]",
    "empty": "",
    "long": LONG,
}
"""Strings that must never be more than text."""
NUMBERS = (-1, 0, 1, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (float("nan"), float("inf"), float("-inf"), -1.0, 1e308, 5e-324)
TYPES: tuple[pa.DataType, ...] = (
    *(pa.int32(), pa.uint64(), pa.float32(), pa.large_string(), pa.binary(), pa.bool_(), pa.timestamp("us")),
    *(pa.decimal128(38, 3), pa.list_(pa.int64()), pa.struct([("a", pa.struct([("b", pa.int64())]))]), pa.string()),
    *(pa.dictionary(pa.int32(), pa.string()), pa.date32(), pa.int64(), pa.float64()),
)


def values(valid: bytes, draw: random.Random) -> Named:
    """Numbers that no run has, in every column of numbers: in one row, or in all."""
    table = read(valid)
    for field in table.schema:
        options: tuple[Any, ...] = {pa.int64(): NUMBERS, pa.float64(): FLOATS}.get(field.type, ())
        for value in draw.sample(options, min(4, len(options))):
            values = table[field.name].to_pylist()
            rows = range(len(values)) if draw.random() < 0.3 else [draw.randrange(len(values))]
            for row in rows:
                values[row] = value
            yield f"values/{field.name}={value}/{len(rows)}", written(with_values(table, field.name, values))
    for field in table.schema:
        if field.type in (pa.bool_(), pa.string()):
            yield f"values/{field.name}=null/all", written(with_values(table, field.name, [None] * table.num_rows))


def types(valid: bytes, draw: random.Random) -> Named:
    """Columns of another type, renamed, missing, there twice."""
    table = read(valid)
    for field in table.schema:
        place = table.schema.get_field_index(field.name)
        every = field.name in ("run_id", "wall_ns", "half_ratio", "steady")
        for kind in TYPES if every else draw.sample(TYPES, 1):
            if kind != field.type:
                changed = table.set_column(place, pa.field(field.name, kind), pa.nulls(table.num_rows, kind))
                yield f"types/{field.name}/{kind}", written(changed)
        yield f"types/{field.name}/missing", written(table.remove_column(place))
    column = table.column("wall_ns")
    for name in ("wall_ns", "WALL_NS", "wall_ns ", *TEXTS.values()):
        yield f"types/added/{name[:20]!r}", written(table.append_column(name, column))
    text = pa.array([b"\xff\xfe<\xc0\x80"] * table.num_rows, pa.binary()).view(pa.string())
    for name in ("error_message", "run_id", "workload"):
        place = table.schema.get_field_index(name)
        yield f"types/{name}/not_utf8", written(table.set_column(place, table.schema.field(place), text))


def texts(valid: bytes, draw: random.Random) -> Named:
    """Every string column with a text that is more than text to somebody."""
    table = read(valid)
    names = [field.name for field in table.schema if field.type == pa.string()]
    for name in names:
        for what in draw.sample(sorted(TEXTS), 8):
            values = [TEXTS[what]] * table.num_rows if draw.random() < 0.5 else table[name].to_pylist()
            values[draw.randrange(len(values))] = TEXTS[what]
            yield f"texts/{name}/{what}", written(with_values(table, name, values))
    for what, text in TEXTS.items():
        changed = table
        for name in names:
            changed = with_values(changed, name, [text] * table.num_rows)
        yield f"texts/all/{what}", written(changed)


def manifests(valid: bytes, draw: random.Random) -> Named:
    """What the run says of itself, one leaf at a time, and what is no such thing at all."""
    table = read(valid)
    text = (table.schema.metadata or {})[KEY]
    whole = {
        "none": b"",
        "null": b"null",
        "list": b"[]",
        "number": b"1e999",
        "half": text[: len(text) // 2],
        "deep": b"[" * 100_000 + b"]" * 100_000,
        "deep_objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        "digits": b'{"schema_version": ' + b"9" * 5_000 + b"}",
        "latin": b'{"run_id": "\xff\xfe"}',
        "surrogate": text.replace(b'"command":"', b'"command":"\\ud800', 1),
        "nan": text.replace(b'"seed":7', b'"seed":NaN', 1),
        "twice": text[:-1] + b',"run_id":"20260101T000000Z-ffff"}',
        "future": text.replace(b'"schema_version":', b'"schema_version":9', 1),
        "prototype": text[:-1] + b',"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}',
        "long": text[:-1] + b',"note":"' + b"x" * 8_000_000 + b'"}',
    }
    for name, data in whole.items():
        yield f"manifests/{name}/0", written(table.replace_schema_metadata({KEY: data}))
    bare = table.replace_schema_metadata({b"other": text})
    yield "manifests/missing/0", written(bare)
    for at in range(200):
        manifest = json.loads(text)
        holder, key = draw.choice(list(_items(manifest)))
        how = draw.choice(("removed", "text", "text", "number", "list", "null"))
        word, number = draw.choice(list(TEXTS.values())), draw.choice(NUMBERS)
        values: dict[str, Any] = {"text": word, "number": number, "list": [[]], "null": None}
        if how == "removed":
            del holder[key]
        else:
            holder[key] = values[how]
        data = json.dumps(manifest, separators=(",", ":")).encode()
        yield f"manifests/{key}:{how}/{at}", written(table.replace_schema_metadata({KEY: data}))


def rows(valid: bytes, draw: random.Random) -> Named:
    """Rows twice, missing, mixed with another run's, none at all."""
    table = read(valid)
    some = sorted(draw.sample(range(table.num_rows), table.num_rows // 2))
    yield "rows/none/0", written(table.slice(0, 0))
    yield "rows/half/0", written(table.take(some))
    yield "rows/doubled/0", written(pa.concat_tables([table, table]))
    yield "rows/one_twice/0", written(pa.concat_tables([table, table.slice(0, 1)]))
    yield "rows/backwards/0", written(table.take(list(range(table.num_rows - 1, -1, -1))))
    for name, other in (("run_id", "20260101T000000Z-ffff"), ("machine_id", "other-1c-00000000"), ("device", "cuda")):
        values = [other, *table[name].to_pylist()[1:]]
        yield f"rows/two_of/{name}", written(with_values(table, name, values))
        yield f"rows/other/{name}", written(with_values(table, name, [other] * table.num_rows))
    ids = table["trial_id"].to_pylist()
    yield "rows/same_trial/0", written(with_values(table, "trial_id", [ids[0]] * table.num_rows))
    for when in ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "yesterday", "2026-13-45T99:99:99Z", "1e9"):
        yield f"rows/started_at/{when}", written(with_values(table, "started_at", [when] * table.num_rows))
    for factor in (2, 1000, 0):
        walls = [None if value is None else value * factor for value in table["wall_ns"].to_pylist()]
        yield f"rows/wall_ns/{factor}", written(with_values(table, "wall_ns", walls))


def read(valid: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(valid))


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


def with_values(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of everything that a JSON value holds, at any depth."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from _items(value[key])
