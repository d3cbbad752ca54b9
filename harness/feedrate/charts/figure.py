"""What a chart is: panels that answer one question, each with its message, and the table that they show.

A chart module has ``TITLE``, ``QUESTION`` and ``draw(cells) -> Figure``; its file name is the chart's stable id. Panels
are drawn apart, each at its natural size, so that a phone shows them below one another and a wide screen side by side.

Which cells a panel shows: one workload, patch size and kind of step, every other axis held still and said.

Real training, an emulated step and loading alone are never drawn in one panel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from feedrate.schema.axes import AXES, BY_NAME

WIDTH = 320
"""Of a panel, in CSS pixels: the narrowest screen that is supported, less its margins."""

MOST_PANELS = 6
"""Of most charts; what is beyond is in the table."""

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


def data(rows: Sequence[Row], *names: str) -> alt.InlineData:
    """Give rows to Altair without what is not drawn, numbers to five significant digits: pages stay light.

    Args:
        rows: as they are drawn.
        names: of what is kept.
    """
    return table([{name: _short(row[name]) for name in names} for row in rows])


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


PANEL_AXES = ("workload", "patch_size", "mode", "step", "step_ms", "model")
PHOTOGRAPHS = ("div2k", "div2k_standin", "folder")
TRAIN, EMULATED, LOAD = "train", "emulated", "load"


@dataclass(frozen=True, slots=True)
class Slice:
    """The cells of one panel."""

    workload: str
    patch_size: int
    kind: str
    """``train``, ``emulated`` or ``load``."""
    subtitle: str
    frame: pd.DataFrame

    @property
    def title(self) -> str:
        """Workload and patch size, as the panel's first line says them."""
        return f"{self.workload}, {self.patch_size} px"

    def row(self) -> dict[str, Any]:
        """The columns that tell this panel's rows from those of others."""
        return {"workload": self.workload, "patch_size": self.patch_size, "what ran": self.subtitle}


def measured(cells: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells with at least one trial that ended well."""
    return cells[cells["n"].fillna(0).gt(0) & cells["samples_per_s"].notna()] if len(cells) else cells


def _kind(mode: str, step: Any) -> str:
    return mode if mode != "train" else EMULATED if step == "emulated" else TRAIN


def _subtitle(kind: str, cell: Any) -> str:
    device = "GPU" if cell["device"] == "cuda" else "CPU"
    if kind == EMULATED:
        return f"emulated step: a sleep of {float(cell['step_ms']):g} ms, no model"
    if kind == LOAD:
        return "loading alone, no model"
    return f"real training of {cell['model']} on the {device}"


def slices(cells: pd.DataFrame, kinds: Sequence[str]) -> list[Slice]:
    """Split measured cells into panels, photographs first, then by patch size, then in the order of ``kinds``."""
    found = []
    frame = measured(cells)
    if not len(frame):
        return []
    keys = [frame[name].astype(object).where(frame[name].notna(), None) for name in PANEL_AXES]
    for values, part in frame.groupby(keys, dropna=False, sort=False):
        cell: dict[str, Any] = dict(zip(PANEL_AXES, values, strict=True))
        kind = _kind(str(cell["mode"]), cell["step"])
        if kind in kinds:
            subtitle = _subtitle(kind, {**cell, "device": part["device"].iloc[0]})
            found.append(Slice(str(cell["workload"]), int(cell["patch_size"]), kind, subtitle, part))
    return sorted(
        found, key=lambda s: (s.workload not in PHOTOGRAPHS, s.workload, s.patch_size, kinds.index(s.kind), s.subtitle)
    )


def held(frame: pd.DataFrame, free: Sequence[str]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Hold every axis still that a panel does not show: at PyTorch's default where it was measured, else at the least.

    Returns:
        The cells that remain, and the axes that had more than one value with the one that was kept. A cell in which an
        axis does not apply remains.
    """
    kept: dict[str, Any] = {}
    axes = [axis for axis in AXES if axis.name not in (*free, *PANEL_AXES)]
    table = frame[[axis.name for axis in axes]].to_numpy(dtype=object)
    known = ~pd.isna(table)
    table = np.where(known, table, np.array(None))
    remain = np.ones(len(frame), dtype=bool)
    for axis, column, applies in zip(axes, table.T, known.T, strict=True):
        values = sorted(set(column[remain & applies]))
        if len(values) > 1:
            kept[axis.name] = axis.default if axis.default in values else values[0]
            remain &= ~applies | (column == kept[axis.name]).astype(bool)
    return frame[remain], kept


def numbers(frame: pd.DataFrame, axis: str) -> list[int]:
    """List the values of an axis of whole numbers, ascending."""
    return sorted(int(value) for value in frame[axis].dropna().unique())


def plain(value: Any) -> Any:
    """Turn a cell of a frame into a plain Python value; null and NaN become None."""
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def axis_title(name: str) -> str:
    """Title of an axis that shows a knob: its name as PyTorch spells it."""
    unit = BY_NAME[name].unit
    return f"{name} ({unit})" if unit and name != "batch_size" else name
