"""The account of a training process: what is planted is found in its row, and rows add up to the wall clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feedrate.attach.account import ROWS, Account, account
from feedrate.attach.blame import Blame
from feedrate.attach.profiler import Frame, Stack
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
    Process,
)

MS = 1_000_000
Event = tuple[str, int]
"""What the main thread does, and for how many ms."""


class Timeline:
    """A training process that does one thing after the other, as its hook would record it."""

    def __init__(self) -> None:
        self.now, self.rows, self.said, self.updates = 0, list[list[int]](), list[dict[str, Any]](), 0
        self.said.append({"what": "process", "began_ns": 1, "t_ns": 1})
        self._iterators = 0

    def spend(self, ms: float, kind: int = 0, *fields: int) -> None:
        """Let time pass, as a record of a kind."""
        begun, self.now = self.now, self.now + round(ms * MS)
        if kind:
            self.rows.append([kind, begun, self.now, *fields])

    def loop(self, batches: int, *, workers: int = 2, wait: float = 3, first: float = 10, **settings: Any) -> _Loop:
        """Make an iterator that starts for ``first`` ms, and gives batches after ``wait`` ms each."""
        number, self._iterators = self._iterators, self._iterators + 1
        line = {"what": "iterator", "iterator": number, "num_workers": workers, "workers": [], "t_ns": 1, "made": []}
        self.said.append(line | settings)
        return _Loop(self, number, batches, wait, first)

    def account(self, exits_ms: float = 0) -> Account:
        """Its account, which always adds up."""
        self.spend(exits_ms)
        found = account(self.process(), self.now)
        assert found is not None
        assert sum(found.rows.values()) == found.wall_ns
        assert found.share("rest") == pytest.approx(0, abs=1e-6)
        return found

    def process(self) -> Process:
        rows = np.array([[*row, *[0] * (12 - len(row))] for row in self.rows], np.int64)
        rows[:, 1:3] += 1
        rows[rows[:, 0] == NEXT, 9] += rows[rows[:, 0] == NEXT, 9] > 0
        return Process(7, 1, rows, tuple(self.said))


class _Loop:
    """Yields once a batch; what happens meanwhile is the step."""

    def __init__(self, timeline: Timeline, number: int, batches: int, wait: float, first: float) -> None:
        self.of, self.number, self.batches, self.wait, self.first = timeline, number, batches, wait, first

    def __iter__(self) -> Any:
        of, made = self.of, self.of.now or 1
        of.spend(self.first / 2, MADE, self.number, MS, 5)  # of which a ms draws indices, and 5 bytes are pickled
        for batch in range(self.batches):
            updates, start = 2 * of.updates, made if not batch else 0
            took = self.first / 2 if not batch else self.wait
            waited = 0 if not batch else round(self.wait * MS * 2 / 3)  # the last third is received
            of.spend(took, NEXT, self.number, batch, -1, 1, 1, updates, start, 0, waited)
            yield batch
        of.spend(1, END, self.number, 0, 0, of.updates)


def step(of: Timeline, **also: float) -> None:
    """A step of training of 10 ms: 2 of copying, 3 forward, 4 backward, 1 of the optimizer; and what comes besides."""
    of.spend(2, COPIED, 100)
    of.spend(3)
    of.spend(4, BACKWARD)
    of.spend(1, OPTIMIZER)
    of.updates += 2
    of.spend(also.get("save", 0), SAVED)
    of.spend(also.get("garbage", 0), COLLECTED)
    of.spend(also.get("logging", 0))


def shares(found: Account, milliseconds: Mapping[str, float]) -> None:
    """Each row has so many ms."""
    assert {name: took / MS for name, took in found.rows.items()} == pytest.approx(milliseconds, abs=0.01)


def test_every_row_has_what_was_planted() -> None:
    """One epoch of ten steps with all that a training may do, between a start of 100 ms and an end of 50."""
    of = Timeline()
    of.spend(100)
    for _ in of.loop(10):
        step(of, save=2, garbage=1, logging=4)
    shares(
        of.account(50),
        {
            "start_up": 100,
            "starting": 4 + 5 + 1,
            "sampler": 1,
            "waiting": 18,
            "receiving": 9,
            "copy": 20,
            "forward": 30,
            "backward": 40,
            "optimizer": 10,
            "checkpoint": 20,
            "garbage": 10,
            "between_steps": 40,
            "shut_down": 50,
        },
    )
    assert of.account().pickled_bytes == 5
    assert of.account().starting == {"making iterators": 4 * MS, "first batches": 5 * MS, "stopping workers": MS}


def test_loops_that_update_nothing_are_evaluations() -> None:
    """With all that happens in them; also within a training step, where they are left by break, and without workers."""
    of = Timeline()
    for epoch in range(2):
        for batch in of.loop(4):
            step(of)
            if batch == 2:
                for looked_at in of.loop(100, workers=0):
                    of.spend(5)
                    if looked_at == 3:
                        break
        of.spend(7 if not epoch else 0)  # the validation set is read
        for _ in of.loop(3):
            of.spend(20)
    found = of.account()
    within, after = 10 + 3 * 3 + 4 * 5, 10 + 2 * 3 + 3 * 20 + 1
    assert found.rows["evaluation"] == 2 * (within + after) * MS
    assert found.rows["between_epochs"] == 7 * MS
    assert found.rows["waiting"] == 2 * 3 * 2 * MS
    assert found.steps == 8
    assert found.evaluating == {1, 2, 4, 5}


def test_iterators_that_are_made_early_do_not_swallow_what_comes_first() -> None:
    """Both are made at the top of the script, as for ``next(iterator)``: the training, then a validation."""
    of = Timeline()
    train, check = iter(of.loop(10)), iter(of.loop(3))
    next(train), next(check, None)
    early = of.rows.pop()  # the validation's first batch comes later
    of.now = early[1]
    for _ in train:
        step(of)
    moved = [early[0], of.now, of.now + early[2] - early[1], *early[3:7], early[7], 2 * of.updates, early[9]]
    of.rows.append(moved)
    of.now = moved[2]
    for _ in check:
        of.spend(20)
    found = of.account()
    assert found.rows["backward"] == 9 * 4 * MS
    assert found.rows["evaluation"] == pytest.approx((5 + 2 * 3 + 2 * 20 + 1) * MS, rel=0.01)


def test_a_validation_that_never_ends_is_an_evaluation() -> None:
    """Its iterator is made once, and gives batches every 10 steps; an unlabelled batch in each step is training."""
    of = Timeline()
    train, check, unlabelled = iter(of.loop(100)), iter(of.loop(20, first=2)), iter(of.loop(30, first=2))
    for place in range(100):
        if place % 10 == 0:
            for _ in range(2):
                next(check)
                of.spend(20)
        next(train)
        if place < 30:
            next(unlabelled)
        step(of)
    found = of.account()
    assert found.evaluating == {1}
    assert found.rows["evaluation"] == pytest.approx((20 * 20 + 19 * 3 + 2) * MS, rel=0.01)
    assert found.rows["backward"] == 99 * 4 * MS, "behind the last batch nothing tells a step from the end"


def test_what_lies_before_the_first_batch_is_start_up() -> None:
    """An iterator that is made at the top, before the network."""
    of = Timeline()
    of.loop(1)
    made = iter(of.loop(10))
    of.spend(5, MADE, 0)
    of.spend(200)
    for _ in made:
        step(of)
    found = of.account()
    assert found.rows["start_up"] == 200 * MS
    assert "between_epochs" not in found.rows


def test_a_thread_trains_while_the_main_thread_evaluates() -> None:
    """What updates nothing is no training, whichever thread it is in."""
    of = Timeline()
    for _ in of.loop(10, main=False):
        step(of)
    for _ in of.loop(2):
        of.spend(20)
    assert of.account().in_thread


@pytest.mark.parametrize(("again", "row"), [(50, "step"), (0, "shut_down")])
def test_batches_that_are_used_again_are_trained_on(again: int, row: str) -> None:
    """``itertools.cycle`` asks the loader for one pass alone; what follows its end is an end only without updates."""
    of = Timeline()
    for _ in of.loop(10):
        step(of)
    for _ in range(50):
        of.spend(10)
        of.updates += bool(again)
    of.rows.append([EXIT, of.now, 0, of.updates])
    found = of.account()
    assert found.kept_steps == again
    assert found.rows[row] == 500 * MS


def test_a_detailed_step_stands_for_those_up_to_the_next() -> None:
    """The first of a pass is always detailed: a compiler's seconds in it are not those of every step."""
    of = Timeline()
    for batch in of.loop(101):
        of.spend(990 if not batch else 0)
        step(of)
    every = of.process().records
    numbers = np.cumsum(every[:, 0] == NEXT) - 1
    plain = (numbers % 10 != 1) & (numbers > 0)
    every[plain & (every[:, 0] == NEXT), 6:8] = 0
    found = account(Process(7, 1, every[~plain | ~np.isin(every[:, 0], (BACKWARD, OPTIMIZER, COPIED))], tuple(of.said)))
    assert found is not None
    assert found.rows["forward"] / MS == pytest.approx(990 + 101 * 3, rel=0.02)
    assert found.rows["backward"] / MS == pytest.approx(101 * 4, rel=0.02)


