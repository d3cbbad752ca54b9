"""Mutations of a valid ``trials.parquet``: thousands of files as accidents and enemies leave them.

``mutated(valid, seed)`` gives (name, bytes). A name is ``kind/what/number``; kinds take turns, so that the first few
hundred are a sample of all. The same bytes and seed give the same files. No file is larger than 32 MB; some ask their
reader for gigabytes. Tests reach it by the fixture ``corpus``.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import parquet_bytes as raw
import pyarrow as pa
import pyarrow.parquet as pq

Named = Iterator[tuple[str, bytes]]
LONG = "x" * 100_000
TEXTS = (
    *('<script>document.title="owned"</script>', "[a](javascript:alert(1))", "{{7*7}} ${7*7}", "=SUM(1)", "'; DROP --"),
    *("a\x00b\x07\x1b[31mred\x1b[0m\r\nnext\x7f\x9b", "abc\u202egnp.exe\u2066\u2028x", "a" + "\u0301" * 400, "\ufeff"),
    *("../../../../../../tmp/owned", "..\\..\\C:\\owned", "..", "__proto__", "[red]x[/red]", "", LONG),
)
"""Strings that must never be more than text."""
NUMBERS = (-1, 0, 1, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (float("nan"), float("inf"), float("-inf"), -1.0, 1e308, 5e-324)
Kind = Callable[[bytes, random.Random], Named]
ZSTD = 6
"""Of parquet's codecs."""
HIDDEN = 2**31
"""Added to a field's number: in 32 bits it is that field all the same."""


def mutated(valid: bytes, seed: int) -> Named:
    """Make files that are not what they should be, of the bytes of a valid file of a few dozen rows."""
    running = [kind(valid, random.Random(f"{seed}:{name}")) for name, kind in KINDS.items()]
    while running:
        for kind in list(running):
            if (made := next(kind, None)) is None:
                running.remove(kind)
            else:
                yield made


def _truncated(valid: bytes, draw: random.Random) -> Named:
    sizes = [0, 1, 3, 4, 7, 8, 11, 12, *(len(valid) - left for left in (1, 4, 5, 8, 9, 12, 1000))]
    for at, size in enumerate(sizes + [draw.randrange(len(valid)) for _ in range(150)]):
        yield f"truncated/{size}/{at}", valid[: max(0, size)]


def _flipped(valid: bytes, draw: random.Random) -> Named:
    footer = raw.footer_at(valid)
    for at in range(700):
        data = bytearray(valid)
        for _ in range(draw.choice((1, 1, 2, 8, 64))):
            place = draw.randrange(footer, len(data)) if at % 2 else draw.randrange(len(data))
            data[place] ^= 1 << draw.randrange(8)
        yield f"flipped/{'footer' if at % 2 else 'anywhere'}/{at}", bytes(data)


def _overwritten(valid: bytes, draw: random.Random) -> Named:
    for at in range(300):
        begin, size = draw.randrange(len(valid)), draw.choice((1, 2, 8, 64, 1024))
        other = draw.randrange(len(valid))
        put = draw.choice((b"", bytes(size), b"\xff" * size, draw.randbytes(size), valid[other : other + size]))
        kept = begin + draw.choice((0, size))
        yield f"overwritten/{kept - begin}/{at}", valid[:begin] + put + valid[kept:] if put else valid[:begin]


def damaged(valid: bytes, name: str, draw: random.Random) -> bytes:
    """The file with up to 64 other bytes in a page of a column, as a bad disk or a hex editor leaves them."""
    begin, end = raw.body(valid, name)
    size = min(64, end - begin)
    at = draw.randrange(begin, end - size + 1)
    return valid[:at] + bytes(byte ^ draw.randrange(1, 256) for byte in valid[at : at + size]) + valid[at + size :]


def _damaged(valid: bytes, draw: random.Random) -> Named:
    """Pages that are not those of which their checksums were made, or have none."""
    names = [field.name for field in read(valid).schema]
    for at, name in enumerate(["samples_per_s", *names]):
        yield f"damaged/{name}/{at}", damaged(valid, name, draw)
    yield "damaged/unchecked/0", written(read(valid), write_page_checksum=False)


