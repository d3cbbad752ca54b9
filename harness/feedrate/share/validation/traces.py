"""What single steps and samples of the probes must fulfil with the trials that they are of.

``steps.parquet`` holds the first steps of each trial's window. Where it holds all of them, what they sum to must be
what the trial says; else they can only be a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.schema.columns import DEVICE_SPANS, PHASES, STEPS_KEPT, WORKER_STAGES
from feedrate.share.validation.findings import Finding, Rule, shown
from feedrate.share.validation.rows import Codes, Floats, Mask, Rows, refused

HALVES_WITHIN = 0.15
"""Share by which the ratio of a window's halves may differ from the one that the steps' phases give."""
ROUNDED_NS = 1e3
SUMMED = {
    **{f"{phase}_ns": f"host_{phase}_ns" for phase in PHASES},
    **{f"device_{span}_ns": f"device_{span}_ns" for span in DEVICE_SPANS},
    **{f"worker_{stage}_ns": f"worker_{stage}_ns" for stage in WORKER_STAGES},
}
"""Column of a step to the column of its trial that it is summed in."""
WHOLE = tuple(
    name for name in SUMMED if not name.startswith("device_") and name != "other_ns"
)  # the trial's ``other`` has the last synchronisation too, and a span lies between two steps
"""Columns whose sum over all steps is the trial's."""
_READ = ("steps", "num_workers", "epoch_steps", "vary_shapes", "half_ratio", *SUMMED.values())

OF_RUN = Rule("trace_of_run", "Steps and samples name the run and one of its trials.")
IN_ORDER = Rule("trace_order", "Steps count from 0, each once, and samples of a trial come in the order of their time.")
SUMS = Rule("sums", "Steps sum to no more than their trial says, and to just that where all of its steps are there.")
HALVES = Rule(
    "half_ratio",
    f"Where all steps are there, on a CPU, the ratio of the halves is computed anew, within {100 * HALVES_WITHIN:g} %.",
)
WORKER = Rule("worker", "A batch has a worker that there is, and was begun before it was ended.")
RULES = (OF_RUN, IN_ORDER, SUMS, HALVES, WORKER)


class Trials:
    """What is kept of the trials of some runs, to hold their steps and samples against."""

    def __init__(self) -> None:
        self._ids: list[pa.ChunkedArray] = []
        self._source: list[Codes] = []
        self._alone: list[Mask] = []
        self._numbers: dict[str, list[Floats]] = {name: [] for name in _READ}

    def add(self, rows: Rows) -> None:
        """Take in rows of the trials table."""
        self._ids.append(rows.table.column("trial_id").cast(pa.string()))
        self._source.append(rows.source)
        self._alone.append(rows.text("device").one_of(("cpu",)) & ~(rows.number("world_size") > 1))
        for name in _READ:
            self._numbers[name].append(rows.number(name))

    @property
    def ids(self) -> pa.Array:
        """Ids of all trials, in their order."""
        return pa.concat_arrays([chunk for column in self._ids for chunk in column.chunks])

    @property
    def source(self) -> Codes:
        """Which run each trial is of."""
        return np.concatenate(self._source)

    @property
    def alone(self) -> Mask:
        """Whether a trial ran on a CPU, in one process that trained."""
        return np.concatenate(self._alone)

    def number(self, name: str) -> Floats:
        """A column of numbers of all trials."""
        return np.concatenate(self._numbers[name])


@dataclass(frozen=True, slots=True)
class _Steps:
    """Sums over the steps of each trial."""

    count: Floats
    last: Floats
    sums: dict[str, Floats]
    first_half_ns: Floats


def places(rows: Rows, ids: pa.Array) -> Codes:
    """For each row the number of its trial; -1 where there is none."""
    words = rows.text("trial_id")
    known = pc.fill_null(pc.index_in(words.words, value_set=ids), -1).to_numpy(zero_copy_only=False)
    found: Codes = np.append(known, -1)[words.codes].astype(np.int64)
    return found


def steps(parts: Iterator[Rows], trials: Trials, where: str) -> Iterator[Finding]:
    """Hold steps against their trials."""
    ids = trials.ids
    size, middle = len(ids), _middle(trials)
    sums = {name: np.zeros(size) for name in (*SUMMED, "count", "first_half")}
    last = np.full(size, -1.0)
    keys: list[Codes] = []
    for rows in parts:
        at = places(rows, ids)
        yield from _strangers(rows, at, trials.source, where)
        if at.min(initial=0) < 0:
            return
        step = rows.number("step")
        keys.append((at * STEPS_KEPT + step.astype(np.int64))[step < STEPS_KEPT])
        np.maximum.at(last, at, step)
        for name in SUMMED:
            sums[name] += np.bincount(at, np.nan_to_num(rows.number(name)), size)
        sums["count"] += np.bincount(at, minlength=size)
        early = np.nan_to_num(np.sum([np.nan_to_num(rows.number(f"{phase}_ns")) for phase in PHASES], axis=0))
        sums["first_half"] += np.bincount(at, early * (step < middle[at]), size)
        yield from _workers(rows, trials.number("num_workers")[at], where)
    found = _Steps(sums["count"], last, {name: sums[name] for name in SUMMED}, sums["first_half"])
    if keys:
        yield from _counted(np.concatenate(keys), found, trials, where, ids)
    yield from _summed(found, trials, where, ids)
    yield from _halves(found, trials, middle, where, ids)


