"""Where a sample's time goes: host phases stacked, as the batch grows.

Shown is the wall clock of the training process ÷ samples. The fastest of many cells is picked by its own estimate, and
its bar is therefore a little too short; what it gains over the defaults is cross-fitted. It does not show what the
device did meanwhile: on CUDA a phase includes waiting for the device where the host had to, and nothing else of the
device's work. Nor does it show which knob gains how much: the suites do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from feedrate.analysis import estimates
from feedrate.analysis.blocks import Blocks, blocks_of
from feedrate.analysis.crossfit import LEAST_BLOCKS, cross_fitted
from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, TRAIN
from feedrate.charts.figure import (
    EMULATED_NOTE,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    chart,
    held,
    numbers,
    plain,
    slices,
    stacked,
)
from feedrate.charts.plot import BLOCKS, Bars, Side, names
from feedrate.charts.theme import PHASE_COLOURS
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, SCRIPT, SETTINGS
from feedrate.schema.columns import PHASES
from feedrate.schema.metrics import CONFIRMED_OVER

_QUESTION = "Where does the time of a sample go, as the batch grows?"
LABELS = {
    "fetch": "fetch: wait for data",
    "h2d": "copy to device",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other",
    "emulated": "emulated step",
}
_WHISKER = "Bars are means over {}; the thin line is the 95 % interval of the whole bar."
_MISSING = "No measurement of a training loop ended well here, so there are no phases to show."
_TIMES = {"total (us)": "total", "low (us)": "lo", "high (us)": "hi", "n": "n"}
_DEFAULTS = f"PyTorch’s defaults on {BY_NAME['storage_format'].default} files"
_OTHERS = tuple(name for name in SETTINGS if name != "batch_size")
"""What the two cells of a pair may differ in."""
_COLUMNS = {"batch_size": "batch", "which": "which", "setting": "setting", "times the defaults": "ratio"}
_COLUMNS |= {"times, low": "ratio_lo", "times, high": "ratio_hi", **_TIMES}


@chart("Where a sample’s time goes", _QUESTION, "cells")
def phases(sheet: Sheet, cells: pd.DataFrame) -> Figure:
    """Draw PyTorch's default number of workers beside the fastest number."""
    used, columns = set[str](), {"batch_size": "batch", "num_workers": "workers", **_TIMES}
    for subset in slices(cells, (TRAIN, EMULATED)):
        frame, kept = held(subset.frame, ("batch_size", "num_workers"))
        if rows := _phase_rows(subset, frame):
            sheet.add(
                _panel(subset, rows, _phases_message(rows)), stacked(rows, "bar", "phase", subset.row(), columns), kept
            )
            used |= {row["phase"] for row in rows}
    if EMULATED in used:
        sheet.note(EMULATED_NOTE)
    if len({row["num_workers"] for row in sheet.rows}) > 1:
        sheet.note("Bars: no workers, PyTorch’s default, and the number that is fastest at the largest batch.")
    if script := bool(cells["workload"].eq(SCRIPT).all()):
        sheet.question = "How long does each phase of a training step take per sample?"
    sheet.note(_WHISKER.format("stretches of the loop" if script else "repetitions"))
    return sheet.figure(_keys(used), _MISSING)


def _keys(used: Collection[str]) -> list[Key]:
    """Give the legend of the phases that are drawn."""
    return [Key(LABELS[name], PHASE_COLOURS[name], dashed=name == EMULATED) for name in LABELS if name in used]


