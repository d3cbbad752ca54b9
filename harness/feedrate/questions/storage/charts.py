"""Charts of storage formats: throughput, and how formats share panels.

Fourteen formats have no fourteen colours: colour says what a sample is on disk, shape says whether it lay in the page
cache, and the name stands beside the row. Random and sequential access never share a panel, nor do real training, an
emulated step and loading alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from feedrate.analysis.blocks import memoized
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import OWN, count_doubtful, format_costs, plainest
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    RATE,
    Figure,
    Held,
    Key,
    Row,
    Sheet,
    Slice,
    chart,
    estimate,
    front,
    held,
    interval,
    listed,
    overlap,
    plain,
    slices,
)
from feedrate.charts.plot import Fields, Looks, Plot, Side, extent, frontier, keys, limit_panels, log, log_of, names
from feedrate.charts.theme import colour
from feedrate.schema import words
from feedrate.schema.window import READ_LEAST

NOT_SO = f"the page cache was not as asked, or a cold one read under {100 * READ_LEAST:g}\u00a0% from storage"
"""Why a trial counts neither as cold nor as warm."""
STORES = {
    "pixels": "pixels",
    "lz4": "compressed pixels",
    "gzip": "compressed pixels",
    "png": "PNG",
    "jpeg": "JPEG (lossy)",
}
"""What a sample is on disk, in words."""
LOOKS: Looks = {
    "pixels": (colour("name-0"), "bar"),
    "compressed pixels": (colour("name-2"), "bar"),
    "PNG": (colour("name-4"), "bar"),
    "JPEG (lossy)": (colour("name-1"), "bar"),
}
"""What a sample is on disk to its colour; shapes tell states of the page cache apart."""
MARKS = {"warm": "circle", "full": "triangle-up", "cold": "diamond"}
CACHED = {"warm": "warm: in the page cache", "full": "full: as much in it as fits", "cold": "cold: not in it"}
ACCESS = {"random": "random order", "sequential": "in the order of the disk"}
_COLUMNS = {"format": "format", "stores": "stores", "page_cache": "state", **RATE}
_COLUMNS |= {"samples in the set": "samples", "shuffle_buffer": "buffer"}
Part = tuple[Slice, Held]
"""Formats of one panel, warm and cold, as ``format_costs`` gives them; and the axes that it holds still."""


def parts(trials: pd.DataFrame, kinds: Sequence[str] = (LOAD,)) -> list[Part]:
    """Split a run's cells into panels by kind of step and order, a row a format and state of the page cache."""
    every = plainest(format_costs(trials))
    ordered: list[Part] = []
    for access, order in ACCESS.items():
        for subset in slices(every[every["access"].eq(access)], kinds):
            frame, still = held(subset.frame, ("storage_format", "page_cache", "n_samples", *OWN))
            frame = frame.sort_values("n_samples", ascending=False, kind="stable")
            subtitle = f"{subset.subtitle.removesuffix(', no model')}, {order}"
            one_size = frame.drop_duplicates(["storage_format", "page_cache"])
            ordered.append((replace(subset, subtitle=subtitle, frame=one_size), still))
    return sorted(ordered, key=lambda part: kinds.index(part[0].kind))


@memoized
def loads(trials: pd.DataFrame) -> list[Part]:
    """Split a run's cells that load alone into panels, as most charts of formats do."""
    return parts(trials)


def shared(subset: Slice) -> dict[str, Any]:
    """Give the columns that tell a panel's rows from those of others."""
    return {**subset.row(), "access": subset.frame["access"].iloc[0]}


def _rows(subset: Slice) -> list[dict[str, Any]]:
    """A row a format and state that has a throughput."""
    return [
        {
            "format": str(cell["storage_format"]),
            "state": str(cell["page_cache"]),
            "stores": STORES.get(str(cell["stores"]), str(cell["stores"])),
            "samples": int(cell["n_samples"]),
            "buffer": plain(cell["shuffle_buffer"]),
            "bytes": plain(cell["sample_bytes"]),
            "share": plain(cell["raw_share"]),
            **estimate(cell),
        }
        for cell in rows_of(subset.frame)
    ]


def keys_of_states(rows: Iterable[Row]) -> list[Key]:
    """The legend of the states that were drawn."""
    states = {row["state"] for row in rows}
    return [Key(CACHED[state], colour("muted"), mark) for state, mark in MARKS.items() if state in states]


