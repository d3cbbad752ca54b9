"""The page "All hardware": what all runs of a store were measured on, where there are too many to show each.

A row a kind of hardware, and files of parquet with a row a run: those of one kind lie together, so that whoever looks
for one takes a file or two. The page and every file are bounded, however many runs there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from markupsafe import Markup

from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page
from feedrate.pages.template import render
from feedrate.store import summaries
from feedrate.store.runs import RESULTS

PATH = "hardware.md"
TITLE = "All hardware"
FOLDER = "hardware"
"""Of the files, on the site."""
LIMIT = 1_000_000
"""Bytes of a file at most."""
ROWS = 20_000
"""Runs of a file at most."""
KINDS = 1_000
"""Kinds of hardware that the page lists: those with most machines."""
_RUNS = "SELECT * EXCLUDE (month) FROM runs ORDER BY gpu NULLS LAST, cpu, cores, started_at DESC, machine_id, run_id"
_KINDS = """
WITH placed AS (
  SELECT *, row_number() OVER (ORDER BY gpu NULLS LAST, cpu, cores, started_at DESC, machine_id, run_id) - 1 AS place
  FROM runs)
SELECT gpu, cpu, cores, count(DISTINCT machine_id) AS machines, count(*) AS runs, max(started_at) AS newest,
  min(place) AS first, max(place) AS last
FROM placed GROUP BY ALL ORDER BY machines DESC, first LIMIT ?
"""


def page(folder: Path, results: Path = RESULTS) -> Page:
    """Write the page, and its files into an empty folder."""
    runs = summaries.query(_RUNS, results=results)
    ends: list[int] = []
    files: dict[str, str | Path] = {}
    for number, (count, written) in enumerate(_parts(runs), 1):
        path = folder / f"runs-{number:04d}.parquet"
        path.write_bytes(written)
        files[f"{FOLDER}/{path.name}"] = path
        ends.append(count + sum(ends[-1:]))
    kinds = summaries.query(_KINDS, [KINDS], results).to_pylist()
    body = render(
        "hardware/page.md",
        title=TITLE,
        runs=len(runs),
        machines=pc.count_distinct(runs["machine_id"]).as_py(),
        limit=KINDS if len(kinds) == KINDS else 0,
        folder=FOLDER,
        kinds=[
            (
                kind["gpu"] or "none",
                kind["cpu"],
                *(f"{kind[name]:,}" for name in ("cores", "machines", "runs")),
                descriptions.day(kind["newest"]),
                _links(list(files), ends, kind["first"], kind["last"]),
            )
            for kind in kinds
        ],
    )
    return Page(PATH, TITLE, body, files=files)


def _parts(runs: pa.Table) -> Iterator[tuple[int, pa.Buffer]]:
    """Write runs, in their order, as parquet: how many, and a file's bytes; in halves where it would be too large."""
    for at in range(0, len(runs), ROWS):
        part, target = runs.slice(at, ROWS), pa.BufferOutputStream()
        pq.write_table(part, target)
        if (written := target.getvalue()).size <= LIMIT or len(part) == 1:
            yield len(part), written
        else:
            yield from _parts(part.slice(0, len(part) // 2))
            yield from _parts(part.slice(len(part) // 2))


def _links(names: list[str], ends: list[int], first: int, last: int) -> Markup:
    """Link the files that hold the runs at some places: the first and the last of a row of them."""
    held = [name for name, end, start in zip(names, ends, [0, *ends], strict=False) if start <= last and first < end]
    shown = [markup.download(PATH, name, Path(name).stem) for name in dict.fromkeys((held[0], held[-1]))]
    return (Markup(" to ") if len(held) > 2 else Markup(", ")).join(shown)
