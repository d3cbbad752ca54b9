"""The arithmetic under every interval, against SciPy, NumPy and brute force, and what must not matter to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_trials import make_trials
from scipy import stats

from feedrate.analysis.blocks import Blocks
from feedrate.analysis.estimate import MOST_BLOCKS, blocks_for, half_width, moments, t_half_width

RATE = st.floats(1.0, 1e6)
PAIRS = st.lists(st.tuples(RATE, RATE), min_size=2, max_size=12)
LEVEL = st.floats(0.5, 0.9999)
ENDS = ("ratio", "lo", "hi")


@settings(max_examples=50)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20), LEVEL)
def test_the_interval_is_students_t(values: list[float], level: float) -> None:
    """At any level, as SciPy has it."""
    sd = np.std(values, ddof=1)
    if sd > 1e-6:
        lo, hi = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
        assert half_width(sd, len(values), level) == pytest.approx((hi - lo) / 2)


@settings(max_examples=40)
@given(st.floats(0.02, 1), st.floats(0.001, 0.3), st.sampled_from([0.9, 0.95, 0.999]))
@example(0.01, 0.4, 0.95)
def test_blocks_for_a_target_are_the_fewest(target: float, sd: float, level: float) -> None:
    """Against counting upwards."""
    n = next(n for n in range(2, 10_000) if half_width(sd, n, level) <= target)
    assert blocks_for(target, sd, level) == n


def test_what_is_not_known_has_no_interval_and_no_target() -> None:
    """Fewer than two values, or no degrees of freedom: NaN; no width at all is never reached, no spread always."""
    assert np.isnan(half_width([0.1, 0.1], [0, 1])).all()
    assert np.isnan(t_half_width(0.1, [0, -1])).all()
    assert half_width(0.0, 5) == 0
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


@settings(max_examples=15)
@given(PAIRS, st.randoms())
def test_order_of_rows_and_of_blocks_does_not_matter(rates: list[tuple[float, float]], random: Any) -> None:
    """Rows shuffled and blocks renamed: the same ratio; sides exchanged: its inverse, ends swapped."""
    first, second = (list(side) for side in zip(*rates, strict=True))
    frame = make_trials([({"batch_size": 8}, first), ({"batch_size": 16}, second)])
    a, b = frame["cell_id"].unique()
    names = random.sample(range(1000), len(rates))
    moved = frame.assign(block=[names[block] for block in frame["block"]])
    moved = moved.sample(frac=1, random_state=random.randrange(2**31))
    one, swapped = (Blocks(frame).ratios(["run"], *sides).iloc[0] for sides in (([a], [b]), ([b], [a])))
    other = Blocks(moved).ratios(["run"], [a], [b]).iloc[0]
    assert [other[end] for end in ENDS] == [pytest.approx(one[end]) for end in ENDS]
    assert [1 / swapped[end] for end in ("ratio", "hi", "lo")] == [pytest.approx(one[end]) for end in ENDS]


def test_logs_are_by_cell_and_block() -> None:
    """Failed trials are NaN, repeated ones are averaged, and cells come in the order asked for."""
    frame = make_trials([({"batch_size": 8}, [np.e, None]), ({"batch_size": 16}, [1.0, np.e**2])])
    again = frame[(frame["block"] == 1) & (frame["batch_size"] == 16)].assign(samples_per_s=np.e**4)
    blocks = Blocks(pd.concat([frame, again]))
    a, b = frame["cell_id"].unique()
    found = blocks.logs(["run", "run"], [b, a])
    assert found[0].tolist() == [pytest.approx(0), pytest.approx(3)]
    assert found[1, 0] == pytest.approx(1)
    assert np.isnan(found[1, 1])