def test_every_forward_pass_of_a_step_is_one() -> None:
    """Of micro-batches, as of two networks, each has a forward and a backward pass."""
    of = Timeline()
    for _ in of.loop(10):
        for _ in range(4):
            step(of)
    found = of.account()
    assert found.rows["forward"] == pytest.approx(10 * 4 * 3 * MS)
    assert found.rows.get("between_steps", 0) < MS


def test_without_gradients_a_loop_is_a_step() -> None:
    """Nothing is called an evaluation where nothing is updated at all; without workers batches are prepared here."""
    of = Timeline()
    for _ in of.loop(10, workers=0):
        of.spend(5)
    expected = {"sampler": 1, "here": 10 + 27, "step": 50}
    shares(of.account(), expected)


def test_steps_that_are_not_recorded_in_detail_are_split_as_the_others() -> None:
    """Phases of one step in ten are known: all steps are split as these are, and it adds up."""
    of = Timeline()
    for _ in of.loop(100):
        step(of, logging=5)
    every = of.process().records
    plain = [at for at, row in enumerate(every) if row[0] == NEXT and row[4] % 10]
    every[plain, 6:8] = 0
    steps = np.cumsum(every[:, 0] == NEXT) - 1
    phases = np.isin(every[:, 0], (BACKWARD, OPTIMIZER, COPIED)) & (steps % 10 > 0)
    found = account(Process(7, 1, every[~phases], tuple(of.said)), of.now)
    assert found is not None
    expected = {"copy": 200, "forward": 300, "backward": 400, "optimizer": 100, "between_steps": 500}
    assert {name: found.rows[name] / MS for name in expected} == pytest.approx(expected, rel=0.01)


