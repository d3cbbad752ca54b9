"""Start-up by workers: from creating the iterator to the first batch, by their number, kind and start method."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.worker_costs import startup
from feedrate.charts import workers
from feedrate.charts.figure import MOST_PANELS, Figure, Panel, Row, Sheet, estimate, interval, listed, sized
from feedrate.charts.marks import height
from feedrate.schema import words

TITLE = "Starting workers"
QUESTION = "How long do workers take to the first batch, by how they are started?"
READS = "trials"
_COLUMNS = {"workers": "label", "started by": "begin", "first batch (ms)": "value", "low": "lo", "high": "hi", "n": "n"}
_MISSING = "No two settings that differ in their workers only were measured here."


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a panel a setting, a line for each way to have workers."""
    found = startup(trials) if len(trials) else trials
    sheet, drawn = Sheet(TITLE, QUESTION), list[Row]()
    parts = [rows_of(part) for _, part in found.groupby("setting", sort=False)] if len(found) else []
    for cells in parts[:MOST_PANELS]:
        rows = [
            {"label": workers.who(cell), "begin": workers.begin(cell), **estimate(cell, "startup_ms")} for cell in cells
        ]
        drawn += rows
        what = workers.what(cells[0])
        title, _, subtitle = what.partition(", ")
        lines = _lines(subtitle)
        layers = workers.rows_of_dots(rows, "time to the first batch (ms)", log=True)
        chart = sized(layers, title, "", height(len(rows)) + 14 * (len(lines) - 1))
        chart.title.subtitle = lines
        sheet.add(Panel(title, subtitle, _message(rows), chart), listed(rows, {"what was loaded": what}, _COLUMNS), {})
    if (extra := len(parts) - MOST_PANELS) > 0:
        sheet.note(f"{words.plural(extra, 'more panel')} would fit the records: the settings that compare fewest ways.")
    sheet.note("The loader alone; the time holds the preparation of that batch. A line that reaches the edge goes on.")
    return sheet.figure(workers.keys(drawn), _MISSING)


def _lines(text: str, most: int = 46) -> list[str]:
    """Break a subtitle between its parts, so that it fits the panel."""
    lines = [""]
    for part in text.split(", "):
        if lines[-1] and len(lines[-1]) + len(part) + 2 > most:
            lines.append("")
        lines[-1] += f", {part}" if lines[-1] else part
    return lines


def _message(rows: Sequence[Row]) -> str:
    """Name the quickest and the slowest."""
    least, most = (pick(rows, key=lambda row: row["value"]) for pick in (min, max))
    return words.sentence(
        f"{least['label']}: {words.number(least['value'])} ms to the first batch ({interval(least)}); {most['label']}: "
        f"{words.number(most['value'])} ms ({interval(most)}), {words.times(most['value'] / least['value'])} as long"
    )
