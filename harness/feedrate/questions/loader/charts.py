"""A loader's throughput by batch size and workers; and where a sample's time goes: host phases stacked.

Phases are shares of the wall clock of the training process ÷ samples. They do not show what the device did meanwhile:
on CUDA a phase includes waiting for the device where the host had to, and nothing else of the device's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    COLUMNS,
    EMULATED_NOTE,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    chart,
    held,
    interval,
    listed,
    numbers,
    overlap,
    plain,
    point,
    slices,
    stacked,
)
from feedrate.charts.plot import BLOCKS, Bars, Fields, Plot, Side, amount, keys, names, of_workers
from feedrate.charts.theme import PHASE_COLOURS
from feedrate.schema import words
from feedrate.schema.axes import SCRIPT
from feedrate.schema.columns import PHASES

LABELS = {
    "fetch": "fetch: wait for data",
    "h2d": "copy to device",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other",
    "emulated": "emulated step",
}
_PHASES = {"batch_size": "batch", "num_workers": "workers", "total (us)": "total"}
_PHASES |= {"low (us)": "lo", "high (us)": "hi", "n": "n"}


@chart("Throughput by batch size", "How does speed change with batch size and workers?", "cells")
def throughput(sheet: Sheet, cells: pd.DataFrame) -> Figure:
    """Draw throughput against batch size, a line a worker count."""
    subsets = slices(cells, (TRAIN, EMULATED, LOAD))
    looks = of_workers(sorted({count for subset in subsets for count in numbers(subset.frame, "num_workers")}))
    for subset in subsets:
        frame, kept = held(subset.frame, ("batch_size", "num_workers"))
        rows = [
            {**point(cell), "series": words.plural(int(cell["num_workers"]), "worker"), "failed": int(cell["failed"])}
            for cell in rows_of(frame.sort_values(["batch_size", "num_workers"]))
        ]
        x = Side("batch", "batch size", {"paddingInner": 0.1}, {"labelAngle": 0}, tuple(numbers(frame, "batch_size")))
        y = amount("value", "samples per second")
        plot = Plot(rows, x, y, "series", looks, beside=("series", list(looks)), joined=True)
        panel = plot.panel(subset.title, subset.subtitle, _message(rows))
        sheet.add(panel, listed(rows, subset.row(), COLUMNS | {"failed": "failed"}), kept)
    if any(row["low"] is None for row in sheet.rows):
        sheet.note("Marks without a whisker rest on one repetition: nothing can be said about their spread.")
    return sheet.figure(keys(looks), "No measurement ended well here, so there is no throughput to show.")


def _message(rows: Sequence[Row]) -> str:
    """Name the fastest worker count at the largest batch and set it against the fewest workers."""
    batch = max(row["batch"] for row in rows)
    end = [row for row in rows if row["batch"] == batch]
    best, least = max(end, key=lambda row: row["value"]), min(end, key=lambda row: row["workers"])
    text = f"batch {batch}: {best['series']}, {words.number(best['value'])} samples/s ({interval(best)})"
    if best is least:
        return words.sentence(f"{text}; no other count is faster" if len(end) > 1 else text)
    ratio = words.times(best["value"] / least["value"])
    return words.sentence(f"{text}, {ratio} the speed with {least['series']}{overlap(best, least)}")


@chart("Where a sample’s time goes", "Where does the time of a sample go, as the batch grows?", "cells")
def phases(sheet: Sheet, cells: pd.DataFrame) -> Figure:
    """Draw PyTorch's default number of workers beside the fastest number."""
    used, basis = set[str](), "repetitions"
    for subset in slices(cells, (TRAIN, EMULATED)):
        frame, kept = held(subset.frame, ("batch_size", "num_workers"))
        if rows := _phase_rows(subset, frame):
            sheet.add(_bars(subset, rows), stacked(rows, "bar", "phase", subset.row(), _PHASES), kept)
            used |= {row["phase"] for row in rows}
    if EMULATED in used:
        sheet.note(EMULATED_NOTE)
        sheet.note("An emulated step lasts as long at every batch size: a larger batch makes it cheaper per sample.")
    counts = {row["num_workers"] for row in sheet.rows}
    if len(counts) > 1:
        first = "no workers, PyTorch’s default" if 0 in counts else "the fewest workers"
        sheet.note(f"Bars: {first}, and the number that is fastest at the largest batch.")
    if cells["workload"].eq(SCRIPT).all():
        sheet.question, basis = "How long does each phase of a training step take per sample?", "stretches of the loop"
    sheet.note(f"Bars are means over {basis}; the thin line is the 95 % interval of the whole bar.")
    legend = [Key(LABELS[name], PHASE_COLOURS[name], dashed=name == EMULATED) for name in LABELS if name in used]
    return sheet.figure(legend, "No measurement of a training loop ended well here, so there are no phases to show.")


