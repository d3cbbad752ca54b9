"""How busy the machine is as the batch grows, beside the figures of the experiment that set this off.

With a GPU the quantity is NVML's utilization, else the busy share of all cores. The source experiment (SRCNN on DIV2K,
one GTX 1080 Ti, 2019: "I got stuck in the i/o bottleneck in deep learning!") published GPU utilization without spread.
CPU utilization is another quantity; it stands in a panel of its own and is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, TRAIN
from feedrate.charts.figure import (
    COLUMNS,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    chart,
    held,
    listed,
    numbers,
    point,
    slices,
    table,
)
from feedrate.charts.marks import Series, hover
from feedrate.charts.theme import colour
from feedrate.questions.experiment.analysis import UTILIZATION
from feedrate.schema import words

SOURCE_TITLE = "The 2019 source: GTX 1080 Ti"
SOURCE_SUBTITLE = "GPU utilization, SRCNN on DIV2K, no spread given"
SOURCE_LABEL = "2019 source, GTX 1080 Ti (GPU)"
KINDS = {"gpu_util_pct": "GPU utilization", "cpu_util_pct": "CPU utilization"}

PER_CENT = {("per cent" if heading == "samples per s" else heading): key for heading, key in COLUMNS.items()}


@chart("Utilization by batch size", "How busy is the machine, and does a larger batch keep it busier?", "cells")
def utilization(sheet: Sheet, cells: pd.DataFrame) -> Figure:
    """Draw utilization against batch size."""
    parts = slices(cells, (TRAIN, EMULATED))
    series = Series(sorted({w for part in parts for w in numbers(part.frame, "num_workers")}))
    for part in parts:
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        column = "gpu_util_pct" if part.frame["device"].eq("cuda").any() else "cpu_util_pct"
        if rows := _rows(frame, column):
            given = {**part.row(), "quantity": KINDS[column]}
            layers = series.layers(rows, f"{KINDS[column]} (%)", "d", alt.Scale(domain=[0, 100]))
            panel = Panel.draw(part.title, part.subtitle, _message(rows, KINDS[column]), layers, 260)
            sheet.add(panel, listed(rows, given, PER_CENT), kept)
    if not sheet.panels:
        return sheet.figure((), "No utilization was observed in trials that ended well.")
    _add_source(sheet, any(row["quantity"] == KINDS["gpu_util_pct"] for row in sheet.rows))
    return sheet.figure([*series.keys(), Key(SOURCE_LABEL, colour("source"), "diamond")], "")


def _rows(frame: pd.DataFrame, column: str) -> list[dict[str, Any]]:
    cells = rows_of(frame[frame[column].notna()].sort_values(["batch_size", "num_workers"]))
    return [{**point(cell, column), "series": words.plural(int(cell["num_workers"]), "worker")} for cell in cells]


def _message(rows: Sequence[Row], kind: str) -> str:
    workers = max(row["workers"] for row in rows)
    line = sorted((row for row in rows if row["workers"] == workers), key=lambda row: row["batch"])
    first, last = line[0], line[-1]
    start = f"{words.percent(first['value'] / 100)} at batch {first['batch']}"
    text = f"with {words.plural(workers, 'worker')}, {kind} is {start}"
    if last is not first:
        text += f" and {words.percent(last['value'] / 100)} at batch {last['batch']}"
    return words.sentence(f"{text} ({words.interval(last['lo'], last['hi'], last['n'])})")


def _add_source(sheet: Sheet, comparable: bool) -> None:
    """Put the published figures beside ours, and say whether they are the same quantity."""
    rows = [{"batch": batch, "value": value, "label": SOURCE_LABEL} for batch, value in UTILIZATION.items()]
    base = alt.Chart(table(rows)).encode(
        x=alt.X("batch:O", title="batch size", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("value:Q", title="GPU utilization (%)", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5)),
        tooltip=hover({"batch:O": "batch size", "value:Q": "GPU utilization, %", "label:N": "source"}),
    )
    layers = [
        base.mark_line(color=colour("source"), strokeDash=[5, 3], strokeWidth=1.75),
        base.mark_point(color=colour("source"), filled=True, shape="diamond", size=55, opacity=1),
    ]
    message = (
        "For comparison, the 2019 source experiment (SRCNN on DIV2K, one GTX 1080 Ti) gave a GPU utilization of "
        f"{words.listed(words.percent(value / 100) for value in UTILIZATION.values())} for batches of "
        f"{words.listed(str(batch) for batch in UTILIZATION)}, without a spread."
    )
    if not comparable:
        message += " CPU utilization, shown for this machine, is another quantity: the two are not comparable in kind."
        sheet.note(
            "No GPU here: ours is the busy share of all cores, the source’s is GPU utilization. They are not "
            "comparable in kind."
        )
    given = {"workload": "source, 2019", "what ran": SOURCE_SUBTITLE, "quantity": "GPU utilization"}
    listed = ({**given, "batch_size": batch, "per cent": float(value)} for batch, value in UTILIZATION.items())
    sheet.add(Panel.draw(SOURCE_TITLE, SOURCE_SUBTITLE, message, layers, 260), listed)
