"""What the hook wrote, as tables: a row a step of a training loop, a row a batch of a worker, and what loaders were.

``_feedrate_log`` says what a record holds. A file may end in the middle of a run (the process was killed): what was
written until then counts.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

NEXT, BATCH, BACKWARD, OPTIMIZER, STARVED, END, REUSED, DRAINED, TAKEN = range(1, 10)
MADE, SAVED, COLLECTED, COPIED, EXIT, FIRST, READ, HANDED = range(10, 18)
"""Kinds of records, as the hook writes them."""
_WIDTH = 12
_BYTES = 8 * _WIDTH
Records: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Process:
    """One process that the hook was in."""

    pid: int
    began_ns: int
    """When the hook began to write for it."""
    records: Records
    """n × 12: kind, begin, end, and what the kind holds."""
    said: tuple[Mapping[str, Any], ...]
    """Its lines of JSON, in their order."""

    def of(self, kind: int) -> Records:
        """Its records of a kind."""
        rows: Records = self.records[self.records[:, 0] == kind]
        return rows


class Covered:
    """Union of some intervals: how much of any stretch lies in it."""

    def __init__(self, *rows: Records) -> None:
        every = np.concatenate([table[:, 1:3] for table in rows]) if rows else np.empty((0, 2), np.int64)
        every = every[np.argsort(every[:, 0], kind="stable")]
        ends = np.maximum.accumulate(every[:, 1]) if len(every) else every[:, 1]
        opens = np.append(True, every[1:, 0] > ends[:-1])[: len(every)]
        self.begun = every[opens, 0]
        self.ended = ends[np.append(opens[1:], True)[: len(every)]]
        self._total = np.append(0, np.cumsum(self.ended - self.begun))

    def until(self, moment: Records) -> Records:
        """Nanoseconds of it before each moment."""
        index = np.searchsorted(self.begun, moment, side="right")
        if not len(self.begun):
            return np.zeros(len(moment), np.int64)
        overlap = np.where(index > 0, np.maximum(0, self.ended[np.maximum(index, 1) - 1] - moment), 0)
        return np.asarray(self._total[index] - overlap, np.int64)

    def within(self, begun: Records, ended: Records) -> Records:
        """Nanoseconds of it in each stretch."""
        return self.until(ended) - self.until(begun)

    @property
    def rows(self) -> Records:
        """Its intervals, which do not meet, as rows of records."""
        return np.column_stack([self.begun, self.begun, self.ended])


def outermost(rows: Records) -> Records:
    """Records of a kind by their begin, without those that lie within another one.

    A backward pass recomputes in passes of its own (reentrant checkpoints), an optimizer steps others.
    """
    rows = rows[np.lexsort((-rows[:, 2], rows[:, 1]))]
    ends = np.maximum.accumulate(rows[:, 2]) if len(rows) else rows[:, 2]
    return np.asarray(rows[np.append(True, rows[1:, 1] >= ends[:-1])[: len(rows)]], np.int64)


def places(moments: Records, begun: Records, ended: Records) -> tuple[Records, npt.NDArray[np.bool_]]:
    """The stretch that each moment lies in, and whether it lies in one; stretches are in their order."""
    index = np.searchsorted(begun, moments, side="right") - 1
    inside = index >= 0
    if len(begun):
        inside &= moments < ended[np.maximum(index, 0)]
    return index, inside & bool(len(begun))


class Phases(NamedTuple):
    """What the host did in some stretches from one batch to the next, ns each."""

    begun: Records
    """When the last backward pass of each began; 0 where there was none."""
    forward: Records
    """All before that which is no other phase: of several passes, as for micro-batches or two networks, each."""
    backward: Records
    optimizer: Records


def phases(begun: Records, ended: Records, backward: Records, optimizer: Records, apart: Covered) -> Phases:
    """Sum what passes in each stretch, without what lies ``apart``.

    An optimizer may compute gradients (LBFGS, Lightning): it is what follows its last backward pass. One that steps
    within a backward pass is part of that.
    """
    index, inside = places(backward[:, 1], begun, ended)
    backward, index = backward[inside], index[inside]
    optimizer = optimizer[~places(optimizer[:, 1], backward[:, 1], backward[:, 2])[1]]
    at, inside = places(optimizer[:, 1], begun, ended)
    optimizer, at = optimizer[inside], at[inside]
    sums = np.zeros((3, len(begun)), np.int64)
    np.maximum.at(sums[0], index, backward[:, 1])
    np.add.at(sums[1], index, backward[:, 2] - backward[:, 1] - apart.within(backward[:, 1], backward[:, 2]))
    last, first = (np.searchsorted(backward[:, 1], optimizer[:, end]) for end in (2, 1))
    computes = first < last
    updates = np.where(computes, np.append(backward[:, 2], 0)[last - 1], optimizer[:, 1])
    np.add.at(sums[2], at, optimizer[:, 2] - updates - apart.within(updates, optimizer[:, 2]))
    lasts, took, update = sums
    busy = Covered(backward, optimizer[~computes], apart.rows)
    forward = np.where(lasts > 0, lasts - begun - busy.within(begun, np.maximum(begun, lasts)), 0)
    return Phases(lasts, np.asarray(forward, np.int64), took, update)


class Pass(NamedTuple):
    """One pass of the main thread over an iterator."""

    iterator: int
    begun_ns: int
    ended_ns: int
    updates: int
    """Backward passes and steps of optimizers within it."""
    batches: int


APART = 8
"""Updates between two evaluations; a training step makes fewer."""
IN_TURNS = 0.8
"""Share of the batches that must be followed by one of the other loader."""


@dataclass(frozen=True, slots=True)
class Loader:
    """A place in the code where a loader is made, with its settings: all iterators over it, in one process."""

    pid: int
    settings: Mapping[str, Any]
    """As the hook said them of the first iterator."""
    steps: pd.DataFrame
    """A row a batch that was taken, in their order: when it was asked for (``begun_ns``), came from a worker
    (``came_ns``), was there (``got_ns``), was done with (``ended_ns``, 0 where the script ended before, or another loop
    ran within it); ``lying`` batches were ready; whether it is an iterator's ``first``, and when that was made
    (``made_ns``); parts of the step on the host, NaN of one that is not ``detailed``; ``starved_ns`` of the device."""
    batches: pd.DataFrame
    """A row a batch that was prepared, by ``worker`` (-1: the training process)."""

    @property
    def took_ns(self) -> int:
        """Wall clock of its loops."""
        ended = self.steps[self.steps["ended_ns"] > 0]
        return int((ended["ended_ns"] - ended["begun_ns"]).sum())

    @property
    def waited_ns(self) -> int:
        """Of that, what was spent in getting batches."""
        return int((self.steps["got_ns"] - self.steps["begun_ns"]).sum())

    def taken_in_turns(self, other: Loader) -> bool:
        """Whether one loop takes a batch of each, again and again; gradients are stamped in steps of the last one."""
        if self.pid != other.pid:
            return False
        order = np.argsort(np.concatenate([self.steps["begun_ns"], other.steps["begun_ns"]]), kind="stable")
        return bool(np.mean(np.diff(order < len(self.steps)) != 0) >= IN_TURNS)

    @property
    def trains(self) -> bool:
        """Whether gradients were computed in its steps."""
        return bool(self.steps["backward_ns"].gt(0).any())


def read(folder: Path) -> list[Process]:
    """Read what every process below a run wrote, oldest first."""
    return _read(folder, "*")


def _read(folder: Path, names: str) -> list[Process]:
    processes = []
    for name in {path.stem for path in folder.glob(names) if path.suffix in (".jsonl", ".records")}:
        pid, began = map(int, name.split("-"))
        processes.append(Process(pid, began, read_from(folder / f"{name}.records"), _lines(folder / f"{name}.jsonl")))
    return sorted(processes, key=lambda process: process.began_ns)


def _lines(path: Path) -> tuple[Mapping[str, Any], ...]:
    try:
        data = path.read_bytes()
    except OSError:
        return ()
    return tuple(json.loads(line) for line in data.splitlines() if line.endswith(b"}"))


def read_from(path: Path, first: int = 0) -> Records:
    """Read the records of a file from the ``first`` on, those that are written so far."""
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError):  # not there, or nothing in it
        return np.empty((0, _WIDTH), np.int64)
    rows = data[: len(data) // _BYTES * _BYTES].view(np.int64).reshape(-1, _WIDTH)
    written = bisect.bisect_left(range(len(rows)), True, lo=min(first, len(rows)), key=lambda index: not rows[index, 0])
    return np.array(rows[first:written])


def last_ns(process: Process) -> int:
    """When a process was last heard of."""
    ends = process.records[:, 1:3].max(initial=process.began_ns)
    return max([int(ends), *(int(line["t_ns"]) for line in process.said)])


def of_iterators(process: Process, kind: int, iterators: Sequence[int] | Mapping[int, Any]) -> Records:
    """A process' records of a kind that belong to some iterators, by their begin."""
    rows = process.of(kind)
    rows = rows[np.isin(rows[:, 3], list(iterators))]
    return np.asarray(rows[np.argsort(rows[:, 1], kind="stable")], np.int64)


