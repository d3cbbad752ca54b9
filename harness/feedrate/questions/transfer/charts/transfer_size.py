"""Bandwidth of copies to the device by their size, from pageable and from pinned memory.

Copies alone and copies within training stand apart. It shows the rate of the copy calls, by CUDA events around them,
launching included; not that of the bus, and not what a step waits for: overlap can hide a slow copy altogether.

Bandwidth of copies from the host to the device, by how much is copied at once.

A batch is copied by one call a tensor; what it holds ÷ how long they spanned on the device is the rate of these calls:
launches, gaps between them and waits lie inside. At sizes under some MB it is mostly launching; only far above does it
near the rate of the bus. CUDA events time it on the stream that copies: a pageable batch is staged by the driver within
that span, a pinned one goes straight. It does *not* show what a training loop waits for, which overlap can hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, half_width, moments, successful
from feedrate.analysis.estimates import AXIS_NAMES, IDENTITY, cells, rows_of
from feedrate.charts.figure import EMULATED, TRAIN, Figure, Key, Panel, Row, Sheet, data, held, listed, plain, sized
from feedrate.charts.marks import logarithmic
from feedrate.charts.theme import colour
from feedrate.schema import words

ADDED = ("gb_per_s", "gb_lo", "gb_hi", "gb_n", "batch_bytes")


def transfers(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate the bandwidth of the copy calls of every cell that copies to a device."""
    ended = successful(trials)
    size, steps, span = (ended[name].astype("float64") for name in ("batch_bytes", "steps", "device_h2d_ns"))
    alone = ended["parallel"].isna() | ended["parallel"].eq("none").fillna(False)
    timed = size.gt(0) & steps.gt(0) & span.gt(0) & alone.astype(bool)
    if not timed.any():
        return pd.DataFrame(columns=[*IDENTITY, *AXIS_NAMES, *ADDED])
    ended, rate = ended[timed], (size * steps / span)[timed]
    table = cells(ended)
    keys = [ended[key] for key in KEYS]
    blocks = pd.Series(np.log(rate), rate.index).groupby([*keys, ended["block"]]).mean().unstack("block")
    mean, sd, n = moments(blocks.to_numpy(dtype=np.float64))
    half = half_width(sd, n)
    columns = {"gb_per_s": np.exp(mean), "gb_lo": np.exp(mean - half), "gb_hi": np.exp(mean + half), "gb_n": n}
    found = pd.DataFrame(columns, index=blocks.index).assign(batch_bytes=size[timed].groupby(keys).median())
    return table.merge(found.reset_index(), on=list(KEYS), how="inner")


TITLE = "Copies to the device by size"
QUESTION = "How fast are batches copied to the device, and from which size on does pinned memory pay?"
READS = "trials"
COPY = "copy"
KINDS = {
    COPY: ("Copies alone", "nothing else runs on the device"),
    TRAIN: ("Within real training", "beside the model’s work"),
    EMULATED: ("Within an emulated step", "no model"),
}
LOOKS = {
    "pageable": (colour("name-3"), "circle"),
    "pageable, non_blocking": (colour("name-4"), "square"),
    "pinned": (colour("name-0"), "triangle-up"),
    "pinned, non_blocking": (colour("name-5"), "diamond"),
}
_COLUMNS = {
    "memory": "memory",
    "patch_size": "patch_size",
    "batch_size": "batch",
    "bytes a batch": "bytes",
    "GB per s": "value",
    "low": "lo",
    "high": "hi",
    "n": "n",
}
_MISSING = "Nothing was copied to a device in this run: without a CUDA device batches stay where they are."
_UNTIMED = "No copy to the device was timed in this run."


def draw(trials: pd.DataFrame) -> Figure:
    """Draw bandwidth against the bytes of a batch."""
    sheet = Sheet(TITLE, QUESTION)
    found = transfers(trials) if len(trials) else trials
    seen: set[str] = set()
    for kind, (title, subtitle) in KINDS.items():
        part = found[_kinds(found).eq(kind)]
        frame, kept = held(part, ("batch_size", "pin_memory", "non_blocking", "n_samples"))
        if rows := _rows(frame):
            seen |= {row["memory"] for row in rows}
            sheet.add(_panel(title, subtitle, rows), listed(rows, {"copies": title}, _COLUMNS), kept)
    if sheet.panels:
        sheet.note(
            "Bytes of a batch × steps ÷ the device’s copy spans by CUDA events; 1 GB is 10⁹ bytes. Launching lies "
            "within, and is most of it at sizes under some MB: there it is no rate of the bus. Intervals are "
            "Student’s t over blocks, on logs. Pageable memory is staged through a pinned buffer by the driver."
        )
    device = trials["device"].eq("cuda").fillna(False).any() if len(trials) else False
    return sheet.figure([Key(name, *LOOKS[name]) for name in LOOKS if name in seen], _UNTIMED if device else _MISSING)


