"""Whole figures as pictures and specifications: panels in rows, caption, no colour or file from elsewhere."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import altair as alt
import pytest
import vl_convert

from feedrate.charts import render
from feedrate.charts.figure import Figure, Key, Panel, table
from feedrate.charts.theme import PALETTE, colour

SVG = "{http://www.w3.org/2000/svg}"


def panel(name: str, height: int = 120) -> Panel:
    kind = f"<b>& {name}"
    rows = [{"x": each, "y": each * each, "kind": kind} for each in (1, 2, 3)]
    tone = alt.Scale(domain=[kind], range=[colour(f"name-{name[1:]}")])
    layer = alt.Chart(table(rows)).mark_point(clip=True).encode(x="x:Q", y="y:Q", color=alt.Color("kind:N", scale=tone))
    return Panel.draw(name, "made up", f"{name} shows 3 points.", [layer], height)


def figure(heights: Sequence[int]) -> Figure:
    panels = tuple(panel(f"P{place}", height) for place, height in enumerate(heights))
    keys = (Key("a <b>", colour("name-0"), "circle"), Key("dashed", colour("name-1"), dashed=True))
    return Figure("Title & more", "What is asked?", panels, keys, ({"x": 1},))


def boxes(picture: ET.Element) -> list[tuple[float, float, float, float]]:
    """Left, top, right and lower edge of each panel."""
    found = []
    for part in picture.findall(f"{SVG}svg"):
        x, y, width, height = (float(part.attrib[name]) for name in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    return found


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (4, 2), (7, 3)])
def test_panels_stand_in_rows_and_nothing_overlaps(count: int, columns: int) -> None:
    """However many panels there are, at most three stand side by side, all inside, with text above and below."""
    picture = ET.fromstring(render.picture(figure([100 + 20 * (place % 3) for place in range(count)]), "One.\nTwo."))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    found = boxes(picture)
    assert len(found) == count
    assert max(sum(top == other[1] for other in found) for _, top, *_ in found) == columns
    for place, (left, top, right, low) in enumerate(found):
        assert left >= 0
        assert right <= width
        for other in found[:place]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or low <= other[1]
    texts = {part.text: float(part.attrib["y"]) for part in picture.findall(f"{SVG}text")}
    assert texts["Title & more"] < min(top for _, top, *_ in found)
    assert texts["What is asked?"] < min(top for _, top, *_ in found)
    lowest = max(low for *_, low in found)
    assert lowest < texts["a <b>"] < texts["One."] < texts["Two."] < height


def test_a_picture_needs_nothing_else() -> None:
    """A picture has real colours, unique ids, its message for those who cannot see it, and long captions are broken."""
    drawn = render.picture(figure([100, 100]), "word " * 60)
    picture = ET.fromstring(drawn)
    assert "var(" not in drawn
    assert "href" not in drawn
    ids = [part.attrib["id"] for part in picture.iter() if "id" in part.attrib]
    assert len(ids) == len(set(ids)) > 0
    assert "P0 shows 3 points." in (picture.findtext(f"{SVG}desc") or "")
    words = [part.text or "" for part in picture.findall(f"{SVG}text") if (part.text or "").startswith("word")]
    assert len(words) > 1
    assert sum(text.count("word") for text in words) == 60


def test_the_specification_stands_alone() -> None:
    """One specification has every panel and row, compiles as it is, and draws each in its own colour with a legend.

    It says what it shows, and its parts have names for those who hear it.
    """
    whole = render.standalone(figure([100, 120]))
    text = json.dumps(whole)
    assert "var(" not in text
    assert [part["title"]["text"] for part in whole["concat"]] == ["P0", "P1"]
    assert {len(rows) for rows in whole["datasets"].values()} == {3}
    drawn = vl_convert.vegalite_to_svg(whole)
    assert "role-legend" in drawn
    assert "What is asked?" in drawn
    assert all(PALETTE[name][0] in drawn for name in ("name-0", "name-1"))
    assert drawn.count("role-legend-symbol") == 2
    assert whole["description"] == "P0 shows 3 points. P1 shows 3 points."
    assert 'aria-roledescription="legend"' in drawn
    assert text == json.dumps(render.standalone(figure([100, 120])))
