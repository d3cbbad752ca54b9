"""A figure's table says once what rows share and that there are more of them; what is folded is never cut short."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import altair as alt
import pytest
from made_trials import make_trials

from feedrate.analysis.estimates import cells
from feedrate.charts.embed import FEWEST_IN_GROUP, MOST_ROWS, figure_csv, figure_html, folded, later
from feedrate.charts.figure import Figure, Panel, Row, Sheet, held
from feedrate.pages.markup import slot


def figure(rows: list[Row]) -> Figure:
    sheet = Sheet("A title", "A question?")
    chart = alt.LayerChart(layer=[alt.Chart(alt.InlineData(values=({"x": 1},))).mark_point().encode(x=alt.X("x:Q"))])
    sheet.add(Panel("Panel", "of one mark", "It has 1 mark.", chart), rows, {})
    return sheet.figure((), "")


def test_what_panels_hold_still_is_said_of_all_of_them() -> None:
    """An axis for which one panel left settings out is named with the values of all; the table says where."""
    sheet = Sheet("A title", "A question?")
    (panel,) = figure([]).panels
    for workers, others in ((0, True), (2, False)):
        frame = cells(make_trials([({"num_workers": count}, [1.0]) for count in ((0, 4) if others else (workers,))]))
        kept, still = held(frame, ())
        assert kept["num_workers"].tolist() == [workers]
        sheet.add(panel, [{"samples": 1}], still)
    drawn = sheet.figure((), "")
    assert drawn.notes == ("Fixed: num_workers 0 or 2; the table says where.",)
    assert drawn.rows == ({"samples": 1, "num_workers": 0}, {"samples": 1, "num_workers": 2})
    for ahead in (2, 4):  # without workers nothing is fetched ahead: no row of the table may say so
        few = [({"num_workers": 2, "prefetch_factor": count}, [1.0]) for count in (ahead, 8)]
        _, still = held(cells(make_trials([({}, [1.0]), *few])), ("num_workers",))
        sheet.add(panel, [{"samples": 1}], still)
    assert not any("prefetch_factor" in row for row in sheet.figure((), "").rows)


def told(rows: list[Row]) -> tuple[str, list[list[str]]]:
    """What stands above the table of a figure, and its rows as texts; a group's heading is a row of one."""
    html = figure_html(figure(rows), "x", "x.csv").partition('<details class="fr-data">')[2]
    said = re.search("<p class=fr-same>(.*?)</p>", html)
    lines = re.findall("<tr>(.*?)</tr>", html)
    return unescape(said[1]) if said else "", [[*map(unescape, re.findall(r"<t[hd][^>]*>(.*?)</t", x))] for x in lines]


def test_what_all_rows_share_is_said_once() -> None:
    """A column of one value stands above the table, and stays in the file."""
    rows: list[Row] = [{"what": "a<b", "batch": batch, "n": 5, "lost": None} for batch in (8, 16, 32)]
    assert told(rows) == ("In every row: what: a<b; n: 5; lost: –.", [["batch"], ["8"], ["16"], ["32"]])
    assert figure_csv(figure(rows)).splitlines()[:2] == ["what,batch,n,lost", "a<b,8,5,"]


def test_what_groups_of_rows_share_heads_them() -> None:
    """First columns whose values seldom change head groups, unless the groups would be small."""
    large: list[Row] = [{"px": px, "order": "any", "value": n} for px in (16, 64) for n in range(FEWEST_IN_GROUP)]
    values = [[str(n)] for n in range(FEWEST_IN_GROUP)]
    assert told(large) == ("In every row: order: any.", [["value"], ["px: 16"], *values, ["px: 64"], *values])
    small: list[Row] = [{"px": px, "value": n} for px in (16, 64) for n in range(FEWEST_IN_GROUP - 1)]
    assert told(small)[1][:2] == [["px", "value"], ["16", "0"]]


def test_a_table_that_is_filtered_has_every_row_and_names_it() -> None:
    """A script that hides rows knows each by its key, wherever the columns of that stand."""
    rows: list[Row] = [{"what": "a<b", "at": at, "n": 5} for at in range(MOST_ROWS + 20)]
    html = figure_html(replace(figure(rows), row_key=("at", "what")), "x", "x.csv")
    assert re.findall('<tr data-row="([^"]*)"><td', html) == [f"{at} a&lt;b" for at in range(MOST_ROWS + 20)]


def test_a_long_table_says_where_the_rest_is() -> None:
    """Beyond so many rows there is the file, which has all of them."""
    rows: list[Row] = [{"at": at, "value": 1.5 * at} for at in range(MOST_ROWS + 20)]
    said, lines = told(rows)
    assert said.startswith(f"The first {MOST_ROWS} of {MOST_ROWS + 20} rows; the CSV file has all of them.")
    assert len(lines) == MOST_ROWS + 1
    assert len(figure_csv(figure(rows)).splitlines()) == MOST_ROWS + 21


def test_what_folds_is_text() -> None:
    """Names of machines come from others: a summary's markup is shown as it is typed."""
    assert "<summary>Redone on &lt;b&gt;</summary>" in folded("Redone on <b>", "<p>x</p>")


def test_one_folded_part_does_not_end_another() -> None:
    """A browser would end the outer one at the end of the inner one; text that speaks of it is no element."""
    for inner in (folded("Inner", "<p>x</p>"), "x</noscript", slot("figure")):
        with pytest.raises(ValueError, match="lies in another"):
            later(inner)
    assert later("&lt;/noscript&gt;") == "<noscript>&lt;/noscript&gt;</noscript>"
