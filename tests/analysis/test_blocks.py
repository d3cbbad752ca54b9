"""The arithmetic under every interval, against SciPy, NumPy and brute force, and what must not matter to it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from feedrate.analysis.blocks import Blocks, memoized
from feedrate.analysis.estimate import MOST_BLOCKS, blocks_for, half_width, moments, t_half_width

Trials = Callable[..., pd.DataFrame]
RATE = st.floats(1.0, 1e6)
PAIRS = st.lists(st.tuples(RATE, RATE), min_size=2, max_size=12)
LEVEL = st.floats(0.5, 0.9999)
ENDS = ("ratio", "lo", "hi")


def ratios(frame: pd.DataFrame) -> pd.Series:
    """The second cell of a frame ÷ its first."""
    a, b = frame["cell_id"].unique()
    return Blocks(frame).ratios(["run"], [a], [b]).iloc[0]


@settings(max_examples=50)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20), LEVEL)
def test_the_interval_is_students_t(values: list[float], level: float) -> None:
    """At any level, as SciPy has it."""
    sd = np.std(values, ddof=1)
    if sd > 1e-6:
        lo, hi = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
        assert half_width(sd, len(values), level) == pytest.approx((hi - lo) / 2)


def test_what_has_no_spread_has_no_interval() -> None:
    """Fewer than two values, and no degrees of freedom: NaN; a spread of 0 is a width of 0."""
    assert np.isnan(half_width([0.1, 0.1], [0, 1])).all()
    assert np.isnan(t_half_width(0.1, [0, -1])).all()
    assert half_width(0.0, 5) == 0


@settings(max_examples=40)
@given(st.floats(0.02, 1), st.floats(0.001, 0.3), st.sampled_from([0.9, 0.95, 0.999]))
@example(0.01, 0.4, 0.95)
def test_blocks_for_a_target_are_the_fewest(target: float, sd: float, level: float) -> None:
    """Against counting upwards."""
    n = next(n for n in range(2, 10_000) if half_width(sd, n, level) <= target)
    assert blocks_for(target, sd, level) == n


def test_targets_out_of_reach() -> None:
    """No width at all is never reached, no spread always, and nothing is said of what is not known."""
    assert blocks_for([0.0, -0.1, 0.1], [0.1, 0.1, 0.0]).tolist() == [np.inf, np.inf, 2]
    assert np.isnan(blocks_for([np.nan, 0.1], [0.1, np.nan])).all()
    assert blocks_for(1e-9, 1.0) == np.inf
    assert half_width(1.0, MOST_BLOCKS) > 1e-9


@settings(max_examples=30)
@given(st.lists(st.lists(st.floats(-5, 5) | st.just(float("nan")), min_size=4, max_size=4), min_size=1, max_size=6))
def test_moments_are_those_of_the_values_that_are_known(rows: list[list[float]]) -> None:
    """As NumPy has them of each row without its NaN."""
    found = moments(np.array(rows))
    for place, row in enumerate(rows):
        known = [value for value in row if value == value]
        assert found.n[place] == len(known)
        assert found.mean[place] == pytest.approx(np.mean(known) if known else np.nan, nan_ok=True)
        assert found.sd[place] == pytest.approx(np.std(known, ddof=1) if len(known) > 1 else np.nan, nan_ok=True)


@settings(max_examples=30)
@given(PAIRS, st.randoms())
def test_order_of_rows_and_of_blocks_does_not_matter(
    trials_of: Trials, rates: list[tuple[float, float]], random: Any
) -> None:
    """Rows shuffled and blocks renamed: the same ratio; sides exchanged: its inverse, ends swapped."""
    first, second = (list(side) for side in zip(*rates, strict=True))
    frame = trials_of([({"batch_size": 8}, first), ({"batch_size": 16}, second)])
    a, b = frame["cell_id"].unique()
    names = random.sample(range(1000), len(rates))
    moved = frame.assign(block=[names[block] for block in frame["block"]])
    moved = moved.sample(frac=1, random_state=random.randrange(2**31))
    one, swapped = (Blocks(frame).ratios(["run"], *sides).iloc[0] for sides in (([a], [b]), ([b], [a])))
    other = Blocks(moved).ratios(["run"], [a], [b]).iloc[0]
    assert [other[end] for end in ENDS] == [pytest.approx(one[end]) for end in ENDS]
    assert [1 / swapped[end] for end in ("ratio", "hi", "lo")] == [pytest.approx(one[end]) for end in ENDS]


def test_logs_are_by_cell_and_block(trials_of: Trials) -> None:
    """A trial that failed is NaN; a cell that ran twice in a block counts its mean; cells come as they were asked."""
    frame = trials_of([({"batch_size": 8}, [np.e, None]), ({"batch_size": 16}, [1.0, np.e**2])])
    again = frame[(frame["block"] == 1) & (frame["batch_size"] == 16)].assign(samples_per_s=np.e**4)
    blocks = Blocks(pd.concat([frame, again]))
    a, b = frame["cell_id"].unique()
    found = blocks.logs(["run", "run"], [b, a])
    assert found[0].tolist() == [pytest.approx(0), pytest.approx(3)]
    assert found[1, 0] == pytest.approx(1)
    assert np.isnan(found[1, 1])


class Total:
    """Sums the column ``a``, and counts how often it does."""

    def __init__(self) -> None:
        self.times = 0
        self.of = memoized(self._of)

    def _of(self, frame: pd.DataFrame) -> int:
        self.times += 1
        return int(frame["a"].sum())


@memoized
def doubled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame * 2


def test_a_frame_is_asked_once_and_its_like_again() -> None:
    """The same frame is worked on once; one of the same content is another."""
    total, first, second = Total(), pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2]})
    assert [total.of(first), total.of(first), total.of(second)] == [3, 3, 3]
    assert total.times == 2


def test_answers_go_with_their_frames() -> None:
    """Nothing is kept of a frame that is gone."""
    frame = pd.DataFrame({"a": [1]})
    answer = weakref.ref(doubled(frame))
    del frame
    gc.collect()
    assert answer() is None
