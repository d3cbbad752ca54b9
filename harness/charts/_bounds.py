"""What holds a cell back, as colours, shapes and words: the same on every mark that is about it."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt

from harness.analysis.ceilings import BALANCED_WITHIN
from harness.charts._figure import Key
from harness.charts._theme import PHASE_COLOURS, colour

ACHIEVED = "achieved"
TONES = {
    "loader-bound": PHASE_COLOURS["fetch"],
    "copy-bound": PHASE_COLOURS["h2d"],
    "compute-bound": PHASE_COLOURS["forward"],
    "emulated-step-bound": colour("emulated-edge"),
    "balanced": colour("accent"),
    ACHIEVED: colour("ink"),
}
"""Words of ``analysis.ceilings.bottleneck``, in the colour of the phase that each is about; and what was achieved."""
MARKS = {
    "loader-bound": "circle",
    "copy-bound": "triangle-up",
    "compute-bound": "square",
    "emulated-step-bound": "square",
    "balanced": "diamond",
    ACHIEVED: "cross",
}
_SAID = {
    "loader-bound": "loader-bound; line: the loader alone",
    "copy-bound": "copy-bound; line: copies alone",
    "compute-bound": "compute-bound; line: the step alone",
    "emulated-step-bound": "bound by the emulated step; line: that step",
    "balanced": f"balanced: two ceilings within {BALANCED_WITHIN:g} times",
    ACHIEVED: "achieved, under the ceilings",
}


def keys(used: Iterable[str]) -> list[Key]:
    """The legend of what was drawn."""
    there = set(used)
    return [Key(_SAID[name], TONES[name], MARKS[name]) for name in TONES if name in there]


def look(kinds: Iterable[str]) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape by the field ``bound``, for the kinds that a panel has."""
    there = set(kinds)
    names = [name for name in TONES if name in there]
    tone = alt.Color("bound:N", title=None, scale=alt.Scale(domain=names, range=[TONES[name] for name in names]))
    shape = alt.Shape("bound:N", title=None, scale=alt.Scale(domain=names, range=[MARKS[name] for name in names]))
    return tone, shape
