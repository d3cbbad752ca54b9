"""From an Altair chart to specifications and pictures: SVG for pages, whole figures for the README and for files.

Vega numbers the clip paths of its pictures by a counter of the process; they are renumbered per picture, so that the
same records give the same bytes and two pictures on a page never share an id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, cast

import vl_convert

from harness.charts._figure import WIDTH, Figure, Key, Panel
from harness.charts._theme import FONT, colour, config, solid

_ID = re.compile(r'(id="|url\(#|xlink:href="#|href="#)(clip|gradient|symbol|pattern)_?(\d+)')
_MARGIN, _GAP = 20, 30


def specification(panel: Panel, width: int = WIDTH) -> dict[str, Any]:
    """Give a panel's Vega-Lite specification without configuration and legend: the page has one of each."""
    spec = panel.chart.to_dict(validate=False)
    spec.pop("config", None)
    spec["width"] = width
    for encoding in _encodings(spec):
        for channel in ("color", "shape", "stroke", "fill"):
            if "field" in (entry := encoding.get(channel) or {}):
                entry["legend"] = None
    return spec


def svg(panel: Panel, prefix: str, width: int = WIDTH) -> str:
    """Draw a panel at a width in CSS pixels, its ids beginning with ``prefix``."""
    picture = vl_convert.vegalite_to_svg({**specification(panel, width), "config": config()})
    return _renumbered(picture, prefix)


def picture(figure: Figure, caption: str) -> str:
    """Draw the panels of a figure side by side over its legend, on white, in real colours.

    Args:
        figure: with at least one panel.
        caption: where the numbers come from, below the legend.
    """
    width = len(figure.panels) * (WIDTH + _GAP) - _GAP + 2 * _MARGIN
    body, height = [], 0
    for place, panel in enumerate(figure.panels):
        drawn = svg(panel, f"feedrate-{place}")
        body.append(f'<svg x="{_MARGIN + place * (WIDTH + _GAP)}" y="{_MARGIN}" {drawn.removeprefix("<svg ")}')
        height = max(height, int(cast("str", panel.chart.height)))
    legend, bottom = _legend(figure.keys, width, _MARGIN + height + 20)
    body += [*legend, _text(caption, _MARGIN, bottom + 26, "muted")]
    size = f'width="{width}" height="{bottom + 26 + _MARGIN}" viewBox="0 0 {width} {bottom + 26 + _MARGIN}"'
    return solid(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" font-size="12">'
        f'<rect width="100%" height="100%" rx="6" fill="{colour("paper")}"/>{"".join(body)}</svg>'
    )


def _legend(keys: Sequence[Key], width: int, top: int) -> tuple[list[str], int]:
    """Set the legend in lines; return it with the lower edge of its last line."""
    x, y, body = _MARGIN, top, []
    for key in keys:
        step = 34 + round(6.4 * len(key.label))
        if x + step > width - _MARGIN and x > _MARGIN:
            x, y = _MARGIN, y + 20
        edge = f' stroke="{colour("emulated-edge")}" stroke-dasharray="3 2"' if key.dashed else ""
        body += [
            f'<rect x="{x}" y="{y - 9}" width="12" height="9" fill="{key.colour}"{edge}/>',
            _text(key.label, x + 17, y, "ink"),
        ]
        x += step
    return body, y


def _text(text: str, x: int, y: int, tone: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour(tone)}">{escape(text)}</text>'


def png(figure: Figure, caption: str, scale: float = 2.0) -> bytes:
    """Draw what :func:`picture` draws as PNG."""
    return vl_convert.svg_to_png(picture(figure, caption), scale=scale)


def _encodings(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "encoding" in spec:
        yield spec["encoding"]
    for layer in spec.get("layer", []):
        yield from _encodings(layer)


def _renumbered(picture: str, prefix: str) -> str:
    seen: dict[str, int] = {}

    def name(match: re.Match[str]) -> str:
        place = seen.setdefault(f"{match[2]}{match[3]}", len(seen))
        return f"{match[1]}{prefix}-{match[2]}{place}"

    return _ID.sub(name, picture)
