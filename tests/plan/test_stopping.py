"""Which cells still run, and in which order: quantiles, contrasts that stop together, sides that come close."""

from __future__ import annotations

import math
import random

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from feedrate.analysis import contrasts as frames
from feedrate.plan.stopping import Contrast, ContrastTracker, Rule, blocks_to, contrasts, side_by_side
from feedrate.plan.student import t_quantile, tail
from feedrate.schema.axes import AXES, applicable, cell_id

RULE = Rule(fewest=8, most=30, target=math.log1p(0.03))


def cell(**axes: object) -> dict:
    """The axes that apply on a CPU, others at their default."""
    return applicable({axis.name: axis.default for axis in AXES} | axes, "cpu")[0]


def cells(*several: dict) -> dict[str, dict]:
    return {cell_id(one): one for one in several}


def questions(spread: dict[str, float], blocks: int, asked: dict, ceilings: dict | None = None) -> ContrastTracker:
    """Trials whose log throughput alternates by ± the spread that is given for each cell."""
    found = ContrastTracker(RULE, asked, ceilings or {})
    for block in range(blocks):
        for key, size in spread.items():
            found.logs.add(key, block, 1000 * math.exp(size * (-1) ** block))
    return found


def test_pairs_are_those_of_the_analysis() -> None:
    """The sweep stops the contrasts that the analysis judges."""
    asked = cells(
        *(
            cell(storage_format=f, num_workers=w, batch_size=b)
            for f in ("png", "lmdb")
            for w in (0, 2)
            for b in (8, 32)
        ),
        cell(num_workers=2, batch_size=8, prefetch_factor=4),
        cell(mode="load", num_workers=2, batch_size=8),
        cell(step="emulated", batch_size=8),
    )
    rows = [
        {**axes, "cell_id": key, "run_id": "r", "machine_id": "m", "device": "cpu", "block": 0, "outcome": "ok"}
        for key, axes in asked.items()
    ]
    judged = frames.contrasts(pd.DataFrame(rows).assign(samples_per_s=1.0))
    mine = {(pair.axis, pair.cell_a, pair.cell_b) for pair in contrasts(asked)}
    assert mine == set(zip(judged["axis"], judged["cell_a"], judged["cell_b"], strict=True))
    assert len(mine) > 10


def test_sides_stay_until_both_are_done() -> None:
    """A narrow cell runs on while the cell that it is compared with is wide; a third one stops."""
    asked = cells(cell(num_workers=0), cell(num_workers=2), cell(mode="load"), cell(mode="load", num_workers=2))
    still, noisy, alone, other = asked
    wanted = questions({still: 0.001, noisy: 0.06, alone: 0.001, other: 0.001}, 8, asked).expected(8, ())
    assert wanted[still] == wanted[noisy] > 8
    assert wanted[alone] == wanted[other] == 0


def test_nothing_stops_before_the_fewest_blocks() -> None:
    """However narrow an interval is: stopping from 3 blocks on covers too little."""
    asked = cells(cell(num_workers=0), cell(num_workers=2))
    for blocks in range(8):
        wanted = questions(dict.fromkeys(asked, 0.0001), blocks, asked).expected(blocks, ())
        assert min(wanted.values()) == 8
    assert set(questions(dict.fromkeys(asked, 0.0001), 8, asked).expected(8, ()).values()) == {0}


def test_a_block_is_compared_with_itself() -> None:
    """Weather that both sides share cancels; a control cell's trials of one block count as one."""
    asked = cells(cell(num_workers=0), cell(num_workers=2))
    a, b = asked
    found, weather = ContrastTracker(RULE, asked, {}), random.Random(1)
    for block in range(10):
        drift = weather.gauss(0, 0.3)
        found.logs.add(a, block, 100 * math.exp(drift - 0.1))
        found.logs.add(a, block, 100 * math.exp(drift + 0.1))
        found.logs.add(b, block, 110 * math.exp(drift))
    assert found.values(Contrast("num_workers", a, b)) == pytest.approx([math.log(1.1)] * 10)
    assert found.values(Contrast("num_workers", a, b), before=3) == pytest.approx([math.log(1.1)] * 3)


@given(st.floats(0.5, 1e5), st.floats(0.01, 0.99999))
def test_quantiles_and_tails_are_students(df: float, level: float) -> None:
    """For any degrees of freedom, as SciPy has them to nine digits; the quantile is where the tails begin."""
    quantile = t_quantile(df, level)
    assert quantile == pytest.approx(float(special.stdtrit(df, 0.5 + level / 2)), rel=1e-9)
    assert tail(quantile, df) == pytest.approx((1 - level) / 2, rel=1e-8)
    assert tail(-quantile, df) + tail(quantile, df) == pytest.approx(1)


def test_nothing_is_said_without_degrees_of_freedom() -> None:
    """No degrees of freedom give NaN; infinite distances give tails of 0 and 1."""
    assert all(math.isnan(value) for value in (t_quantile(0), t_quantile(math.nan), tail(1, -1), tail(math.nan, 3)))
    assert (tail(math.inf, 3), tail(-math.inf, 3)) == (0, 1)
    assert (t_quantile(3, 1), t_quantile(3, 0)) == (math.inf, 0)
    assert t_quantile(1e9) == pytest.approx(special.ndtri(0.975), rel=1e-8)


@given(st.floats(0.001, 0.5), st.integers(2, 20))
def test_predicted_blocks_suffice(sd: float, fewest: int) -> None:
    """With the predicted number the interval is narrow enough, with one less it is not."""
    n = blocks_to(RULE.target, sd, fewest, 200)
    assert fewest <= n <= 200
    if n < 200:
        assert t_quantile(n - 1) * sd / math.sqrt(n) <= RULE.target
    if fewest < n:
        assert t_quantile(n - 2) * sd / math.sqrt(n - 1) > RULE.target


NAMES = [f"cell-{number:02}" for number in range(60)]
PAIR = {"cell-10": -1.0, "cell-40": 1.0}
CASES = {"cell-03": -0.5, "cell-23": 0.5, "cell-33": -0.5, "cell-53": 0.5}
SHARED = {"cell-40": -1.0, "cell-50": 1.0}
EFFECTS = (PAIR, CASES, SHARED)


def test_the_sides_of_an_effect_are_close() -> None:
    """An effect's sides run one after the other, also if one has a second partner."""

    def apart(order: list[str], *pairs: tuple[str, str]) -> int:
        arranged = side_by_side(order, EFFECTS, random.Random("".join(order)))
        return sum(abs(arranged.index(one) - arranged.index(other)) for one, other in pairs)

    for seed in range(200):
        order = random.Random(seed).sample(NAMES, len(NAMES))
        assert apart(order, ("cell-10", "cell-40"), ("cell-40", "cell-50")) <= 3
    assert apart([cell for cell in NAMES if cell != "cell-10"], ("cell-40", "cell-50")) == 1
