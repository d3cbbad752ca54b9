"""What the charts of storage formats share: their panels, what colour and shape mean, and a row of dots a format.

Fourteen formats have no fourteen colours: colour says what a sample is on disk, shape says whether it lay in the page
cache, and the name stands beside the row. Random and sequential access never share a panel, nor do real training, an
emulated step and loading alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.blocks import memoized
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import OWN, count_doubtful, format_costs, plainest
from feedrate.charts.figure import (
    LOAD,
    MOST_PANELS,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    data,
    estimate,
    held,
    interval,
    listed,
    plain,
    slices,
)
from feedrate.charts.marks import BLOCKS, Fields, dots, height, hover, logarithmic, names, rate, shape, tone
from feedrate.charts.theme import colour
from feedrate.schema import words

STORES = {
    "pixels": "pixels",
    "lz4": "compressed pixels",
    "gzip": "compressed pixels",
    "png": "PNG",
    "jpeg": "JPEG (lossy)",
}
"""What a sample is on disk, in words."""
TONES = {
    "pixels": colour("name-0"),
    "compressed pixels": colour("name-2"),
    "PNG": colour("name-4"),
    "JPEG (lossy)": colour("name-1"),
}
OTHER_TONE = colour("name-6")
MARKS = {"warm": "circle", "cold": "diamond"}
CACHED = {"warm": "warm: in the page cache", "cold": "cold: from the disk"}
ACCESS = {"random": "random order", "sequential": "in the order of the disk"}


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
            "patch_size": int(first["patch_size"]),
            "what ran": self.subtitle,
            "access": self.access,
        }

    @property
    def states(self) -> list[str]:
        """States of the page cache that were measured, warm first."""
        found = set(self.frame["page_cache"])
        return [state for state in MARKS if state in found]


def parts(trials: pd.DataFrame, free: Sequence[str] = (), kinds: Sequence[str] = (LOAD,)) -> list[Part]:
    """Split a run's cells into panels.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
        free: axes that a panel shows beside format and page cache; every other is held still.
        kinds: of steps, in the order in which they come.
    """
    every = plainest(format_costs(trials)) if len(trials) else trials
    found: list[tuple[str, Part]] = []
    for access, order in ACCESS.items() if len(every) else ():
        cells = every[every["access"].eq(access)]
        for part in slices(cells, kinds):
            frame, kept = held(part.frame, ("storage_format", "page_cache", "n_samples", *OWN, *free))
            same = ["storage_format", "page_cache", *free]
            frame = frame.sort_values("n_samples", ascending=False, kind="stable").drop_duplicates(same)
            subtitle = f"{part.subtitle.removesuffix(', no model')}, {order}"
            here = cells["workload"].eq(part.workload) & cells["patch_size"].eq(part.patch_size) & cells["n"].eq(0)
            failed = cells[here & cells["mode"].eq(part.frame["mode"].iloc[0])]
            lost = sorted({f"{row['storage_format']} ({row['page_cache']})" for row in rows_of(failed)})
            found.append((part.kind, Part(part.title, subtitle, access, frame, kept, tuple(lost))))
    return [part for _, part in sorted(found, key=lambda pair: kinds.index(pair[0]))]


@memoized
def loads(trials: pd.DataFrame) -> list[Part]:
    """Split a run's cells that load alone into panels, as most charts of formats do."""
    return parts(trials)


def drawn(part: Part, column: str = "samples_per_s") -> list[dict[str, Any]]:
    """A row a format and state that has a value in a column of ``analysis.storage.format_costs``."""
    rows = [
        {
            "format": str(cell["storage_format"]),
            "state": str(cell["page_cache"]),
            "stores": STORES.get(str(cell["stores"]), str(cell["stores"])),
            **estimate(cell, column),
            "samples": int(cell["n_samples"]),
            "buffer": plain(cell["shuffle_buffer"]),
            "bytes": plain(cell["sample_bytes"]),
            "share": plain(cell["raw_share"]),
        }
        for cell in rows_of(part.frame)
    ]
    return [row for row in rows if row["value"] is not None]


