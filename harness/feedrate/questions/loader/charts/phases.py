"""Where a sample's time goes: host phases stacked, as the batch grows, defaults beside the fastest worker count.

Shown is the wall clock of the training process, divided by samples. It does not show what the device did meanwhile: on
CUDA a phase includes waiting for the device where the host had to, and nothing else of the device's work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import (
    EMULATED,
    TRAIN,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    held,
    numbers,
    plain,
    slices,
    table,
)
from feedrate.charts.marks import BLOCKS, hover, names, tone
from feedrate.charts.theme import PHASE_COLOURS, colour
from feedrate.schema import words
from feedrate.schema.columns import PHASES

TITLE = "Where a sample’s time goes"
QUESTION = "How long does each phase of a training step take per sample, as the batch grows?"
LABELS = {
    "fetch": "fetch: wait for data",
    "h2d": "copy to device",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other",
    "emulated": "emulated step (sleep)",
}
WHISKER = "Bars are means over blocks; the thin line is the 95 % interval of the whole bar."
SLEEP = "An emulated step sleeps for a declared time, as an accelerator would keep the host waiting; no model runs."
MISSING = "No trial of a training loop ended well here, so there are no phases to show."


def draw(cells: pd.DataFrame) -> Figure:
    """Draw the phases."""
    sheet = Sheet(TITLE, QUESTION)
    used: set[str] = set()
    for part in slices(cells, (TRAIN, EMULATED)):
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        if rows := _rows(part, frame):
            columns = {"batch_size": "batch", "num_workers": "workers"}
            sheet.add(panel(part, rows, _message(rows)), phase_table(part, rows, columns), kept)
            used |= {row["phase"] for row in rows}
    if EMULATED in used:
        sheet.note(SLEEP)
    if len({row["num_workers"] for row in sheet.rows}) > 1:
        sheet.note("Shown are PyTorch’s default, no workers, and the count that is fastest at the largest batch.")
    sheet.note(WHISKER)
    return sheet.figure(keys(used), MISSING)


def keys(used: Collection[str]) -> list[Key]:
    """Give the legend of the phases that are drawn."""
    return [Key(LABELS[name], PHASE_COLOURS[name], dashed=name == EMULATED) for name in LABELS if name in used]


def _rows(part: Slice, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A bar a batch size, for PyTorch's default (0, or the fewest workers) and the fastest at the largest batch."""
    if not len(frame):
        return []
    fastest = frame.sort_values(["batch_size", "samples_per_s"]).iloc[-1]
    counts = {numbers(frame, "num_workers")[0], int(fastest["num_workers"])}
    rows = []
    for cell in rows_of(frame[frame["num_workers"].isin(counts)].sort_values(["batch_size", "num_workers"])):
        workers = words.plural(int(cell["num_workers"]), "worker")
        rows += segments(part, cell, f"batch {int(cell['batch_size'])}, {workers}")
    return rows


def segments(part: Slice, cell: Row, bar: str) -> list[dict[str, Any]]:
    """Cut the time of a sample into phases: a row a segment, microseconds."""
    rate, lo, hi = float(cell["samples_per_s"]), plain(cell["lo"]), plain(cell["hi"])
    of_bar = {
        "bar": bar,
        "setting": bar,
        "batch": int(cell["batch_size"]),
        "workers": int(cell["num_workers"]),
        "total": 1e6 / rate,
        "n": int(cell["n"]),
        "lo": 1e6 / hi if hi else None,
        "hi": 1e6 / lo if lo else None,
    }
    rows = []
    for order, phase in enumerate(PHASES):
        share = plain(cell[f"{phase}_share"])
        name = EMULATED if phase == "forward" and part.kind == EMULATED else phase
        if share is None or (name in ("forward", "backward", "optimizer") and part.kind != TRAIN):
            continue
        of_phase = {"order": order, "phase": name, "label": LABELS[name], "share": share, "us": share / rate * 1e6}
        rows.append({**of_bar, **of_phase})
    return rows


