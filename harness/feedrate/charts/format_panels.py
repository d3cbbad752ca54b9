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
from feedrate.charts.figure import LOAD, MOST_PANELS, Figure, Key, Panel, Row, Sheet, data, held, listed, sized, slices
from feedrate.charts.figure import plain as value_of
from feedrate.charts.marks import height, logarithmic
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
    for access, ordered in ACCESS.items():
        cells = every[every["access"].eq(access)] if len(every) else every
        for part in slices(cells, kinds):
            frame, kept = held(part.frame, ("storage_format", "page_cache", "n_samples", *OWN, *free))
            same = ["storage_format", "page_cache", *free]
            frame = frame.sort_values("n_samples", ascending=False, kind="stable").drop_duplicates(same)
            subtitle = f"{part.subtitle.removesuffix(', no model')}, {ordered}"
            here = cells["workload"].eq(part.workload) & cells["patch_size"].eq(part.patch_size) & cells["n"].eq(0)
            failed = cells[here & cells["mode"].eq(part.frame["mode"].iloc[0])]
            lost = sorted({f"{row['storage_format']} ({row['page_cache']})" for row in rows_of(failed)})
            found.append((part.kind, Part(part.title, subtitle, access, frame, kept, tuple(lost))))
    return [part for _, part in sorted(found, key=lambda pair: kinds.index(pair[0]))]


@memoized
def loads(trials: pd.DataFrame) -> list[Part]:
    """Split a run's cells that load alone into panels, as most charts of formats do.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
    """
    return parts(trials)


def drawn(part: Part, value: str, lo: str, hi: str) -> list[dict[str, Any]]:
    """One row a format and state that has a value, for dots: names of columns of ``stored`` to draw from."""
    rows = [
        {
            "format": str(cell["storage_format"]),
            "state": str(cell["page_cache"]),
            "stores": STORES.get(str(cell["stores"]), str(cell["stores"])),
            "value": value_of(cell[value]),
            "lo": value_of(cell[lo]),
            "hi": value_of(cell[hi]),
            "n": int(cell["n"]),
            "samples": int(cell["n_samples"]),
            "buffer": value_of(cell["shuffle_buffer"]),
        }
        for cell in rows_of(part.frame)
    ]
    return [row for row in rows if row["value"] is not None]


def order(rows: Iterable[Row], *, largest_first: bool) -> list[str]:
    """Formats from best to worst, by the warm value, or the cold one where there is no warm."""
    best: dict[str, float] = {}
    for row in sorted(rows, key=lambda row: row["state"] == "warm"):
        best[row["format"]] = row["value"]
    return sorted(best, key=lambda name: (-best[name] if largest_first else best[name], name))


def tone(rows: Iterable[Row]) -> alt.Color:
    """Colour by what is stored."""
    names = list(dict.fromkeys(row["stores"] for row in rows))
    tones = [TONES.get(name, OTHER_TONE) for name in names]
    return alt.Color("stores:N", title=None, scale=alt.Scale(domain=names, range=tones))


def mark() -> alt.Shape:
    """Shape by the state of the page cache."""
    return alt.Shape("state:N", title=None, scale=alt.Scale(domain=list(MARKS), range=list(MARKS.values())))


def keys(rows: Iterable[Row]) -> list[Key]:
    """The legend of colour and shape."""
    listed = list(rows)
    stores = {row["stores"] for row in listed}
    states = {row["state"] for row in listed}
    return [
        *(Key(name, TONES.get(name, OTHER_TONE)) for name in (*TONES, *sorted(stores - set(TONES))) if name in stores),
        *(Key(CACHED[state], colour("muted"), shape) for state, shape in MARKS.items() if state in states),
    ]


CACHED = {"warm": "warm: in the page cache", "cold": "cold: from the disk"}


def dots(rows: Sequence[Row], title: str, *, largest_first: bool) -> list[alt.Chart]:
    """Draw a line a format: a mark for each state of the page cache with its interval, joined.

    Args:
        rows: as :func:`drawn` gives them.
        title: of the logarithmic axis, with its unit.
        largest_first: whether more is better.
    """
    names = order(rows, largest_first=largest_first)
    x = logarithmic(rows, title)
    y = alt.Y("format:N", sort=names, title=None, axis=alt.Axis(ticks=False, domain=False, grid=False))
    joined = [
        {"format": name, "from": min(values), "to": max(values)}
        for name in names
        if len(values := [row["value"] for row in rows if row["format"] == name]) > 1
    ]
    names_of = ("format", "stores", "state", "value", "lo", "hi", "n")
    base = alt.Chart(data(rows, *names_of)).encode(y=y, color=tone(rows))
    layers = [
        base.transform_filter("isValid(datum.lo) && isValid(datum.hi)")
        .mark_rule(strokeWidth=3, opacity=0.45)
        .encode(x=alt.X("lo:Q", **x), x2=alt.X2("hi:Q")),
        base.mark_point(filled=True, size=62, opacity=1).encode(
            x=alt.X("value:Q", **x),
            shape=mark(),
            tooltip=[
                alt.Tooltip("format:N"),
                alt.Tooltip("stores:N"),
                alt.Tooltip("state:N", title="page cache"),
                alt.Tooltip("value:Q", title=title, format=",.4~g"),
                alt.Tooltip("lo:Q", title="low", format=",.4~g"),
                alt.Tooltip("hi:Q", title="high", format=",.4~g"),
                alt.Tooltip("n:Q", title="blocks"),
            ],
        ),
    ]
    line = alt.Chart(data(joined, "format", "from", "to")).mark_rule(color=colour("line"), strokeWidth=1.5)
    return [line.encode(y=y, x=alt.X("from:Q", **x), x2=alt.X2("to:Q")), *layers] if joined else layers


