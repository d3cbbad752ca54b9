"""What the charts of workers share: how workers are named, what colour and shape mean, and a row of dots for each.

Panels of scaling with workers: a line a format or batch size, against the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.worker_costs import HOW
from feedrate.charts.figure import Key, Panel, Row, Slice, data, sized, table
from feedrate.charts.marks import logarithmic
from feedrate.charts.theme import colour
from feedrate.schema import words
from feedrate.schema.axes import AXES

TONES = {
    "no workers": colour("name-6"),
    "fork": colour("name-0"),
    "forkserver": colour("name-2"),
    "spawn": colour("name-1"),
    "threads": colour("name-4"),
}
"""How workers begin, to its colour."""
MARKS = {"no workers": "cross", "fork": "circle", "forkserver": "triangle-up", "spawn": "diamond", "threads": "square"}
_ROOM = 4.0
"""How far a logarithmic axis goes beyond the outermost value; intervals that are longer are cut there."""
_SAID = ("workload", "storage_format", "patch_size", "batch_size")
_UNSAID = ("mode", "n_samples", "prefetch_factor", *_SAID, *HOW)
"""Axes that every cell of a table shares, or that have a place of their own."""


def begin(cell: Mapping[Any, Any]) -> str:
    """Name how a cell's workers begin: a key of ``TONES``."""
    if not int(cell["num_workers"]):
        return "no workers"
    return "threads" if cell["worker_kind"] == "thread" else str(cell["start_method"])


def who(cell: Mapping[Any, Any]) -> str:
    """Name a cell's workers: ``2 workers, fork``, ``8 threads``, ``no workers``."""
    how, count = begin(cell), int(cell["num_workers"])
    if how == "no workers":
        return how
    return words.plural(count, "thread") if how == "threads" else f"{words.plural(count, 'worker')}, {how}"


def what(cell: Mapping[Any, Any], leave_out: Sequence[str] = ()) -> str:
    """Name what was loaded: workload, format, size, batch, and every other axis that is not at its default.

    Args:
        cell: a value for every axis; null where it does not apply.
        leave_out: axes that are named elsewhere.
    """
    more = [
        f"{axis.name} {axis.type(cell[axis.name])}".lower()
        for axis in AXES
        if axis.name not in (*_UNSAID, *leave_out) and not pd.isna(cell[axis.name]) and cell[axis.name] != axis.default
    ]
    return ", ".join([str(cell["workload"]), *told(cell), *more])


def told(cell: Mapping[Any, Any]) -> list[str]:
    """Name format, size and batch."""
    return [str(cell["storage_format"]), f"{cell['patch_size']} px", f"batch {cell['batch_size']}"]


def keys(rows: Iterable[Row]) -> list[Key]:
    """The legend: how workers begin."""
    seen = {row["begin"] for row in rows}
    return [Key(name, TONES[name], MARKS[name]) for name in TONES if name in seen]


