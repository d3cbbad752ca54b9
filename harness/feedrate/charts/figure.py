"""What a chart is: panels that answer one question, the table behind them, and which cells a panel shows.

A chart is a function with the decorator :func:`chart` in a ``questions/NAME/*charts.py``; its name is the chart's
stable id. Panels are drawn apart, each at its natural size, so that a phone shows them below one another and a wide
screen side by side.

A panel shows one workload, patch size and kind of step: real training, an emulated step and loading alone are never in
one panel. Every other axis is held still, and the figure says at which value.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from feedrate.analysis.summary import EMULATED, TRAIN
from feedrate.schema import words
from feedrate.schema.axes import AXES, EMULATED_STEPS, PHOTOGRAPHS, SCRIPT
from feedrate.schema.plugins import PACKAGE

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
    """As ``theme.colour`` names it."""
    shape: str = "bar"
    """``bar``, ``rule``, ``tick``, ``ring`` or a Vega symbol."""
    dashed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One picture with one message; equal to itself alone, so that what is made of it can be kept."""

    title: str
    subtitle: str
    """What was run: real training, an emulated step, loading alone."""
    message: str
    """What the picture shows, in sentences made from its numbers: its text alternative."""
    chart: alt.LayerChart
    wide: bool = False
    """Whether it takes two columns where there is room, as one that stands alone does."""
    facets: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """What readers choose it by, where one of a figure's panels is shown at a time, the first at first; and what they
    choose among its lines, by the field that tells these apart."""

    @classmethod
    def draw(
        cls, title: str, subtitle: str | list[str], message: str, layers: Sequence[alt.Chart], height: int
    ) -> Panel:
        """Lay layers over one another, from back to front; ``height`` in CSS pixels is with title and axes."""
        lines = [subtitle] if isinstance(subtitle, str) else subtitle
        drawn = alt.LayerChart(
            width=WIDTH,
            height=height,
            autosize=alt.AutoSizeParams(type="fit", contains="padding"),
            title=alt.TitleParams(text=title, subtitle=lines),
        )
        drawn.layer = list(layers)  # a constructor that is given layers copies each of them four times
        return cls(title, ", ".join(lines), message, drawn)


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

    @property
    def facets(self) -> dict[str, list[str]]:
        """What readers choose by: the values of a panel's facets, and ``all`` before those of several in one panel."""
        facets: dict[str, list[str]] = {}
        for panel in self.panels:
            for name, value in panel.facets.items():
                values = facets.setdefault(name, [] if isinstance(value, str) else ["all"])
                values += [choice for choice in ([value] if isinstance(value, str) else value) if choice not in values]
        return {name: values for name, values in facets.items() if len(set(values) - {"all"}) > 1}


class Kept(NamedTuple):
    """What all cells of a panel have in common of an axis."""

    value: Any
    others: bool
    """Whether cells with other values were left out for it."""
    everywhere: bool
    """Whether the axis applies to all of the panel's cells."""


Held = Mapping[str, Kept]
"""Axis to what the cells of a panel have in common."""


@dataclass(slots=True)
class Sheet:
    """Collects what a chart draws, panel by panel, until it is a :class:`Figure`."""

    title: str
    question: str
    panels: list[Panel] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    held: list[tuple[int, Held]] = field(default_factory=list)
    """What panels hold still, and how many rows of the table each has."""

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def add(self, panel: Panel, rows: Iterable[Row], held: Held | None = None) -> None:
        """Add a panel, the rows of its table, and the axes that it holds still."""
        self.panels.append(panel)
        self.list(rows, held)

    def list(self, rows: Iterable[Row], held: Held | None = None) -> None:
        """Add rows of the table, and the axes that they hold still."""
        before = len(self.rows)
        self.rows.extend(rows)
        self.held.append((len(self.rows) - before, held or {}))

    def figure(self, keys: Sequence[Key], missing: str) -> Figure:
        """Close the sheet; ``missing`` takes the place of panels and notes when no panel could be drawn."""
        if not self.panels:
            return Figure(self.title, self.question, missing=missing)
        chosen = dict.fromkeys(name for _, held in self.held for name, kept in held.items() if kept.others)
        of_panels = {name: [held[name] for _, held in self.held if name in held] for name in chosen}
        values = {name: list(dict.fromkeys(kept.value for kept in panels)) for name, panels in of_panels.items()}
        still = ", ".join(f"{name} {' or '.join(map(_value_text, several))}" for name, several in values.items())
        varied = {
            name
            for name, panels in of_panels.items()
            if len(values[name]) > 1 and all(kept.everywhere for kept in panels)
        }
        where = "; the table says where" if varied else ""
        notes = [f"Fixed: {still}{where}."] if still else []
        # Panels may differ in what they hold still: then rows say it.
        of_rows = [held for count, held in self.held for _ in range(count)]
        rows = tuple(
            {**row, **{name: held[name].value for name in values if name in varied and name in held}}
            for row, held in zip(self.rows, of_rows, strict=True)
        )
        return Figure(self.title, self.question, tuple(self.panels), tuple(keys), rows, (*notes, *self.notes))


