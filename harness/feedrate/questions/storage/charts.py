"""Charts of storage formats: throughput and size, and how formats share panels.

Fourteen formats have no fourteen colours: colour says what a sample is on disk, shape says whether it lay in the page
cache, and the name stands beside the row. Random and sequential access never share a panel, nor do real training, an
emulated step and loading alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.blocks import memoized
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import OWN, count_doubtful, format_costs, plainest
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    MOST_PANELS,
    RATE,
    Figure,
    Key,
    Row,
    Sheet,
    chart,
    data,
    estimate,
    front,
    held,
    interval,
    listed,
    overlap,
    plain,
    slices,
)
from feedrate.charts.plot import Fields, Looks, Plot, Side, extent, log, log_of, names, written
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
    "pixels": (colour("name-0"), "circle"),
    "compressed pixels": (colour("name-2"), "circle"),
    "PNG": (colour("name-4"), "circle"),
    "JPEG (lossy)": (colour("name-1"), "circle"),
}
"""What a sample is on disk to its colour; shapes tell states of the page cache apart."""
MARKS = {"warm": "circle", "cold": "diamond"}
CACHED = {"warm": "warm: in the page cache", "cold": "cold: not in it"}
ACCESS = {"random": "random order", "sequential": "in the order of the disk"}
NAME_WIDE, NAME_HIGH = 0.25, 0.3
"""About what a name takes of a panel: a share of raw pixels, and a step in the logarithm of throughput."""
SAME_SIZE = 0.02
"""Formats whose sizes differ by less are equally small: a header more or less is no reason to choose."""
_WHICH = {"format": "format", "stores": "stores", "page_cache": "state"}
"""What tells rows of a table apart: heading to key."""
_OF_SETS = {"samples in the set": "samples", "shuffle_buffer": "buffer"}


@dataclass(frozen=True, slots=True)
class Part:
    """The formats of one panel: the same images, order, batch size, workers and step; warm and cold side by side."""

    title: str
    subtitle: str
    access: str
    frame: pd.DataFrame
    """As ``analysis.storage.format_costs`` gives it, a row a format and state of the page cache."""
    held: Mapping[str, Any]
    failed: tuple[str, ...]
    """Formats of which no trial ended well, with the state."""

    def row(self) -> dict[str, Any]:
        """The columns that tell this panel's rows from those of others."""
        first = self.frame.iloc[0]
        return {
            "workload": str(first["workload"]),
            "patch_size": plain(first["patch_size"]),
            "what ran": self.subtitle,
            "access": self.access,
        }

    @property
    def states(self) -> list[str]:
        """States of the page cache that were measured, warm first."""
        present = set(self.frame["page_cache"])
        return [state for state in MARKS if state in present]


def parts(trials: pd.DataFrame, free: Sequence[str] = (), kinds: Sequence[str] = (LOAD,)) -> list[Part]:
    """Split a run's cells into panels by order and kind of step; ``free`` axes are not held still."""
    every = plainest(format_costs(trials)) if len(trials) else trials
    ordered: list[tuple[str, Part]] = []
    for access, order in ACCESS.items() if len(every) else ():
        cells = every[every["access"].eq(access)]
        for subset in slices(cells, kinds):
            frame, kept = held(subset.frame, ("storage_format", "page_cache", "n_samples", *OWN, *free))
            same = ["storage_format", "page_cache", *free]
            frame = frame.sort_values("n_samples", ascending=False, kind="stable").drop_duplicates(same)
            subtitle = f"{subset.subtitle.removesuffix(', no model')}, {order}"
            here = cells["workload"].eq(subset.workload) & cells["patch_size"].fillna(0).eq(subset.patch_size)
            here &= cells["n"].eq(0)
            failed = cells[here & cells["mode"].eq(subset.frame["mode"].iloc[0])]
            lost = sorted({f"{row['storage_format']} ({row['page_cache']})" for row in rows_of(failed)})
            ordered.append((subset.kind, Part(subset.title, subtitle, access, frame, kept, tuple(lost))))
    return [subset for _, subset in sorted(ordered, key=lambda pair: kinds.index(pair[0]))]


@memoized
def loads(trials: pd.DataFrame) -> list[Part]:
    """Split a run's cells that load alone into panels, as most charts of formats do."""
    return parts(trials)


def _drawn(subset: Part) -> list[dict[str, Any]]:
    """A row a format and state that has a throughput."""
    rows = [
        {
            "format": str(cell["storage_format"]),
            "state": str(cell["page_cache"]),
            "stores": STORES.get(str(cell["stores"]), str(cell["stores"])),
            **estimate(cell),
            "samples": int(cell["n_samples"]),
            "buffer": plain(cell["shuffle_buffer"]),
            "bytes": plain(cell["sample_bytes"]),
            "share": plain(cell["raw_share"]),
        }
        for cell in rows_of(subset.frame)
    ]
    return [row for row in rows if row["value"] is not None]


