"""The pace of a node by how many load at once, and of one training by the nodes that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimate import Estimate
from feedrate.charts.figure import ENDS, MOST_PANELS, Figure, Key, Panel, Row, Sheet, chart, data, listed, plain, table
from feedrate.charts.marks import BLOCKS, HEIGHT, hover, lines, logarithmic, look, rate
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
_COLUMNS = {"what": "what", "series": "series", "nodes": "nodes", "processes": "processes", "samples per s": "value"}


@chart("Many nodes at once", "What becomes of each node's pace when many load at once?")
def nodes_at_once(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a panel for everything that was loaded or trained by several numbers of nodes."""
    used = set()
    for series in loading(trials):
        rows = [_row(level, "measured", series) for level in series.levels]
        _add(sheet, series, rows, sentences.of_loading(series))
        used |= {"measured"}
    for trained in training(trials):
        rows = [row for level in trained.levels for row in _trained(level, trained)]
        _add(sheet, trained, rows, sentences.of_training(trained))
        used |= {row["series"] for row in rows}
    sheet.note(
        "Dashed: as if nodes shared nothing. The line with a band is the knee and its interval. Where "
        "nodes load by themselves a point is the mean of those that loaded "
        "at once; intervals are Student’s t over repetitions, on logs. Which nodes load moves on by one every "
        "repetition."
    )
    keys = [Key(name, *pair) for name, pair in LOOKS.items() if name in used]
    return sheet.figure([*keys, Key(IDEAL, colour("muted"), "rule", dashed=True)], sentences.NOTHING)


def _add(sheet: Sheet, series: Loading | Training, rows: Sequence[Row], message: str) -> None:
    """Add a panel, or where there are enough of them the rows alone."""
    table_rows = listed(rows, {}, _COLUMNS | ENDS)
    if len(sheet.panels) >= MOST_PANELS:
        sheet.rows.extend(table_rows)
        sheet.note("Of many settings some are in the table alone.")
        return
    sheet.add(_panel(series, rows, message), table_rows)


def _row(level: Level, series: str, scaled: Loading | Training) -> dict[str, Any]:
    what = f"{sentences.titled(scaled.cell)}, {sentences.described(scaled.cell)}"
    pace = {name: plain(end) for name, end in level.rate.row(("value", "lo", "hi", "n")).items()}
    return {"what": what, "series": series, "nodes": level.nodes, "processes": level.processes, **pace}


def _trained(level: Level, training: Training) -> list[dict[str, Any]]:
    """The whole training, and what it would be without exchanging gradients."""
    rows = [_row(level, "gradients exchanged", training)]
    if level.exchange:
        rate_without = level.rate.value / (1 - level.exchange.value)
        rows.append({**rows[0], "series": "not exchanged", "value": rate_without, "lo": None, "hi": None})
    return rows


def _panel(series: Loading | Training, rows: Sequence[Row], message: str) -> Panel:
    one_size = len({row["processes"] for row in rows}) == 1
    of = "nodes" if one_size else "processes"
    places = sorted({row[of] for row in rows})
    first = min(rows, key=lambda row: (row[of], row["series"] != "gradients exchanged"))
    ideal = [{of: at, "value": first["value"] * (1 if one_size else at / first[of])} for at in places]
    scale = alt.Scale(type="log", base=2, domain=[places[0], places[-1]], nice=False)
    x = alt.X(
        f"{of}:Q",
        title="nodes at once" if one_size else "processes of one training",
        scale=scale,
        axis=alt.Axis(values=places, format="d", grid=False),
    )
    title = "samples per second and node" if isinstance(series, Loading) else "samples per second"
    y = logarithmic([*rows, *({"value": row["value"], "lo": None, "hi": None} for row in ideal)], title)
    tone, shape = look("series", LOOKS, {row["series"] for row in rows})
    base = alt.Chart(data(rows, "series", of, "value", "lo", "hi", "n")).encode(x=x, color=tone)
    tooltip = hover({"series:N": "", f"{of}:Q": of, **rate("samples per second"), **BLOCKS})
    dashed = alt.Chart(table(ideal)).mark_line(strokeDash=[4, 4], color=colour("muted"), strokeWidth=1.25)
    layers = [dashed.encode(x=x, y=alt.Y("value:Q", **y)), *lines(base, y, shape, tooltip)]
    if isinstance(series, Loading) and series.knee:
        layers = [*_knee(series.knee, scale), *layers]
    subtitle = [sentences.doing(series.cell), sentences.settings(series.cell)]
    return Panel.draw(sentences.titled(series.cell), subtitle, message, layers, HEIGHT)


def _knee(knee: Estimate, scale: alt.Scale) -> list[alt.Chart]:
    """The knee as a line, its interval as a band."""
    at, tone = alt.Chart(table([{"knee": knee.value, "lo": knee.low, "hi": knee.high}])), colour("source")
    band = at.mark_rect(opacity=0.18, color=tone).encode(x=alt.X("lo:Q", scale=scale), x2="hi:Q")
    return [band, at.mark_rule(color=tone, strokeWidth=1.5).encode(x=alt.X("knee:Q", scale=scale))]