def by_state(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Split rows by the state of the page cache, warm first."""
    split = {state: [row for row in rows if row["state"] == state] for state in MARKS}
    return {state: of_state for state, of_state in split.items() if of_state}


def note_states(sheet: Sheet) -> None:
    """Say what cold and warm mean, where samples were read from a cold page cache."""
    if any(row["page_cache"] == "cold" for row in sheet.rows):
        sheet.note("Cold: verified out of the page cache, and each sample read once at most. Warm: all of it cached.")


def _notes(trials: pd.DataFrame) -> Iterator[str]:
    """How the page cache was verified, what was left out for it, how streams shuffle, what failed."""
    cells = plainest(format_costs(trials))
    frame = cells[cells["n"].gt(0)]
    cold = frame[frame["page_cache"].eq("cold")]
    if len(cold):
        most = words.number(float(cold["cached_before_hi"].max()))
        yield (
            f"Cold: at most {most}\u00a0% of the files lie in the page cache at the start; each sample is read once at "
            "most. Caches of the disk or of a virtual machine’s host may still hold data. Warm: all files lie there."
        )
    if full := "full" in set(frame["page_cache"]):
        yield "Full: the page cache holds as many samples as the memory of a measurement has room for."
    if not full and not len(cold):
        unknown = frame["cached_before_lo"].isna().all()
        when = "after the first pass" if unknown else "before each measurement, as counted by the kernel"
        yield f"Samples lie in the page cache {when}: we time reading and decoding, not a disk."
    if doubtful := count_doubtful(trials):
        dropped = [words.plural(count, f"{state} measurement") for state, count in sorted(doubtful.items())]
        yield f"We dropped {words.listed(dropped)}: {NOT_SO}."
    if len(streams := frame[frame["streamed"]]):
        formats = words.listed(sorted(streams["storage_format"].unique()))
        buffers = sorted({int(size) for size in streams["shuffle_buffer"].dropna()})
        held_back = words.listed(f"{size:,} samples" if size else "none" for size in buffers)
        yield (
            f"{formats}: shards in random order, each read from end to end; shuffle buffer of a worker: {held_back}. "
            "Other formats are read in the order of the disk here."
        )
    if len(failed := cells[cells["n"].eq(0)]):
        lost = sorted({f"{row['storage_format']} ({row['page_cache']})" for row in rows_of(failed)})
        yield f"Settings whose measurements all failed: {words.listed(lost)}."


@chart(
    "Throughput by storage format",
    "How many samples a second does each format deliver, with a warm and with a cold page cache?",
)
def storage_throughput(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a line a format, the fastest from memory first, a mark with its interval for each state."""
    shown: list[Row] = []
    for subset, still in parts(trials, (LOAD, EMULATED, TRAIN)):
        rows = _rows(subset)
        shown += rows
        best = {row["format"]: row["value"] for row in sorted(rows, key=lambda row: row["state"] == "warm")}
        y = names("format", sorted(best, key=lambda name: (-best[name], name)), grid=True)
        beside = ("state", list(by_state(rows)))
        x = log_of(rows, "samples per second")
        plot = Plot(rows, x, y, "stores", LOOKS, shaped=("state", MARKS), beside=beside, row=20)
        panel = plot.panel(subset.title, subset.subtitle, _message(rows))
        sheet.add(panel, listed(rows, shared(subset), _COLUMNS), still)
    limit_panels(sheet)
    for note in _notes(trials):
        sheet.note(note)
    return sheet.figure(_legend(shown), "No measurement that loads samples ended well here.")


def _legend(shown: Sequence[Row]) -> list[Key]:
    return [*keys(LOOKS, {row["stores"] for row in shown}), *keys_of_states(shown)]


def _message(rows: Sequence[Row]) -> str:
    """Name the fastest and the slowest in each state."""
    sentences = []
    for state, of_state in by_state(rows).items():
        best, worst = (pick(of_state, key=lambda row: row["value"]) for pick in (max, min))
        text = f"{state}, {best['format']} brings {words.number(best['value'])} samples/s ({interval(best)})"
        if best["format"] != worst["format"]:
            text += f", {words.times(best['value'] / worst['value'])} the speed of {worst['format']}"
            text += overlap(best, worst)
        sentences.append(words.sentence(text))
    return " ".join(sentences)


@chart("Bytes on disk against throughput", "How much speed does a smaller format cost?")
def storage_size(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a mark a format, from memory where it was; a dashed line joins those that none beats in both."""
    columns = {"format": "format", "stores": "stores", "page_cache": "state"}
    columns |= {"bytes per sample": "bytes", "share of raw pixels": "share", **RATE}
    shown: list[Row] = []
    for subset, still in loads(trials):
        sized = [row for row in _rows(subset) if row["bytes"] is not None and row["share"] is not None]
        rows = next(iter(by_state(sized).values()), [])
        if len(rows) < 2:
            continue
        shown += rows
        most = 1.08 * max(1.0, *(row["share"] for row in rows))
        axis = {"tickCount": 5, "format": ".0%", "grid": True, "domain": False}
        x = Side("share", "bytes on disk ÷ bytes of raw pixels", {"domain": [0, most], "nice": False}, axis)
        low, high = extent(rows)
        y, best = log("value", "samples per second", (low, 1.4 * high)), front(rows, "bytes")  # names need room
        also: Fields = {"format:N": "", "bytes:Q": ("bytes per sample", ",.0f")}
        line, named = frontier(rows, best, x, y, "format")
        plot = Plot(rows, x, y, "stores", LOOKS, shaped=("state", MARKS), also=also, behind=line, before=named)
        sheet.add(
            plot.panel(subset.title, subset.subtitle, _size_message(best)), listed(rows, shared(subset), columns), still
        )
    limit_panels(sheet)
    sheet.note(
        "The dashed line joins formats that none beats in both size and speed. Raw pixels take a byte a channel."
    )
    return sheet.figure(_legend(shown), "Fewer than two formats have a known size on disk.")


def _size_message(best: Sequence[Row]) -> str:
    """The smallest and the fastest of those that none beats in both."""
    small, fast = best[0], best[-1]
    points = []
    for row in (small, fast):
        name = f"{row['format']} (lossy)" if "lossy" in row["stores"] else row["format"]
        rate = f"{words.number(row['value'])} samples/s ({interval(row)})"
        points.append(f"{name}, {words.number(row['bytes'] / 1000)} kB a sample, {rate}")
    if small is fast:
        return f"{fast['state'].capitalize()}: smallest and fastest is {points[0]}."
    return f"{fast['state'].capitalize()}: smallest is {points[0]}; fastest is {points[1]}."
