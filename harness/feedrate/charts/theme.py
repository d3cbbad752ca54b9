"""Colours and type of every chart and page: one table, from which the site's CSS variables are written.

Charts name colours as CSS variables, so that static and live pictures follow the reader's light or dark theme without
being drawn again. What leaves the site (the README's figure, PNG) gets the light values written in.

Phases use the palette of Okabe and Ito (2008, "Color Universal Design"), which people with any common colour-vision
deficiency can tell apart; worker counts and formats are told apart by shape as well as by colour.
"""

from __future__ import annotations

import re
from typing import Any

from feedrate.schema.columns import PHASES, WORKER_STAGES

FONT = "Helvetica, Arial, sans-serif"
"""The families whose widths are the same where the pictures are made and where they are read."""

PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#12181d"),
    "panel": ("#f6f7f5", "#1a2228"),
    "ink": ("#17222b", "#e6ebee"),
    "muted": ("#55626c", "#a3b0b9"),
    "line": ("#dde2e4", "#2d3940"),
    "accent": ("#0a6470", "#5cc4cf"),
    "phase-fetch": ("#d55e00", "#f08a3c"),
    "phase-h2d": ("#cc79a7", "#e29bc3"),
    "phase-forward": ("#0072b2", "#3f9fe0"),
    "phase-backward": ("#56b4e9", "#9ad4f5"),
    "phase-optimizer": ("#009e73", "#2fc497"),
    "phase-other": ("#626b73", "#77828b"),
    "phase-emulated": ("#dbdfe2", "#39444c"),
    "emulated-edge": ("#6a757e", "#aab5bd"),
    "source": ("#8a5a00", "#d9a94a"),
    "series-0": ("#7d8790", "#99a4ad"),
    "series-1": ("#4fae9f", "#cfeec3"),
    "series-2": ("#2892a2", "#9edcbd"),
    "series-3": ("#1c75a0", "#6cc8c2"),
    "series-4": ("#26559a", "#57afd8"),
    "series-5": ("#3b3a8c", "#7f9df0"),
    "series-6": ("#43206b", "#b39af5"),
    "name-0": ("#33409a", "#8fa0f5"),
    "name-1": ("#a3276b", "#ef8fc4"),
    "name-2": ("#117744", "#5fd193"),
    "name-3": ("#7a4a1e", "#d9a877"),
    "name-4": ("#9a7b00", "#e3cc5c"),
    "name-5": ("#1d86a8", "#6fcdea"),
    "name-6": ("#6a6f75", "#b3bac0"),
    "heat-0": ("#eef4f4", "#172a31"),
    "heat-1": ("#cfe2e5", "#1f4450"),
}
"""Name to its value in the light and in the dark theme."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
"""Vega's symbol for each step of a series, so that colour is never the only difference."""


def colour(name: str) -> str:
    """Name a colour of the palette as charts and style sheets do: ``var(--fr-…)``.

    Raises:
        KeyError: there is no such colour.
    """
    PALETTE[name]
    return f"var(--fr-{name})"


PHASE_COLOURS = {phase: colour(f"phase-{phase}") for phase in (*PHASES, "emulated")}
"""One colour per phase everywhere; ``emulated`` is the sleep or spin in place of a model's step."""
STAGE_COLOURS = dict(zip(WORKER_STAGES, map(colour, ("name-3", "series-6", "accent", "series-1")), strict=True))
"""One colour per stage of loading everywhere."""


def series(count: int, has_zero: bool) -> list[str]:
    """Spread a series, such as worker counts, over the ordered ramp; a first member that is zero is grey."""
    first = [0] if has_zero else []
    rest = count - len(first)
    steps = [4] * rest if rest <= 1 else [1 + round(index * 5 / (rest - 1)) for index in range(rest)]
    return [colour(f"series-{step}") for step in (*first, *steps)]


def css() -> str:
    """Write the palette as CSS variables: light, and for screens that ask for it dark; paper is always light."""
    light, dark = ("".join(f"  --fr-{name}: {pair[index]};\n" for name, pair in PALETTE.items()) for index in range(2))
    return f'[data-md-color-scheme] {{\n{light}}}\n@media screen {{\n[data-md-color-scheme="slate"] {{\n{dark}}}\n}}\n'


def solid(text: str) -> str:
    """Write the light theme's colours into a specification or picture, for places without our style sheet."""
    return re.sub(r"var\(--fr-([a-z0-9-]+)\)", lambda match: PALETTE[match[1]][0], text)


def on_page() -> dict[str, Any]:
    """Give the Vega-Lite configuration of every chart on a page.

    No mark has a name of its own for those who hear a page: the picture has one text that says what it shows. Making
    and drawing the names took a fifth of the time of a change in Explore.
    """
    return {**config(), "aria": False, "mark": {"aria": False}}


def config() -> dict[str, Any]:
    """Give the Vega-Lite configuration of every chart, wherever it is shown."""
    quiet = {
        "labelColor": colour("muted"),
        "titleColor": colour("muted"),
        "labelFont": FONT,
        "titleFont": FONT,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    }
    return {
        "background": None,
        "font": FONT,
        "padding": {"left": 1, "top": 2, "right": 8, "bottom": 5},
        "view": {"stroke": None},
        "axis": {
            **quiet,
            "domainColor": colour("line"),
            "gridColor": colour("line"),
            "tickColor": colour("line"),
            "labelPadding": 4,
            "titlePadding": 6,
            "labelOverlap": False,
            "tickSize": 3,
        },
        "axisY": {"tickSize": 0, "domain": False},
        "legend": {**quiet, "orient": "bottom", "symbolSize": 70, "symbolStrokeWidth": 1.5},
        "title": {
            "anchor": "start",
            "frame": "bounds",
            "color": colour("ink"),
            "fontSize": 13,
            "font": FONT,
            "fontWeight": "bold",
            "subtitleColor": colour("muted"),
            "subtitleFont": FONT,
            "subtitleFontSize": 12,
            "subtitlePadding": 4,
            "offset": 10,
        },
    }
