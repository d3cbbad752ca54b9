"""The measured loop: what its stamps mean and when it ends."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterable, Iterator

import pytest
from beside import tried

from feedrate.loaders import Batch
from feedrate.trial.loop import Limits, measure
from feedrate.trial.stages import Stage


def batches(pause_s: float = 0.0) -> Iterator[Batch]:
    for i in itertools.count():
        if pause_s:
            time.sleep(pause_s)
        yield Batch((), i.to_bytes(4, "little"))


def nothing() -> None:
    pass


def slept(seconds: float) -> int:
    """Sleep, and say for how long that was, in nanoseconds: a busy machine wakes late."""
    begun = time.perf_counter_ns()
    time.sleep(seconds)
    return time.perf_counter_ns() - begun


def pausing(pauses: Iterable[float], took: list[int]) -> Iterator[Batch]:
    """Give a batch after each pause, and note how long that was."""
    for i, pause in enumerate(pauses):
        took.append(slept(pause))
        yield Batch((), i.to_bytes(4, "little"))


@tried
def test_phases_hold_what_happened_in_them() -> None:
    """Waiting for a batch is fetch, a stage's time is its own, and both steps and tags are all there."""
    waited: list[int] = []
    worked: list[int] = []
    stages = [Stage("forward", lambda _: worked.append(slept(0.002))), Stage("backward", lambda _: None)]
    window = measure(pausing([0.004] * 10, waited), stages, Limits(0, 10, 1, 10), nothing)
    found = window.durations()
    assert list(found) == ["fetch", "forward", "backward", "other"]
    assert all(len(times) == window.steps == 10 for times in found.values())
    for phase, own in {"fetch": waited, "forward": worked, "backward": [0] * 10}.items():
        beyond = [time - least for time, least in zip(found[phase], own, strict=True)]
        assert min(beyond) >= 0
        assert statistics.median(beyond) < 200_000
    assert window.tags[9] == (9).to_bytes(4, "little")


@tried
def test_a_draining_device_counts_as_other() -> None:
    """The synchronisation behind the window is part of its wall clock, and is told apart."""
    calls = []

    def synchronize() -> None:
        calls.append(1)
        if len(calls) == 2:
            time.sleep(0.02)

    window = measure(batches(), [], Limits(0, 5, 1, 5), synchronize)
    assert len(calls) == 2
    assert window.drained >= 20_000_000
    total = sum(map(sum, window.durations().values())) + window.drained
    assert total == pytest.approx(window.wall_ns, rel=0.01)


def test_borders_are_where_steps_meet() -> None:
    """One stamp a step and one behind the last; what lies between two is one step, phases and all."""
    stages = [Stage("forward", lambda _: time.sleep(0.002)), Stage("backward", lambda state: state)]
    window = measure(batches(), stages, Limits(0, 5, 1, 8), nothing)
    borders = list(window.borders())
    totals = [sum(times) for times in zip(*window.durations().values(), strict=True)]
    assert [b - a for a, b in itertools.pairwise(borders)] == pytest.approx(totals, rel=0.05)
    assert window.started <= borders[0] < borders[-1] <= window.ended


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_a_window_ends_on_a_multiple_of_the_workers(workers: int) -> None:
    """Neither steps nor wall clock fall short, and no burst is cut."""
    limits = Limits.rounded(0.01, 5, workers)
    window = measure(batches(0.0005), [], limits, nothing)
    assert window.steps % workers == 0
    assert window.steps >= 5
    assert window.wall_ns >= 10_000_000
    assert limits.capacity % workers == 0


def test_a_loop_that_is_too_fast_ends_early() -> None:
    """Stamps are never written beyond what was allocated."""
    window = measure(itertools.repeat(Batch((), b"")), [], Limits(10**12, 1, 1, 100), nothing)
    assert window.steps == 100
    assert len(window.durations()["fetch"]) == 100


@pytest.mark.parametrize("second_s", [0.006, 0.002])
@tried
def test_halves_tell_a_drift(second_s: float) -> None:
    """A window whose second half is three times slower says so; an even one does not."""
    took: list[int] = []
    window = measure(pausing([0.002] * 10 + [second_s] * 10, took), [], Limits(0, 20, 2, 20), nothing)
    assert window.half_ratio(2) == pytest.approx(sum(took[:10]) / sum(took[10:]), rel=0.1)


@tried
def test_the_window_opens_when_all_is_allocated() -> None:
    """The word that a window opens comes after the synchronisation and right before the clock starts."""
    said: list[int] = []
    window = measure(
        batches(), [], Limits(0, 1, 1, 300_000), nothing, opens=lambda: said.append(time.perf_counter_ns())
    )
    assert 0 <= window.started - said[0] < 2_000_000


@tried
def test_pace_leaves_the_start_out() -> None:
    """A slow first step does not count in the pace that events are made for."""
    pauses = itertools.chain([0.1], itertools.repeat(0.002))

    def starting() -> Iterator[Batch]:
        for pause in pauses:
            time.sleep(pause)
            yield Batch((), b"")

    assert measure(starting(), [], Limits(0, 10, 1, 10), nothing).pace_ns() < 10_000_000
