"""The page "All hardware": what all runs of a store were measured on, where there are too many to show each.

A row a kind of hardware, and files of parquet with a row a run: those of one kind lie together, so that whoever looks
for one takes a file or two. The page, its index and every file are bounded, however many runs there are.

``site/scripts/hardware/page.js`` searches all runs. The index tells it what hardware each file holds, so that it reads
those alone that can hold what a reader asks for.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from markupsafe import Markup

from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed
from feedrate.pages.selection import Selection
from feedrate.pages.template import render
from feedrate.questions.compare.page import browser_caps
from feedrate.store import summaries
from feedrate.store.runs import RESULTS

PATH = "hardware.md"
TITLE = "All hardware"
FOLDER = "hardware"
"""Of the files, on the site."""
INDEX = f"{FOLDER}/index.json"
FORMAT = 1
"""Of the index."""
LIMIT = 1_000_000
"""Bytes of a file at most."""
INDEX_LIMIT = 30_000
"""Bytes of the index at most, compressed."""
ROWS = 20_000
"""Runs of a file at most."""
KINDS = 1_000
"""Kinds of hardware that the page lists: those with most machines."""
HELD = ("gpu", "cpu", "cores", "device")
"""What the index says of each file: the values that its runs have."""
_NAMES = (5_000, 1_000, 200, 50, 10, 0)
"""Values of a file that the index lists at most: as many as its limit has room for. A file with more values may hold
anything."""
_RUNS = "SELECT * EXCLUDE (month) FROM runs ORDER BY gpu NULLS LAST, cpu, cores, started_at DESC, machine_id, run_id"
_KINDS = """
WITH placed AS (
  SELECT *, row_number() OVER (ORDER BY gpu NULLS LAST, cpu, cores, started_at DESC, machine_id, run_id) - 1 AS place
  FROM runs)
SELECT gpu, cpu, cores, count(DISTINCT machine_id) AS machines, count(*) AS runs, max(started_at) AS newest,
  min(place) AS first, max(place) AS last
FROM placed GROUP BY ALL ORDER BY machines DESC, first LIMIT ?
"""


def page(everyone: Selection, folder: Path, results: Path = RESULTS) -> Page:
    """Write the page, and its files into an empty folder; ``everyone`` are the runs that have pages."""
    runs = _linked(summaries.query(_RUNS, results=results), everyone)
    ends: list[int] = []
    files: dict[str, str | Path] = {}
    held: list[dict[str, Any]] = []
    for number, (part, written) in enumerate(_parts(runs), 1):
        path = folder / f"runs-{number:04d}.parquet"
        path.write_bytes(written)
        name = f"{FOLDER}/{path.name}"
        files[name] = path
        ends.append(len(part) + sum(ends[-1:]))
        held.append({"file": name, "bytes": written.size, **{column: _values(part[column]) for column in HELD}})
    kinds = summaries.query(_KINDS, [KINDS], results).to_pylist()
    body = render(
        "hardware/page.md",
        title=TITLE,
        runs=len(runs),
        machines=pc.count_distinct(runs["machine_id"]).as_py(),
        limit=KINDS if len(kinds) == KINDS else 0,
        folder=FOLDER,
        kinds=[_row(kind, _links(list(files), ends, kind["first"], kind["last"])) for kind in kinds],
    )
    index = _index(held)
    waiting = "Starting the search … Opened as a file, without a server, this page cannot read others: make serve does."
    frame = Placed("hardware", markup.scripted("hardware", markup.addressed(INDEX, index), waiting))
    return Page(PATH, TITLE, body, {"hardware": frame}, {**files, INDEX: index})


def _row(kind: Mapping[str, Any], links: Markup) -> tuple[object, ...]:
    counts = (f"{kind[name]:,}" for name in ("cores", "machines", "runs"))
    return kind["gpu"] or "none", kind["cpu"], *counts, descriptions.day(kind["newest"]), links


def _linked(runs: pa.Table, everyone: Selection) -> pa.Table:
    """Say of each run where its page is; null where it has none."""
    pages = {f"{view.machine_id}/{view.manifest.run_id}": view.page.replace(".md", ".html") for view in everyone.every}
    names, addresses = (pa.array(list(each), pa.string()) for each in (pages, pages.values()))
    places = pc.index_in(pc.binary_join_element_wise(runs["machine_id"], runs["run_id"], "/"), value_set=names)
    return runs.append_column("page", pc.take(addresses, places))


def _values(column: pa.ChunkedArray) -> list[str]:
    """List the values of a column as text, empty where there is none."""
    return sorted("" if value is None else str(value) for value in pc.unique(column).to_pylist())


def _index(held: Sequence[Mapping[str, Any]]) -> str:
    """Write what each file holds, in as many names as there is room for; null stands for too many."""
    dtypes = {column.name: column.dtype for column in summaries.RUNS} | {"tier": "string", "page": "string"}
    given = {"format": FORMAT, "reader": {"caps": browser_caps(), "dtypes": dtypes}}
    for most in _NAMES:
        files = [
            {name: None if name in HELD and len(value) > most else value for name, value in file.items()}
            for file in held
        ]
        text = json.dumps({**given, "files": files}, sort_keys=True, separators=(",", ":")) + "\n"
        if len(gzip.compress(text.encode())) <= INDEX_LIMIT:
            break
    return text


def _parts(runs: pa.Table) -> Iterator[tuple[pa.Table, pa.Buffer]]:
    """Write runs, in their order, as parquet: those of a file, and its bytes; in halves where it would be too large."""
    for at in range(0, len(runs), ROWS):
        part, target = runs.slice(at, ROWS), pa.BufferOutputStream()
        pq.write_table(part, target)
        if (written := target.getvalue()).size <= LIMIT or len(part) == 1:
            yield part, written
        else:
            yield from _parts(part.slice(0, len(part) // 2))
            yield from _parts(part.slice(len(part) // 2))


def _links(names: list[str], ends: list[int], first: int, last: int) -> Markup:
    """Link the files that hold the runs at some places: the first and the last of a row of them."""
    held = [name for name, end, start in zip(names, ends, [0, *ends], strict=False) if start <= last and first < end]
    shown = [markup.download(PATH, name, Path(name).stem) for name in dict.fromkeys((held[0], held[-1]))]
    return (Markup(" to ") if len(held) > 2 else Markup(", ")).join(shown)
