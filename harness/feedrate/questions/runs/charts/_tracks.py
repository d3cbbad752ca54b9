"""Several quantities over one time axis: tracks above one another in one picture, each with a scale of its own.

They stand in one picture, and not in panels beside one another, so that an eye can go straight down from a peak to what
happened meanwhile. Every track spans some units of one vertical axis; what it shows is drawn in these units, and the
axis' labels say the true values. Blocks are shaded behind the tracks, and a strip of trials stands above them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Key, data, table
from feedrate.charts.theme import colour
from feedrate.schema import words

UNIT = 46
"""CSS pixels of a track's unit."""
_HEAD = 0.42
"""Of a unit: what a track's name takes above it."""


@dataclass(frozen=True, slots=True)
class Track:
    """One quantity, or several that add up."""

    name: str
    """With its unit."""
    top: float
    """Value at its upper edge; 0 is the lower one."""
    stacked: tuple[tuple[str, str], ...] = ()
    """Key of a row and colour of what adds up, from below."""
    line: str = ""
    """Key of a row of a line; its least and most stand under the key with ``_least`` and ``_most``."""
    units: float = 1.0
    """Height without its name."""
    ticks: int = 2
    """Labels of its scale, 0 among them; none for 0."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A track and where its lower edge lies, in units from below."""

    track: Track
    base: float

    def at(self, value: str) -> str:
        """Where a value lies: an expression of Vega for an expression of the datum; null stays null."""
        reach = f"{self.base:g}+{self.track.units / self.track.top:.6g}*min({value},{self.track.top:g})"
        return f"isValid({value})?{reach}:null"


def place(tracks: Sequence[Track]) -> tuple[list[Placed], float]:
    """Put tracks below one another; returns them with the height of all of them in units."""
    whole = sum(track.units + _HEAD for track in tracks)
    found, top = [], whole
    for track in tracks:
        top -= track.units + _HEAD
        found.append(Placed(track, top))
    return found, whole


def axis(placed: Sequence[Placed], whole: float) -> alt.Y:
    """The vertical axis: labels of each track's own scale."""
    values, labels = [], []
    for each in placed:
        for step in range(each.track.ticks):
            share = step / max(1, each.track.ticks - 1)
            values.append(round(each.base + share * each.track.units, 6))
            labels.append(f"{share * each.track.top:.3g}")
    lines = alt.Axis(
        values=values,
        tickCount=2 * len(values),  # Vega drops every other one of more values than it would have chosen itself
        labelExpr=f"{json.dumps(labels)}[indexof({json.dumps(values)},datum.value)]",
        labelOverlap=False,
        grid=True,
        domain=False,
        ticks=False,
    )
    return alt.Y("y:Q", title=None, scale=alt.Scale(domain=[0, whole], nice=False, zero=True), axis=lines)


def names(placed: Sequence[Placed]) -> alt.Chart:
    """The tracks' names, at the left above each."""
    rows = [{"y": each.base + each.track.units + 0.16, "text": each.track.name} for each in placed]
    text = alt.Chart(table(rows)).mark_text(
        align="left", baseline="middle", fontSize=11, fontWeight="bold", color=colour("ink")
    )
    named: alt.Chart = text.encode(x=alt.value(2), y=alt.Y("y:Q"), text=alt.Text("text:N"))
    return named


def drawn(each: Placed, base: alt.Chart, x: alt.X) -> list[alt.Chart]:
    """Draw a track's stack, or its line with least to most around it."""
    track, y, y2 = each.track, alt.Y("y:Q"), alt.Y2("y2:Q")
    if track.line:
        ends = {"y": each.at(f"datum.{track.line}_least"), "y2": each.at(f"datum.{track.line}_most")}
        band = base.transform_calculate(**ends).mark_area(color=colour("accent"), opacity=0.22)
        line = base.transform_calculate(y=each.at(f"datum.{track.line}"))
        return [
            band.encode(x=x, y=y, y2=y2),
            line.mark_line(color=colour("accent"), strokeWidth=1.4).encode(x=x, y=y),
        ]
    layers, below = [], "0"
    for key, tone in track.stacked:
        above = f"{below}+datum.{key}"
        known = f"isValid(datum.{track.stacked[0][0]})"
        ends = {name: f"{known}?{each.at(f'({end})').partition('?')[2]}" for name, end in (("y", below), ("y2", above))}
        area = base.transform_calculate(**ends).mark_area(color=tone, opacity=0.9)
        layers.append(area.encode(x=x, y=y, y2=y2))
        below = above
    return layers


def nice(value: float) -> float:
    """Round up to 1, 2, 2.5 or 5 of a decade: the top of a scale."""
    if value <= 0:
        return 1.0
    decade = 10.0 ** math.floor(math.log10(value))
    return next(step * decade for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * decade >= value * 0.9999)


def tooltips(placed: Sequence[Placed], spoken: Mapping[str, str]) -> list[alt.Tooltip]:
    """Numbers of a bin on hover: key of a row to its name."""
    shown = [key for each in placed for key in (*(key for key, _ in each.track.stacked), each.track.line) if key]
    return [alt.Tooltip(f"{key}:Q", title=spoken[key], format=",.3~g") for key in shown if key in spoken]