def stores_tone(rows: Iterable[Row]) -> alt.Color:
    """Colour by what is stored."""
    return tone("stores", {row["stores"]: TONES.get(row["stores"], OTHER_TONE) for row in rows})


def state_shape() -> alt.Shape:
    """Shape by the state of the page cache."""
    return shape("state", MARKS)


def state_keys(rows: Iterable[Row]) -> list[Key]:
    """The legend of the states that were drawn."""
    states = {row["state"] for row in rows}
    return [Key(CACHED[state], colour("muted"), mark) for state, mark in MARKS.items() if state in states]


def keys(rows: Sequence[Row]) -> list[Key]:
    """The legend of what is stored and of the states."""
    stores = {row["stores"] for row in rows}
    ordered = [name for name in (*TONES, *sorted(stores - set(TONES))) if name in stores]
    return [*(Key(name, TONES.get(name, OTHER_TONE)) for name in ordered), *state_keys(rows)]


def format_dots(rows: Sequence[Row], title: str, *, largest_first: bool) -> list[alt.Chart]:
    """Draw a line a format: a mark for each state of the page cache with its interval, joined.

    Args:
        rows: as :func:`drawn` gives them; formats are sorted by their warm value, or the cold one where there is none.
        title: of the logarithmic axis, with its unit.
        largest_first: whether more is better.
    """
    best = {row["format"]: row["value"] for row in sorted(rows, key=lambda row: row["state"] == "warm")}
    order = sorted(best, key=lambda name: (-best[name] if largest_first else best[name], name))
    x, y = logarithmic(rows, title), names("format", order, grid=False)
    values = {name: [row["value"] for row in rows if row["format"] == name] for name in order}
    joined = [{"format": name, "from": min(own), "to": max(own)} for name, own in values.items() if len(own) > 1]
    base = alt.Chart(data(rows, "format", "stores", "state", "value", "lo", "hi", "n"))
    fields: Fields = {"format:N": "", "stores:N": "", "state:N": "page cache", **rate(title), **BLOCKS}
    layers = dots(base.encode(y=y, color=stores_tone(rows)), x, state_shape(), hover(fields))
    line = alt.Chart(data(joined, "format", "from", "to")).mark_rule(color=colour("line"), strokeWidth=1.5)
    return [line.encode(y=y, x=alt.X("from:Q", **x), x2=alt.X2("to:Q")), *layers] if joined else layers


def sheet_of(
    title: str,
    question: str,
    found: Sequence[Part],
    draw_part: Callable[[Part, Sheet], None],
    trials: pd.DataFrame | None = None,
) -> Sheet:
    """Draw panel after panel; beyond ``MOST_PANELS`` only their rows are kept.

    Args:
        title: of the figure.
        question: that it answers.
        found: what :func:`parts` gave.
        draw_part: adds a part's panels and rows to the sheet.
        trials: of the run; given by the chart that says how the page cache was verified, and what is missing.
    """
    sheet = Sheet(title, question)
    for part in found:
        draw_part(part, sheet)
    if (extra := len(sheet.panels) - MOST_PANELS) > 0:
        del sheet.panels[MOST_PANELS:]
        sheet.note(f"{words.plural(extra, 'more panel')} would fit the records; their numbers are in the table.")
    if sheet.panels:
        frames = pd.concat([part.frame for part in found])
        if trials is not None:
            for note in _notes(frames, trials, {name for part in found for name in part.failed}):
                sheet.note(note)
        elif frames["page_cache"].eq("cold").any():
            sheet.note(
                "Cold: verified to be out of the page cache, each sample read once at most; warm: all of it cached."
            )
    return sheet


