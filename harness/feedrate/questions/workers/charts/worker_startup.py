"""Start-up by workers: from creating the iterator to the first batch, by their number, kind and start method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.worker_costs import startup
from feedrate.charts import workers
from feedrate.charts.figure import MOST_PANELS, Figure, Panel, Row, Sheet, listed, plain, sized
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
    parts = [part for _, part in found.groupby("setting", sort=False)] if len(found) else []
    for part in parts[:MOST_PANELS]:
        rows = _rows(part)
        drawn += rows
        cell = {str(name): value for name, value in part.iloc[0].items()}
        what = workers.what(cell)
        chart = sized(workers.dots(rows, "time to the first batch (ms)", log=True), "", "", height(len(rows)))
        title, _, subtitle = what.partition(", ")
        chart.title.text, chart.title.subtitle = title, _lines(subtitle)
        chart.height += 14 * (len(chart.title.subtitle) - 1)
        sheet.add(Panel(title, subtitle, _message(rows), chart), listed(rows, {"what was loaded": what}, _COLUMNS), {})
    if (extra := len(parts) - MOST_PANELS) > 0:
        sheet.note(f"{words.plural(extra, 'more panel')} would fit the records: the settings that compare fewest ways.")
    sheet.note("The loader alone; the time holds the preparation of that batch. A line that reaches the edge goes on.")
    return sheet.figure(workers.keys(drawn), _MISSING)


def _rows(part: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "label": workers.who(cell),
            "begin": workers.begin(cell),
            "value": float(cell["startup_ms"]),
            "lo": plain(cell["startup_ms_lo"]),
            "hi": plain(cell["startup_ms_hi"]),
            "n": int(cell["n"]),
        }
        for cell in rows_of(part)
    ]


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
    least, most = min(rows, key=lambda row: row["value"]), max(rows, key=lambda row: row["value"])
    return words.sentence(
        f"{least['label']}: {words.number(least['value'])} ms to the first batch "
        f"({words.interval(least['lo'], least['hi'], least['n'])}); {most['label']}: {words.number(most['value'])} ms "
        f"({words.interval(most['lo'], most['hi'], most['n'])}), {words.times(most['value'] / least['value'])} as long"
    )