def _magic(valid: bytes, draw: random.Random) -> Named:
    body, heads = valid[4:-4], (b"PK\x03\x04", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x7fELF", b"ARROW1\x00\x00")
    ends = ((b"PARE", b"PARE"), (b"PAR2", raw.MAGIC), (raw.MAGIC, b"PAR0"), (b"par1", b"par1"), (b"", b""))
    texts = (b"<!doctype html><script>document.title='owned'</script>", b'{"schema_version": 1}', b"run_id\n=1+1\n")
    others = (*texts, b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", raw.MAGIC * 3, raw.MAGIC + bytes(4) + raw.MAGIC)
    files = (*(begin + body + end for begin, end in ends), *(head + draw.randbytes(500) for head in heads), *others)
    for at, data in enumerate(files):
        yield f"magic/{data[:4]!r}/{at}", data


def _declared(valid: bytes, draw: random.Random) -> Named:
    """Whatever the footer declares, one number or text at a time: rows, sizes, offsets, kinds, names."""
    footer = raw.footer_of(valid)
    places = list(raw.leaves(footer))
    for at in range(500):
        holder, key, kind, before = draw.choice(places)
        text = draw.choice(TEXTS).encode()
        value = text if kind == raw.BINARY else draw.choice((*NUMBERS, draw.choice(places)[3]))
        holder[key] = (kind, value) if isinstance(holder, dict) else value
        try:
            yield f"declared/{key}/{at}", raw.closed(valid, footer)
        except (TypeError, AttributeError):  # a text in a number's place cannot be written
            continue
        finally:
            holder[key] = (kind, before) if isinstance(holder, dict) else before


def _pages(valid: bytes, draw: random.Random) -> Named:
    """Whatever the header of a page declares, one number at a time: sizes, counts, encodings."""
    for at in range(250):
        footer = raw.footer_of(valid)
        chunk = draw.choice(raw.chunks(footer))
        header, rest = raw.first_page(valid, chunk)
        holder, key, kind, _ = draw.choice([leaf for leaf in raw.leaves(header) if leaf[2] != raw.BINARY])
        value = draw.choice(NUMBERS)
        holder[key] = (kind, value) if isinstance(holder, dict) else value
        yield f"pages/{key}={value}/{at}", raw.repointed(valid, footer, chunk, raw.struct(header) + rest)


def _schemas(valid: bytes, draw: random.Random) -> Named:
    """Schemas that no run has: a million columns, groups in groups, more children than there are."""
    version, rest = raw.struct({1: (raw.I32, 2)})[:-1], raw.struct({2: (raw.I64, 0), 3: (raw.LIST, (raw.STRUCT, []))})
    column = {1: (raw.I32, 2), 3: (raw.I32, 1), 4: (raw.BINARY, b"0000000")}
    before, after = raw.struct(column).split(b"0000000")
    group = raw.struct({4: (raw.BINARY, b"group"), 5: (raw.I32, 1)})

    def without_rows(elements: bytes, count: int) -> bytes:
        head = bytes([0x19, 0xF0 | raw.STRUCT]) + raw.varint(count)
        return raw.MAGIC + raw.ended(version + head + elements + bytes([rest[0] - 0x10]) + rest[1:])

    for count in (0, 1_000, 100_000):
        names = b"".join(before + b"%07d" % at + after for at in range(count))
        root = raw.struct({4: (raw.BINARY, b"schema"), 5: (raw.I32, count)})
        yield f"schemas/columns/{count}", without_rows(root + names, count + 1)
    for depth in (20, 100_000):
        yield f"schemas/depth/{depth}", without_rows(group * depth + raw.struct(column), depth + 1)
        structs = bytes([0xBC]) + bytes([0x1C]) * depth + bytes(depth + 2)  # in a field that nobody knows
        yield f"schemas/structs/{depth}", raw.MAGIC + raw.ended(version + structs)
    for size in (2**31 - 1, 2**32 - 1, 2**62):
        yield f"schemas/list/{size}", without_rows(draw.randbytes(50), size)
    groups = [raw.struct(group) for group in raw.footer_of(valid)[4][1][1]]
    for more in (10_000, 100_000):
        footer = raw.footer_of(valid)
        footer[4] = (raw.LIST, (raw.STRUCT, [*groups, *[raw.struct(raw.EMPTY_GROUP)] * more]))
        yield f"schemas/row_groups/{more}", raw.closed(valid, footer)
    for times in (2, 500):
        footer = raw.footer_of(valid)
        footer |= {3: (raw.I64, footer[3][1] * times), 4: (raw.LIST, (raw.STRUCT, groups * times))}
        yield f"schemas/rows_again/{times}", raw.closed(valid, footer)


def _bombs(valid: bytes, draw: random.Random) -> Named:
    """Small files that ask their reader for much."""
    table = read(valid)
    about = {"metadata": table.schema.metadata}
    long = with_values(table, "error_message", ["\0" * 2**25] + [None] * (len(table) - 1))
    yield "bombs/one_text/32MB", written(long)
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 15_000, pa.int32()), pa.array([LONG]))
    # The writer would spell the texts out if their dictionary were too large for it.
    kept = {"store_schema": False, "dictionary_pagesize_limit": 2**30}
    yield "bombs/dictionary/1500MB", written(pa.table({"run_id": words}, **about), **kept)
    yield "bombs/nulls/5000000", written(pa.table({"wall_ns": pa.nulls(5_000_000, pa.int64())}, **about))
    yield "bombs/rows/3000000", written(pa.table({"run_id": pa.repeat("x", 3_000_000)}, **about))
    frame = pa.Codec("zstd").compress(bytes(2**24), asbytes=True)
    for frames, kind in ((4, 0), (127, 0), (127, 2)):  # as many frames as wanted make one page
        footer = raw.footer_of(valid)
        chunk = raw.chunk_of(footer, "wall_ns")
        chunk[4] = (raw.I32, ZSTD)
        counts = {1: (raw.I32, frames * 2**21), 2: (raw.I32, 0)}
        levels = {} if kind else {3: (raw.I32, 3), 4: (raw.I32, 3)}
        page = raw.page(kind, counts | levels, frame * frames, frames * 2**24)
        what = "dictionary" if kind else "data"
        yield f"bombs/{what}_page/{frames * 16}MB", raw.repointed(valid, footer, chunk, page)


