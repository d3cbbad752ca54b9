"""What the container does and what storing decoded pixels does, apart: paired ratios with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, data, estimate, interval, listed, plain, table
from feedrate.charts.marks import Fields, dots, extent, height, hover, names, ticks, tone
from feedrate.charts.theme import colour
from feedrate.questions.storage import panels
from feedrate.questions.storage.analysis import CONTAINER, GIVEN, PIXELS, effects
from feedrate.schema import words

TITLE = "The container, and what is in it"
QUESTION = "Is it the container that matters, or what a sample is stored as?"
READS = "trials"
TONES = {CONTAINER: colour("source"), PIXELS: colour("accent")}
LABELS = {CONTAINER: "same bytes, another container", PIXELS: "same container, decoded pixels"}
COLUMNS = {
    "pair": "pair",
    "effect": "effect",
    "same": "same",
    "lossy": "lossy",
    "page_cache": "state",
    "ratio": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
    "verdict": "verdict",
}


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a line a pair of formats: other containers first, then decoded pixels."""
    pairs = rows_of(effects(trials)) if len(trials) else []
    shown: list[Row] = []

    def panel(part: panels.Part, sheet: Sheet) -> None:
        if rows := _rows(part, pairs):
            shown.extend(rows)
            states = len({row["state"] for row in shown})
            size = height(len({row["pair"] for row in rows}), 20 if states > 1 else 17)
            panel = Panel.draw(part.title, part.subtitle, _message(rows), _layers(rows), size)
            sheet.add(panel, listed(rows, part.row(), COLUMNS), part.held)

    sheet = panels.sheet_of(TITLE, QUESTION, panels.loads(trials), panel)
    sheet.note(
        "Ratios of throughputs, paired block by block; right of 1 the second of a pair is faster. Of the formats "
        "that store the same bytes a folder of files is the first. Chunks of many samples are part of what "
        "hdf5_chunked stores."
    )
    legend = [Key(LABELS[effect], TONES[effect]) for effect in LABELS] + panels.state_keys(shown)
    return sheet.figure(legend, "Nothing to compare: no two formats share their container or what they store.")


def _rows(part: panels.Part, pairs: Sequence[Row]) -> list[dict[str, Any]]:
    """The pairs of both sides of which the panel has the cells."""
    cells = {state: cells.iloc[0] for state, cells in part.frame.groupby("page_cache")}
    rows = [
        {
            "pair": f"{pair['a_format']} → {pair['b_format']}",
            "effect": pair["effect"],
            "kind": LABELS[pair["effect"]],
            "same": pair["same"],
            "lossy": bool(pair["lossy"]),
            "state": str(pair["page_cache"]),
            **estimate({**pair, "samples_per_s": pair["ratio"]}),
            "verdict": str(pair["verdict"]),
        }
        for pair in pairs
        if (cell := cells.get(pair["page_cache"])) is not None
        and all(plain(cell[name]) == plain(pair[name]) for name in GIVEN)
    ]

    def rank(row: Row) -> tuple[Any, ...]:
        container = row["effect"] == CONTAINER
        return not container, container and row["same"], row["state"] != "warm", -row["value"]

    return sorted((row for row in rows if row["value"]), key=rank)


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    lo, hi = extent(rows)
    lo, hi = min(lo, 0.8), max(hi, 1.25)
    x: dict[str, Any] = {
        "title": "times as fast",
        "scale": alt.Scale(type="log", domain=[lo, hi], nice=False),
        "axis": alt.Axis(values=ticks(lo, hi), format="~r", grid=True, domain=False),
    }
    states = list(panels.by_state(rows))
    base = alt.Chart(data(rows, "pair", "kind", "state", "value", "lo", "hi", "n", "verdict")).encode(
        y=names("pair", list(dict.fromkeys(row["pair"] for row in rows))),
        yOffset=alt.YOffset("state:N", sort=states, scale=alt.Scale(domain=states, paddingOuter=0.5)),
        color=tone("kind", {LABELS[effect]: TONES[effect] for effect in LABELS}),
    )
    tooltip: Fields = {
        "pair:N": "",
        "kind:N": "what differs",
        "state:N": "page cache",
        "value:Q": ("times as fast", ",.3~g"),
        "lo:Q": ("low", ",.3~g"),
        "hi:Q": ("high", ",.3~g"),
        "verdict:N": "",
        "n:Q": "blocks",
    }
    one = alt.Chart(table([{"one": 1}])).mark_rule(color=colour("muted"), strokeDash=[3, 3])
    marks = dots(base, x, panels.state_shape(), hover(tooltip), size=50, strokeWidth=1.75)
    return [one.encode(x=alt.X("one:Q", **x)), *marks]


def _message(rows: Sequence[Row]) -> str:
    """Name the largest effect of each kind in each state."""
    sentences = []
    for state, own in panels.by_state(rows).items():
        parts = []
        for effect, name in ((PIXELS, "decoded pixels"), (CONTAINER, "another container")):
            if part := [row for row in own if row["effect"] == effect]:
                most = max(part, key=lambda row: max(row["value"], 1 / row["value"]))
                parts.append(f"{name} × {words.number(most['value'])} ({most['pair']}, {interval(most)})")
        sentences.append(words.sentence(f"largest effects, {state}: {words.listed(parts)}"))
    return " ".join(sentences)
