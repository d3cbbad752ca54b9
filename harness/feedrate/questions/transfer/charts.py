"""Bandwidth of copies from the host to the device, by how much is copied at once, from pageable and pinned memory.

A batch is copied by one call a tensor; what it holds ÷ how long they spanned on the device is the rate of these calls:
launches, gaps between them and waits lie inside. At sizes under some MB it is mostly launching; only far above does it
near the rate of the bus. CUDA events time it on the stream that copies: a pageable batch is staged by the driver within
that span, a pinned one goes straight. Copies alone and copies within training stand apart. It does *not* show what a
training loop waits for, which overlap can hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, by_block, over_blocks, successful
from feedrate.analysis.estimates import cells, rows_of
from feedrate.analysis.summary import EMULATED, TRAIN
from feedrate.charts.figure import ENDS, Figure, Row, Sheet, chart, held, interval, listed, plain
from feedrate.charts.plot import Fields, Plot, keys, log_of
from feedrate.charts.theme import colour
from feedrate.schema import words
from feedrate.schema.axes import EMULATED_STEPS

KINDS = {
    "copy": ("Copies alone", "nothing else runs on the device"),
    TRAIN: ("Within real training", "beside the model’s work"),
    EMULATED: ("Within an emulated step", "no model"),
}
LOOKS = {
    "pageable": (colour("name-3"), "circle"),
    "pageable, non_blocking": (colour("name-4"), "square"),
    "pinned": (colour("name-0"), "triangle-up"),
    "pinned, non_blocking": (colour("name-5"), "diamond"),
}
_COLUMNS = {"memory": "memory", "patch_size": "patch_size", "batch_size": "batch"}
_COLUMNS |= {"bytes a batch": "bytes", "GB per s": "value", **ENDS}
_GB = ("gb_per_s", "gb_lo", "gb_hi", "gb_n")
_MISSING = "Nothing was copied to a device in this run: without a CUDA device batches stay where they are."
_UNTIMED = "No copy to the device was timed in this run."


def transfers(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate the bandwidth of the copy calls of every cell that copies to a device."""
    ended = successful(trials)
    size, steps, span = (ended[name].astype("float64") for name in ("batch_bytes", "steps", "device_h2d_ns"))
    alone = ended["parallel"].isna() | ended["parallel"].eq("none").fillna(False)
    timed = size.gt(0) & steps.gt(0) & span.gt(0) & alone.astype(bool)
    ended, rate = ended[timed], (size * steps / span)[timed]
    table = cells(ended)
    sizes = size[timed].groupby([ended[key] for key in KEYS]).median()
    rates = over_blocks(by_block(ended, pd.Series(np.log(rate), rate.index)), _GB, np.exp).assign(batch_bytes=sizes)
    return table.merge(rates.reset_index(), on=list(KEYS), how="inner")


@chart(
    "Copies to the device by size",
    "How fast are batches copied to the device, and from which size on does pinned memory pay?",
)
def transfer_size(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw bandwidth against the bytes of a batch."""
    used = set[str]()
    rates = transfers(trials)
    emulated = rates["mode"].eq(TRAIN) & rates["step"].isin(EMULATED_STEPS)
    kinds = rates["mode"].astype(object).mask(emulated.astype(bool), EMULATED)
    for kind, (title, subtitle) in KINDS.items():
        frame, kept = held(rates[kinds.eq(kind)], ("batch_size", "pin_memory", "non_blocking", "n_samples"))
        if rows := _rows(frame):
            used |= {row["memory"] for row in rows}
            panel = _plot(rows).panel(title, subtitle, _message(rows))
            sheet.add(panel, listed(rows, {"copies": title}, _COLUMNS), kept)
    sheet.note(
        "Bytes of a batch × steps ÷ the device’s copy spans by CUDA events; 1 GB is 10⁹ bytes. The spans contain "
        "launches: below some MB these are most of the time. Intervals: Student’s t over repetitions, on logs. "
        "The driver copies pageable memory through a pinned buffer."
    )
    device = trials["device"].eq("cuda").fillna(False).any()
    return sheet.figure(keys(LOOKS, used), _UNTIMED if device else _MISSING)


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    for cell in rows_of(frame):
        memory = "pinned" if plain(cell["pin_memory"]) else "pageable"
        memory += ", non_blocking" if plain(cell["non_blocking"]) else ""
        rate = {key: plain(cell[name]) for key, name in zip(("value", "lo", "hi", "n"), _GB, strict=True)}
        sizes = {"batch": int(cell["batch_size"]), "bytes": float(cell["batch_bytes"])}
        rows.append({"memory": memory, "patch_size": plain(cell["patch_size"]), **sizes, **rate})
    return sorted(rows, key=lambda row: (list(LOOKS).index(row["memory"]), row["bytes"]))


def _plot(rows: Sequence[Row]) -> Plot:
    x, y = log_of(rows, "bytes a batch", "bytes", ()), log_of(rows, "GB per second")
    also: Fields = {"patch_size:Q": "patch size, px", "batch:Q": "batch size"}
    return Plot(rows, x, y, "memory", LOOKS, joined=True, also=also)


def _message(rows: Sequence[Row]) -> str:
    """At the largest batch the fastest memory, and how far pageable lies behind."""
    largest = max(row["bytes"] for row in rows)
    end = [row for row in rows if row["bytes"] == largest]
    best = max(end, key=lambda row: row["value"])
    text = (
        f"batches of {words.number(largest / 1e6)} MB are copied fastest from {best['memory']} memory: "
        f"{words.number(best['value'])} GB/s ({interval(best)})"
    )
    others = [row for row in end if row["memory"].startswith("pageable")]
    if others and best not in others:
        behind = max(others, key=lambda row: row["value"])
        text += f", {words.times(best['value'] / behind['value'])} the speed from {behind['memory']} memory"
    return words.sentence(text)
