"""What a run's rows must fulfil all together, and with its manifest: counts, times, sums.

A ledger keeps a few numbers of every row while the rows pass by; the rules of ``RULES`` look at them when all have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.schema.columns import OUTCOMES
from feedrate.share.validation.findings import Finding, Rule, shown
from feedrate.share.validation.rows import Codes, Floats, Rows, refused
from feedrate.store.manifest import RunManifest

CLOCK_MAY_STEP_S = 60.0
"""By how much a machine's clock may be set back during a run."""
AHEAD = timedelta(days=1)
"""By how much a machine's clock may be ahead of the reader's."""
SECONDS_WITHIN = 2e-3
"""Mean times of cells are kept in whole milliseconds."""
_KEPT = ("block", "position", "trial_wall_ns")
_WORDS = ("cell_id", "outcome", "role", "suite", "data_hash")
Wrong = tuple[str, str, str]
"""Where, what came, what was expected."""


class Ledger:
    """What is kept of the rows of one run."""

    def __init__(self, manifest: RunManifest) -> None:
        self.manifest = manifest
        self._numbers: dict[str, list[Floats]] = {name: [] for name in _KEPT}
        self._codes: dict[str, list[Codes]] = {name: [] for name in _WORDS}
        self._times: list[Codes] = []
        self.words: dict[str, dict[str | None, int]] = {name: {} for name in _WORDS}
        """Texts of a column to their codes, null among them."""

    def add(self, rows: Rows, part: slice = slice(None)) -> None:
        """Take in rows, or a part of them."""
        for name in _KEPT:
            self._numbers[name].append(rows.number(name)[part])
        for name in _WORDS:
            column = rows.text(name)
            known = self.words[name]
            codes = column.codes[part]
            used = np.unique(codes)
            ours = np.zeros(len(column.words) + 1, dtype=np.int64)
            for code in used.tolist():
                word = None if code < 0 else str(column.words[code].as_py())
                ours[code] = known.setdefault(word, len(known))
            self._codes[name].append(ours[codes])
        self._times.append(seconds(rows)[part])

    def number(self, name: str) -> Floats:
        """A column of numbers of all rows."""
        return np.concatenate(self._numbers[name])

    def code(self, name: str) -> Codes:
        """A column of texts of all rows, as codes of ``words``."""
        return np.concatenate(self._codes[name])

    @property
    def started(self) -> Codes:
        """When each trial began, in seconds since 1970."""
        return np.concatenate(self._times)

    def of(self, name: str, word: str) -> Any:
        """Whether a column has a text, a truth a row."""
        return self.code(name) == self.words[name].get(word, -1)

    def findings(self, where: str) -> Iterator[Finding]:
        """List what breaks the rules, for each rule the first thing."""
        for rule in RULES:
            for place, got, expected in rule.find(self):
                yield refused(rule, f"{where} {place}", got, expected)
                break