def _kinds(found: pd.DataFrame) -> pd.Series:
    """What each cell's copies run beside: a key of ``KINDS``."""
    mode = found["mode"].astype(object)
    return mode.mask((mode.eq(TRAIN) & found["step"].eq(EMULATED).fillna(False)).astype(bool), EMULATED)


def _memory(cell: Any) -> str:
    name = "pinned" if plain(cell["pin_memory"]) else "pageable"
    return f"{name}, non_blocking" if plain(cell["non_blocking"]) else name


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = [
        {
            "memory": _memory(cell),
            "patch_size": int(cell["patch_size"]),
            "batch": int(cell["batch_size"]),
            "bytes": float(cell["batch_bytes"]),
            "value": float(cell["gb_per_s"]),
            "lo": plain(cell["gb_lo"]),
            "hi": plain(cell["gb_hi"]),
            "n": int(cell["gb_n"]),
        }
        for cell in rows_of(frame)
    ]
    return sorted(rows, key=lambda row: (list(LOOKS).index(row["memory"]), row["bytes"]))


def _panel(title: str, subtitle: str, rows: Sequence[Row]) -> Panel:
    sizes = [{"value": row["bytes"], "lo": None, "hi": None} for row in rows]
    x, y = logarithmic(sizes, "bytes a batch"), logarithmic(rows, "GB per second")
    names = [name for name in LOOKS if any(row["memory"] == name for row in rows)]
    tone = alt.Color("memory:N", title=None, scale=alt.Scale(domain=names, range=[LOOKS[name][0] for name in names]))
    shape = alt.Shape("memory:N", title=None, scale=alt.Scale(domain=names, range=[LOOKS[name][1] for name in names]))
    base = alt.Chart(data(rows, "memory", "patch_size", "batch", "bytes", "value", "lo", "hi", "n"))
    base = base.encode(x=alt.X("bytes:Q", **x), color=tone)
    whisker = base.transform_filter("isValid(datum.lo)&&isValid(datum.hi)").mark_rule(strokeWidth=1.75)
    layers = [
        base.mark_line(strokeWidth=1.75, opacity=0.75).encode(y=alt.Y("value:Q", **y)),
        whisker.encode(y=alt.Y("lo:Q", **y), y2=alt.Y2("hi:Q")),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            y=alt.Y("value:Q", **y),
            shape=shape,
            tooltip=[
                alt.Tooltip("memory:N"),
                alt.Tooltip("bytes:Q", title="bytes a batch", format=",.4~s"),
                alt.Tooltip("patch_size:Q", title="patch size, px"),
                alt.Tooltip("batch:Q", title="batch size"),
                alt.Tooltip("value:Q", title="GB per second", format=",.4~g"),
                alt.Tooltip("lo:Q", title="low", format=",.4~g"),
                alt.Tooltip("hi:Q", title="high", format=",.4~g"),
                alt.Tooltip("n:Q", title="blocks"),
            ],
        ),
    ]
    return Panel(title, subtitle, _message(rows), sized(layers, title, subtitle, 270))


def _size(count: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{words.number(count / scale)} {unit}"
    return f"{count:.0f} bytes"


def _message(rows: Sequence[Row]) -> str:
    """At the largest batch the fastest memory, and how far pageable lies behind; what is left of it at the smallest."""
    largest, smallest = max(row["bytes"] for row in rows), min(row["bytes"] for row in rows)
    best = max((row for row in rows if row["bytes"] == largest), key=lambda row: row["value"])
    text = (
        f"batches of {_size(largest)} are copied fastest from {best['memory']} memory: {words.number(best['value'])} "
        f"GB/s ({words.interval(best['lo'], best['hi'], best['n'])})"
    )
    others = [row for row in rows if row["bytes"] == largest and row["memory"].startswith("pageable")]
    if others and best not in others:
        behind = max(others, key=lambda row: row["value"])
        text += f", {words.times(best['value'] / behind['value'])} what {behind['memory']} memory gives"
    least = [row for row in rows if row["bytes"] == smallest and row["memory"] == best["memory"]]
    if least and smallest < largest:
        text += f"; at {_size(smallest)} it is {words.number(least[0]['value'])} GB/s"
    return words.sentence(text)
