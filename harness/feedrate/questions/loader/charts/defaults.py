"""Where a sample's time goes with PyTorch's defaults and with the best settings, as the batch grows.

A pair of bars a batch size: the loader as PyTorch makes it, on the format that most people begin with, and the fastest
cell of the same task and batch, whatever its other knobs are. The fastest of many is picked by its own estimate, which
is therefore a little too good; the ratio of the two is paired by block. It does not show which knob gains how much: the
suites do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from feedrate.analysis.blocks import Blocks, blocks_of
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import KNOBS
from feedrate.charts.figure import EMULATED, TRAIN, Figure, Row, Sheet, Slice, held, numbers, plain, slices
from feedrate.charts.marks import estimated
from feedrate.questions.loader.charts.phases import WHISKER, keys, panel, segments, wide
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME
from feedrate.schema.metrics import CONFIRMED_OVER

TITLE = "Where a sample’s time goes: PyTorch’s defaults and the best settings"
QUESTION = "How long does each phase of a training step take per sample, as the batch grows?"
READS = "trials"
DEFAULT, BEST = "defaults", "best"
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
    default: Row | None
    """None where the defaults were not measured."""
    best: Row | None
    """None where nothing measured is faster than the defaults."""
    ratio: Row
    """Throughput of the best ÷ that of the defaults, as ``Blocks.ratios`` has it; empty without both."""


@dataclass(frozen=True, slots=True)
class _Task:
    """What one panel shows."""

    part: Slice
    held: dict[str, Any]
    pairs: list[_Pair]
    rows: list[dict[str, Any]]

    @property
    def both(self) -> list[_Pair]:
        """The batch sizes at which something beats the defaults."""
        return [pair for pair in self.pairs if pair.ratio]


def draw(trials: pd.DataFrame) -> Figure:
    """Draw the pairs of bars, a panel a task; tasks with the most pairs come first."""
    tasks = sorted(_tasks(trials), key=lambda task: -len(task.both))
    sheet = Sheet(TITLE, QUESTION)
    for task in tasks:
        sheet.add(panel(task.part, task.rows, _message(task)), wide(task.part, task.rows, _COLUMNS), task.held)
    used = {str(row["phase"]) for task in tasks for row in task.rows}
    for note in _notes(tasks, used):
        sheet.note(note)
    return sheet.figure(keys(used), "No trial of a training loop ended well here, so there are no phases to show.")


def _tasks(trials: pd.DataFrame) -> Iterator[_Task]:
    cells = estimated(trials)
    blocks = blocks_of(trials)
    for part in slices(cells[cells["replica"].fillna(0).eq(0)], (TRAIN, EMULATED)):
        frame, kept = held(part.frame, KNOBS)
        frame = frame[frame["num_workers"].notna()]
        pairs = [_pair(frame[frame["batch_size"].eq(batch)], batch, blocks) for batch in numbers(frame, "batch_size")]
        if rows := [row for pair in pairs for row in _rows(part, pair)]:
            yield _Task(part, kept, pairs, rows)


def _pair(frame: pd.DataFrame, batch: int, blocks: Blocks) -> _Pair:
    """Find the two cells of a batch size."""
    ranked = rows_of(frame.sort_values("samples_per_s", ascending=False, kind="stable"))
    best = ranked[0]
    default = next((cell for cell in ranked if _by_default(cell)), None)
    if default is None:
        return _Pair(batch, None, best, {})
    if default["cell_id"] == best["cell_id"]:
        return _Pair(batch, default, None, {})
    (ratio,) = rows_of(blocks.ratios([best["run_id"]], [default["cell_id"]], [best["cell_id"]]))
    return _Pair(batch, default, best, ratio)


def _by_default(cell: Any) -> bool:
    return all(pd.isna(cell[name]) or cell[name] == BY_NAME[name].default for name in _OTHERS)


def _rows(part: Slice, pair: _Pair) -> list[dict[str, Any]]:
    rows = []
    for which, cell in ((DEFAULT, pair.default), (BEST, pair.best)):
        if cell is not None:
            ratio = pair.ratio if which == BEST else {}
            more: dict[str, Any] = {"which": which, "setting": _setting(cell)}
            more |= {"ratio": ratio.get("ratio"), "ratio_lo": _known(ratio, "lo"), "ratio_hi": _known(ratio, "hi")}
            rows += [{**row, **more} for row in segments(part, cell, f"batch {pair.batch}, {which}")]
    return rows


def _known(ratio: Row, name: str) -> float | None:
    return float(ratio[name]) if words.known(ratio.get(name)) else None


def _setting(cell: Row) -> str:
    """Name a cell's format, workers and every other knob that is not at its default."""
    parts = [str(cell["storage_format"]), words.plural(int(cell["num_workers"]), "worker")]
    for name in _OTHERS:
        value = plain(cell[name])
        if name not in ("storage_format", "num_workers") and value not in (None, BY_NAME[name].default):
            parts.append(f"{name} {str(value).lower()}" if type(value) is bool else f"{name} {value}")
    return ", ".join(parts)


def _message(task: _Task) -> str:
    """Say how much of the time goes into waiting for data with either, and what the best gains at the largest batch."""
    defaults = [pair for pair in task.pairs if pair.default]
    said = []
    if task.both:
        said += _waits(_DEFAULTS, task.both, "default") + _waits("the best settings", task.both, "best")
        said.append(_gain(task.both[-1]))
    elif defaults:
        said += _waits(_DEFAULTS, defaults, "default")
        said.append("nothing else that was measured here is faster")
    else:
        said += _waits("the best settings", task.pairs, "best")
        said.append("PyTorch’s defaults were not measured here")
    return " ".join(map(words.sentence, said))


def _waits(who: str, pairs: Sequence[_Pair], side: str) -> list[str]:
    """Say the share of waiting at the smallest and at the largest batch; nothing where it was not observed."""
    cells = [(pair.batch, getattr(pair, side)) for pair in pairs]
    shares = [(batch, float(cell["fetch_share"])) for batch, cell in cells if words.known(plain(cell["fetch_share"]))]
    ends = dict.fromkeys([shares[0], shares[-1]]) if shares else {}
    told = [f"{words.percent(share)} at batch {batch}" for batch, share in ends]
    told[:1] = [first.replace(" at", " of the time at") for first in told[:1]]
    return [f"with {who}, waiting for data takes {words.listed(told)}"] if told else []


def _gain(pair: _Pair) -> str:
    """Say what the best of a batch size gains."""
    ratio, lo = float(pair.ratio["ratio"]), pair.ratio["lo"]
    spread = words.interval(lo, pair.ratio["hi"], int(pair.ratio["n"]))
    if pair.best is None or (words.known(lo) and lo <= CONFIRMED_OVER):
        return f"at batch {pair.batch} nothing is clearly faster than the defaults ({ratio:.2f} times, {spread})"
    return f"at batch {pair.batch} the best, {_setting(pair.best)}, feeds {ratio:.2f} times as many samples ({spread})"


def _notes(tasks: Sequence[_Task], used: set[str]) -> Iterator[str]:
    if EMULATED in used:
        yield (
            "An emulated step sleeps for a declared time, as an accelerator would keep the host waiting; no model runs."
        )
    yield (
        f"Defaults: a DataLoader as PyTorch makes it, on {BY_NAME['storage_format'].default} files. Best: the fastest "
        "cell at that batch, whatever its storage format, workers and other knobs; its setting stands in the table."
    )
    if any(not pair.ratio for task in tasks for pair in task.pairs):
        yield "Where one bar stands alone, nothing measured is faster than the defaults, or they were not measured."
    yield WHISKER