def _ambiguous(valid: bytes, draw: random.Random) -> Named:
    """Numbers that one reader of a struct sees and another does not.

    They are of fields whose number needs more than 32 bits, and in kinds of value of which one makes nothing and
    another a number.
    """
    many = 10**8
    hidden = {
        "field": {HIDDEN + 3: (raw.I64, many)},
        "double": {3: (raw.DOUBLE, float(many))},
        "list": {3: (raw.LIST, (raw.I64, [many]))},
    }
    for name, fields in hidden.items():
        footer = raw.footer_of(valid)
        footer |= fields
        footer[4][1][1][0] |= {3: (raw.I64, many)} if name == "double" else fields
        yield f"ambiguous/rows_{name}/0", raw.closed(valid, footer)
    for at, number in enumerate((1, 2)):
        footer = raw.footer_of(valid)
        chunk = raw.chunk_of(footer, "samples_per_s")
        header, rest = raw.first_page(valid, chunk)
        before = len(raw.struct(header))
        about = header if number == 2 else header[7 if 7 in header else 5][1]
        about[HIDDEN + number] = (raw.I32, 2**31 - 1)
        page = raw.struct(header) + rest
        chunk[6] = (raw.I64, chunk[6][1] + len(raw.struct(header)) - before)
        yield f"ambiguous/page_{'size' if number == 2 else 'values'}/{at}", raw.repointed(valid, footer, chunk, page)


def _values(valid: bytes, draw: random.Random) -> Named:
    """Numbers and texts that no run has, in every column, with right checksums: in one row, or in all."""
    table = read(valid)
    options: dict[Any, tuple[Any, ...]] = {pa.int64(): NUMBERS, pa.float64(): FLOATS, pa.bool_(): (None,)}
    for field in table.schema:
        for value in draw.sample(chosen := options.get(field.type, (*TEXTS, None)), min(2, len(chosen))):
            values = table[field.name].to_pylist()
            rows = range(len(values)) if draw.random() < 0.3 else [draw.randrange(len(values))]
            for row in rows:
                values[row] = value
            yield f"values/{field.name}/{len(rows)}", written(with_values(table, field.name, values))


def read(valid: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(valid))


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **({"compression": "zstd", "write_page_checksum": True} | options))
    return sink.getvalue()


def with_values(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


KINDS: dict[str, Kind] = {
    "truncated": _truncated,
    "flipped": _flipped,
    "overwritten": _overwritten,
    "damaged": _damaged,
    "magic": _magic,
    "declared": _declared,
    "pages": _pages,
    "schemas": _schemas,
    "values": _values,
    "bombs": _bombs,
    "ambiguous": _ambiguous,
}
BROKEN = ("damaged", "truncated", "magic", "schemas", "bombs", "ambiguous")
"""Kinds of which every file must be refused."""