def _value_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Chart:
    """A question about a run, and the function that answers it with a figure."""

    title: str
    question: str
    fill: Callable[..., Figure]
    """Takes an empty sheet and a frame, and by name what it has of ``cores`` and ``cores_logical`` of the machine, and
    ``tuned`` of the run."""
    reads: str
    """Which frame: ``cells`` or ``trials`` of a run, its ``telemetry``, or ``steps`` of a few trials."""

    def draw(self, frame: pd.DataFrame, **machine: Any) -> Figure:
        """Draw what ``reads`` names."""
        return self.fill(Sheet(self.title, self.question), frame, **machine)


def chart(title: str, question: str, reads: str = "trials") -> Callable[[Callable[..., Figure]], Chart]:
    """Make a chart of a function that fills a sheet; the arguments are fields of :class:`Chart`."""
    return lambda fill: Chart(title, question, fill, reads)


@cache
def charts_by_name() -> dict[str, Chart]:
    """Find the charts of all questions by their names, sorted."""
    files = PACKAGE.glob("questions/*/*charts.py")
    modules = [importlib.import_module(f"feedrate.questions.{path.parent.name}.{path.stem}") for path in files]
    charts = {name: member for module in modules for name, member in vars(module).items() if isinstance(member, Chart)}
    return dict(sorted(charts.items()))


EMULATED_NOTE = (
    "An emulated step: a sleep of a given length stands in for the GPU, and no model runs. On CUDA the device spins."
)
"""What a chart says that shows an emulated step."""
ENDS = {"low": "lo", "high": "hi", "n": "n"}
RATE = {"samples per s": "value", **ENDS}
COLUMNS = {"batch_size": "batch", "num_workers": "workers", **RATE}
"""Column of a figure's table to the key of a drawn row; most charts share them."""


def with_ends(heading: str, key: str) -> dict[str, str]:
    """Name a column of a figure's table and those of its interval, as :func:`listed` takes them."""
    return {heading: key, f"{heading}: low": f"{key}_lo", f"{heading}: high": f"{key}_hi"}


def listed(rows: Iterable[Row], given: Row, columns: Mapping[str, str] = COLUMNS) -> list[Row]:
    """Name drawn rows for a figure's table: what all share (``given``), then each column by its heading."""
    return [{**given, **{heading: row[key] for heading, key in columns.items()}} for row in rows]


def stacked(rows: Iterable[Row], bar: str, segment: str, given: Row, columns: Mapping[str, str]) -> list[Row]:
    """Tabulate segments of bars: a row a bar, ``columns`` as :func:`listed` takes them, then a column a part."""
    series: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = series.setdefault(row[bar], {**given, **{heading: row[key] for heading, key in columns.items()}})
        line[f"{row[segment]} (us)"] = row["us"]
    return list(series.values())


def table(rows: Sequence[Row]) -> alt.InlineData:
    """Give rows to Altair as plain values; a tuple is handed on where a list would be copied for every layer."""
    return alt.InlineData(values=tuple(dict(row) for row in rows))


def data(rows: Sequence[Row], *names: str) -> alt.InlineData:
    """Give rows to Altair with the named values alone, numbers to five significant digits: pages stay light."""

    def short(value: Any) -> Any:
        return float(f"{value:.5g}") if isinstance(value, float) else value

    return table([{name: short(row[name]) for name in names} for row in rows])


PANEL_AXES = ("workload", "script", "patch_size", "mode", "step", "step_ms", "model")


@dataclass(frozen=True, slots=True)
class Slice:
    """The cells of one panel."""

    workload: str
    """Or the name of a script."""
    patch_size: int
    """0 for a script, of which it is not known."""
    kind: str
    """``train``, ``emulated`` or ``load``."""
    subtitle: str
    frame: pd.DataFrame

    @property
    def title(self) -> str:
        """Workload and patch size, as the panel's first line says them."""
        return f"{self.workload}, {self.patch_size} px" if self.patch_size else self.workload

    def row(self) -> dict[str, Any]:
        """Give the columns that tell this panel's rows from those of others."""
        return {"workload": self.workload, "patch_size": self.patch_size or None, "what ran": self.subtitle}


