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


def nothing() -> None:
    pass


def slept(seconds: float) -> int:
    """Sleep, and say for how long that was, in nanoseconds: a busy machine wakes late."""
    begun = time.perf_counter_ns()
    time.sleep(seconds)
    return time.perf_counter_ns() - begun


def batches(pauses: Iterable[float], took: list[int] | None = None) -> Iterator[Batch]:
    """Give a batch after each pause, and note how long that was."""
    for i, pause in enumerate(pauses):
        waited = slept(pause) if pause else 0
        if took is not None:
            took.append(waited)
        yield Batch((), i.to_bytes(4, "little"))


@tried
def test_phases_hold_what_happened_in_them() -> None:
    """Waiting for a batch is fetch, a stage's time is its own, and both steps and tags are all there."""
    waited: list[int] = []
    worked: list[int] = []
    stages = [Stage("forward", lambda _: worked.append(slept(0.002))), Stage("backward", lambda _: None)]
    window = measure(batches([0.004] * 10, waited), stages, Limits(0, 10, 1, 10), nothing)
    durations = window.durations()
    assert list(durations) == ["fetch", "forward", "backward", "other"]
    assert all(len(times) == window.steps == 10 for times in durations.values())
    for phase, least in {"fetch": waited, "forward": worked, "backward": [0] * 10}.items():
        beyond = [took - planted for took, planted in zip(durations[phase], least, strict=True)]
        assert min(beyond) >= 0
        assert statistics.median(beyond) < 200_000
    assert window.tags[9] == (9).to_bytes(4, "little")
    borders = list(window.borders())
    totals = [sum(times) for times in zip(*durations.values(), strict=True)]
    assert [b - a for a, b in itertools.pairwise(borders)] == pytest.approx(totals, rel=0.05)
    assert window.started <= borders[0] < borders[-1] <= window.ended


@tried
def test_a_draining_device_counts_as_other() -> None:
    """The synchronisation behind the window is part of its wall clock, and is told apart."""
    calls = iter([0.0, 0.02])
    window = measure(batches([0.0] * 5), [], Limits(0, 5, 1, 5), lambda: time.sleep(next(calls)))
    assert next(calls, None) is None
    assert window.drained >= 20_000_000
    total = sum(map(sum, window.durations().values())) + window.drained
    assert total == pytest.approx(window.wall_ns, rel=0.01)


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_a_window_ends_on_a_multiple_of_the_workers(workers: int) -> None:
    """Neither steps nor wall clock fall short, and no burst is cut."""
    limits = Limits.rounded(0.01, 5, workers)
    window = measure(batches(itertools.repeat(0.0005)), [], limits, nothing)
    assert window.steps % workers == limits.capacity % workers == 0
    assert window.steps >= 5
    assert window.wall_ns >= 10_000_000


def test_a_loop_that_is_too_fast_ends_early() -> None:
    """Stamps are never written beyond what was allocated."""
    window = measure(itertools.repeat(Batch((), b"")), [], Limits(10**12, 1, 1, 100), nothing)
    assert window.steps == len(window.durations()["fetch"]) == 100


@tried
def test_halves_tell_a_drift_and_pace_leaves_the_start_out() -> None:
    """A window whose second half is three times slower says so; a slow first step is not in the pace of the others."""
    took: list[int] = []
    window = measure(batches([0.1, *[0.002] * 9, *[0.006] * 10], took), [], Limits(0, 20, 2, 20), nothing)
    assert window.half_ratio(2) == pytest.approx(sum(took[:10]) / sum(took[10:]), rel=0.1)
    assert window.pace_ns() == pytest.approx(sum(took[10:]) / 10, rel=0.1)


@tried
def test_the_window_opens_when_all_is_allocated() -> None:
    """The word that a window opens comes after the synchronisation and right before the clock starts."""
    opened: list[int] = []
    limits = Limits(0, 1, 1, 300_000)
    window = measure(batches([0.0]), [], limits, nothing, opens=lambda: opened.append(time.perf_counter_ns()))
    assert 0 <= window.started - opened[0] < 2_000_000
