"""A/A: one cell compared with itself, block by block; whatever is found there is no difference between cells."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.contrasts import verdict
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.noise import Estimate, pooled_ratio, self_ratios
from feedrate.charts.figure import Panel, Sheet, table
from feedrate.charts.marks import HEIGHT, around_mean, ends, hover, percent_off
from feedrate.charts.theme import colour
from feedrate.schema import words
from feedrate.schema.metrics import SAME

TITLE = "The control cell against itself"


def add(sheet: Sheet, own: pd.DataFrame) -> None:
    """Add the panel, or a note on why there is none.

    Args:
        sheet: that collects the figure.
        own: trials of one cell of one run that ended well.
    """
    compared = self_ratios(own)
    if not len(compared):
        sheet.note("The control cell ran once in a block, so that it cannot be compared with itself.")
        return
    found = pooled_ratio(compared)
    rows: list[dict[str, Any]] = []
    listed: list[dict[str, Any]] = []
    for row in rows_of(compared):
        ratio, block, pairs = float(row["ratio"]), int(row["block"]), int(row["pairs"])
        rows.append({"at": block, "value": percent_off(ratio), "ratio": ratio, "pairs": pairs, "kind": "plain"})
        listed.append({"what": "A/A, a block", "block": block, "B ÷ A": ratio, "n": pairs})
    listed.append({"what": "A/A, all blocks", "B ÷ A": found.value, **ends(found), "n": found.n})
    axis = alt.Axis(grid=False, tickMinStep=1, format="d", tickCount=6)
    x = alt.X("at:Q", title="block", axis=axis, scale=alt.Scale(nice=False, zero=False, padding=10))
    mean = [percent_off(end) for end in (found.value, found.lo, found.hi)]
    tooltip = hover({"at:Q": "block", "ratio:Q": ("B ÷ A", ".4~g"), "pairs:Q": ""})
    truth = alt.Chart(table([{"at": 0.0}])).mark_rule(color=colour("ink"), strokeDash=[2, 2])
    layers = [*around_mean(rows, x, "B ÷ A − 1, %", mean, tooltip), truth.encode(y=alt.Y("at:Q"))]
    subtitle = f"A/A: {words.plural(int(compared['pairs'].sum()), 'pair')} of its own trials"
    sheet.add(Panel.draw(TITLE, subtitle, _message(found), layers, HEIGHT), listed, {})
    sheet.note(
        "A/A: trials of the control cell that follow each other in a block are compared as if the second were another "
        "cell, sides changing from pair to pair. The truth is 1 (dashed, 0 %); one run in twenty misses it by chance."
    )


def _message(found: Estimate) -> str:
    """Say whether the interval holds 1, as it should, and whether it is narrow enough to rule out a difference."""
    text = f"Compared with itself, the control cell comes out {found.value:.3f} times as fast"
    if not (words.known(found.lo) and words.known(found.hi)):
        return words.sentence(f"{text} (n = {found.n}: no interval)")
    text += f" (95\u00a0% interval {found.lo:.3f} to {found.hi:.3f}, n = {words.plural(found.n, 'block')})"
    margin = f"{100 * (SAME[1] - 1):.0f}\u00a0%"
    if not found.lo <= 1 <= found.hi:
        return words.sentence(
            f"{text}: the interval leaves out 1, which one run in twenty does by chance; if others of this machine do "
            "too, its small differences are not to be trusted"
        )
    if verdict(found.value, found.lo, found.hi) == "no difference":
        return words.sentence(f"{text}: the interval holds 1, as it should, and stays within {margin}")
    return words.sentence(f"{text}: the interval holds 1, as it should, but is too wide to rule out {margin}")
