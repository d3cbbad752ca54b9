"""What the hook writes of loops of every shape: as many steps, and as long waits, as the script's own clock has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from attaching import Place

from feedrate.attach import loop, records

LOOPS = """
import contextlib, json, os
with contextlib.suppress(PermissionError):
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))

class Slow(Samples):
    def __getitem__(self, index):
        time.sleep(0.001)
        return super().__getitem__(index)

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from (Slow(48)[index] for index in range(48))

clocks = {}
def loop(name, loader, epochs=1, stop=None, each=step):
    clock = clocks.setdefault(name, {"steps": 0, "waits": 0.0, "walls": 0.0})
    for _ in range(epochs):
        asked = time.perf_counter()
        for place, batch in enumerate(loader):
            clock["steps"] += 1
            clock["waits"] += time.perf_counter() - asked
            each(batch)
            time.sleep(0.001)
            if place == stop:
                break
            clock["walls"] += time.perf_counter() - asked
            asked = time.perf_counter()

def nothing(batch):
    pass

loop("plain", DataLoader(Slow(48), 4))  # plain
loop("persistent", DataLoader(Slow(48), 4, num_workers=2, persistent_workers=True), epochs=3)  # persistent
loop("early break", DataLoader(Slow(48), 4, num_workers=2), epochs=2, stop=5)  # early break
loop("no batches", DataLoader(Slow(48), None), stop=20)  # no batches
loop("iterable", DataLoader(Stream(), 4), epochs=2)  # iterable
loop("without gradients", DataLoader(Slow(48), 4), each=nothing)  # without gradients
by_two = torch.utils.data.BatchSampler(range(48), 2, False)
loop("batch sampler", DataLoader(Slow(48), batch_sampler=by_two))  # batch sampler
loop("out of order", DataLoader(Slow(48), 4, num_workers=2, in_order=False))  # out of order
training = DataLoader(Slow(48), 4)  # training
validation = DataLoader(Slow(24), 8)  # validation
for _ in range(2):
    loop("training", training)
    loop("validation", validation, each=nothing)
inner = DataLoader(Slow(8), 4)  # inner
loop("outer", DataLoader(Slow(16), 4), each=lambda batch: loop("inner", inner))  # outer
print(json.dumps(clocks))
"""
"""Where it is allowed, the script runs ahead of whatever else the machine does: a wait of its own would be held up."""
NAMES = [line.rpartition("  # ")[2] for line in LOOPS.splitlines() if "  # " in line]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[str, Mapping[str, float]], list[records.Loader]]:
    """The script's own clocks, and the loaders that the hook saw."""
    clocks, processes = Place(tmp_path_factory.mktemp("loops")).hooked(LOOPS)
    return clocks, records.loaders(processes)


def loader_of(seen: tuple[Mapping[str, Mapping[str, float]], list[records.Loader]], name: str) -> records.Loader:
    """The loader that is made in the line which ends with a name."""

    def line(loader: records.Loader) -> str:
        file, number, _ = loader.settings["made"][0]
        return Path(file).read_text().splitlines()[number - 1].rpartition("  # ")[2]

    (found,) = (loader for loader in seen[1] if line(loader) == name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_shape_of_a_loop_is_seen(
    seen: tuple[Mapping[str, Mapping[str, float]], list[records.Loader]], name: str
) -> None:
    """Steps, waits and wall clock are those of a clock in the script, epochs and what they begin with included."""
    clock, loader = seen[0][name], loader_of(seen, name)
    steps = loader.steps
    began = steps["made_ns"].where(steps["first"], steps["begun_ns"])
    near = 0.0003 * clock["steps"]
    assert len(steps) == clock["steps"]
    assert (steps["got_ns"] - began).sum() / 1e9 == pytest.approx(clock["waits"], abs=near)
    whole = steps["ended_ns"] > 0
    assert (steps["ended_ns"] - began)[whole].sum() / 1e9 == pytest.approx(clock["walls"], abs=near)
    assert (~whole).sum() == (name == "early break") * 2 + (name == "no batches")
    # gradients are of the batch that came last
    assert loader.trains == (name not in {"without gradients", "validation", "outer"})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "out of order"])
def test_every_step_knows_how_its_batch_was_prepared(
    seen: tuple[Mapping[str, Mapping[str, float]], list[records.Loader]], name: str
) -> None:
    """Each step has its worker, and the time that preparing its batch took: its samples' at least.

    Of short steps without workers those that are recorded in detail.
    """
    steps = loop.whole_steps(loader := loader_of(seen, name))
    workers = loop.workers_of(loader)
    steps = steps[steps["detailed"] | (workers > 0)]
    assert len(steps) > 0
    assert set(steps["worker"]) == (set(range(workers)) if workers else {-1.0})
    took = steps["prepared_ended_ns"] - steps["prepared_begun_ns"]
    assert (took >= 1_000_000 * steps["samples"]).all()
    assert (steps["prepared_ended_ns"] <= steps["got_ns"]).all()


def rows_of(*rows: tuple[int, ...]) -> records.Records:
    return np.array([row + (0,) * (12 - len(row)) for row in rows], np.int64)


