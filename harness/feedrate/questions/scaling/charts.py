"""The pace of a node by how many load at once, and of one training by the nodes that it runs on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.charts.figure import (
    ENDS,
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
from feedrate.charts.plot import Plot, Side, band, keys, limit_panels, log_of, rule
from feedrate.charts.theme import colour
from feedrate.questions.scaling import sentences
from feedrate.questions.scaling.analysis import Loading, Training, loading, training

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
    scaled: list[Loading | Training] = [*loading(trials), *training(trials)]
    for series in scaled:
        rows = list(_rows(series))
        columns = _COLUMNS | _SHARES if isinstance(series, Training) else _COLUMNS
        sheet.add(_panel(series, rows), listed(rows, {}, columns))
    limit_panels(sheet)
    sheet.note(
        "Dashed: nodes that share nothing. Band: the knee and its interval. A point is the mean of the nodes that "
        "load at once; each repetition takes other nodes. Intervals: Student’s t over repetitions, on logs."
    )
    drawn = keys(LOOKS, {row["series"] for row in sheet.rows})
    return sheet.figure([*drawn, Key(IDEAL, colour("muted"), "rule", dashed=True)], sentences.NOTHING)


def _rows(series: Loading | Training) -> Iterator[dict[str, Any]]:
    """A row a level; of a training also what it would be without exchanging gradients."""
    cell = series.cell
    what = ", ".join((sentences.titled(cell), sentences.doing(cell), sentences.settings(cell)))
    name = "measured" if isinstance(series, Loading) else "gradients exchanged"
    for level in series.levels:
        row = {"what": what, "series": name, "nodes": level.nodes, "processes": level.processes}
        row |= level.rate.row(("value", "lo", "hi", "n")) | dict.fromkeys(_SHARES.values())
        shares: dict[str, Any] = {}
        for key, share in (("efficiency", level.efficiency), ("exchange", level.exchange)):
            shares |= share.row((key, f"{key}_lo", f"{key}_hi", f"{key}_n")) if share else {}
        yield {key: plain(value) for key, value in (row | shares).items()}
        if level.exchange:
            alone = {"value": level.rate.value / (1 - level.exchange.value), "lo": None, "hi": None}
            yield {**row, "series": "not exchanged", **alone}


def _panel(series: Loading | Training, rows: Sequence[Row]) -> Panel:
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
    message = sentences.of_loading(series) if isinstance(series, Loading) else sentences.of_training(series)
    return plot.panel(sentences.titled(series.cell), subtitle, message)
