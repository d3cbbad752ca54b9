"""Where the time of a training process went: at every moment its main thread is in one row, and rows add up.

What the hook stamps is exact: when an iterator was made, how long it drew indices, waited for a batch and received it,
checkpoints, garbage collection, and passes over data in which nothing is updated. Phases of a step are stamped in the
steps that are recorded in detail, which are chosen at random: all other steps are split as these are. What is left of
the wall clock is a row of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from feedrate.attach.records import (
    BACKWARD,
    COLLECTED,
    COPIED,
    END,
    EXIT,
    HANDED,
    MADE,
    NEXT,
    OPTIMIZER,
    SAVED,
    Covered,
    Pass,
    Process,
    Records,
    last_ns,
    of_iterators,
    outermost,
    passes,
    phases,
    places,
)


class RowKind(NamedTuple):
    """What the main thread may be doing."""

    words: str
    kind: str
    """``wait`` feeds the step, ``step`` is it, ``once`` is what a longer training has no more of; ``other``."""
    remedy: str
    """What makes it shorter; empty where a faster loader or loop does not."""


ROWS: Mapping[str, RowKind] = {
    "start_up": RowKind("start-up, before the first loop", "once", ""),
    "starting": RowKind(
        "starting and stopping workers", "wait", "keep workers alive from pass to pass: persistent_workers=True"
    ),
    "sampler": RowKind(
        "drawing indices (sampler)", "wait", "draw fewer indices at once; it runs in the training process"
    ),
    "waiting": RowKind("waiting for a batch", "wait", ""),
    "receiving": RowKind(
        "receiving batches", "wait", "fewer and smaller tensors a batch: uint8, one array in the place of many"
    ),
    "here": RowKind(
        "preparing batches in the training process", "wait", "let workers prepare them: num_workers=2 or more"
    ),
    "copy": RowKind(
        "copies to the device", "wait", "pin_memory=True and .to(device, non_blocking=True), smaller dtypes"
    ),
    "forward": RowKind("forward pass", "step", ""),
    "backward": RowKind("backward pass", "step", ""),
    "optimizer": RowKind("optimizer", "step", ""),
    "step": RowKind("the step", "step", ""),
    "checkpoint": RowKind("saving checkpoints", "other", "save less often, or fewer bytes, or in the background"),
    "evaluation": RowKind(
        "evaluation", "other", "evaluate less often, or in larger batches and with workers of its own"
    ),
    "garbage": RowKind(
        "garbage collection", "other", "gc.freeze() before the loop, or gc.disable() and gc.collect() once an epoch"
    ),
    "between_steps": RowKind(
        "between steps (metrics, logging, …)", "other", "do it every n-th step; .item() waits for the device"
    ),
    "between_epochs": RowKind("between epochs", "other", "do it once, before the loop"),
    "shut_down": RowKind("shut-down, after the last loop", "once", ""),
    "rest": RowKind("not accounted for", "once", ""),
}
"""Rows of the account in the order of a training; a loop is one pass over an iterator."""
STEP, ONCE = (tuple(name for name, row in ROWS.items() if row.kind == kind) for kind in ("step", "once"))
"""Rows in which a model computes, and those that a longer training does not have more of."""


KEPT = 0.1
"""Of all updates; fewer that follow the last batch are no training."""


@dataclass(frozen=True, slots=True)
class Account:
    """The wall clock of one training process, row by row."""

    wall_ns: int
    rows: Mapping[str, int]
    """Nanoseconds by name (``ROWS``), zeros left out; they add up to the wall clock."""
    steps: int
    """Batches that were taken by loops that train."""
    pickled_bytes: int
    """Largest data set that was pickled for the workers of an iterator."""
    evaluating: frozenset[int]
    """Iterators of passes in which nothing was updated, where others update."""
    starting: Mapping[str, int] = field(default_factory=dict)
    """Of the row of this name, ns in which iterators were made, first batches came, and workers were stopped."""
    in_thread: bool = False
    """Whether other threads take the batches, and the main thread waits for those."""
    passes: tuple[Pass, ...] = ()
    """Of its main thread, in their order."""
    kept_steps: int = 0
    """Updates behind the last batch: batches were kept and are used again, as ``itertools.cycle`` does."""

    def share(self, *names: str) -> float:
        """Share of the wall clock that some rows take."""
        return sum(self.rows.get(name, 0) for name in names) / self.wall_ns if self.wall_ns else 0.0

    def looped_share(self, *names: str) -> float:
        """Share of the time of its loops, which a longer training has more of, that some rows of theirs take."""
        looped = 1 - self.share(*ONCE)
        return self.share(*names) / looped if looped else 0.0


def account(process: Process, ended_ns: int = 0) -> Account | None:
    """Account for the main thread of a process; None where it took no batch.

    ``ended_ns`` is when it ended; 0 where only its last record says.
    """
    iterators = {line["iterator"]: line for line in process.said if line["what"] == "iterator"}
    began = next((line["began_ns"] for line in process.said if line["what"] == "process"), 0) or process.began_ns
    ended = max(ended_ns, last_ns(process))
    main = [number for number, line in iterators.items() if line.get("main", True)]
    taken = of_iterators(process, NEXT, iterators)
    if not len(taken):
        return None
    rows: defaultdict[str, int] = defaultdict(int)
    main_passes = passes(process, main)
    trains = any(one.updates for one in main_passes)
    if not trains and any(one.updates for one in passes(process, [*iterators])):
        main, main_passes = [], []  # it evaluates by itself, and another thread takes what it trains on
    idle = [one for one in main_passes if trains and not one.updates]
    makes = of_iterators(process, MADE, main)[:, 1]
    first = min([*(one.begun_ns for one in main_passes), *makes[:1].tolist()], default=int(taken[:, 1].min()))
    last = max((one.ended_ns for one in main_passes), default=int(taken[:, 2].max()))
    loops = _Loops(process, main, idle, (first, last))
    rows["start_up"] = loops.net(began, first)
    kept_steps = _kept_steps(process, int(taken[-1, 2]))
    rows["step" if kept_steps else "shut_down"] = loops.net(last, ended)
    loops.add_waits(rows)
    loops.add_steps(rows, last)
    if not main:  # another thread takes the batches: before its first one there is nothing to train on
        span, firsts = (np.array([first]), np.array([last])), taken[taken[:, 9] > 0, :3]
        rows["starting"] = int(Covered(firsts).within(*span)[0])
        rows["waiting"] = int(Covered(firsts, process.of(HANDED)[:, :3]).within(*span)[0]) - rows["starting"]
        rows["step"] = max(0, loops.net(first, last) - rows["starting"] - rows["waiting"])
    wall = ended - began
    rows["rest"] = wall - sum(rows.values())
    return Account(
        wall_ns=wall,
        rows={name: rows[name] for name in ROWS if rows[name]},
        steps=int((loops.asks[:, 0] == NEXT).sum()) or len(taken),
        pickled_bytes=int(process.of(MADE)[:, 5].max(initial=0)),
        evaluating=frozenset(one.iterator for one in idle) - {one.iterator for one in main_passes if one.updates},
        starting=loops.starting,
        in_thread=not main,
        passes=tuple(main_passes),
        kept_steps=kept_steps,
    )


def _kept_steps(process: Process, got_ns: int) -> int:
    """How many updates follow the end of the last pass, whose last batch came at a moment; 0 of next to none."""
    exits, ends = process.of(EXIT), process.of(END)
    if not len(exits) or not len(ends) or ends[-1, 1] < got_ns:
        return 0
    updates = int(exits[-1, 3])
    behind = updates - int(ends[-1, 6])
    return behind if behind > KEPT * updates else 0


class _Loops:
    """What the main thread's loops spent in iterators, and between: outside of evaluations."""

    def __init__(self, process: Process, main: Sequence[int], idle: Sequence[Pass], span: tuple[int, int]) -> None:
        self._process = process
        wholes = np.array([(0, one.begun_ns, one.ended_ns) for one in idle], np.int64).reshape(-1, 3)
        self._evaluated = evaluated = Covered(wholes)
        iterators = [line for line in process.said if line["what"] == "iterator"]
        self._parallel = [line["iterator"] for line in iterators if line.get("num_workers")]
        self._watched = [line["iterator"] for line in iterators if line.get("watched")]
        """Those that are no DataLoader's: all that they take is a wait."""
        asks = np.concatenate([of_iterators(process, kind, main) for kind in (NEXT, END, MADE)])
        asks = asks[np.argsort(asks[:, 1], kind="stable")]
        inside = evaluated.within(asks[:, 1], asks[:, 2]) > 0
        asks = asks[~inside]
        before = np.append(0, np.maximum.accumulate(asks[:, 2])[:-1]) if len(asks) else np.empty(0)
        self.asks = asks[asks[:, 1] >= before]
        """Calls into iterators in their order; one within another, as of a loader that wraps one, is the outer's."""
        # What Python collects while modules are imported belongs to that.
        collected = process.of(COLLECTED)
        collected = collected[(collected[:, 1] >= span[0]) & (collected[:, 1] < span[1])]
        self._apart_of = process.of(SAVED), collected
        self._apart = Covered(wholes, *(rows[:, :3] for rows in self._apart_of))

    def net(self, begun: int, ended: int) -> int:
        """Length of a stretch without evaluations, checkpoints and garbage collection."""
        return max(0, ended - begun - int(self._apart.within(np.array([begun]), np.array([ended]))[0]))

    def add_waits(self, rows: defaultdict[str, int]) -> None:
        """Add what passes within iterators, checkpoints and garbage collection."""
        asks, saved, collected = self.asks, *self._apart_of
        took, kind = asks[:, 2] - asks[:, 1], asks[:, 0]
        garbage = Covered(collected)
        lost = garbage.within(asks[:, 1], asks[:, 2])
        sampler = np.select([kind == NEXT, kind == END, kind == MADE], [asks[:, 10], asks[:, 4], asks[:, 4]])
        parallel, watched = (np.isin(asks[:, 3], of) for of in (self._parallel, self._watched))
        here = ~parallel & ~watched  # there are no workers to start
        starts = ((kind != NEXT) | (asks[:, 9] > 0)) & ~here
        waited = np.where(~starts & parallel, np.minimum(asks[:, 11], took), 0)
        waited = np.where(watched & (kind == NEXT), took, waited)
        rows["sampler"] += int(sampler.sum())
        rows["waiting"] += int(waited.sum())
        left = np.maximum(0, took - sampler - waited - lost)
        parts = (("making iterators", MADE), ("first batches", NEXT), ("stopping workers", END))
        self.starting = {name: int(left[starts & (kind == of)].sum()) for name, of in parts}
        for name, of in (("starting", starts), ("receiving", ~starts & parallel), ("here", here)):
            rows[name] += int(left[of].sum())
        whole = self._evaluated
        rows["evaluation"] = int((whole.ended - whole.begun).sum())
        outside = _outside(collected, whole)
        rows["garbage"] += int((outside[:, 2] - outside[:, 1]).sum())
        outside = _outside(saved, whole)
        rows["checkpoint"] += int((outside[:, 2] - outside[:, 1] - garbage.within(outside[:, 1], outside[:, 2])).sum())

    def add_steps(self, rows: defaultdict[str, int], last_ns: int) -> None:
        """Add what passes between two calls into iterators: steps, and what lies between two passes."""
        begun, ended = self.asks[:, 2], np.append(self.asks[1:, 1], last_ns)[: len(self.asks)]
        ended = np.maximum(begun, ended)
        net = ended - begun - self._apart.within(begun, ended)
        steps = self.asks[:, 0] == NEXT
        count = np.cumsum(steps)
        rows["start_up"] += int(net[count == 0].sum())  # an iterator may be made long before it is asked
        rows["between_epochs"] += int(net[~steps & (count > 0)].sum())
        detailed = steps & (self.asks[:, 7] > 0)
        # The first of a pass is always detailed, as it tells most; others stand for those up to the next one.
        stands_for = np.diff(np.append(count[detailed], count[-1:] + 1))
        parts = self._phases(begun[detailed], ended[detailed], stands_for)
        phased_ns = float((net[detailed] * stands_for).sum())
        every = int(net[steps].sum())
        if not parts or not phased_ns:
            rows["step"] += every
            return
        spent = {name: int(every * min(1.0, took / phased_ns)) for name, took in parts.items()}
        for name, took in spent.items():
            rows[name] += took
        rows["between_steps"] += every - sum(spent.values())

    def _phases(self, begun: Records, ended: Records, stands_for: Records) -> dict[str, int]:
        """Nanoseconds of each phase in the steps that some stand for; nothing where these computed no gradient."""
        backward, optimizer, copied = (outermost(self._process.of(kind)) for kind in (BACKWARD, OPTIMIZER, COPIED))
        of_steps = phases(begun, ended, backward, optimizer, self._apart)
        if not of_steps.begun.any():
            return {}
        at, within = places(copied[:, 1], begun, ended)
        copies, at = copied[within], at[within]
        copying = (copies[:, 2] - copies[:, 1]) * stands_for[at]
        early = copies[:, 1] < of_steps.begun[at]
        every = {name: int(getattr(of_steps, name) @ stands_for) for name in ("forward", "backward", "optimizer")}
        return {**every, "copy": int(copying.sum()), "forward": every["forward"] - int(copying[early].sum())}


def _outside(rows: Records, evaluated: Covered) -> Records:
    """Intervals that begin in no evaluation."""
    return np.asarray(rows[evaluated.within(rows[:, 1], rows[:, 2]) == 0], np.int64)