def panel(part: Slice, rows: Sequence[Row], message: str) -> Panel:
    """Draw segments as bars, from top to bottom in their order; a sleep has a dashed edge, as nothing is computed."""
    scale, unit = (1.0, "µs") if max(row["total"] for row in rows) < 2000 else (1e-3, "ms")
    drawn = [{**row, **{name: row[name] and row[name] * scale for name in ("us", "total", "lo", "hi")}} for row in rows]
    bars = list(dict.fromkeys(row["bar"] for row in drawn))
    phases = [name for name in LABELS if any(row["phase"] == name for row in drawn)]
    base = alt.Chart(table(drawn)).encode(y=names("bar", bars))
    x_axis = alt.Axis(tickCount=4, labelOverlap=True)
    stack = base.mark_bar(stroke=colour("paper"), strokeWidth=0.5).encode(
        x=alt.X("us:Q", stack="zero", title=f"time per sample ({unit})", axis=x_axis),
        color=tone("label", {LABELS[name]: PHASE_COLOURS[name] for name in phases}),
        order=alt.Order("order:Q"),
        tooltip=hover(
            {
                "setting:N": "",
                "label:N": "phase",
                "us:Q": (f"{unit} per sample", ",.3~g"),
                "share:Q": ("share", ".1%"),
                **BLOCKS,
            }
        ),
    )
    if part.kind != TRAIN:
        sleep = alt.datum.phase == EMULATED
        stack = stack.encode(
            stroke=alt.condition(sleep, alt.value(colour("emulated-edge")), alt.value(colour("paper"))),
            strokeDash=alt.condition(sleep, alt.value([3, 2]), alt.value([1, 0])),
        )
    whisker = base.transform_filter("datum.order === 0 && isValid(datum.lo)").mark_rule(
        color=colour("ink"), strokeWidth=1.5
    )
    layers = [stack, whisker.encode(x=alt.X("lo:Q"), x2=alt.X2("hi:Q"))]
    return Panel.draw(part.title, part.subtitle, message, layers, 92 + 21 * len(bars))


def phase_table(part: Slice, rows: Sequence[Row], columns: Mapping[str, str]) -> list[Row]:
    """Tabulate segments: a row a bar, a column a phase; ``columns`` are those that come first, heading to key."""
    found: dict[str, dict[str, Any]] = {}
    given = dict(columns) | {"total (us)": "total", "low (us)": "lo", "high (us)": "hi", "n": "n"}
    for row in rows:
        line = found.setdefault(row["bar"], {**part.row(), **{heading: row[key] for heading, key in given.items()}})
        line[f"{row['phase']} (us)"] = row["us"]
    headings = list(dict.fromkeys(key for line in found.values() for key in line))
    return [{key: line.get(key) for key in headings} for line in found.values()]


def _message(rows: Sequence[Row]) -> str:
    """Say how much of the time goes into waiting for data, and what is largest at the largest batch."""
    workers = max(row["workers"] for row in rows)
    own = [row for row in rows if row["workers"] == workers]
    fetch = sorted((row for row in own if row["phase"] == "fetch"), key=lambda row: int(row["batch"]))
    if not fetch:
        return words.sentence("waiting for data was not observed")
    first, last = fetch[0], fetch[-1]
    text = f"with {words.plural(workers, 'worker')}, waiting for data takes {words.percent(first['share'])}"
    text += f" of the time at batch {first['batch']}"
    if last is not first:
        text += f" and {words.percent(last['share'])} at batch {last['batch']}"
    largest = max((row for row in own if row["batch"] == last["batch"]), key=lambda row: row["us"])
    if largest["phase"] == "fetch":
        return words.sentence(f"{text}, where it is the largest part")
    name, share = LABELS[largest["phase"]], words.percent(largest["share"])
    return words.sentence(f"{text}; the largest part there is {name} ({share})")