def seconds(rows: Rows) -> Codes:
    """Read ``started_at``, whose form is known to be right, in seconds since 1970; -1 where there is no such day."""
    column = rows.text("started_at")
    moments = pc.utf8_slice_codeunits(column.words, 0, 19)
    parsed = pc.strptime(moments, format="%Y-%m-%dT%H:%M:%S", unit="s", error_is_null=True)
    known = pc.fill_null(parsed.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return np.append(known, -1)[column.codes].astype(np.int64)


@dataclass(frozen=True, slots=True)
class RunRule(Rule):
    """A rule that a run keeps to as a whole."""

    find: Callable[[Ledger], Iterator[Wrong]]


def _once(ledger: Ledger) -> Iterator[Wrong]:
    places = ledger.number("block") * 2.0**21 + ledger.number("position")
    if (twice := len(places) - len(np.unique(places))) > 0:
        yield "block and position", f"{twice} trials at a place that another has", "one trial at each place of a block"


def _outcomes(ledger: Ledger) -> Iterator[Wrong]:
    counted = dict(+Counter({word: int(ledger.of("outcome", word).sum()) for word in OUTCOMES}))
    said = ledger.manifest.outcomes
    if counted != said:
        yield "manifest.outcomes", shown(said), f"{counted} by the rows"


def _blocks(ledger: Ledger) -> Iterator[Wrong]:
    begun = len(np.unique(ledger.number("block")))
    if not 0 <= ledger.manifest.blocks <= begun:
        yield "manifest.blocks", str(ledger.manifest.blocks), f"at most {begun}, the blocks that have trials"


def _cells(ledger: Ledger) -> Iterator[Wrong]:
    asked = len(np.unique(ledger.code("cell_id")[ledger.of("role", "cell")]))
    if asked > ledger.manifest.cells:
        yield "manifest.cells", str(ledger.manifest.cells), f"at least {asked}, the cells of its rows"


def _cell_seconds(ledger: Ledger) -> Iterator[Wrong]:
    codes, known = ledger.code("cell_id"), ledger.words["cell_id"]
    size = max(len(known), 1)
    total = np.bincount(codes, np.nan_to_num(ledger.number("trial_wall_ns")) / 1e9, size)
    mean = total / np.maximum(np.bincount(codes, minlength=size), 1)
    for cell, said in ledger.manifest.cell_seconds.items():
        found = float(mean[known[cell]]) if cell in known else float("nan")
        if not abs(found - said) <= SECONDS_WITHIN:
            got = f"{said:g} s for {shown(cell)}"
            yield (
                "manifest.cell_seconds",
                got,
                f"{found:.3f}, the mean of its trials" if cell in known else "its own cells",
            )


def _clock(ledger: Ledger) -> Iterator[Wrong]:
    run, started = ledger.manifest, ledger.started
    begun, ended = _moment(run.started_at), _moment(run.ended_at)
    if begun is None or ended is None or ended < begun:
        yield "manifest.started_at", f"{shown(run.started_at)} to {shown(run.ended_at)}", "two times in UTC, in order"
        return
    if ended > datetime.now(UTC) + AHEAD:
        yield "manifest.ended_at", shown(run.ended_at), f"a time at most {AHEAD.days} day in the future"
    early, late = begun.timestamp() - CLOCK_MAY_STEP_S, ended.timestamp() + CLOCK_MAY_STEP_S
    if len(started) and not (early <= started.min() and started.max() <= late):
        yield (
            "column started_at",
            "a trial that began before its run or after it",
            f"{run.started_at} to {run.ended_at}",
        )
    order = np.lexsort((ledger.number("position"), ledger.number("block")))
    if len(order) > 1 and np.diff(started[order]).min() < -CLOCK_MAY_STEP_S:
        yield "column started_at", "a trial that began before the one that came before it", "trials in their order"


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):  # no such day, or one before the first
        return None


def _known(ledger: Ledger) -> Iterator[Wrong]:
    hashes = {dataset.data_hash for dataset in ledger.manifest.datasets}
    if other := ledger.words["data_hash"].keys() - hashes - {None}:
        yield "column data_hash", shown(min(map(str, other))), "the hash of a data set of the manifest"
    if other := ledger.words["suite"].keys() - ledger.manifest.suites.keys() - {None}:
        yield "column suite", shown(min(map(str, other))), "a suite of the manifest"


def _facts(ledger: Ledger) -> Iterator[Wrong]:
    machine = ledger.manifest.machine
    if not (0 < machine.cores_logical <= 4096 and 0 < machine.memory_bytes < 2**53 and 0 <= machine.gpu_count <= 1024):
        yield (
            "manifest.machine",
            f"{machine.cores_logical} cores, {machine.memory_bytes} bytes",
            "a machine that can be",
        )
    if (ledger.manifest.device == "cuda") and not (machine.gpu_name and machine.gpu_count):
        yield "manifest.device", shown(ledger.manifest.device), "a GPU among the machine's facts"


RULES = (
    RunRule("once", "No two trials have the same place in a block.", _once),
    RunRule("outcomes", "The manifest counts its trials by outcome as the rows do.", _outcomes),
    RunRule("blocks", "The manifest counts no more whole blocks than have trials.", _blocks),
    RunRule("cells", "The manifest counts no fewer cells than were measured.", _cells),
    RunRule("cell_seconds", "Mean times of cells are computed anew from their trials.", _cell_seconds),
    RunRule(
        "clock",
        f"Trials began in their order, between the run's beginning and its end, which lies at most {AHEAD.days} day in "
        "the future, as clocks may be wrong.",
        _clock,
    ),
    RunRule("named", "Data sets and suites of the rows are those of the manifest.", _known),
    RunRule("facts", "A run on a GPU says which, and a machine has cores and memory.", _facts),
)