def keys_of_states(rows: Iterable[Row]) -> list[Key]:
    """The legend of the states that were drawn."""
    states = {row["state"] for row in rows}
    return [Key(CACHED[state], colour("muted"), mark) for state, mark in MARKS.items() if state in states]


def _keys(rows: Sequence[Row]) -> list[Key]:
    """The legend of what is stored and of the states."""
    stores = {row["stores"] for row in rows}
    return [*(Key(name, tint) for name, (tint, _) in LOOKS.items() if name in stores), *keys_of_states(rows)]


def by_state(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Split rows by the state of the page cache, warm first."""
    split = {state: [row for row in rows if row["state"] == state] for state in MARKS}
    return {state: of_state for state, of_state in split.items() if of_state}


def close(sheet: Sheet, panels: Sequence[Part], trials: pd.DataFrame | None = None) -> None:
    """Leave out panels beyond ``MOST_PANELS``; say what their page cache means, and of all trials what is missing."""
    if (extra := len(sheet.panels) - MOST_PANELS) > 0:
        del sheet.panels[MOST_PANELS:]
        sheet.note(f"{words.plural(extra, 'more panel')} would fit the records; their numbers are in the table.")
    if sheet.panels:
        frames = pd.concat([subset.frame for subset in panels])
        if trials is not None:
            for note in _notes(frames, trials, {name for subset in panels for name in subset.failed}):
                sheet.note(note)
        elif frames["page_cache"].eq("cold").any():
            sheet.note(
                "Cold: verified out of the page cache, and each sample read once at most. Warm: all of it cached."
            )


def _notes(frame: pd.DataFrame, trials: pd.DataFrame, failed: Iterable[str]) -> Iterator[str]:
    """How the page cache was verified, how many samples there were, how streams shuffle, what failed."""
    cold = frame[frame["page_cache"].eq("cold")]
    if len(cold):
        most = words.number(float(cold["cached_before_hi"].max()))
        yield (
            "Cold: a measurement starts without its files in the page cache (the kernel counts at most "
            f"{most}\u00a0% there) and reads each sample once at most. Caches of the disk or of a virtual machine’s "
            "host may still hold data. Warm: all of them are cached."
        )
    else:
        unknown = frame["cached_before_lo"].isna().all()
        when = "after the first pass" if unknown else "before each measurement, as counted by the kernel"
        yield f"Samples lie in the page cache {when}: we time reading and decoding, not a disk."
    if doubtful := count_doubtful(trials):
        parts = [words.plural(count, f"{state} measurement") for state, count in sorted(doubtful.items())]
        yield f"We dropped {words.listed(parts)}: {NOT_SO}."
    sizes = {
        str(state): sorted({int(size) for size in group}) for state, group in frame.groupby("page_cache")["n_samples"]
    }
    if len({size for counts in sizes.values() for size in (counts[0], counts[-1])}) > 1:
        spans = [
            f"{counts[0]:,} {f'(to {counts[-1]:,}) ' if len(counts) > 1 else ''}{state}"
            for state, counts in sorted(sizes.items())
        ]
        yield f"Samples in a set: {words.listed(spans)}."
    if len(streams := frame[frame["streamed"]]):
        formats = words.listed(sorted(streams["storage_format"].unique()))
        buffers = sorted({int(value) for value in streams["shuffle_buffer"].dropna()})
        held_back = words.listed([f"{size:,} samples" if size else "none" for size in buffers])
        yield (
            f"{formats}: shards in random order, each read from end to end; shuffle buffer of a worker: {held_back}. "
            "Other formats are read in the order of the disk here."
        )
    if lost := sorted(failed):
        yield f"Settings whose measurements all failed: {words.listed(lost)}."


@chart(
    "Throughput by storage format",
    "How many samples a second does each format deliver, with a warm and with a cold page cache?",
)
def storage_throughput(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a line a format, the fastest from memory first, a mark with its interval for each state."""
    shown: list[Row] = []
    panels = parts(trials, kinds=(LOAD, EMULATED, TRAIN))
    for subset in panels:
        if not (rows := _drawn(subset)):
            continue
        shown += rows
        best = {row["format"]: row["value"] for row in sorted(rows, key=lambda row: row["state"] == "warm")}
        x = log_of(rows, "samples per second")
        y = names("format", sorted(best, key=lambda name: (-best[name], name)), grid=False)
        plot = Plot(rows, x, y, "stores", LOOKS, shaped=("state", MARKS), behind=_joins(rows, x, y))
        panel = plot.panel(subset.title, subset.subtitle, _throughput_message(rows))
        sheet.add(panel, listed(rows, subset.row(), _WHICH | RATE | _OF_SETS), subset.held)
    close(sheet, panels, trials)
    return sheet.figure(_keys(shown), "No measurement that loads samples ended well here.")


def _joins(rows: Sequence[Row], x: Side, y: Side) -> list[alt.Chart]:
    """Lines that join the marks of a format."""
    values = {row["format"]: [other["value"] for other in rows if other["format"] == row["format"]] for row in rows}
    joined = [
        {"format": name, "from": min(rates), "to": max(rates)} for name, rates in values.items() if len(rates) > 1
    ]
    line = alt.Chart(data(joined, "format", "from", "to")).mark_rule(color=colour("line"), strokeWidth=1.5)
    return [line.encode(**y.along("y"), **x.along("x", "from"), x2="to:Q")] if joined else []


def _throughput_message(rows: Sequence[Row]) -> str:
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
    """Draw a mark a format; those that no other beats in both, without loss, are named."""
    columns = {**_WHICH, "bytes per sample": "bytes", "share of raw pixels": "share", **RATE}
    shown: list[Row] = []
    for subset in loads(trials):
        rows = _sizes(subset)
        if len({row["format"] for row in rows}) > 1:
            shown += rows
            panel = _size_plot(rows).panel(subset.title, subset.subtitle, _size_message(rows))
            sheet.add(panel, listed(rows, subset.row(), columns), subset.held)
    close(sheet, loads(trials))
    sheet.note("Labels mark the best size–speed trade-offs. Raw pixels take a byte a channel.")
    return sheet.figure(_keys(shown), "Fewer than two formats have a known size on disk.")


def _sizes(subset: Part) -> list[dict[str, Any]]:
    """A row a mark; in the state that comes first, those of the front are named, as long as names do not meet."""
    rows = [
        {**row, "bytes": float(row["bytes"]), "share": float(row["share"])}
        for row in _drawn(subset)
        if row["bytes"] is not None and row["share"] is not None
    ]
    named: list[Row] = []
    for row in reversed(_front(rows)):  # the faster of two keeps its name
        if not any(
            abs(other["share"] - row["share"]) < NAME_WIDE and abs(math.log(other["value"] / row["value"])) < NAME_HIGH
            for other in named
        ):
            named.append(row)
    names = {row["format"] for row in named}
    first = subset.states[0]
    return [{**row, "name": row["format"] if row["format"] in names and row["state"] == first else ""} for row in rows]


def _front(rows: Sequence[Row]) -> list[Row]:
    """Of the state that comes first, the formats that none beats in size and speed; smallest first."""
    return front(next(iter(by_state(rows).values()), []), "bytes", SAME_SIZE)


def _size_plot(rows: Sequence[Row]) -> Plot:
    most = max(1.0, *(row["share"] for row in rows)) * 1.08
    axis = {"tickCount": 5, "format": ".0%", "grid": True, "domain": False}
    x = Side("share", "bytes on disk ÷ bytes of raw pixels", {"domain": [0, most], "nice": False}, axis)
    low, high = extent(rows)
    y = log("value", "samples per second", (low, high * 1.5))
    sides = {
        right: [row for row in rows if row["name"] and (row["share"] < most / 2) == right] for right in (True, False)
    }
    also: Fields = {"format:N": "", "bytes:Q": ("bytes per sample", ",.0f")}
    before = [written(named, x, y, "name", right=right, dy=-9) for right, named in sides.items() if named]
    return Plot(rows, x, y, "stores", LOOKS, shaped=("state", MARKS), also=also, before=before)


def _size_message(rows: Sequence[Row]) -> str:
    """Compare the fastest with the smallest of those on the front."""
    best = _front(rows)
    small, fast = best[0], best[-1]
    text = f"{fast['state']}, the fastest is {fast['format']} at {words.number(fast['bytes'] / 1000)} kB a sample"
    if small["format"] == fast["format"]:
        return words.sentence(f"{text}, and none is smaller")
    lossy = " (lossy)" if "lossy" in small["stores"] else ""
    return words.sentence(
        f"{text} ({words.percent(fast['share'])} of raw pixels); {small['format']}{lossy} takes "
        f"{words.number(small['bytes'] / 1000)} kB ({words.percent(small['share'])}) and does "
        f"{words.number(small['value'])} samples/s ({interval(small)}), "
        f"{words.percent(small['value'] / fast['value'])} of the fastest"
    )
