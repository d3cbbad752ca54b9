"""Blocks and trials along a run's time: shading behind the tracks, and a strip of trials above them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from harness.analysis.rows import rows_of
from harness.charts import _storage as shared
from harness.charts import _words as words
from harness.charts._figure import Key, table
from harness.charts._theme import colour
from harness.charts._tracks import Placed, Track

STRIP = Track("Blocks and trials", 1.0, units=0.5, ticks=0)
TONES = {"cell": colour("line"), "control": colour("muted"), "flagged": colour("source"), "failed": colour("name-1")}
"""Trials by what is to be said of them, the last that holds."""
_HEIGHTS = {"cell": 0.3, "control": 0.55, "flagged": 0.8, "failed": 1.0}
"""How high each is drawn, so that colour is not all that tells them apart."""
_SAID = {"control": "control cell", "flagged": "trial with a flag", "failed": "trial that failed"}
MOST = 300
"""Trials that are drawn one by one; of more, only those of which something is to be said, so many at most."""
_NUMBERED = 12
"""Blocks that get their number, at most."""
_TITLED = 0.34
"""Share of a narrow picture's width that the strip's title takes, where no number stands."""


def told(ran: pd.DataFrame) -> pd.DataFrame:
    """Say of every trial what is to be said of it: ``kind``, a key of ``TONES``.

    Args:
        ran: as ``analysis.telemetry.trials`` gives it.
    """
    kind = pd.Series("cell", ran.index, dtype=object)
    kind = kind.mask(ran["role"].eq("control").fillna(False), "control")
    kind = kind.mask(ran["flags"].notna(), "flagged").mask(ran["outcome"].ne("ok").fillna(False), "failed")
    return ran.assign(kind=kind)


def shading(blocks: pd.DataFrame, strip: Placed, whole: float, scale: float) -> list[alt.Chart]:
    """Shade every second block over the whole height, and number the blocks where there is room.

    Args:
        blocks: as ``analysis.telemetry.blocks`` gives them.
        strip: where the strip of trials lies.
        whole: height of all tracks in units.
        scale: seconds in the axis' unit of time.
    """
    rows: list[dict[str, Any]] = [
        {"from": row["from_s"] / scale, "to": row["to_s"] / scale, "block": int(row["block"]), "y": 0.0, "y2": whole}
        for row in rows_of(blocks)
    ]
    shaded = alt.Chart(table([row for row in rows if row["block"] % 2 == 0]))
    layers = [
        shaded.mark_rect(color=colour("heat-0")).encode(
            x=alt.X("from:Q"), x2=alt.X2("to:Q"), y=alt.Y("y:Q"), y2=alt.Y2("y2:Q")
        )
    ]
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


def bars(ran: pd.DataFrame, strip: Placed, scale: float) -> alt.Chart:
    """Draw trials as bars: all of them, or of many only those of which something is to be said.

    Args:
        ran: as :func:`told` gives it.
        strip: where the strip of trials lies.
        scale: seconds in the axis' unit of time.
    """
    if len(ran) > MOST:
        ran = ran[ran["kind"].ne("cell")]
        ran = ran.iloc[:: _one_in(ran)]
    rows = [
        {
            "from": row["from_s"] / scale,
            "to": max(row["to_s"], row["from_s"] + 0.1) / scale,
            "kind": row["kind"],
            "y": strip.base,
            "y2": strip.base + strip.track.units * _HEIGHTS[row["kind"]],
        }
        for row in rows_of(ran)
    ]
    tone = alt.Scale(domain=list(TONES), range=list(TONES.values()))
    drawn = alt.Chart(shared.data(rows, "from", "to", "kind", "y", "y2")).mark_rect()
    marked_: alt.Chart = drawn.encode(
        x=alt.X("from:Q"),
        x2=alt.X2("to:Q"),
        y=alt.Y("y:Q"),
        y2=alt.Y2("y2:Q"),
        color=alt.Color("kind:N", title=None, scale=tone, legend=None),
    )
    return marked_


def _one_in(marked: pd.DataFrame) -> int:
    """Of how many marked trials one is drawn."""
    return max(1, -(-len(marked) // MOST))


def keys(ran: pd.DataFrame) -> list[Key]:
    """The legend of marked trials."""
    there = set(ran["kind"])
    return [Key(said, TONES[kind]) for kind, said in _SAID.items() if kind in there]


def notes(ran: pd.DataFrame) -> Iterator[str]:
    """What is not drawn of many trials."""
    if len(ran) > MOST:
        few = _one_in(ran[ran["kind"].ne("cell")])
        some = f", one in {few} of them" if few > 1 else ""
        yield f"Of {len(ran):,} trials only control trials, flagged and failed ones are marked{some}."


def marked(ran: pd.DataFrame) -> str:
    """Say how many trials carry a flag, and how many failed."""
    flags, failed = int(ran["flags"].notna().sum()), int(ran["kind"].eq("failed").sum())
    text = f"{flags} of {words.plural(len(ran), 'trial')} carr{'ies' if flags == 1 else 'y'} a flag"
    return f"{text}, {failed} failed" if failed else text
