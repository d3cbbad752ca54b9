"""How the chart ``timeline`` is drawn: lanes, bars, the numbers of batches, and the figure's legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from feedrate.charts.figure import EMULATED, WIDTH, Key, Row, sized, table
from feedrate.charts.theme import PHASE_COLOURS, STAGE_COLOURS, colour
from feedrate.questions.loader.charts.phases import LABELS
from feedrate.questions.runs.analysis import COPIES, DEVICE, IDLE, MAIN, OWN, WORKER, Account, Bar, Recorded, Stretch
from feedrate.schema import words

MOST_WORKERS = 8
"""Lanes of workers; the others of a trial are left out, and it is said."""
PARTS = {**LABELS, **{stage: f"{stage} (loading)" for stage in STAGE_COLOURS}, IDLE: "device idle"}
_TONES = {**PHASE_COLOURS, **STAGE_COLOURS, IDLE: colour("line")}
_PLOT = WIDTH - 90
"""About so many pixels are left for time on the narrowest screen."""
_DIGIT = 6
"""Pixels of a digit of a batch's number."""
_LOWER = 4
"""Pixels by which bars lie below the middle of their lanes, to leave room for numbers."""
_LANE, _HEAD = 21, 87
"""Pixels of a lane, and of titles and axis."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """One trial of a comparison."""

    name: str
    """Its workers."""
    cell: dict[str, Any]
    """Its columns in the frame of ``analysis.timeline``."""
    trial: Recorded
    stretch: Stretch
    bars: list[Bar]
    sums: Account

    @property
    def lanes(self) -> list[str]:
        """Lanes from the top: main process, its own loading, workers by number, device."""
        present = {bar.lane for bar in self.bars}
        numbered = sorted((lane for lane in present if lane.startswith(WORKER)), key=lambda lane: int(lane.split()[1]))
        order = (MAIN, OWN, *numbered[:MOST_WORKERS], COPIES, DEVICE)
        return [lane for lane in order if lane in present]


def drawn(told: Sequence[ClaimResult], kind: str) -> list[dict[str, Any]]:
    """List the bars that are drawn, milliseconds; ``from`` and ``to`` are what of each lies in the picture."""
    return [
        {
            "setting": one.name,
            "lane": bar.lane,
            "y": f"{place}:{bar.lane}",
            "part": EMULATED if kind == EMULATED and bar.part == "forward" else bar.part,
            "batch": bar.batch,
            "begin": bar.begin / 1e6,
            "lasts": (bar.end - bar.begin) / 1e6,
            "from": max(0.0, bar.begin) / 1e6,
            "to": min(bar.end, one.stretch.span_ns) / 1e6,
        }
        for place, one in enumerate(told)
        for bar in one.bars
        if bar.lane in one.lanes
    ]


def keys(used: Iterable[str]) -> list[Key]:
    """The legend of the parts that are drawn."""
    seen = set(used)
    return [Key(PARTS[part], _TONES[part], dashed=part == EMULATED) for part in PARTS if part in seen]


def picture(rows: Sequence[Row], told: Sequence[ClaimResult], title: str, subtitle: Sequence[str]) -> alt.LayerChart:
    """Draw bars, the numbers of their batches above them, and a line of words above each trial's lanes."""
    lanes = [f"{place}:{lane}" for place, one in enumerate(told) for lane in ("", *one.lanes)]
    span = told[0].stretch.span_ns / 1e6
    y = alt.Y(
        "y:N",
        title=None,
        scale=alt.Scale(domain=lanes, paddingInner=0, paddingOuter=0),
        axis=alt.Axis(labelExpr="split(datum.label, ':')[1]", ticks=False, domain=False, labelOffset=_LOWER),
    )
    x: dict[str, Any] = {
        "title": "milliseconds since the first of these steps began",
        "scale": alt.Scale(domain=[0, span], nice=False),
        "axis": alt.Axis(tickCount=6, labelOverlap=True, domain=False),
    }
    layers = [
        _bars(rows).encode(y=y, x=alt.X("from:Q", **x), x2=alt.X2("to:Q")),
        _text(_numbers(rows, span), "center", "muted", 9).encode(y=y, x=alt.X("at:Q", **x)),
        _text(_heads(told), "left", "ink", 11).encode(y=y, x=alt.X("at:Q", **x)),
    ]
    chart = sized(layers, title, "", _HEAD + _LANE * len(lanes))
    chart.title.subtitle = list(subtitle)
    return chart


