"""Effects that are judged together: against SciPy's tests, Holm's definition, and truths that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from feedrate.analysis.estimate import half_width
from feedrate.analysis.verdicts import ALPHA, ALPHA_SAME, CERTAIN, judge, single_verdict

EFFECT = st.tuples(st.floats(0.7, 1.4), st.floats(0.002, 0.2), st.integers(1, 30), st.sampled_from(["more", "less"]))
EFFECTS = st.lists(EFFECT, min_size=1, max_size=12)


def frame(effects: list[Any], figure: float = np.nan) -> pd.DataFrame:
    return pd.DataFrame(effects, columns=["ratio", "sd_log", "n", "says"]).assign(figure=figure)


def of(logs: Any, says: str = "more", figure: float = np.nan) -> pd.DataFrame:
    """Effects of paired log ratios, effects × blocks."""
    logs = np.atleast_2d(logs)
    row = {"ratio": np.exp(logs.mean(axis=1)), "sd_log": logs.std(axis=1, ddof=1), "n": logs.shape[1]}
    return pd.DataFrame(row).assign(says=says, figure=figure)


def rejected(p: Any, alpha: float) -> set[int]:
    """Holm 1979: the smallest p against alpha / m, the next against alpha / (m - 1) …; stop at the first failure."""
    found: set[int] = set()
    known = [place for place in range(len(p)) if np.isfinite(p[place])]
    for step, place in enumerate(sorted(known, key=lambda place: p[place])):
        if p[place] > alpha / (len(known) - step):
            break
        found.add(place)
    return found


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=15), st.sampled_from(["more", "less"]))
def test_p_is_that_of_t_tests(logs: list[float], says: str) -> None:
    """SciPy's one-sided tests: the larger of the two for no difference (TOST), twice the smaller for a difference."""
    if np.std(logs) < 1e-6:
        return
    claimed = np.array(logs) if says == "more" else -np.array(logs)

    def over(values: Any, bound: float) -> float:
        return float(stats.ttest_1samp(values, bound, alternative="greater").pvalue)

    same = max(over(np.array(logs), np.log(0.97)), over(-np.array(logs), -np.log(1.03)))
    differ = min(1.0, 2 * min(over(claimed, np.log(1.01)), over(-claimed, -np.log(0.99))))
    row = judge(of(logs, says)).iloc[0]
    assert row["p"] == pytest.approx(same) or row["p"] == pytest.approx(differ)
    half = float(half_width(np.std(logs, ddof=1), len(logs)))
    assert np.log([row["lo"], row["hi"]]) == pytest.approx(np.mean(logs) + np.array([-half, half]))


@pytest.mark.slow
@settings(max_examples=30)
@given(EFFECTS)
def test_the_correction_only_takes_verdicts_away(effects: list[Any]) -> None:
    """A verdict among many is the single interval's, granted by Holm within its family; else it is inconclusive."""
    table = frame(effects)
    found, alone = judge(table), [single_verdict(row) for row in table.to_dict("records")]
    with np.errstate(invalid="ignore", divide="ignore"):
        n = table["n"].where(table["n"] > 1)
        error, log = table["sd_log"] / np.sqrt(n), np.log(table["ratio"])
        turned = log.where(table["says"] == "more", -log)
        same = stats.t.cdf(-np.minimum(log - np.log(0.97), np.log(1.03) - log) / error, n - 1)
        differ = np.minimum(
            1, 2 * stats.t.cdf(-np.maximum(turned - np.log(1.01), np.log(0.99) - turned) / error, n - 1)
        )
    certain = {place for place in rejected(differ, CERTAIN) if alone[place] != "no difference"}
    left = [np.nan if place in certain else p for place, p in enumerate(same)]
    granted = {"no difference": rejected(left, ALPHA_SAME)} | dict.fromkeys(
        ("confirmed", "refuted"), rejected(differ, ALPHA)
    )
    for place, word in enumerate(alone):
        expected = word if word != "inconclusive" and place in granted[word] else "inconclusive"
        assert found["verdict"][place] == expected
        assert np.isnan(found["blocks_needed"][place]) == (expected != "inconclusive")


@settings(max_examples=40)
@given(EFFECTS)
def test_an_undecided_effect_is_told_what_would_decide_it(effects: list[Any]) -> None:
    """It needs more blocks than it has, and with them its interval of the level that it failed at decides."""
    table = frame(effects)
    for given_row, row in zip(table.to_dict("records"), judge(table).to_dict("records"), strict=True):
        if row["verdict"] == "inconclusive" and given_row["n"] > 1:
            assert row["blocks_needed"] > given_row["n"]
            assert single_verdict(given_row | {"n": row["blocks_needed"]}, row["level"]) != "inconclusive"


@pytest.mark.parametrize(
    ("ratio", "says", "figure", "verdict"),
    [
        (4.6, "more", 5.0, "confirmed"),  # within a fifth
        (7.0, "more", 5.0, "confirmed"),
        (2.0, "more", 5.0, "refuted"),  # more, but far from as much
        (4.0, "more", 5.0, "inconclusive"),
        (0.55, "less", 0.5, "confirmed"),
        (0.9, "less", 0.5, "refuted"),
        (1.0, "same", np.nan, "confirmed"),
        (1.2, "same", np.nan, "refuted"),
        (0.8, "same", np.nan, "refuted"),
        (1.2, "less", np.nan, "refuted"),
        (1.0, "more", np.nan, "no difference"),
    ],
)
def test_what_is_said_of_an_effect_is_what_is_judged(ratio: float, says: str, figure: float, verdict: str) -> None:
    """A source's figure is compared with, and a claim of no difference is confirmed by none."""
    row = {"ratio": ratio, "sd_log": 0.02, "n": 12, "says": says, "figure": figure}
    assert judge(pd.DataFrame([row]))["verdict"][0] == single_verdict(row) == verdict
