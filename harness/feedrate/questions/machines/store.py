"""All machines of a whole store, below Compare: a row a machine and device, where it has more runs than get pages.

DuckDB sums up the store's compact data set. All rows lie in one file, which ``site/scripts/hardware/page.js`` reads
when somebody first types; the page itself lists the first of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from feedrate.analysis.estimate import Estimate
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Placed
from feedrate.pages.selection import Selection
from feedrate.pages.template import render
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.store import compact

FILE = "hardware/machines.json"
FORMAT = 1
"""Of the file."""
ROWS, LISTED = 100_000, 50
"""Rows of the file at most, and of the page: machines that were measured last."""
RATE = "Samples/s"
COLUMNS = ("Machine", "Accelerator", "Processor", "Cores", "Device", "Disk", "Runs", "Newest run", "Tier", RATE)
NUMBERS = ("Cores", "Runs", RATE)
_COMMONEST = """
SELECT * FROM cells WHERE cell_id = (
  SELECT cell_id FROM cells WHERE asked AND n > 1 AND mode IN ('train', 'load') AND protocol_version = ?
  GROUP BY cell_id ORDER BY count(*) DESC, cell_id LIMIT 1)
LIMIT 1
"""
_MACHINES = """
WITH machines AS (
  SELECT machine_id, device, any_value(gpu) AS gpu, any_value(cpu) AS cpu, any_value(cores) AS cores, count(*) AS runs,
    max(started_at) AS newest, arg_max(run_id, started_at) AS run_id, arg_max(storage, started_at) AS storage,
    arg_max(tier, started_at) AS tier
  FROM runs GROUP BY machine_id, device)
SELECT m.*, samples_per_s, lo, hi, n
FROM machines m LEFT JOIN (SELECT * FROM cells WHERE cell_id = ? AND protocol_version = ? AND n > 1) c
  USING (machine_id, run_id)
ORDER BY newest DESC, machine_id, m.device LIMIT ?
"""
Cell = str | tuple[str, str]
"""Text, or text and the page that it leads to."""


def section(path: str, everyone: Selection, data: Path) -> tuple[Markup, Placed, dict[str, str]]:
    """Write the table, its frame and its file, from the compact data set in a folder.

    ``path`` is that of the page which it stands on, ``everyone`` the runs that have pages.
    """

    def ask(sql: str, *values: object) -> list[dict[str, Any]]:
        return list(compact.query(sql, values, data).to_pylist())

    (counts,) = ask("SELECT count(*) AS runs, count(DISTINCT machine_id) AS machines FROM runs")
    commonest = ask(_COMMONEST, PROTOCOL_VERSION)
    machines = ask(_MACHINES, commonest[0]["cell_id"] if commonest else "", PROTOCOL_VERSION, ROWS)
    pages = {view.manifest.run_id: view.page.replace(".md", ".html") for view in everyone.every}
    rows = [_row(machine, pages) for machine in machines]
    body = render(
        "machines/store.md",
        **counts,
        shown=len(everyone.every),
        columns=COLUMNS,
        numbers=NUMBERS,
        rows=[[_linked(path, cell) for cell in row] for row in rows[:LISTED]],
        held=len(rows),
        file=FILE,
        path=path,
        setting=[descriptions.setting(row) for row in commonest],
    )
    text = json.dumps({"format": FORMAT, "rows": rows}, separators=(",", ":")) + "\n"
    frame = Placed("hardware", markup.scripted("hardware", markup.addressed(FILE, text)))
    return body, frame, {FILE: text}


def _row(machine: Mapping[str, Any], pages: Mapping[str, str]) -> list[Cell]:
    """The cells below ``COLUMNS`` of a machine and device."""
    run, page = machine["run_id"], pages.get(machine["run_id"])
    return [
        machine["machine_id"],
        machine["gpu"] or "none",
        machine["cpu"],
        str(machine["cores"]),
        machine["device"],
        machine["storage"] or "–",
        f"{machine['runs']:,}",
        (run, page) if page else run,
        machine["tier"],
        Estimate.of_row(machine).with_n() if machine["n"] else "–",
    ]


def _linked(path: str, cell: Cell) -> str | Markup:
    return cell if isinstance(cell, str) else markup.link(path, cell[1], cell[0])
