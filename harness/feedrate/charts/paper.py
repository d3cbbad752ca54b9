"""Figures as papers print them: one or two columns wide, text of seven points, no title: a caption says it.

They are made from a figure's Vega-Lite specification. What tells panels apart stays, after a letter.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import vl_convert

WIDTHS_MM = (89, 183)
"""Of one column and of two (nature.com, "Final submission: figures")."""
POINTS = 7.0
_PX_A_MM, _PX_A_POINT = 96 / 25.4, 96 / 72
_AXES = 60.0
"""About so many pixels beside a plot its axis takes."""
_ROUNDS = 5
_LEGENDS = ("color", "shape")
_SIZE = re.compile(r'<svg [^>]*?\bwidth="([\d.]+)"[^>]*?\bheight="([\d.]+)"')


def convert(specification: str, path: Path) -> None:
    """Make ``path`` with ``-89mm`` and ``-183mm``, each as SVG and PDF, of a specification as JSON.

    Raises:
        ValueError: it cannot be drawn.
    """
    for millimetres in WIDTHS_MM:
        drawn = fitted(json.loads(specification), millimetres)
        name = f"{path.name}-{millimetres}mm"
        path.with_name(f"{name}.svg").write_text(drawn, encoding="utf-8")
        # A PDF has a point where the SVG has a pixel.
        points = re.sub(r'="([\d.]+)mm"', lambda size: f'="{float(size[1]) * 72 / 25.4:.3f}"', drawn, count=2)
        path.with_name(f"{name}.pdf").write_bytes(vl_convert.svg_to_pdf(points))


def fitted(specification: dict[str, Any], millimetres: float) -> str:
    """Draw a specification as wide as asked for, as SVG."""
    columns = min(len(specification["concat"]), 1 if millimetres < WIDTHS_MM[-1] else 2)
    plain, wanted = _plain(specification, columns), millimetres * _PX_A_MM
    plot = wanted / columns - _AXES
    for _ in range(_ROUNDS):  # axes add about the same to plots of any width
        picture = _drawn(plain, plot)
        width, height = size_of(picture)
        if abs(width - wanted) < 1:
            break
        plot += (wanted - width) / columns
    size = f'width="{millimetres:g}mm" height="{height * millimetres / width:.2f}mm"'  # what is left is under 1 %
    return re.sub(r'\bwidth="[\d.]+" height="[\d.]+"', size, picture, count=1)


def _plain(specification: dict[str, Any], columns: int) -> dict[str, Any]:
    """Without title, every text of one size, each legend once."""
    spec: dict[str, Any] = _small(specification)
    spec.pop("title", None)
    spec |= {"columns": columns, "spacing": 14}
    legend = {**spec["config"]["legend"], "columns": 2, "labelLimit": 0}
    spec["config"] |= {"padding": 2, "title": {**spec["config"]["title"], "offset": 4}, "legend": legend}
    seen = set[str]()
    for letter, panel in zip(ascii_lowercase, spec["concat"], strict=False):
        if len(spec["concat"]) > 1:
            panel["title"]["text"] = f"{letter}  {panel['title']['text']}"
        channels = [layer.get("encoding", {}).get(channel, {}) for layer in panel["layer"] for channel in _LEGENDS]
        domains = [
            (json.dumps(channel.get("scale", {}).get("domain")), channel) for channel in channels if "field" in channel
        ]
        for names, channel in domains:
            if names in seen:
                channel["legend"] = None
        seen |= {names for names, _ in domains}
    return spec


def _small(value: Any) -> Any:
    """Copy a specification, its texts of ``POINTS``."""
    if isinstance(value, dict):
        return {
            key: POINTS * _PX_A_POINT if key.lower().endswith("fontsize") else _small(inner)
            for key, inner in value.items()
        }
    return [_small(inner) for inner in value] if isinstance(value, list) else value


def _drawn(spec: dict[str, Any], width: float) -> str:
    for panel in spec["concat"]:
        panel["width"] = width
    picture: str = vl_convert.vegalite_to_svg(spec)
    return picture


def size_of(picture: str) -> tuple[float, float]:
    """Width and height of an SVG, in its own pixels.

    Raises:
        ValueError: it does not say them.
    """
    if not (match := _SIZE.search(picture)):
        raise ValueError("its picture does not say how large it is")
    return float(match[1]), float(match[2])