def _counted(keys: Codes, found: _Steps, trials: Trials, where: str, ids: pa.Array) -> Iterator[Finding]:
    """Find a step that is there twice, or a trial whose steps do not count from 0."""
    each, times = np.unique(keys, return_counts=True)
    if (times > 1).any():
        at, step = divmod(int(each[np.argmax(times > 1)]), STEPS_KEPT)
        yield refused(IN_ORDER, f"{where} trial {shown(ids[at].as_py())}", f"step {step} is there twice", "each once")
        return
    most = np.minimum(np.nan_to_num(trials.number("steps")), STEPS_KEPT)
    wrong = (found.last + 1 != found.count) | (found.count > most)
    if wrong.any():
        at = int(np.argmax(wrong))
        got = f"{found.count[at]:g} steps, the last one {found.last[at]:g}"
        expected = f"0, 1, 2 … of its window, {STEPS_KEPT} at most"
        yield refused(IN_ORDER, f"{where} trial {shown(ids[at].as_py())}", got, expected)


def _strangers(rows: Rows, at: Codes, source: Codes, where: str) -> Iterator[Finding]:
    other = ~rows.said("run_id", lambda run: run.run_id) | (np.append(source, -1)[at] != rows.source)
    for name, wrong in (("trial_id", at < 0), ("run_id", other)):
        if wrong.any():
            row = int(np.argmax(wrong))
            got = shown(rows.text(name).text(row))
            yield refused(OF_RUN, f"{where} column {name} row {rows.first + row}", got, "the run, and a trial of it")
            return


def _workers(rows: Rows, workers: Floats, where: str) -> Iterator[Finding]:
    worker, begun, ended = (rows.number(name) for name in ("worker", "worker_begun_ns", "worker_ended_ns"))
    wrong: Mask = (worker >= np.nan_to_num(workers)) | (begun > ended)
    if wrong.any():
        row = int(np.argmax(wrong))
        got = f"worker {worker[row]:g} from {begun[row]:g} to {ended[row]:g} ns"
        yield refused(WORKER, f"{where} row {rows.first + row}", got, "one of num_workers, begun before it was ended")


def _summed(found: _Steps, trials: Trials, where: str, ids: pa.Array) -> Iterator[Finding]:
    whole = found.count == trials.number("steps")
    for name, column in SUMMED.items():
        said, summed = np.nan_to_num(trials.number(column)), found.sums[name]
        wrong = summed > said + ROUNDED_NS
        if name in WHOLE:
            wrong |= whole & (np.abs(summed - said) > ROUNDED_NS)
        if wrong.any():
            at = int(np.argmax(wrong))
            place = f"{where} column {name} trial {shown(ids[at].as_py())}"
            yield refused(SUMS, place, f"a sum of {summed[at]:.0f}", f"{said[at]:.0f}, its {column}")
            return


def _middle(trials: Trials) -> Floats:
    """The step at which the second half of each window begins: whole epochs, or rounds of the workers."""
    workers = np.maximum(np.nan_to_num(trials.number("num_workers")), 1)
    epoch = np.nan_to_num(trials.number("epoch_steps"))
    turn = np.where(epoch > 0, epoch, workers)
    found: Floats = np.nan_to_num(trials.number("steps")) // 2 // turn * turn
    return found


def _halves(found: _Steps, trials: Trials, middle: Floats, where: str, ids: pa.Array) -> Iterator[Finding]:
    steps_, said = trials.number("steps"), trials.number("half_ratio")
    plain = trials.alone & (np.nan_to_num(trials.number("vary_shapes")) == 0) & (found.count == steps_) & (middle > 0)
    total = np.sum([found.sums[f"{phase}_ns"] for phase in PHASES], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = ((steps_ - middle) / (total - found.first_half_ns)) / (middle / found.first_half_ns)
        wrong = plain & (np.abs(ratio / said - 1) > HALVES_WITHIN)
    if wrong.any():
        at = int(np.argmax(wrong))
        place = f"{where} column half_ratio trial {shown(ids[at].as_py())}"
        yield refused(HALVES, place, f"{said[at]:.4g}", f"{ratio[at]:.4g} by its steps")


def telemetry(parts: Iterator[Rows], trials: Trials, where: str) -> Iterator[Finding]:
    """Hold samples of the probes against their trials."""
    ids = trials.ids
    last = np.full(len(ids) + 1, -np.inf)  # the last one: of rows that are of no trial
    for rows in parts:
        at = places(rows, ids)
        yield from _strangers(rows, at, trials.source, where)
        order = np.argsort(at, kind="stable")
        trial, moment = at[order], rows.number("t_ns")[order]
        first = np.append(True, trial[1:] != trial[:-1])
        before = np.where(first, last[trial], np.roll(moment, 1))
        if (back := moment < before).any():
            row = int(order[back].min())
            place = f"{where} row {rows.first + row}"
            yield refused(IN_ORDER, place, "a time before that of its trial's row before", "the order of time")
            return
        last[trial] = moment


Check = Callable[[Iterator[Rows], Trials, str], Iterator[Finding]]
CHECKS: dict[str, Check] = {"steps": steps, "telemetry": telemetry}
