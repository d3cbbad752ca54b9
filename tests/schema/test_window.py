"""Steps and samples of trials that read no sample twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.schema import window

ACCESS = st.sampled_from(["random", "sequential"])


@given(
    size=st.integers(1, 64),
    workers=st.integers(0, 8),
    ahead=st.integers(1, 4),
    least=st.integers(1, 40),
    off=st.booleans(),
    access=ACCESS,
)
def test_samples_once_is_exactly_enough(
    size: int, workers: int, ahead: int, least: int, off: bool, access: str
) -> None:
    """With so many samples a window has its least steps; with one fewer it has not."""
    needed = window.samples_once(size, workers, ahead, least, access)
    steps = window.steps_once(window.batches_once(needed - off, size, workers, access, None), workers, ahead)
    assert (steps >= window.whole(least, workers)) is not off


@given(
    samples=st.integers(1, 5000),
    size=st.integers(1, 64),
    workers=st.integers(0, 8),
    ahead=st.integers(1, 4),
    access=ACCESS,
)
def test_nothing_is_read_twice(samples: int, size: int, workers: int, ahead: int, access: str) -> None:
    """Warm-up, window and prefetched batches stay within one pass, at random within a third of it."""
    steps = window.steps_once(window.batches_once(samples, size, workers, access, None), workers, ahead)
    used = window.consumed_samples(window.warm_up_steps(workers, ahead) + steps, size, workers, ahead)
    assert steps <= 0 or used <= samples / (3 if access == "random" else 1)
    assert steps % max(1, workers) == 0


@pytest.mark.parametrize(("workers", "expected"), [(0, 25), (1, 24), (2, 24), (3, 21), (5, 20)])
def test_workers_with_unequal_shards(workers: int, expected: int) -> None:
    """Batches count that are sure to come while every worker still has samples."""
    assert window.batches_once(100, 4, workers, "sequential", 32) == expected


@pytest.mark.parametrize(("cached_pct", "expected"), [(25, 0), (40, 0.2), (100, 1), (20, -1 / 15)])
def test_what_was_not_read_and_lies_in_memory(cached_pct: float, expected: float) -> None:
    """250 of 1,000 samples were read or may be: what is cached beyond them is counted against the 750 others."""
    consumed = window.consumed_samples(21, 10, 2, 2)
    assert consumed == 250
    assert window.unread_in_memory(cached_pct, consumed, 1000) == pytest.approx(expected)