def _bars(rows: Sequence[Row]) -> alt.Chart:
    """Bars in the colours of their parts; a sleep has a dashed edge, as it must not be taken for computing."""
    parts = [part for part in PARTS if any(row["part"] == part for row in rows)]
    tones = alt.Scale(domain=[PARTS[part] for part in parts], range=[_TONES[part] for part in parts])
    sleeps = alt.datum.what == PARTS[EMULATED]
    given = alt.Chart(table([_short(row) for row in rows]))
    found: alt.Chart = given.mark_bar(height=11, yOffset=_LOWER, strokeWidth=0.5).encode(
        color=alt.Color("what:N", title=None, scale=tones),
        stroke=alt.condition(sleeps, alt.value(colour("emulated-edge")), alt.value(colour("paper"))),
        strokeDash=alt.condition(sleeps, alt.value([3, 2]), alt.value([1, 0])),
        tooltip=[
            alt.Tooltip("what:N", title="doing"),
            alt.Tooltip("batch:Q", title="batch"),
            alt.Tooltip("begin:Q", title="begins, ms", format=",.4~g"),
            alt.Tooltip("lasts:Q", title="lasts, ms", format=",.3~g"),
        ],
    )
    return found


def _short(row: Row) -> dict[str, Any]:
    """What the picture needs of a row, numbers to five digits: pages stay light."""
    times = {name: float(f"{row[name]:.5g}") for name in ("from", "to", "begin", "lasts")}
    return {"y": row["y"], "what": PARTS[row["part"]], "batch": row["batch"], **times}


def _text(rows: Sequence[Row], align: Any, tone: str, size: int) -> alt.Chart:
    shift = -6 if align == "center" else 3
    mark = {"align": align, "baseline": "middle", "dy": shift, "fontSize": size, "color": colour(tone)}
    found: alt.Chart = alt.Chart(table(rows)).mark_text(**mark).encode(text=alt.Text("text:N"))
    return found


def _numbers(rows: Sequence[Row], span: float) -> list[dict[str, Any]]:
    """Number batches above the lanes in which they are prepared, and above their steps, where there is room."""
    ends: dict[tuple[str, int], tuple[float, float]] = {}
    for row in rows:
        if row["lane"] not in (DEVICE, COPIES, OWN):
            begin, end = ends.get((row["y"], row["batch"]), (row["from"], row["to"]))
            ends[row["y"], row["batch"]] = min(begin, row["from"]), max(end, row["to"])
    found: list[dict[str, Any]] = []
    for (y, batch), (begin, end) in sorted(ends.items(), key=lambda entry: (entry[0][0], sum(entry[1]))):
        at, room = (begin + end) / 2, _DIGIT * (len(str(batch)) + 0.5) * span / _PLOT
        if not found or found[-1]["y"] != y or at - found[-1]["at"] > room:
            found.append({"y": y, "at": float(f"{at:.5g}"), "text": str(batch)})
    return found


def _heads(told: Sequence[ClaimResult]) -> list[dict[str, Any]]:
    """Name each trial and its throughput above its lanes."""
    rates = [words.number(float(one.cell["trial_samples_per_s"])) for one in told]
    return [
        {"y": f"{place}:", "at": 0, "text": f"{one.name}: {rate} samples/s"}
        for place, (one, rate) in enumerate(zip(told, rates, strict=True))
    ]