def test_parts_of_a_step_are_told_apart() -> None:
    """Forward ends with the first gradient; what a closure computes is no part of its optimizer; END ends a step."""
    said = {"what": "iterator", "iterator": 0, "made": [], "workers": [], "begun_ns": 0}
    rows = rows_of(
        (records.NEXT, 10, 20, 0, 0, 3, 100, 104, 1, 5),
        (records.BACKWARD, 30, 40),
        (records.OPTIMIZER, 45, 50),
        (records.STARVED, 60, 67),
        (records.NEXT, 60, 70, 0, 1, 2, 120, 121, 1),
        (records.OPTIMIZER, 72, 92),
        (records.BACKWARD, 75, 85),
        (records.END, 95, 96, 0),
    )
    (loader,) = records.loaders([records.Process(1, 0, rows, (said,))])
    expected = {
        "begun_ns": [10, 60],
        "got_ns": [20, 70],
        "ended_ns": [60, 95],
        "made_ns": [5, 0],
        "forward_ns": [10, 5],
        "backward_ns": [10, 10],
        "optimizer_ns": [5, 7],
        "starved_ns": [0, 7],
        "lying": [3, 2],
        "wait_cpu_ns": [4, 1],
        "step_cpu_ns": [16, -1],
    }
    assert {name: loader.steps[name].fillna(-1).tolist() for name in expected} == expected


def test_phases_of_a_step_may_come_more_than_once_and_within_each_other() -> None:
    """Two networks in turns; a pass that recomputes in passes of its own; an optimizer that steps within one."""
    backward = rows_of((0, 14, 16), (0, 30, 34), (0, 113, 118), (0, 112, 120), (0, 206, 216))
    optimizer = rows_of((0, 16, 19), (0, 34, 38), (0, 120, 125), (0, 208, 210))
    step = np.array([10, 100, 200, 300]), np.array([50, 150, 220, 350])
    covered = records.Covered(rows_of((0, 21, 23)))
    found = records.phases(*step, *map(records.outermost, (backward, optimizer)), covered)
    assert {name: values.tolist() for name, values in found._asdict().items()} == {
        "begun": [30, 112, 206, 0],
        "forward": [4 + 9, 12, 6, 0],
        "backward": [2 + 4, 8, 10, 0],
        "optimizer": [3 + 4, 5, 0, 0],
    }


PASSES = [
    # (what: iterator, when it was asked, when that was made or made anew), (begin and end of each pass)
    ([(0, 10, 1), (0, 20, 0), (1, 30, 2), (1, 40, 0)], {0: (1, 30), 1: (30, 41)}),
    ([(1, 10, 2), (1, 20, 0), (0, 30, 1), (0, 40, 0)], {1: (2, 30), 0: (30, 41)}),
    ([(0, 10, 1), (1, 20, 15), (1, 30, 0), (0, 40, 0)], {0: (1, 41), 1: (15, 40)}),
]


@pytest.mark.parametrize(("asked", "passes"), PASSES)
def test_a_pass_begins_where_its_iterator_is_made_or_asked(
    asked: list[tuple[int, int, int]], passes: dict[int, tuple[int, int]]
) -> None:
    """One that was made early, before others were asked, begins with its first batch."""
    rows = rows_of(*((records.NEXT, at, at + 1, number, 0, 0, 1, 1, 0, made) for number, at, made in asked))
    found = records.passes(records.Process(1, 0, rows, ()), [0, 1])
    assert {one.iterator: (one.begun_ns, one.ended_ns) for one in found} == passes


def test_of_a_step_without_detail_only_the_wait_is_known() -> None:
    """Where no CPU clock was read, phases are not known; the clock's next reading ends the step before it."""
    said = {"what": "iterator", "iterator": 0, "made": [], "workers": [], "begun_ns": 0}
    rows = rows_of(
        (records.NEXT, 10, 20, 0, 0, 3, 100, 104, 0, 5),
        (records.BACKWARD, 30, 40),
        (records.NEXT, 60, 70, 0, 1, 2, 120),
        (records.NEXT, 80, 85, 0, 2, 2),
        (records.END, 95, 96, 0),
    )
    (loader,) = records.loaders([records.Process(1, 0, rows, (said,))])
    expected = {
        "got_ns": [20, 70, 85],
        "ended_ns": [60, 80, 95],
        "detailed": [True, False, False],
        "backward_ns": [10, -1, -1],
        "wait_cpu_ns": [4, -1, -1],
        "step_cpu_ns": [16, -1, -1],
    }
    assert {name: loader.steps[name].fillna(-1).tolist() for name in expected} == expected
    assert loader.trains


def test_records_are_read_while_they_are_written(tmp_path: Path) -> None:
    """What is preallocated and not yet written does not count; a reader goes on where it stopped; no file is none."""
    path = tmp_path / "1-2.records"
    assert len(records.read_from(path)) == 0
    path.write_bytes(b"")
    assert len(records.read_from(path)) == 0
    rows = rows_of(*((records.NEXT, place + 1) for place in range(7)))
    for written in range(8):
        path.write_bytes(rows[:written].tobytes() + bytes(96 * (8 - written)))
        assert records.read_from(path)[:, 1].tolist() == list(range(1, written + 1))
        assert records.read_from(path, 3)[:, 1].tolist() == list(range(4, written + 1))
    path.write_bytes(rows.tobytes() + b"cut")
    assert len(records.read_from(path)) == 7
