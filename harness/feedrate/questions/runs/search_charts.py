"""The path of a search: every trial in its order, and what it found.

Marks are single trials. It does not show settings that were set aside, and whether two settings differ is not read off
it: the search compares them within blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.blocks import successful
from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Panel, Row, Sheet, chart, listed, table
from feedrate.charts.marks import HEIGHT, Series, hover, shape, tone
from feedrate.charts.theme import colour
from feedrate.questions.runs.search import marked, settings_of
from feedrate.schema import words
from feedrate.store.manifest import Tuned

_MISSING = "No search chose the trials of this run."
_RINGS = {"recommended": (colour("accent"), "circle"), "present": (colour("source"), "square")}
"""What lies behind the marks of two settings."""


@chart("The path of the search", "Which settings did the search try, in which order, and what did each give?")
def search(sheet: Sheet, trials: pd.DataFrame, tuned: Tuned | None = None) -> Figure:
    """Draw the samples a second of every trial in its order."""
    if tuned is None:
        return sheet.figure((), _MISSING)
    settings = settings_of(trials)
    marks = marked(trials, settings, tuned)
    ordered = trials.sort_values(["block", "position"]).assign(trial=range(1, len(trials) + 1))
    ended = successful(ordered)
    used = Series(sorted(int(count) for count in ended["num_workers"].unique()))
    rows: list[dict[str, Any]] = [
        {
            "trial": int(row["trial"]),
            "block": int(row["block"]),
            "workers": words.plural(int(row["num_workers"]), "worker"),
            "setting": str(settings[row["cell_id"]]),
            "value": float(row["samples_per_s"]),
            "mark": marks.get(row["cell_id"], "none"),
        }
        for row in rows_of(ended[["trial", "block", "num_workers", "cell_id", "samples_per_s"]])
    ]
    if not rows:
        return sheet.figure((), "No trial of this search ended well.")
    if failed := len(ordered) - len(ended):
        sheet.note(f"{words.plural(failed, 'trial')} failed and {'has' if failed == 1 else 'have'} no mark.")
    sheet.note("Marks are windows of single trials; where epochs are long, their starts are not in them.")
    script = str(trials["script"].iloc[0])
    panel = Panel.draw(script, f"{len(rows)} trials in their order", _message(rows), _layers(rows, used), HEIGHT)
    columns = {"trial": "trial", "block": "block", "setting": "setting", "samples per s": "value", "marked": "mark"}
    sheet.add(panel, listed(rows, {}, columns))
    rings = [Key(name, *_RINGS[name]) for name in _RINGS if any(name in row["mark"] for row in rows)]
    return sheet.figure([*used.keys(), *rings], _MISSING)


def _layers(rows: Sequence[Row], used: Series) -> list[alt.Chart]:
    """Rings behind the marks of two settings, then the marks."""
    axis = alt.Axis(grid=False, tickMinStep=1, format="d", tickCount=8)
    x = alt.X("trial:Q", title="trial", scale=alt.Scale(nice=False, zero=False, padding=10), axis=axis)
    y = alt.Y("value:Q", title="samples per second", scale=alt.Scale(zero=True, nice=5), axis=alt.Axis(tickCount=5))
    rings = [
        alt.Chart(table(own))
        .mark_point(shape=form, size=190, filled=False, strokeWidth=2, opacity=1, color=drawn)
        .encode(x=x, y=y)
        for name, (drawn, form) in _RINGS.items()
        if (own := [row for row in rows if name in row["mark"]])
    ]
    shown: dict[str, Any] = {
        "color": tone("workers", dict(zip(used.labels, used.colours, strict=True))),
        "shape": shape("workers", dict(zip(used.labels, used.shapes, strict=True))),
    }
    told = hover(
        {"trial:Q": "", "block:Q": "", "setting:N": "", "value:Q": ("samples per second", ",.4~g"), "mark:N": ""}
    )
    points = alt.Chart(table(rows)).mark_point(filled=True, size=50, opacity=1)
    return [*rings, points.encode(x=x, y=y, tooltip=told, **shown)]


def _message(rows: Sequence[Row]) -> str:
    """Say how many trials there were, and what the marked settings gave."""
    said = [f"{words.plural(len(rows), 'trial')} of {words.plural(len({row['setting'] for row in rows}), 'setting')}"]
    for name in _RINGS:
        if own := [row for row in rows if name in row["mark"]]:
            least, most = (words.number(end(row["value"] for row in own)) for end in (min, max))
            ends = least if least == most else f"{least} to {most}"
            said.append(
                f"the {name} one, {own[0]['setting']}, gave {ends} samples/s in {words.plural(len(own), 'trial')}"
            )
    return words.sentence("; ".join(said))
