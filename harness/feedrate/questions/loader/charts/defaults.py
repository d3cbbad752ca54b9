"""Where a sample's time goes with PyTorch's defaults and with the best settings, as the batch grows.

A pair of bars a batch size: the loader as PyTorch makes it, on the format that most people begin with, and the fastest
cell of the same task and batch, whatever its other knobs are. The fastest of many is picked by its own estimate, which
is therefore a little too good; the ratio of the two is paired by block. It does not show which knob gains how much: the
suites do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from feedrate.analysis.blocks import Blocks, blocks_of
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import KNOBS
from feedrate.charts.figure import EMULATED, TRAIN, Figure, Row, Sheet, Slice, held, interval, numbers, plain, slices
from feedrate.charts.marks import estimated
from feedrate.questions.loader.charts.phases import MISSING, SLEEP, WHISKER, keys, panel, phase_table, segments
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME
from feedrate.schema.metrics import CONFIRMED_OVER

TITLE = "Where a sample’s time goes: PyTorch’s defaults and the best settings"
QUESTION = "How long does each phase of a training step take per sample, as the batch grows?"
READS = "trials"
_DEFAULTS = f"PyTorch’s defaults on {BY_NAME['storage_format'].default} files"
_OTHERS = tuple(name for name in KNOBS if name != "batch_size")
"""What the two cells of a pair may differ in."""
_COLUMNS = {
    "batch_size": "batch",
    "which": "which",
    "setting": "setting",
    "times the defaults": "ratio",
    "times, low": "ratio_lo",
    "times, high": "ratio_hi",
}


@dataclass(frozen=True, slots=True)
class _Pair:
    """The bars of one batch size."""

    batch: int
    defaults: Row | None
    """None where the defaults were not measured."""
    best: Row | None
    """None where nothing measured is faster than the defaults."""
    ratio: Row
    """Throughput of the best ÷ that of the defaults, as ``Blocks.ratios`` has it; empty without both."""


def draw(trials: pd.DataFrame) -> Figure:
    """Draw the pairs of bars, a panel a task; tasks with the most pairs come first."""
    cells, blocks = estimated(trials), blocks_of(trials)
    tasks = []
    for part in slices(cells[cells["replica"].fillna(0).eq(0)], (TRAIN, EMULATED)):
        frame, kept = held(part.frame, KNOBS)
        frame = frame[frame["num_workers"].notna()]
        pairs = [_pair(frame[frame["batch_size"].eq(batch)], batch, blocks) for batch in numbers(frame, "batch_size")]
        if rows := [row for pair in pairs for row in _rows(part, pair)]:
            tasks.append((part, kept, pairs, rows))
    tasks.sort(key=lambda task: -sum(bool(pair.ratio) for pair in task[2]))
    sheet = Sheet(TITLE, QUESTION)
    for part, kept, pairs, rows in tasks:
        sheet.add(panel(part, rows, _message(pairs)), phase_table(part, rows, _COLUMNS), kept)
    used = {str(row["phase"]) for *_, rows in tasks for row in rows}
    if EMULATED in used:
        sheet.note(SLEEP)
    sheet.note(
        f"Defaults: a DataLoader as PyTorch makes it, on {BY_NAME['storage_format'].default} files. Best: the fastest "
        "cell at that batch, whatever its storage format, workers and other knobs; its setting stands in the table."
    )
    if any(not pair.ratio for _, _, pairs, _ in tasks for pair in pairs):
        sheet.note(
            "Where one bar stands alone, nothing measured is faster than the defaults, or they were not measured."
        )
    sheet.note(WHISKER)
    return sheet.figure(keys(used), MISSING)


def _pair(frame: pd.DataFrame, batch: int, blocks: Blocks) -> _Pair:
    """Find the two cells of a batch size."""
    ranked = rows_of(frame.sort_values("samples_per_s", ascending=False, kind="stable"))
    best = ranked[0]
    defaults = next(
        (cell for cell in ranked if all(plain(cell[name]) in (None, BY_NAME[name].default) for name in _OTHERS)), None
    )
    if defaults is None:
        return _Pair(batch, None, best, {})
    if defaults["cell_id"] == best["cell_id"]:
        return _Pair(batch, defaults, None, {})
    (ratio,) = rows_of(blocks.ratios([best["run_id"]], [defaults["cell_id"]], [best["cell_id"]]))
    return _Pair(batch, defaults, best, ratio)


def _rows(part: Slice, pair: _Pair) -> list[dict[str, Any]]:
    """The segments of both bars; the ratio stands with the best."""
    ratio = {f"ratio{end}": plain(pair.ratio.get(end[1:] or "ratio")) for end in ("", "_lo", "_hi")}
    rows = []
    for which, cell in (("defaults", pair.defaults), ("best", pair.best)):
        if cell is not None:
            more = {"which": which, "setting": _setting(cell), **(ratio if which == "best" else dict.fromkeys(ratio))}
            rows += [{**row, **more} for row in segments(part, cell, f"batch {pair.batch}, {which}")]
    return rows


def _setting(cell: Row) -> str:
    """Name a cell's format, workers and every other knob that is not at its default."""
    parts = [str(cell["storage_format"]), words.plural(int(cell["num_workers"]), "worker")]
    for name in _OTHERS:
        value = plain(cell[name])
        if name not in ("storage_format", "num_workers") and value not in (None, BY_NAME[name].default):
            parts.append(f"{name} {str(value).lower()}" if type(value) is bool else f"{name} {value}")
    return ", ".join(parts)


def _message(pairs: Sequence[_Pair]) -> str:
    """Say how much of the time goes into waiting for data with either, and what the best gains at the largest batch."""
    both = [pair for pair in pairs if pair.ratio]
    by_default = [(pair.batch, pair.defaults) for pair in both or pairs if pair.defaults]
    at_best = [(pair.batch, pair.best) for pair in both or pairs if pair.best]
    if both:
        parts = [*_waits(_DEFAULTS, by_default), *_waits("the best settings", at_best), _gain(both[-1])]
    elif by_default:
        parts = [*_waits(_DEFAULTS, by_default), "nothing else that was measured here is faster"]
    else:
        parts = [*_waits("the best settings", at_best), "PyTorch’s defaults were not measured here"]
    return " ".join(map(words.sentence, parts))


def _waits(who: str, cells: Sequence[tuple[int, Row]]) -> list[str]:
    """Say the share of waiting at the smallest and at the largest batch; nothing where it was not observed."""
    shares = [(batch, float(cell["fetch_share"])) for batch, cell in cells if words.known(plain(cell["fetch_share"]))]
    if not shares:
        return []
    (batch, share), last = shares[0], shares[-1]
    text = f"with {who}, waiting for data takes {words.percent(share)} of the time at batch {batch}"
    return [text if last == shares[0] else f"{text} and {words.percent(last[1])} at batch {last[0]}"]


def _gain(pair: _Pair) -> str:
    """Say what the best of a batch size gains."""
    ratio, lo, spread = float(pair.ratio["ratio"]), pair.ratio["lo"], interval(pair.ratio)
    if pair.best is None or (words.known(lo) and lo <= CONFIRMED_OVER):
        return f"at batch {pair.batch} nothing is clearly faster than the defaults ({ratio:.2f} times, {spread})"
    return f"at batch {pair.batch} the best, {_setting(pair.best)}, feeds {ratio:.2f} times as many samples ({spread})"