def _notes(frame: pd.DataFrame, trials: pd.DataFrame, failed: Iterable[str]) -> Iterator[str]:
    """How the page cache was verified, how many samples there were, how streams shuffle, what failed."""
    cold = frame[frame["page_cache"].eq("cold")]
    if len(cold):
        most = words.number(float(cold["cached_before_hi"].max()))
        yield (
            "Cold: the packed files are dropped from the page cache before a trial opens them, and the kernel’s count "
            f"of cached pages (cachestat or mincore) was at most {most}\u00a0% then; a trial reads each sample once at "
            "most, warm-up included. A disk’s own cache, or that of a virtual machine’s host, may still hold data. "
            "Warm: all of them are cached before the trial."
        )
    else:
        unknown = frame["cached_before_lo"].isna().all()
        when = "after the first pass" if unknown else "before each trial, as counted by the kernel"
        yield f"Samples lie in the page cache {when}: this is the cost of reading and decoding, not of a disk."
    if doubtful := count_doubtful(trials):
        parts = [f"{words.plural(count, 'trial')} asked to be {state}" for state, count in sorted(doubtful.items())]
        yield f"Left out, as the count of cached pages said otherwise: {words.listed(parts)}."
    sizes = {
        str(state): sorted({int(size) for size in part}) for state, part in frame.groupby("page_cache")["n_samples"]
    }
    if len({size for own in sizes.values() for size in (own[0], own[-1])}) > 1:
        spans = [
            f"{own[0]:,} {f'(to {own[-1]:,}) ' if len(own) > 1 else ''}{state}" for state, own in sorted(sizes.items())
        ]
        yield f"Samples in a set: {words.listed(spans)}."
    if len(streams := frame[frame["streamed"]]):
        formats = words.listed(sorted(streams["storage_format"].unique()))
        buffers = sorted({int(value) for value in streams["shuffle_buffer"].dropna()})
        held_back = words.listed([f"{size:,} samples" if size else "none" for size in buffers])
        yield (
            f"{formats}: read from one end of a shard to the other, shards in a new random order each epoch; each "
            f"worker’s shuffle buffer: {held_back}. The other formats are read in the order of the disk here."
        )
    if lost := sorted(failed):
        yield f"No trial of some setting ended well: {words.listed(lost)}."


def costs(trials: pd.DataFrame, title: str, question: str, column: str, what: str, unit: str) -> Figure:
    """Draw a quantity of which less is better, a line a format, sorted by the warm value.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
        title: of the figure.
        question: that it answers.
        column: of ``analysis.storage.format_costs``, with its interval in ``_lo`` and ``_hi``.
        what: the quantity in words.
        unit: its unit.
    """
    shown: list[Row] = []
    columns = {"format": "format", "stores": "stores", "page_cache": "state", f"{what} ({unit})": "value"}
    columns |= {"low": "lo", "high": "hi", "n": "n"}

    def panel(part: Part, sheet: Sheet) -> None:
        if rows := drawn(part, column):
            shown.extend(rows)
            layers = format_dots(rows, f"{what} ({unit})", largest_first=False)
            count = len({row["format"] for row in rows})
            panel = Panel.draw(part.title, part.subtitle, _cost_message(rows, unit), layers, height(count))
            sheet.add(panel, listed(rows, part.row(), columns), part.held)

    sheet = sheet_of(title, question, loads(trials), panel)
    return sheet.figure(keys(shown), f"The {what} was not recorded here.")


def by_state(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Split rows by the state of the page cache, warm first."""
    found = {state: [row for row in rows if row["state"] == state] for state in MARKS}
    return {state: own for state, own in found.items() if own}


def _cost_message(rows: Sequence[Row], unit: str) -> str:
    sentences = []
    for state, own in by_state(rows).items():
        least, most = (pick(own, key=lambda row: row["value"]) for pick in (min, max))
        text = f"{state}, {least['format']} takes {words.number(least['value'])} {unit} ({interval(least)})"
        if most["format"] != least["format"]:
            ratio = words.times(most["value"] / least["value"])
            text += f" and {most['format']} {words.number(most['value'])} {unit}, {ratio} as much"
        sentences.append(words.sentence(text))
    return " ".join(sentences)