STRIP = Track("Blocks and trials", 1.0, units=0.5, ticks=0)
_KINDS = {
    "cell": (0.3, colour("line"), ""),
    "control": (0.55, colour("muted"), "control cell"),
    "flagged": (0.8, colour("source"), "trial with a flag"),
    "failed": (1.0, colour("name-1"), "trial that failed"),
}
"""Trials by what is to be said of them, the last that holds: height, so that colour is not all that tells them apart,
colour, and name in the legend."""
MOST = 300
"""Trials that are drawn one by one; of more, only those of which something is to be said, so many at most."""
_NUMBERED = 12
"""Blocks that get their number, at most."""
_TITLED = 0.34
"""Share of a narrow picture's width that the strip's title takes, where no number stands."""


def with_kind(ran: pd.DataFrame) -> pd.DataFrame:
    """Say of every trial what is to be said of it: ``kind``, a key of ``_KINDS``."""
    kind = pd.Series("cell", ran.index, dtype=object)
    kind = kind.mask(ran["role"].eq("control").fillna(False), "control")
    kind = kind.mask(ran["flags"].notna(), "flagged").mask(ran["outcome"].ne("ok").fillna(False), "failed")
    return ran.assign(kind=kind)


def shading(blocks: pd.DataFrame, strip: Placed, whole: float, scale: float) -> list[alt.Chart]:
    """Shade every second block over the whole height, and number the blocks where there is room."""
    rows: list[dict[str, Any]] = [
        {"from": row["from_s"] / scale, "to": row["to_s"] / scale, "block": int(row["block"]), "y": 0.0, "y2": whole}
        for row in rows_of(blocks)
    ]
    shaded = alt.Chart(table([row for row in rows if row["block"] % 2 == 0])).mark_rect(color=colour("heat-0"))
    layers = [shaded.encode(x=alt.X("from:Q"), x2=alt.X2("to:Q"), y=alt.Y("y:Q"), y2=alt.Y2("y2:Q"))]
    every = -(-len(rows) // _NUMBERED)
    free = _TITLED * max((row["to"] for row in rows), default=0.0)
    above = strip.base + strip.track.units + 0.16
    named = [
        {"at": (row["from"] + row["to"]) / 2, "y": above, "text": str(row["block"])}
        for row in rows
        if row["block"] % every == 0 and (row["from"] + row["to"]) / 2 > free and row["block"]
    ]
    if named:
        text = alt.Chart(table(named)).mark_text(fontSize=9, color=colour("muted"))
        layers.append(text.encode(x=alt.X("at:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N")))
    return layers


def _drawn_one_by_one(ran: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The trials that are drawn, and of how many marked ones one is: all of them, or of many only marked ones."""
    if len(ran) <= MOST:
        return ran, 1
    marked = ran[ran["kind"].ne("cell")]
    one_in = max(1, -(-len(marked) // MOST))
    return marked.iloc[::one_in], one_in


def bars(ran: pd.DataFrame, strip: Placed, scale: float) -> alt.Chart:
    """Draw trials as bars."""
    rows = [
        {
            "from": row["from_s"] / scale,
            "to": max(row["to_s"], row["from_s"] + 0.1) / scale,
            "kind": row["kind"],
            "y": strip.base,
            "y2": strip.base + strip.track.units * _KINDS[row["kind"]][0],
        }
        for row in rows_of(_drawn_one_by_one(ran)[0])
    ]
    tone = alt.Scale(domain=list(_KINDS), range=[tone for _, tone, _ in _KINDS.values()])
    found: alt.Chart = (
        alt.Chart(data(rows, "from", "to", "kind", "y", "y2"))
        .mark_rect()
        .encode(
            x=alt.X("from:Q"),
            x2=alt.X2("to:Q"),
            y=alt.Y("y:Q"),
            y2=alt.Y2("y2:Q"),
            color=alt.Color("kind:N", title=None, scale=tone, legend=None),
        )
    )
    return found


def keys(ran: pd.DataFrame) -> list[Key]:
    """The legend of marked trials."""
    there = set(ran["kind"])
    return [Key(name, tone) for kind, (_, tone, name) in _KINDS.items() if name and kind in there]


def notes(ran: pd.DataFrame) -> Iterator[str]:
    """What is not drawn of many trials."""
    if len(ran) > MOST:
        few = _drawn_one_by_one(ran)[1]
        some = f", one in {few} of them" if few > 1 else ""
        yield f"Of {len(ran):,} trials only control trials, flagged and failed ones are marked{some}."


def count_marked(ran: pd.DataFrame) -> str:
    """Say how many trials carry a flag, and how many failed."""
    flags, failed = int(ran["flags"].notna().sum()), int(ran["kind"].eq("failed").sum())
    text = f"{flags} of {words.plural(len(ran), 'trial')} carr{'ies' if flags == 1 else 'y'} a flag"
    return f"{text}, {failed} failed" if failed else text