def _phase_rows(subset: Slice, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A row a phase of a bar; a bar a batch size, for the fewest workers and the fastest at the largest batch."""
    fastest = frame.sort_values(["batch_size", "samples_per_s"]).iloc[-1]
    counts = {numbers(frame, "num_workers")[0], int(fastest["num_workers"])}
    rows = []
    for cell in rows_of(frame[frame["num_workers"].isin(counts)].sort_values(["batch_size", "num_workers"])):
        given, rate = point(cell), float(cell["samples_per_s"])
        bar = f"batch {given['batch']}, {words.plural(given['workers'], 'worker')}"
        ends = {end: given[other] and 1e6 / given[other] for end, other in (("lo", "hi"), ("hi", "lo"))}
        for order, phase in enumerate(PHASES):
            share = plain(cell[f"{phase}_share"])
            name = EMULATED if phase == "forward" and subset.kind == EMULATED else phase
            if share is None or (name in ("forward", "backward", "optimizer") and subset.kind != TRAIN):
                continue
            of_phase = {"order": order, "phase": name, "label": LABELS[name], "share": share, "us": share / rate * 1e6}
            rows.append({**given, **ends, "bar": bar, "total": 1e6 / rate, **of_phase})
    return rows


def _bars(subset: Slice, rows: Sequence[Row]) -> Panel:
    """Draw segments as bars, from top to bottom in their order; a sleep has a dashed edge, as nothing is computed."""
    scale, unit = (1.0, "µs") if max(row["total"] for row in rows) < 2000 else (1e-3, "ms")
    drawn = [{**row, **{name: row[name] and row[name] * scale for name in ("us", "lo", "hi")}} for row in rows]
    x = Side("us", f"time per sample ({unit})", axis={"tickCount": 4, "labelOverlap": True})
    y, tones = names("bar", (row["bar"] for row in drawn)), {LABELS[name]: PHASE_COLOURS[name] for name in LABELS}
    also: Fields = {"share:Q": ("share", ".1%"), **BLOCKS}
    bars = Bars(drawn, x, y, "label", tones, whisker=True, asleep=LABELS[EMULATED], also=also)
    return bars.panel(subset.title, subset.subtitle, _waiting(rows))


def _waiting(rows: Sequence[Row]) -> str:
    """Say how much of the time goes into waiting for data, and what is largest at the largest batch."""
    workers = max(row["workers"] for row in rows)
    segments = [row for row in rows if row["workers"] == workers]
    fetch = sorted((row["batch"], row["share"]) for row in segments if row["phase"] == "fetch")
    if not fetch:
        return words.sentence("waiting for data was not observed")
    (batch, share), (last, at_last) = fetch[0], fetch[-1]
    text = f"with {words.plural(workers, 'worker')}, waiting for data takes {words.percent(share)} of the time"
    text += f" at batch {batch}" + (f" and {words.percent(at_last)} at batch {last}" if last > batch else "")
    largest = max((row for row in segments if row["batch"] == last), key=lambda row: row["us"])
    if largest["phase"] == "fetch":
        return words.sentence(text)
    name = LABELS[largest["phase"]].partition(":")[0]
    return words.sentence(f"{text}. The largest part there is {name} ({words.percent(largest['share'])})")
