"""From an Altair chart to specifications and pictures: SVG for pages, whole figures for the README and for files.

Vega numbers the clip paths of its pictures by a counter of the process; they are renumbered per picture, so that the
same records give the same bytes and two pictures on a page never share an id.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any

import vl_convert

from feedrate.charts.figure import WIDTH, Figure, Key, Panel
from feedrate.charts.paper import size_of
from feedrate.charts.theme import FONT, colour, config, on_page, solid

WIDE = 670
"""Of a panel that stands alone where there is room, in CSS pixels: two columns and the gap between them."""
SYMBOLS = {
    "bar": '<rect x="1" y="3" width="14" height="10"/>',
    "rule": '<rect x="1" y="7" width="14" height="2"/>',
    "tick": '<rect x="7" y="2" width="2" height="12"/>',
    "ring": '<path fill-rule="evenodd" d="M8 3a5 5 0 1 0 .01 0zm0 1.6a3.4 3.4 0 1 1-.01 0z"/>',
    "circle": '<circle cx="8" cy="8" r="4.5"/>',
    "square": '<rect x="4" y="4" width="8" height="8"/>',
    "triangle-up": '<path d="M8 3l5 9H3z"/>',
    "diamond": '<path d="M8 2.5l5 5.5-5 5.5L3 8z"/>',
    "cross": '<path d="M6.2 2.5h3.6v3.7h3.7v3.6H9.8v3.7H6.2V9.8H2.5V6.2h3.7z"/>',
    "triangle-down": '<path d="M8 13L3 4h10z"/>',
    "triangle-right": '<path d="M13 8L4 13V3z"/>',
}
"""A mark of a legend in a box of 16 by 16."""
_TAG = re.compile(r"<[^>]+>")
_LABELS = re.compile(r' (?:aria-label|aria-roledescription|role|aria-hidden|pointer-events)="[^"]*"| opacity="1"')
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_PLACE = re.compile(r' d="[^"]*"|translate\([^)]*\)')
_COORDINATE = re.compile(r"-?\d+\.\d{2,}")
_EMPTY = re.compile(r'<path class="(?:fore|back)ground" d="(?:M0,0h0v0h0Z)?"(?: display="none")?/>')
_ID = re.compile(r'(id="|url\(#|xlink:href="#|href="#)(clip|gradient|symbol|pattern)_?(\d+)')
_MARGIN, _GAP, _LINE = 20, 30, 16
_LETTER = 5.9
"""Mean width of a letter at 11 pixels."""
_LEGENDS = ("color", "shape", "stroke", "fill")
_CHANNELS = (*_LEGENDS, "opacity", "size", "strokeDash", "strokeWidth")
_KEPT = 64
"""Panels whose specifications and pictures are kept: a page and the files of its figures need them in turn."""


def specification(panel: Panel, width: int = WIDTH) -> dict[str, Any]:
    """Give a panel's Vega-Lite specification without configuration and legend: the page has one of each."""
    spec = _to_dict(panel)
    spec.pop("config", None)
    spec["width"] = width
    for encoding in _encodings(spec):
        for channel in _LEGENDS:
            if "field" in (entry := encoding.get(channel) or {}):
                entry["legend"] = None
    return spec


def standalone(figure: Figure) -> dict[str, Any]:
    """Give one Vega-Lite specification of a figure with panels, with configuration and legend, for any tool.

    Its colours are those of the light theme. Unlike on a page, where a text stands in for the whole picture, its parts
    have names for those who hear it.
    """
    specs = [_to_dict(panel) for panel in figure.panels]
    # What stands once for all panels, or, as a fitted size, not at all.
    once = {"$schema", "autosize", "config", "datasets", "usermeta"}
    whole = {
        "$schema": specs[0]["$schema"],
        "config": {**config(), "background": colour("paper"), "padding": _MARGIN},
        "description": figure.message,
        "title": {"text": figure.title, "subtitle": figure.question, "fontSize": 15},
        "columns": _columns(figure.panels),
        "spacing": _GAP,
        "concat": [{key: value for key, value in spec.items() if key not in once} for spec in specs],
        # Panels that name different things would else share one scale, and with it colours.
        "resolve": {"scale": dict.fromkeys(_CHANNELS, "independent")},
        "datasets": {name: rows for spec in specs for name, rows in spec.get("datasets", {}).items()},
    }
    solved: dict[str, Any] = json.loads(solid(json.dumps(whole, sort_keys=True)))
    return solved


def svg(panel: Panel, prefix: str, width: int = WIDTH) -> str:
    """Draw a panel at a width in CSS pixels, its ids beginning with ``prefix``."""
    return _renumbered(_drawn(panel, width), prefix)


@lru_cache(maxsize=_KEPT)
def _drawn(panel: Panel, width: int) -> str:
    """Draw, and leave out what nobody sees: parts of tenths of a pixel, empty paths, names of marks."""
    spec = {**specification(panel, width), "config": on_page()}
    picture: str = vl_convert.vegalite_to_svg(json.dumps(spec))
    return _EMPTY.sub("", _TAG.sub(_shorter, picture))


def _shorter(tag: re.Match[str]) -> str:
    if tag[0].startswith("<path") and ' opacity="0"' in tag[0]:
        return ""  # a mark that is there to be pointed at
    bare = _LABELS.sub("", tag[0])
    placed = _PLACE.sub(lambda match: _COORDINATE.sub(lambda number: _short(number, 1), match[0]), bare)
    return _NUMBER.sub(lambda number: _short(number, 2), _alone(placed))