def _phase_rows(subset: Slice, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A bar a batch size, for PyTorch's default (0, or the fewest workers) and the fastest at the largest batch."""
    fastest = frame.sort_values(["batch_size", "samples_per_s"]).iloc[-1]
    counts = {numbers(frame, "num_workers")[0], int(fastest["num_workers"])}
    rows = []
    for cell in rows_of(frame[frame["num_workers"].isin(counts)].sort_values(["batch_size", "num_workers"])):
        workers = words.plural(int(cell["num_workers"]), "worker")
        rows += _segments(subset, cell, f"batch {int(cell['batch_size'])}, {workers}")
    return rows


def _segments(subset: Slice, cell: Row, bar: str) -> list[dict[str, Any]]:
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
        name = EMULATED if phase == "forward" and subset.kind == EMULATED else phase
        if share is None or (name in ("forward", "backward", "optimizer") and subset.kind != TRAIN):
            continue
        of_phase = {"order": order, "phase": name, "label": LABELS[name], "share": share, "us": share / rate * 1e6}
        rows.append({**of_bar, **of_phase})
    return rows


def _panel(subset: Slice, rows: Sequence[Row], message: str) -> Panel:
    """Draw segments as bars, from top to bottom in their order; a sleep has a dashed edge, as nothing is computed."""
    scale, unit = (1.0, "µs") if max(row["total"] for row in rows) < 2000 else (1e-3, "ms")
    drawn = [{**row, **{name: row[name] and row[name] * scale for name in ("us", "lo", "hi")}} for row in rows]
    bars = Bars(
        rows=drawn,
        x=Side("us", f"time per sample ({unit})", axis={"tickCount": 4, "labelOverlap": True}),
        y=names("bar", (row["bar"] for row in drawn)),
        by="label",
        tones={LABELS[name]: PHASE_COLOURS[name] for name in LABELS},
        whisker=True,
        asleep=LABELS[EMULATED],
        also={"setting:N": "", "share:Q": ("share", ".1%"), **BLOCKS},
    )
    return bars.panel(subset.title, subset.subtitle, message)


def _phases_message(rows: Sequence[Row]) -> str:
    """Say how much of the time goes into waiting for data, and what is largest at the largest batch."""
    workers = max(row["workers"] for row in rows)
    segments = [row for row in rows if row["workers"] == workers]
    fetch = [(row["batch"], row["share"]) for row in segments if row["phase"] == "fetch"]
    if not fetch:
        return words.sentence("waiting for data was not observed")
    text = _waits(words.plural(workers, "worker"), sorted(fetch))
    largest = max((row for row in segments if row["batch"] == max(fetch)[0]), key=lambda row: row["us"])
    if largest["phase"] == "fetch":
        return words.sentence(f"{text}. Waiting is the largest part there")
    name, share = LABELS[largest["phase"]], words.percent(largest["share"])
    return words.sentence(f"{text}. The largest part there: {name} ({share})")


@dataclass(frozen=True, slots=True)
class _Pair:
    """The bars of one batch size."""

    batch: int
    defaults: Row | None
    """None where the defaults were not measured."""
    best: Row | None
    """None where nothing measured is faster than the defaults."""
    ratio: Estimate | None
    """Throughput of the best ÷ that of the defaults, cross-fitted; None without both."""


@chart("Where a sample’s time goes: PyTorch’s defaults and the best settings", _QUESTION)
def defaults(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw the pairs of bars, a panel a task; tasks with the most pairs come first."""
    cells, blocks = estimates.cells(trials), blocks_of(trials)
    tasks = []
    for subset in slices(cells[cells["replica"].fillna(0).eq(0)], (TRAIN, EMULATED)):
        frame, kept = held(subset.frame, SETTINGS)
        frame = frame[frame["num_workers"].notna()]
        pairs = [_pair(frame[frame["batch_size"].eq(batch)], batch, blocks) for batch in numbers(frame, "batch_size")]
        if rows := [row for pair in pairs for row in _pair_rows(subset, pair)]:
            tasks.append((subset, kept, pairs, rows))
    tasks.sort(key=lambda task: -sum(bool(pair.ratio) for pair in task[2]))
    for subset, kept, pairs, rows in tasks:
        sheet.add(
            _panel(subset, rows, _defaults_message(pairs)), stacked(rows, "bar", "phase", subset.row(), _COLUMNS), kept
        )
    used = {str(row["phase"]) for *_, rows in tasks for row in rows}
    if EMULATED in used:
        sheet.note(EMULATED_NOTE)
    sheet.note(
        f"Defaults: PyTorch’s DataLoader on {BY_NAME['storage_format'].default} files. Best: the fastest setting of "
        "that batch size, of any format and number of workers; the table names it. Its gain is chosen on one half of "
        "the repetitions and measured on the other; its bar is not."
    )
    if any(not pair.ratio for _, _, pairs, _ in tasks for pair in pairs):
        sheet.note("One bar: no faster setting, or default not measured.")
    sheet.note(_WHISKER.format("repetitions"))
    return sheet.figure(_keys(used), _MISSING)


def _pair(frame: pd.DataFrame, batch: int, blocks: Blocks) -> _Pair:
    """Find the two cells of a batch size."""
    cells = rows_of(frame.sort_values("samples_per_s", ascending=False, kind="stable"))
    usual = [all(plain(cell[name]) in (None, BY_NAME[name].default) for name in _OTHERS) for cell in cells]
    if not any(usual):
        return _Pair(batch, None, cells[0], None)
    defaults = usual.index(True)
    logs = blocks.logs([cell["run_id"] for cell in cells], [cell["cell_id"] for cell in cells])
    gain = cross_fitted(logs - logs[defaults])
    if gain.chosen == defaults:
        return _Pair(batch, cells[defaults], None, None)
    return _Pair(batch, cells[defaults], cells[gain.chosen], gain.ratio)


def _pair_rows(subset: Slice, pair: _Pair) -> list[dict[str, Any]]:
    """The segments of both bars; the ratio stands with the best."""
    ends = (pair.ratio.value, pair.ratio.low, pair.ratio.high) if pair.ratio else (None,) * 3
    ratio = dict(zip(("ratio", "ratio_lo", "ratio_hi"), map(plain, ends), strict=True))
    rows = []
    for which, cell in (("defaults", pair.defaults), ("best", pair.best)):
        if cell is not None:
            more = {"which": which, "setting": _setting(cell), **(ratio if which == "best" else dict.fromkeys(ratio))}
            rows += [{**row, **more} for row in _segments(subset, cell, f"batch {pair.batch}, {which}")]
    return rows


def _setting(cell: Row) -> str:
    """Name a cell's format, workers and every other knob that is not at its default."""
    parts = [str(cell["storage_format"]), words.plural(int(cell["num_workers"]), "worker")]
    for name in _OTHERS:
        value = plain(cell[name])
        if name not in ("storage_format", "num_workers") and value not in (None, BY_NAME[name].default):
            parts.append(f"{name} {str(value).lower()}" if type(value) is bool else f"{name} {value}")
    return ", ".join(parts)


def _defaults_message(pairs: Sequence[_Pair]) -> str:
    """Say how much of the time goes into waiting for data with either, and what the best gains at the largest batch."""
    both = [pair for pair in pairs if pair.ratio]
    parts = []
    shown = both or pairs
    settings = {_DEFAULTS: [(pair.batch, pair.defaults) for pair in shown]}
    settings["the best settings"] = [(pair.batch, pair.best) for pair in shown]
    for who, cells in settings.items():
        fetches = [(batch, plain(cell["fetch_share"])) for batch, cell in cells if cell]
        shares = [(batch, share) for batch, share in fetches if share is not None]
        parts += [_waits(who, shares)] if shares else []
    if both:
        parts.append(_gain(both[-1]))
    elif any(pair.defaults for pair in pairs):
        parts.append("nothing else that was measured here is faster")
    else:
        parts.append("PyTorch’s defaults were not measured here")
    return " ".join(map(words.sentence, parts))


def _waits(who: str, shares: Sequence[tuple[int, float]]) -> str:
    """Say the share of waiting at the smallest and at the largest batch."""
    (batch, share), last = shares[0], shares[-1]
    text = f"with {who}, waiting for data takes {words.percent(share)} of the time at batch {batch}"
    return text if last == shares[0] else f"{text} and {words.percent(last[1])} at batch {last[0]}"


def _gain(pair: _Pair) -> str:
    """Say what the best of a batch size gains."""
    if not ((ratio := pair.ratio) and ratio.known):
        return f"a gain at batch {pair.batch} takes {LEAST_BLOCKS} repetitions"
    text = ratio.with_n(write="{:.2f}".format)
    if pair.best is None or ratio.low <= CONFIRMED_OVER:
        return f"at batch {pair.batch} nothing is clearly faster than the defaults ({text})"
    return f"at batch {pair.batch} the best, {_setting(pair.best)}, is {text} as fast as the defaults"
