"""What the container does and what storing decoded pixels does, apart: paired ratios with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts import format_panels as storage
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, data, sized, table
from feedrate.charts.figure import plain as value_of
from feedrate.charts.marks import extent, height, ticks
from feedrate.charts.theme import colour
from feedrate.questions.storage.analysis import CONTAINER, GIVEN, PIXELS, effects
from feedrate.schema import words

TITLE = "The container, and what is in it"
QUESTION = "Is it the container that matters, or what a sample is stored as?"
READS = "trials"
TONES = {CONTAINER: colour("source"), PIXELS: colour("accent")}
LABELS = {CONTAINER: "same bytes, another container", PIXELS: "same container, decoded pixels"}


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a line a pair of formats: other containers first, then decoded pixels."""
    found = effects(trials) if len(trials) else pd.DataFrame()
    pairs = rows_of(found)
    seen: set[str] = set()

    def panel(part: storage.Part, sheet: Sheet) -> None:
        rows = _rows(part, pairs)
        if not rows:
            return
        seen.update(row["state"] for row in rows)
        count = len({row["pair"] for row in rows})
        layers = _layers(rows)
        chart = sized(layers, part.title, part.subtitle, height(count, 20 if len(seen) > 1 else 17))
        sheet.add(Panel(part.title, part.subtitle, _message(rows), chart), map(_listed(part.row()), rows), part.held)

    parts = storage.loads(trials)
    sheet = storage.sheet_of(TITLE, QUESTION, parts, panel)
    if sheet.panels:
        sheet.note(
            "Ratios of throughputs, paired block by block; right of 1 the second of a pair is faster. Of the formats "
            "that store the same bytes a folder of files is the first. Chunks of many samples are part of what "
            "hdf5_chunked stores."
        )
    legend = [Key(LABELS[effect], TONES[effect]) for effect in LABELS]
    legend += [
        Key(storage.CACHED[state], colour("muted"), shape) for state, shape in storage.MARKS.items() if state in seen
    ]
    return sheet.figure(legend, "Nothing to compare: no two formats share their container or what they store.")


def _rows(part: storage.Part, pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The pairs of both sides of which the panel has the cells."""
    given = {state: cells.iloc[0] for state, cells in part.frame.groupby("page_cache")}
    rows = []
    for pair in pairs:
        first = given.get(pair["page_cache"])
        if first is None or not all(_same(first[name], pair[name]) for name in GIVEN):
            continue
        rows.append(
            {
                "pair": f"{pair['a_format']} → {pair['b_format']}",
                "effect": pair["effect"],
                "kind": LABELS[pair["effect"]],
                "same": pair["same"],
                "lossy": bool(pair["lossy"]),
                "state": str(pair["page_cache"]),
                "value": value_of(pair["ratio"]),
                "lo": value_of(pair["lo"]),
                "hi": value_of(pair["hi"]),
                "n": int(pair["n"]),
                "verdict": str(pair["verdict"]),
            }
        )
    return sorted((row for row in rows if row["value"]), key=_rank)


def _rank(row: Row) -> tuple[Any, ...]:
    return (
        list(TONES).index(row["effect"]),
        row["effect"] == CONTAINER and row["same"],
        row["state"] != "warm",
        -row["value"],
    )


def _same(one: Any, other: Any) -> bool:
    return bool(pd.isna(one) and pd.isna(other)) or (not pd.isna(one) and not pd.isna(other) and one == other)


def _listed(given: Row) -> Any:
    def line(row: Row) -> dict[str, Any]:
        names = {"state": "page_cache", "value": "ratio", "lo": "low", "hi": "high"}
        shown = ("pair", "effect", "same", "lossy", "state", "value", "lo", "hi", "n", "verdict")
        return {**given, **{names.get(name, name): row[name] for name in shown}}

    return line


def _layers(rows: Sequence[Row]) -> list[alt.Chart]:
    lo, hi = extent(rows)
    lo, hi = min(lo, 0.8), max(hi, 1.25)
    x: dict[str, Any] = {
        "title": "times as fast",
        "scale": alt.Scale(type="log", domain=[lo, hi], nice=False),
        "axis": alt.Axis(values=ticks(lo, hi), format="~r", grid=True, domain=False),
    }
    names = list(dict.fromkeys(row["pair"] for row in rows))
    states = [state for state in storage.MARKS if any(row["state"] == state for row in rows)]
    y = alt.Y("pair:N", sort=names, title=None, axis=alt.Axis(ticks=False, domain=False))
    shift = alt.YOffset("state:N", sort=states, scale=alt.Scale(domain=states, paddingOuter=0.5))
    tone = alt.Color(
        "kind:N", title=None, scale=alt.Scale(domain=list(LABELS.values()), range=[TONES[effect] for effect in LABELS])
    )
    base = alt.Chart(data(rows, "pair", "kind", "state", "value", "lo", "hi", "n", "verdict")).encode(
        y=y, yOffset=shift, color=tone
    )
    one = alt.Chart(table([{"one": 1}])).mark_rule(color=colour("muted"), strokeDash=[3, 3])
    return [
        one.encode(x=alt.X("one:Q", **x)),
        base.transform_filter("isValid(datum.lo) && isValid(datum.hi)")
        .mark_rule(strokeWidth=1.75)
        .encode(x=alt.X("lo:Q", **x), x2=alt.X2("hi:Q")),
        base.mark_point(filled=True, size=50, opacity=1).encode(
            x=alt.X("value:Q", **x),
            shape=storage.mark(),
            tooltip=[
                alt.Tooltip("pair:N"),
                alt.Tooltip("kind:N", title="what differs"),
                alt.Tooltip("state:N", title="page cache"),
                alt.Tooltip("value:Q", title="times as fast", format=",.3~g"),
                alt.Tooltip("lo:Q", title="low", format=",.3~g"),
                alt.Tooltip("hi:Q", title="high", format=",.3~g"),
                alt.Tooltip("verdict:N"),
                alt.Tooltip("n:Q", title="blocks"),
            ],
        ),
    ]


def _message(rows: Sequence[Row]) -> str:
    """Name the largest effect of each kind in each state."""
    said = []
    for state in storage.MARKS:
        parts = []
        for effect, name in ((PIXELS, "decoded pixels"), (CONTAINER, "another container")):
            part = [row for row in rows if row["state"] == state and row["effect"] == effect]
            if part:
                most = max(part, key=lambda row: max(row["value"], 1 / row["value"]))
                found = words.interval(most["lo"], most["hi"], most["n"])
                parts.append(f"{name} × {words.number(most['value'])} ({most['pair']}, {found})")
        if parts:
            said.append(words.sentence(f"largest effects, {state}: {words.listed(parts)}"))
    return " ".join(said)