def slices(cells: pd.DataFrame, kinds: Sequence[str]) -> list[Slice]:
    """Split cells of which a trial ended well into panels: photographs first, then by workload, size and kind."""
    parts_of_frame: list[Slice] = []
    if not len(cells):
        return parts_of_frame
    frame = cells[cells["n"].fillna(0).gt(0) & cells["samples_per_s"].notna()]
    keys = [frame[name].astype(object).where(frame[name].notna(), None) for name in PANEL_AXES]
    # What a model does on one device is in no panel with what it does on another.
    trains = frame["mode"].eq(TRAIN) & ~frame["step"].isin(EMULATED_STEPS)
    keys.append(frame["device"].astype(object).where(trains.fillna(False), None))
    for values, group in frame.groupby(keys, dropna=False, sort=False):
        cell: dict[str, Any] = dict(zip((*PANEL_AXES, "device"), values, strict=True))
        if cell["mode"] != TRAIN:
            kind, subtitle = str(cell["mode"]), "loading alone, no model"
        elif cell["step"] in EMULATED_STEPS:
            what = "spin" if cell["step"] == "spin" else "sleep"
            kind, subtitle = EMULATED, f"emulated step: a {what} of {float(cell['step_ms']):g} ms, no model"
        else:
            device = "GPU" if cell["device"] == "cuda" else "CPU"
            of = "" if cell["workload"] == SCRIPT else f" of {cell['model']}"
            kind, subtitle = TRAIN, f"real training{of} on the {device}"
        name = cell["script"] if cell["workload"] == SCRIPT else cell["workload"]
        size = int(cell["patch_size"]) if words.is_number(cell["patch_size"]) else 0
        if kind in kinds:
            parts_of_frame.append(Slice(str(name), size, kind, subtitle, group))
    return sorted(
        parts_of_frame,
        key=lambda s: (s.workload not in PHOTOGRAPHS, s.workload, s.patch_size, kinds.index(s.kind), s.subtitle),
    )


def held(frame: pd.DataFrame, free: Sequence[str], by: Sequence[str] = ()) -> tuple[pd.DataFrame, Held]:
    """Hold every axis still that a panel does not show: at PyTorch's default where it was measured, else at the least.

    Of several machines (``by`` tells them apart) it is the value that most of them have.

    Returns:
        The cells that remain, those too in which an axis does not apply, and what they have in common.
    """
    common: dict[str, tuple[Any, bool, Any]] = {}
    axes = [axis for axis in AXES if axis.name not in (*free, *PANEL_AXES)]
    table = frame[[axis.name for axis in axes]].to_numpy(dtype=object)
    present = ~pd.isna(table)
    table = np.where(present, table, np.array(None))
    remain = np.ones(len(frame), dtype=bool)
    owners = frame.groupby([*by], dropna=False).ngroup().to_numpy() if by else np.zeros(len(frame))
    for axis, column, applies in zip(axes, table.T, present.T, strict=True):
        values = sorted(set(column[remain & applies]))
        if len(values) > 1:
            ranks = [
                (len(set(owners[remain & (column == value).astype(bool)])), value == axis.default) for value in values
            ]
            chosen = values[ranks.index(max(ranks))]
            remain &= ~applies | (column == chosen).astype(bool)
            common[axis.name] = chosen, True, applies
        elif values:
            common[axis.name] = values[0], False, applies
    # Where an axis applies is counted last: later ones leave out more cells.
    return frame[remain], {
        name: Kept(value, others, bool(applies[remain].all())) for name, (value, others, applies) in common.items()
    }


def numbers(frame: pd.DataFrame, axis: str) -> list[int]:
    """List the values of an axis of whole numbers, ascending."""
    return sorted(int(value) for value in frame[axis].dropna().unique())


def plain(value: Any) -> Any:
    """Turn a cell of a frame into a plain Python value; null and NaN become None."""
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def estimate(cell: Mapping[Any, Any], name: str = "samples_per_s") -> dict[str, Any]:
    """Give a cell's value, the ends of its interval (``NAME_lo``, ``NAME_hi``; for throughput ``lo``, ``hi``) and n."""
    before = "" if name == "samples_per_s" else f"{name}_"
    ends = {end: plain(cell[f"{before}{end}"]) for end in ("lo", "hi")}
    return {"value": plain(cell[name]), **ends, "n": int(cell["n"])}


def point(cell: Mapping[Any, Any], name: str = "samples_per_s") -> dict[str, Any]:
    """Give batch size and workers of a cell with its :func:`estimate`."""
    return {"batch": int(cell["batch_size"]), "workers": int(cell["num_workers"]), **estimate(cell, name)}


def interval(row: Row, lo: str = "lo", hi: str = "hi", n: str = "n") -> str:
    """Write the interval of a drawn row in words."""
    return words.interval(row[lo], row[hi], row[n])


def front(rows: Iterable[Row], size: str) -> list[Row]:
    """Keep the rows that none beats in size and value, smallest first."""
    kept: list[Row] = []
    for row in sorted(rows, key=lambda row: (row[size], -row["value"])):
        if not kept or row["value"] > kept[-1]["value"]:
            kept.append(row)
    return kept


def overlap(faster: Row, slower: Row) -> str:
    """Say that the intervals of two rows overlap; nothing where they do not, or are not known."""
    if words.is_number(faster["lo"]) and words.is_number(slower["hi"]) and faster["lo"] <= slower["hi"]:
        return "; their intervals overlap"
    return ""