def _alone(tag: str) -> str:
    """Say of a shape that has but a line, or a fill, that this is translucent: it spares painters a layer."""
    if ' opacity="' not in tag or not tag.startswith(("<path", "<line", "<rect", "<text")):
        return tag
    if 'fill="none"' in tag or tag.startswith("<line"):
        return tag if "stroke-opacity" in tag else tag.replace(' opacity="', ' stroke-opacity="')
    return tag if ' stroke="' in tag or "fill-opacity" in tag else tag.replace(' opacity="', ' fill-opacity="')


def _short(number: re.Match[str], places: int) -> str:
    text = f"{float(number[0]):.{places}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def picture(figure: Figure, caption: str) -> str:
    """Draw a figure that has panels, on white and in real colours; a caption stands below, long lines are broken."""
    columns = _columns(figure.panels)
    panel_width = WIDE if columns == 1 else WIDTH
    width = columns * (panel_width + _GAP) - _GAP + 2 * _MARGIN
    body = [_text(figure.title, _MARGIN, _MARGIN + 12, "ink", 15, "bold")]
    head, y = _lines(figure.question, width, _MARGIN + 32, 12)
    panels, y = _panels(figure.panels, columns, panel_width, y + 2)
    legend, y = _legend(figure.keys, width, y + 20)
    foot, y = _lines(caption, width, y + 26, 11)
    size = f'width="{width}" height="{y}" viewBox="0 0 {width} {y}"'
    description = f"<title>{escape(figure.title)}</title><desc>{escape(figure.message)}</desc>"
    return solid(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" font-size="12" role="img">{description}'
        f'<rect width="100%" height="100%" rx="6" fill="{colour("paper")}"/>'
        f"{''.join([*body, *head, *panels, *legend, *foot])}</svg>"
    )


def _columns(panels: Sequence[Panel]) -> int:
    """At most three in a row, and four as two by two; many wide ones stand below one another."""
    count = len(panels)
    if count > 3 and all(panel.wide for panel in panels):
        return 1
    return 2 if count == 4 else min(count, 3)


def _panels(panels: Sequence[Panel], columns: int, width: int, top: int) -> tuple[list[str], int]:
    """Set panels in rows, each as high as its highest; return them with the lower edge of the last row."""
    body = []
    for first in range(0, len(panels), columns):
        lowest = top
        for column, panel in enumerate(panels[first : first + columns]):
            drawn = svg(panel, f"feedrate-{first + column}", width)
            x = _MARGIN + column * (width + _GAP)
            body.append(f'<svg x="{x}" y="{top}" {drawn.removeprefix("<svg ")}')
            lowest = max(lowest, top + round(size_of(drawn)[1]))
        top = lowest + _GAP
    return body, top - _GAP


def _legend(keys: Sequence[Key], width: int, top: int) -> tuple[list[str], int]:
    """Set the legend in lines; return it with the lower edge of its last line."""
    if not keys:
        return [], top - 20
    x, y, body = _MARGIN, top, []
    for key in keys:
        step = 38 + round(6.1 * len(key.label))
        if x + step > width - _MARGIN and x > _MARGIN:
            x, y = _MARGIN, y + 20
        body += [
            f'<g transform="translate({x} {y - 12})" fill="{key.colour}"{edge(key)}>{SYMBOLS[key.shape]}</g>',
            _text(key.label, x + 21, y, "ink"),
        ]
        x += step
    return body, y


def edge(key: Key) -> str:
    """Write the dashed edge of a legend's bar, as attributes; nothing for other marks."""
    dashed = key.dashed and key.shape == "bar"
    return f' stroke="{colour("emulated-edge")}" stroke-dasharray="3 2"' if dashed else ""


def _lines(text: str, width: int, top: int, size: int) -> tuple[list[str], int]:
    """Set text in lines that fit; return them with the lower edge of the last."""
    letters = int((width - 2 * _MARGIN) / (_LETTER * size / 11))
    lines = [wrapped for line in text.splitlines() for wrapped in textwrap.wrap(line, letters)]
    body = [_text(line, _MARGIN, top + index * _LINE, "muted", size) for index, line in enumerate(lines)]
    return body, top + len(lines) * _LINE


def _text(text: str, x: int, y: int, tone: str, size: int = 12, weight: str = "") -> str:
    style = (f' font-size="{size}"' if size != 12 else "") + (f' font-weight="{weight}"' if weight else "")
    return f'<text x="{x}" y="{y}" fill="{colour(tone)}"{style}>{escape(text)}</text>'


def _to_dict(panel: Panel) -> dict[str, Any]:
    """Copy what Altair makes of a panel, which takes it milliseconds."""
    spec: dict[str, Any] = json.loads(_to_json(panel))
    return spec


@lru_cache(maxsize=_KEPT)
def _to_json(panel: Panel) -> str:
    return json.dumps(panel.chart.to_dict(validate=False))


def _encodings(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if "encoding" in spec:
        yield spec["encoding"]
    for layer in spec.get("layer", []):
        yield from _encodings(layer)


def _renumbered(picture: str, prefix: str) -> str:
    seen: dict[str, int] = {}

    def name(match: re.Match[str]) -> str:
        number = seen.setdefault(f"{match[2]}{match[3]}", len(seen))
        return f"{match[1]}{prefix}-{match[2]}{number}"

    return _ID.sub(name, picture)