def dots(rows: Sequence[Row], title: str, *, log: bool) -> list[alt.Chart]:
    """Draw a mark a row with its interval, in the rows' order.

    Args:
        rows: with ``label``, ``begin``, ``value``, ``lo``, ``hi`` and ``n``.
        title: of the axis of values, with its unit.
        log: whether values, all positive then, stand on a logarithmic axis; else on one that holds 0.
    """
    values = [row["value"] for row in rows]
    low, high = (min(values) / _ROOM, max(values) * _ROOM) if log else (-math.inf, math.inf)
    cut = [
        {**row, "from": None if row["lo"] is None else max(low, row["lo"]), "to": row["hi"] and min(high, row["hi"])}
        for row in rows
    ]
    x: dict[str, Any] = (
        logarithmic([{"value": row["value"], "lo": row["from"], "hi": row["to"]} for row in cut], title)
        if log
        else {"title": title, "scale": alt.Scale(zero=True, nice=5), "axis": alt.Axis(tickCount=5, domain=False)}
    )
    order = [row["label"] for row in rows]
    base = alt.Chart(data(cut, "label", "begin", "value", "lo", "hi", "from", "to", "n")).encode(
        y=alt.Y("label:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False, grid=False)),
        color=alt.Color("begin:N", title=None, scale=alt.Scale(domain=list(TONES), range=list(TONES.values()))),
    )
    marks = alt.Scale(domain=list(MARKS), range=list(MARKS.values()))
    tooltip = [
        alt.Tooltip("label:N", title="workers"),
        alt.Tooltip("value:Q", title=title, format=",.4~g"),
        alt.Tooltip("lo:Q", title="low", format=",.4~g"),
        alt.Tooltip("hi:Q", title="high", format=",.4~g"),
        alt.Tooltip("n:Q", title="blocks"),
    ]
    return [
        base.transform_filter("isValid(datum.from) && isValid(datum.to)")
        .mark_rule(strokeWidth=3, opacity=0.45)
        .encode(x=alt.X("from:Q", **x), x2=alt.X2("to:Q")),
        base.mark_point(filled=True, size=62, opacity=1).encode(
            x=alt.X("value:Q", **x), shape=alt.Shape("begin:N", title=None, scale=marks), tooltip=tooltip
        ),
    ]


Looks = Mapping[str, tuple[str, str]]
"""Line to its colour and its shape."""
_HEIGHT = 250


def throughput(part: Slice, rows: Sequence[Row], looks: Looks, cores: float | None) -> Panel:
    """Draw samples per second.

    Args:
        part: the task.
        rows: its marks.
        looks: of all lines of the figure.
        cores: of the machine, where they are known.
    """
    y: dict[str, Any] = {
        "title": "samples per second",
        "scale": alt.Scale(zero=True, nice=5),
        "axis": alt.Axis(format=",.3~s"),
    }
    layers = _layers(rows, ("value", "lo", "hi"), looks, y, cores)
    return Panel(part.title, part.subtitle, _message(rows), sized(layers, part.title, part.subtitle, _HEIGHT))


def efficiency(part: Slice, rows: Sequence[Row], looks: Looks, cores: float | None) -> Panel:
    """Draw the speed-up by the number of processes.

    Args:
        part: the task.
        rows: its marks.
        looks: of all lines of the figure.
        cores: of the machine, where they are known.
    """
    known = [row for row in rows if row["share"] is not None]
    top = max((row["share_hi"] or row["share"] for row in known), default=1.0)
    y: dict[str, Any] = {
        "title": "speed-up ÷ processes",
        "scale": alt.Scale(domain=[0, min(2.0, max(1.1, top * 1.05))], clamp=True),
        "axis": alt.Axis(format=".0%", tickCount=5),
    }
    whole = alt.Chart(table([{"y": 1.0}])).mark_rule(color=colour("muted"), strokeDash=[4, 3])
    layers = [whole.encode(y=alt.Y("y:Q", **y)), *_layers(known, ("share", "share_lo", "share_hi"), looks, y, cores)]
    title = f"{part.title}: efficiency"
    chart = sized(layers, title, part.subtitle, _HEIGHT)
    return Panel(title, part.subtitle, _efficiency_message(known), chart)


def _layers(
    rows: Sequence[Row],
    keys: tuple[str, str, str],
    looks: Looks,
    y: Mapping[str, Any],
    cores: float | None,
) -> list[alt.Chart]:
    """Lines with their intervals, a little beside one another, and where the cores end."""
    value, lo, hi = keys
    counts = sorted({row["workers"] for row in rows})
    here = [name for name in looks if any(row["line"] == name for row in rows)]
    places = {name: 1 + 0.035 * (at - (len(here) - 1) / 2) for at, name in enumerate(here)}
    drawn = [{**row, "at": (1 + row["workers"]) * places[row["line"]] - 1} for row in rows]
    domain = [min(-0.12, *(row["at"] for row in drawn)), max(row["at"] for row in drawn) * 1.08 + 0.1]
    x = alt.X(
        "at:Q",
        title="workers",
        scale=alt.Scale(type="symlog", constant=1, domain=domain, nice=False),
        axis=alt.Axis(values=counts, format="d", grid=False),
    )
    tone = alt.Color("line:N", title=None, scale=alt.Scale(domain=here, range=[looks[name][0] for name in here]))
    shape = alt.Shape("line:N", title=None, scale=alt.Scale(domain=here, range=[looks[name][1] for name in here]))
    base = alt.Chart(data(drawn, "at", "line", "workers", value, lo, hi, "n", "pairs")).encode(x=x, color=tone)
    along = alt.Y(f"{value}:Q", **y)
    whisker = base.transform_filter(f"isValid(datum.{lo})&&isValid(datum.{hi})").mark_rule(strokeWidth=1.75)
    heads = {value: str(y["title"]), lo: "low", hi: "high"}
    tooltip = [
        alt.Tooltip("line:N"),
        alt.Tooltip("workers:Q"),
        *(alt.Tooltip(f"{key}:Q", title=name, format=",.4~g") for key, name in heads.items()),
        alt.Tooltip("n:Q" if value == "value" else "pairs:Q", title="blocks"),
    ]
    return [
        *_cores(cores, domain[1], x),
        base.mark_line(strokeWidth=1.75, opacity=0.75).encode(y=along),
        whisker.encode(y=alt.Y(f"{lo}:Q", **y), y2=f"{hi}:Q"),
        base.mark_point(filled=True, size=55, opacity=1).encode(y=along, shape=shape, tooltip=tooltip),
    ]


def _cores(cores: float | None, end: float, x: alt.X) -> list[alt.Chart]:
    """Where there are as many workers as cores."""
    if cores is None or cores > end:
        return []
    at = alt.Chart(table([{"at": cores, "text": words.plural(int(cores), "core") if cores == int(cores) else "cores"}]))
    rule = at.mark_rule(color=colour("muted"), strokeDash=[2, 3])
    text = at.mark_text(align="right", baseline="top", dx=-4, fontSize=10, color=colour("muted"))
    return [rule.encode(x=x), text.encode(x=x, y=alt.value(2), text=alt.Text("text:N"))]


def _message(rows: Sequence[Row]) -> str:
    """Name the fastest mark, and set it against the fewest workers of its line."""
    best = max(rows, key=lambda row: row["value"])
    text = (
        f"the fastest is {best['line']} with {words.plural(best['workers'], 'worker')}: {words.number(best['value'])} "
        f"samples/s ({words.interval(best['lo'], best['hi'], best['n'])})"
    )
    if best["times"] is None or best["workers"] == best["base"]:
        return words.sentence(text)
    return words.sentence(
        f"{text}, {words.times(best['times'])} what it does with {best['base']} "
        f"({words.interval(best['times_lo'], best['times_hi'], best['pairs'])})"
    )


def _efficiency_message(rows: Sequence[Row]) -> str:
    """At the most workers: which line uses them best, and which least."""
    workers = max((row["workers"] for row in rows), default=0)
    end = [row for row in rows if row["workers"] == workers and row["workers"] != row["base"]]
    if not end:
        return "No two numbers of workers were measured in the same blocks: 0 comparisons."
    most, least = (pick(end, key=lambda row: float(row["share"])) for pick in (max, min))
    text = f"with {words.plural(workers, 'worker')}, {most['line']} keeps {_kept(most)}"
    return words.sentence(text if most is least else f"{text}; {least['line']}, {_kept(least)}")


def _kept(row: Row) -> str:
    """How much of the speed-up that the processes could bring there is."""
    said, lo, hi = f"{words.percent(row['share'])} of what each process could bring", row["share_lo"], row["share_hi"]
    if words.known(lo) and words.known(hi):
        return f"{said} (95\u00a0% interval {100 * lo:.0f} to {words.percent(hi)}, n = {row['pairs']})"
    return f"{said} (n = {row['pairs']}: no interval)"