def test_two_loaders_of_one_loop_count_each() -> None:
    """What a loop waits on either is a wait: they are zipped, and both train."""
    of = Timeline()
    for _ in zip(of.loop(5), of.loop(5), strict=True):
        step(of)
    found = of.account()
    assert found.rows["waiting"] == 2 * 4 * 2 * MS
    assert not found.evaluating


def test_a_thread_that_takes_the_batches_is_waited_for() -> None:
    """Until its first batch the training starts; afterwards what the main thread waits for it is a wait, stamped."""
    of = Timeline()
    of.spend(100)
    for _ in of.loop(5, main=False):
        of.spend(7)
    of.rows += [[HANDED, *row[1:3]] for row in of.rows if row[0] == NEXT]
    shares(
        of.account(50), {"start_up": 100 + 5, "starting": 5, "waiting": 4 * 3, "step": 4 * 7, "shut_down": 7 + 1 + 50}
    )


SOURCE = """
def train(model, loader, check):
    for batch in loader:
        batch = prepare(batch)
        model(batch).backward()
        log(batch)
    for batch in check:
        model(batch)
    return report()
train(1, 2, 3)
"""


def test_a_line_is_charged_to_the_row_in_which_it_ran(tmp_path: Path) -> None:
    """By the loop that it stands in, and whether it comes before the line that computes gradients or behind it."""
    file = str(tmp_path / "train.py")
    Path(file).write_text(SOURCE)
    torch = "/x/torch/"

    def stack(line: int, *inside: tuple[str, str], process: int = 7) -> Stack:
        frames = [Frame("<module>", file, 10), Frame("train", file, line), *(Frame(*one, 1) for one in inside)]
        return Stack(process, "1", True, tuple(frames), 1)

    def callers(line: int) -> list[tuple[str, int, str]]:
        return [(file, line, "train"), (file, 10, "<module>")]

    data, fetch = f"{torch}utils/data/dataloader.py", f"{torch}utils/data/_utils/fetch.py"
    said: Sequence[dict[str, Any]] = (
        {"what": "iterator", "iterator": 0, "loop": callers(3), "workers": [8]},
        {"what": "backward", "callers": callers(5)},
        {"what": "iterator", "iterator": 1, "loop": callers(7), "workers": [9]},
    )
    blame = Blame(Process(7, 1, np.empty((0, 12), np.int64), said), Account(1, {}, 1, 0, frozenset({1})))
    assert blame.row(stack(4, ("prepare", file))) == "forward"
    assert blame.row(stack(5, ("Module._call_impl", f"{torch}nn/module.py"))) == "forward"
    assert blame.row(stack(5, ("Tensor.backward", f"{torch}_tensor.py"))) == "backward"
    assert blame.row(stack(5, ("SGD.step", f"{torch}optim/sgd.py"))) == "optimizer"
    computed = ("Adam.step", f"{torch}optim/adam.py"), ("Closure.closure", "/x/automatic.py")
    assert blame.row(stack(5, *computed, ("Net.forward", file))) == "forward"
    assert blame.row(stack(5, *computed, ("Tensor.backward", f"{torch}_tensor.py"))) == "backward"
    assert blame.row(stack(6, ("log", file))) == "between_steps"
    assert blame.row(stack(6, ("save", f"{torch}serialization.py"))) == "checkpoint"
    assert blame.row(stack(8)) == blame.row(stack(7, ("_Iter.__next__", data))) == "evaluation"
    assert blame.row(stack(9, ("report", file))) == "between_epochs"
    (tmp_path / "collect.py").write_text("gc.collect()\n")
    assert blame.row(stack(9, ("collect", str(tmp_path / "collect.py")))) == "garbage"
    assert blame.row(stack(3, ("_Iter.__next__", data), ("_Iter._next_index", data))) == "sampler"
    assert blame.row(stack(3, ("_Iter.__next__", data), ("Connection.poll", "/x/connection.py"))) == ""
    assert blame.row(stack(3, ("_Iter.__next__", data), ("rebuild", "/x/reductions.py"))) == "receiving"
    assert blame.row(stack(3, ("_Iter.__next__", data), ("fetch", fetch))) == "here"
    assert blame.row(stack(3, ("DataLoader.__iter__", data), ("Process.start", "/x/process.py"))) == "starting"
    assert blame.row(stack(3, ("fetch", fetch), process=8)) == "waiting"
    assert blame.row(stack(3, ("fetch", fetch), process=9)) == ""
    assert set(ROWS) > {"forward", "between_steps", "evaluation"}