def _notes(shown: Sequence[Part], trials: pd.DataFrame | None) -> Iterator[str]:
    """What a reader must know of the panels: how the page cache was verified, what failed, how streams shuffle."""
    frames = pd.concat([part.frame for part in shown])
    if trials is not None:
        yield from (_cache(frames), _doubts(trials), _sizes(frames), _shuffled(frames), _lost(shown))
    elif frames["page_cache"].eq("cold").any():
        yield "Cold: verified to be out of the page cache, each sample read once at most; warm: all of it cached."


def _cache(frame: pd.DataFrame) -> str:
    before = frame[frame["page_cache"].eq("cold")]
    if not len(before):
        unknown = frame["cached_before_lo"].isna().all()
        seen = "after the first pass" if unknown else "before each trial, as counted by the kernel"
        return f"Samples lie in the page cache {seen}: this is the cost of reading and decoding, not of a disk."
    most = words.number(float(before["cached_before_hi"].max()))
    return (
        "Cold: the packed files are dropped from the page cache before a trial opens them, and the kernel’s count of "
        f"cached pages (cachestat or mincore) was at most {most}\u00a0% then; a trial reads each sample once at most, "
        "warm-up included. A disk’s own cache, or that of a virtual machine’s host, may still hold data. Warm: all of "
        "them are cached before the trial."
    )


def _doubts(trials: pd.DataFrame) -> str:
    found = count_doubtful(trials)
    said = [f"{words.plural(count, 'trial')} asked to be {state}" for state, count in sorted(found.items())]
    return f"Left out, as the count of cached pages said otherwise: {words.listed(said)}." if said else ""


def _sizes(frame: pd.DataFrame) -> str:
    counts = frame.groupby("page_cache")["n_samples"].agg(["min", "max"]).to_dict("index")
    if len({count for pair in counts.values() for count in pair.values()}) < 2:
        return ""
    said = [
        f"{low:,} (to {high:,}) {state}" if low != high else f"{low:,} {state}"
        for state, (low, high) in sorted((str(s), (int(p["min"]), int(p["max"]))) for s, p in counts.items())
    ]
    return f"Samples in a set: {words.listed(said)}."


def _shuffled(frame: pd.DataFrame) -> str:
    streams = frame[frame["streamed"]]
    if not len(streams):
        return ""
    names = words.listed(sorted(streams["storage_format"].unique()))
    buffers = sorted({int(value) for value in streams["shuffle_buffer"].dropna()})
    held_back = words.listed([f"{size:,} samples" if size else "none" for size in buffers])
    return (
        f"{names}: read from one end of a shard to the other, shards in a new random order each epoch; each worker’s "
        f"shuffle buffer: {held_back}. The other formats are read in the order of the disk here."
    )


def _lost(shown: Sequence[Part]) -> str:
    found = sorted({name for part in shown for name in part.failed})
    return f"No trial of some setting ended well: {words.listed(found)}." if found else ""


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
    for note in _notes(found, trials) if sheet.panels else ():
        sheet.note(note)
    return sheet


def closed(sheet: Sheet, rows: Iterable[Row], missing: str) -> Figure:
    """Make the figure with the legend of formats."""
    return sheet.figure(keys(rows), missing)


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
    shown: list[dict[str, Any]] = []

    def panel(part: Part, sheet: Sheet) -> None:
        rows = drawn(part, column, f"{column}_lo", f"{column}_hi")
        if not rows:
            return
        shown.extend(rows)
        layers = dots(rows, f"{what} ({unit})", largest_first=False)
        chart = sized(layers, part.title, part.subtitle, height(len({row["format"] for row in rows})))
        columns = {"format": "format", "stores": "stores", "page_cache": "state", f"{what} ({unit})": "value"}
        columns |= {"low": "lo", "high": "hi", "n": "n"}
        panel = Panel(part.title, part.subtitle, _cost_message(rows, unit), chart)
        sheet.add(panel, listed(rows, part.row(), columns), part.held)

    sheet = sheet_of(title, question, loads(trials), panel)
    return closed(sheet, shown, f"The {what} was not recorded here.")


def _cost_message(rows: Sequence[Row], unit: str) -> str:
    said = []
    for state in MARKS:
        part = [row for row in rows if row["state"] == state]
        if not part:
            continue
        least, most = min(part, key=lambda row: row["value"]), max(part, key=lambda row: row["value"])
        text = f"{state}, {least['format']} takes {words.number(least['value'])} {unit}"
        text += f" ({words.interval(least['lo'], least['hi'], least['n'])})"
        if most["format"] != least["format"]:
            text += (
                f" and {most['format']} {words.number(most['value'])} {unit}, "
                f"{words.times(most['value'] / least['value'])} as much"
            )
        said.append(words.sentence(text))
    return " ".join(said)
