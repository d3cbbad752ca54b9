"""What a chart is: panels that answer one question, each with its message, and the table that they show.

A chart module has ``TITLE``, ``QUESTION`` and ``draw(cells) -> Figure``; its file name is the chart's stable id. Panels
are drawn apart, each at its natural size, so that a phone shows them below one another and a wide screen side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

WIDTH = 320
"""Of a panel, in CSS pixels: the narrowest screen that is supported, less its margins."""

Row = Mapping[str, Any]
"""One line of a figure's table: column to a plain Python value; None is null."""


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a figure's legend."""

    label: str
    colour: str
    """As ``_theme.colour`` names it."""
    shape: str = "bar"
    """``bar``, ``rule`` or a Vega symbol."""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture with one message."""

    title: str
    subtitle: str
    """What was run: real training, an emulated step, loading alone."""
    message: str
    """What the picture shows, in sentences made from its numbers: its text alternative."""
    chart: alt.LayerChart
    wide: bool = False
    """Whether it takes two columns where there is room, as one that stands alone does."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart that is ready to be shown, or the reason why there is none."""

    title: str
    question: str
    panels: tuple[Panel, ...] = ()
    keys: tuple[Key, ...] = ()
    rows: tuple[Row, ...] = ()
    """The table behind the panels."""
    notes: tuple[str, ...] = ()
    """What a reader must know to read it rightly."""
    missing: str = ""
    """Without panels: what is missing, in a sentence."""
    row_key: tuple[str, ...] = ()
    """Columns by which a script that hides rows of the table knows them (``data-row``): then every row is there."""

    @property
    def message(self) -> str:
        """The messages of all panels, or what is missing."""
        return " ".join(panel.message for panel in self.panels) or self.missing


@dataclass(slots=True)
class Sheet:
    """Collects what a chart draws, panel by panel, until it is a :class:`Figure`."""

    title: str
    question: str
    panels: list[Panel] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    held: dict[str, Any] = field(default_factory=dict)
    """Axes that panels hold still, with their values."""

    def note(self, text: str) -> None:
        """Add a note once."""
        if text and text not in self.notes:
            self.notes.append(text)

    def add(self, panel: Panel, rows: Iterable[Row], held: Mapping[str, Any]) -> None:
        """Add a panel, the rows of its table, and the axes that it holds still."""
        self.panels.append(panel)
        self.rows.extend(rows)
        self.held |= held

    def figure(self, keys: Sequence[Key], missing: str) -> Figure:
        """Close the sheet; ``missing`` is said when no panel could be drawn."""
        if not self.panels:
            return Figure(self.title, self.question, missing=missing)
        still = ", ".join(
            f"{name} = {str(value).lower() if isinstance(value, bool) else value}" for name, value in self.held.items()
        )
        notes = [f"Held still in the panels, at the default where it was measured: {still}."] if still else []
        return Figure(
            self.title, self.question, tuple(self.panels), tuple(keys), tuple(self.rows), (*notes, *self.notes)
        )


COLUMNS = {
    "batch_size": "batch",
    "num_workers": "workers",
    "samples per s": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
}
"""Column of a figure's table to the key of a drawn row; most charts share them."""


def listed(rows: Iterable[Row], given: Row, columns: Mapping[str, str] = COLUMNS) -> list[Row]:
    """Name drawn rows for a figure's table.

    Args:
        rows: as they are drawn.
        given: what all of them share, such as the slice.
        columns: heading to key.
    """
    return [{**given, **{heading: row[key] for heading, key in columns.items()}} for row in rows]


def sized(layers: Sequence[alt.Chart], title: str, subtitle: str, height: int) -> alt.LayerChart:
    """Lay layers over one another at a panel's size, under its title.

    Args:
        layers: from back to front.
        title: first line, in bold.
        subtitle: second line.
        height: of the whole picture in CSS pixels, title and axes included.
    """
    return alt.LayerChart(
        layer=list(layers),
        width=WIDTH,
        height=height,
        autosize=alt.AutoSizeParams(type="fit", contains="padding"),
        title=alt.TitleParams(text=title, subtitle=[subtitle]),
    )


def table(rows: Sequence[Row]) -> alt.InlineData:
    """Give rows to Altair as plain values, so that nothing is guessed about their types.

    They are a tuple, which Altair hands on where it would copy a list row by row for every layer of a chart.
    """
    return alt.InlineData(values=tuple(dict(row) for row in rows))
