"""The pace of a node by how many load at once, and of one training by the nodes that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.charts.figure import (
    ENDS,
    MOST_PANELS,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    chart,
    listed,
    plain,
    table,
    with_ends,
)
from feedrate.charts.plot import Plot, Side, band, keys, log_of, rule
from feedrate.charts.theme import colour
from feedrate.questions.scaling import sentences
from feedrate.questions.scaling.analysis import Level, Loading, Training, loading, training

LOOKS = {
    "measured": (colour("accent"), "circle"),
    "gradients exchanged": (colour("name-0"), "circle"),
    "not exchanged": (colour("name-2"), "triangle-up"),
}
"""Series to colour and shape."""
IDEAL = "as if nothing were shared"
_COLUMNS = {name: name for name in ("what", "series", "nodes", "processes")} | {"samples per s": "value", **ENDS}
_SHARES = with_ends("efficiency", "efficiency") | with_ends("exchange of gradients", "exchange")


@chart("Many nodes at once", "What becomes of each node's pace when many load at once?")
def nodes_at_once(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a panel for everything that was loaded or trained by several numbers of nodes."""
    used = set[str]()
    for series in loading(trials):
        rows = [_row(level, "measured", series) for level in series.levels]
        _add(sheet, series, rows, sentences.of_loading(series))
        used |= {"measured"}
    for trained in training(trials):
        rows = [row for level in trained.levels for row in _trained(level, trained)]
        _add(sheet, trained, rows, sentences.of_training(trained))
        used |= {row["series"] for row in rows}
    sheet.note(
        "Dashed: nodes that share nothing. Band: the knee and its interval. A point is the mean of the nodes that "
        "load at once; each repetition takes other nodes. Intervals: Student’s t over repetitions, on logs."
    )
    return sheet.figure([*keys(LOOKS, used), Key(IDEAL, colour("muted"), "rule", dashed=True)], sentences.NOTHING)


def _add(sheet: Sheet, series: Loading | Training, rows: Sequence[Row], message: str) -> None:
    """Add a panel, or where there are enough of them the rows alone."""
    table_rows = listed(rows, {}, _COLUMNS | _SHARES if isinstance(series, Training) else _COLUMNS)
    if len(sheet.panels) >= MOST_PANELS:
        sheet.list(table_rows)
        sheet.note("The table has more settings than the panels.")
        return
    sheet.add(_panel(series, rows, message), table_rows)


def _row(level: Level, series: str, scaled: Loading | Training) -> dict[str, Any]:
    what = f"{sentences.titled(scaled.cell)}, {sentences.described(scaled.cell)}"
    pace = {name: plain(end) for name, end in level.rate.row(("value", "lo", "hi", "n")).items()}
    return {"what": what, "series": series, "nodes": level.nodes, "processes": level.processes, **pace}


def _trained(level: Level, training: Training) -> list[dict[str, Any]]:
    """The whole training, and what it would be without exchanging gradients."""
    none: dict[str, Any] = dict.fromkeys(_SHARES.values())
    rows = [_row(level, "gradients exchanged", training) | none]
    for name, share in (("efficiency", level.efficiency), ("exchange", level.exchange)):
        if share:
            ends = share.row((name, f"{name}_lo", f"{name}_hi", "n"))
            rows[0] |= {key: plain(ends[key]) for key in none if key in ends}
    if level.exchange:
        rate_without = level.rate.value / (1 - level.exchange.value)
        rows.append({**rows[0], "series": "not exchanged", "value": rate_without, "lo": None, "hi": None, **none})
    return rows


def _panel(series: Loading | Training, rows: Sequence[Row], message: str) -> Panel:
    one_size = len({row["processes"] for row in rows}) == 1
    of = "nodes" if one_size else "processes"
    places = sorted({row[of] for row in rows})
    first = min(rows, key=lambda row: (row[of], row["series"] != "gradients exchanged"))
    ideal = [{of: at, "value": first["value"] * (1 if one_size else at / first[of])} for at in places]
    title = "nodes at once" if one_size else "processes of one training"
    scale = {"type": "log", "base": 2, "domain": [places[0], places[-1]], "nice": False}
    x = Side(of, title, scale, {"values": places, "format": "d", "grid": False})
    y = log_of([*rows, *ideal], "samples per second and node" if isinstance(series, Loading) else "samples per second")
    dashed = alt.Chart(table(ideal)).mark_line(strokeDash=[4, 4], color=colour("muted"), strokeWidth=1.25)
    behind = [dashed.encode(**x.along("x"), **y.along("y"))]
    if isinstance(series, Loading) and (knee := series.knee):
        behind = [band(x, "x", (knee.low, knee.high), "source"), rule(x, "x", knee.value, "source"), *behind]
    plot = Plot(rows, x, y, "series", LOOKS, joined=True, behind=behind)
    subtitle = [sentences.doing(series.cell), sentences.settings(series.cell)]
    return plot.panel(sentences.titled(series.cell), subtitle, message)