def passes(process: Process, iterators: Sequence[int]) -> list[Pass]:
    """List the passes over some iterators in the order in which they began.

    One that was left by ``break`` ends where the next batch of another pass is asked for.
    """
    rows = np.concatenate([of_iterators(process, kind, iterators) for kind in (NEXT, END)])
    rows = rows[np.argsort(rows[:, 1], kind="stable")]
    updates = np.where(rows[:, 0] == END, rows[:, 6], rows[:, 8] // 2)
    ordered: list[Pass] = []
    for number in np.unique(rows[:, 3]):
        places = np.flatnonzero(rows[:, 3] == number)
        opens = np.flatnonzero((rows[places, 0] == NEXT) & (rows[places, 9] > 0))
        for stretch in np.split(places, opens[1:]):
            closed = np.flatnonzero(rows[stretch, 0] == END)
            rows_of_pass = stretch[: closed[0] + 1] if len(closed) else stretch
            turns = _turns(rows_of_pass, updates)
            for turn in turns:
                last, following, done = turn[-1], turn[-1] + 1, rows[turn[-1], 0] == END
                ended = rows[last, 2] if done or following == len(rows) else _asked(rows, following)
                after = updates[last] if len(turn) > 1 or following == len(rows) else updates[following]
                begun, count = _asked(rows, turn[0]), len(turn) - int(done)
                own = 0 if len(turns) > 1 else int(after - updates[turn[0]])
                ordered.append(Pass(int(number), begun, int(ended), own, count))
    return sorted(ordered, key=lambda one: one.begun_ns)


def _turns(rows_of_pass: Records, updates: Records) -> list[Records]:
    """Cut a pass where others follow, if nothing is updated in its own steps and much in those: endless validations.

    Loaders that a training step takes batches of one after the other lie less than ``APART``.
    """
    turns = np.split(rows_of_pass, np.flatnonzero(np.diff(rows_of_pass) > 1) + 1)
    own = sum(int(updates[turn[-1]] - updates[turn[0]]) for turn in turns)
    between = [int(updates[after[0]] - updates[before[-1]]) for before, after in pairwise(turns)]
    return turns if between and not own and np.median(between) >= APART else [rows_of_pass]


def _asked(rows: Records, at: int) -> int:
    """When a call was begun; of an iterator's first one when that was made, unless others were called meanwhile."""
    made = int(rows[at, 9]) if rows[at, 0] == NEXT else 0
    return made if made and (not at or made >= rows[at - 1, 1]) else int(rows[at, 1])


def loaders(processes: Sequence[Process]) -> list[Loader]:
    """List the loaders of a run: those that took most time first."""
    lines_of: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    by_began = {process.began_ns: process for process in processes}
    for process in processes:
        every = [line for line in process.said if line["what"] == "iterator"]
        updating = {one.iterator for one in passes(process, [line["iterator"] for line in every]) if one.updates}
        for line in every:
            made = str(line["made"]), line.get("dataset"), line.get("num_workers"), line.get("batch_size")
            lines_of.setdefault((process.began_ns, line["iterator"] in updating, *made), []).append(line)
    made_of = [_loader(by_began[key[0]], lines, processes) for key, lines in lines_of.items()]
    return sorted(made_of, key=lambda loader: -loader.took_ns)


def alike(workers: Sequence[Process]) -> int:
    """How many workers of one pass gave the same first batch; 0 where they differ, or one alone gave any."""
    prints = [int(number) for worker in workers for number in worker.of(FIRST)[:1, 3]]
    return len(prints) if len(prints) > 1 and len(set(prints)) == 1 else 0


def loader_of(folder: Path, pid: int, iterators: Sequence[int]) -> tuple[Loader, list[list[Process]]]:
    """Read what was recorded of some iterators of a process that goes on, and of the workers of each."""
    process = _read(folder, f"{pid}-*")[-1]
    lines = [line for line in process.said if line["what"] == "iterator" and line["iterator"] in iterators]
    workers = [[one for worker in line["workers"] for one in _read(folder, f"{worker}-*")] for line in lines]
    return _loader(process, lines, [process, *chain.from_iterable(workers)]), workers


def _loader(process: Process, lines: list[Mapping[str, Any]], processes: Sequence[Process]) -> Loader:
    steps = _steps(process, [line["iterator"] for line in lines])
    batches = pd.concat([_batches(process, line, processes) for line in lines], ignore_index=True)
    return Loader(process.pid, lines[0], steps, batches)


def _steps(process: Process, iterators: Sequence[int]) -> pd.DataFrame:
    """A row a batch that a loop took of these iterators."""
    asks = process.records[
        np.isin(process.records[:, 0], (NEXT, END, REUSED)) & np.isin(process.records[:, 3], iterators)
    ]
    asks = asks[np.lexsort((asks[:, 1], asks[:, 3]))]
    ended = np.append(asks[1:, 1], 0)
    ended[np.append(asks[1:, 3] != asks[:-1, 3], True)] = 0  # the script ended within this step
    following = np.append(np.where(asks[1:, 0] == NEXT, asks[1:, 6], 0), 0)  # when the next batch is asked for
    cpu = np.where((asks[:, 7] > 0) & (following > 0), following - asks[:, 7], np.nan)
    rows, ended, cpu = (values[asks[:, 0] == NEXT] for values in (asks, ended, cpu))
    steps = pd.DataFrame(
        {
            "iterator": rows[:, 3],
            "batch": rows[:, 4],
            "begun_ns": rows[:, 1],
            "came_ns": np.minimum(rows[:, 1] + rows[:, 11], rows[:, 2]),
            "got_ns": rows[:, 2],
            "ended_ns": ended,
            "lying": rows[:, 5],
            "detailed": rows[:, 7] > 0,
            "wait_cpu_ns": np.where(rows[:, 7] > 0, rows[:, 7] - rows[:, 6], np.nan),
            "step_cpu_ns": cpu,
            "cuda": rows[:, 8] % 2 > 0,
            "first": rows[:, 9] > 0,
            "made_ns": rows[:, 9],
        }
    )
    starved = process.of(STARVED)
    steps["starved_ns"] = (
        steps["begun_ns"].map(dict(zip(starved[:, 1], starved[:, 2] - starved[:, 1], strict=True))).fillna(0)
    ).where(steps["cuda"])
    steps = steps.sort_values("begun_ns", ignore_index=True)
    taken = process.of(NEXT)
    taken = taken[np.argsort(taken[:, 2])]
    of_loader = np.isin(taken[:, 3], iterators)
    steps.loc[_interrupted(steps, taken[~of_loader, 1]), "ended_ns"] = 0
    backward, optimizer = outermost(process.of(BACKWARD)), outermost(process.of(OPTIMIZER))
    index = np.searchsorted(taken[:, 2], backward[:, 1])  # gradients are of the batch that came last
    backward = backward[np.append(False, of_loader)[index]]
    stretches = steps["got_ns"].to_numpy(np.int64), steps["ended_ns"].to_numpy(np.int64)
    of_steps = phases(*stretches, backward, optimizer, Covered())
    for name in ("forward", "backward", "optimizer"):
        steps[f"{name}_ns"] = pd.Series(getattr(of_steps, name), steps.index).where(steps["detailed"])
    return steps


def _interrupted(steps: pd.DataFrame, foreign: Records) -> npt.NDArray[np.bool_]:
    """Which steps hold another loop, such as a validation: more batches of other loaders than is usual here.

    The last step of an epoch is one where a loader's iterator never ends, as ultralytics' and timm's do not.
    """
    held = pd.Series(_within(steps, foreign, np.ones_like(foreign)))
    return (held > 1 + 2 * held.median()).to_numpy()


def _within(steps: pd.DataFrame, begun: Records, took: Records) -> Records:
    """Sum of durations by the step in which they began."""
    sums = np.zeros(len(steps), np.int64)
    index = np.searchsorted(steps["got_ns"], begun, side="right") - 1
    inside = (index >= 0) & (begun < steps["ended_ns"].to_numpy()[index]) if len(steps) else np.zeros(len(begun), bool)
    np.add.at(sums, index[inside], took[inside])
    return sums


def _batches(process: Process, line: Mapping[str, Any], processes: Sequence[Process]) -> pd.DataFrame:
    """A row a batch that was prepared for an iterator, by its workers or by the training process."""
    rows = process.of(BATCH)
    rows = rows[rows[:, 9] == line["iterator"]]
    for pid in line["workers"]:
        workers = [
            candidate for candidate in processes if candidate.pid == pid and candidate.began_ns >= line["begun_ns"]
        ]
        rows = np.concatenate([rows, *(candidate.of(BATCH) for candidate in workers[:1])])
    names = ("begun_ns", "ended_ns", "worker", "batch", "samples", "collate_ns", "cpu_ns", "queued_ns")
    table = pd.DataFrame(rows[:, 1:9], columns=names)
    return table.assign(iterator=line["iterator"], process_cpu_ns=rows[:, 10])
