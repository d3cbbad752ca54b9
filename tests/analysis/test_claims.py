"""Claims of one run: Holm against its textbook definition, verdicts against what single intervals say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from feedrate.analysis.blocks import half_width
from feedrate.analysis.claims import ALPHA, COLUMNS, holm, judge_together, p_values
from feedrate.analysis.contrasts import verdict

CLAIM = st.tuples(st.floats(0.7, 1.4), st.floats(0.002, 0.2), st.integers(1, 30), st.sampled_from(["faster", "slower"]))
CLAIMS = st.lists(CLAIM, min_size=1, max_size=12)


def frame_of(claims: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(claims, columns=["ratio", "sd_log", "n", "direction"])


def alone(ratio: float, sd: float, n: int, direction: Any, level: float = 0.95) -> str:
    """What a single interval says."""
    half = float(half_width(sd, n, level))
    return verdict(ratio, ratio * np.exp(-half), ratio * np.exp(half), direction)


def rejected(p: list[float], alpha: float) -> set[int]:
    """Holm 1979: the smallest p against alpha / m, the next against alpha / (m - 1) ...; stop at the first failure."""
    found: set[int] = set()
    for step, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[place] > alpha / (len(p) - step):
            break
        found.add(place)
    return found


@settings(max_examples=60)
@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=10), st.floats(0.001, 0.5))
def test_adjusted_p_values_reject_what_the_textbook_rejects(p: list[float], alpha: float) -> None:
    """At any alpha; an adjusted p-value is the smallest alpha that rejects."""
    adjusted = holm(p)
    margin = np.abs(adjusted - alpha) > 1e-9
    assert {int(place) for place in np.flatnonzero((adjusted <= alpha) & margin)} == {
        place for place in rejected(p, alpha) if margin[place]
    }
    for place, level in enumerate(adjusted):
        assert place in rejected(p, level * (1 + 1e-9)) or level == 1
        assert place not in rejected(p, level * (1 - 1e-9))


def test_what_is_not_known_is_no_member_of_the_family() -> None:
    """NaN stays NaN and makes no other claim harder."""
    assert holm([0.03, np.nan, 0.01]).tolist() == [0.03, pytest.approx(np.nan, nan_ok=True), 0.02]
    assert len(holm([])) == 0


@settings(max_examples=60)
@given(st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=15), st.sampled_from(["faster", "slower"]))
def test_p_values_are_those_of_t_tests(logs: list[float], direction: str) -> None:
    """SciPy's one-sided tests, doubled as intervals have two sides: TOST; over 1.01 or under 0.99 as claimed."""
    if np.std(logs) < 1e-6:
        return
    claimed = np.array(logs) if direction == "faster" else -np.array(logs)

    def over(values: Any, bound: float) -> float:
        return float(stats.ttest_1samp(values, bound, alternative="greater").pvalue)

    same = max(over(np.array(logs), np.log(0.97)), over(-np.array(logs), -np.log(1.03)))
    differ = min(over(claimed, np.log(1.01)), over(-claimed, -np.log(0.99)))
    found = p_values(np.exp(np.mean(logs)), np.std(logs, ddof=1), len(logs), direction)
    assert [float(p) for p in found] == [pytest.approx(min(1, 2 * p)) for p in (same, differ)]


@settings(max_examples=60)
@given(CLAIM)
def test_one_claim_is_judged_by_its_own_interval(claim: tuple[float, float, int, str]) -> None:
    """A family of one needs no correction: p is under alpha where the 95 % interval decides."""
    row = judge_together(frame_of([claim])).iloc[0]
    assert row["verdict"] == alone(*claim)
    if claim[2] > 1:
        assert row["level"] == pytest.approx(0.95)
        assert row["p_holm"] == row["p"]
        assert (row["p"] < ALPHA) == (row["verdict"] != "inconclusive")
        half = float(half_width(claim[1], claim[2]))
        assert (np.log(row["lo"]), np.log(row["hi"])) == (
            pytest.approx(np.log(claim[0]) - half),
            pytest.approx(np.log(claim[0]) + half),
        )


@settings(max_examples=60)
@given(CLAIMS)
def test_the_correction_only_takes_verdicts_away(claims: list[Any]) -> None:
    """A verdict among many is the verdict alone, granted by Holm among the claims; everything else is inconclusive."""
    frame = frame_of(claims)
    several = frame["n"] > 1
    both = p_values(*(frame[name][several] for name in ("ratio", "sd_log", "n", "direction")))
    granted = [rejected(list(p), ALPHA) for p in both]
    found = judge_together(frame)
    for place, at in enumerate(np.flatnonzero(several)):
        row, single = found.iloc[at], alone(*claims[at])
        family = 0 if single == "no difference" else 1
        assert row["verdict"] == (single if place in granted[family] else "inconclusive")
        assert (row["verdict"] != "inconclusive") == (row["p_holm"] <= ALPHA) == bool(np.isnan(row["blocks_needed"]))
        assert (single != "inconclusive") == (row["p"] <= ALPHA)


@settings(max_examples=40)
@given(CLAIMS)
def test_an_undecided_claim_is_told_what_would_decide_it(claims: list[Any]) -> None:
    """It needs more blocks than it has, and with them its interval, of the level that it failed at, decides it."""
    for claim, (_, row) in zip(claims, judge_together(frame_of(claims)).iterrows(), strict=True):
        ratio, sd, n, direction = claim
        if row["verdict"] == "inconclusive" and n > 1:
            assert row["blocks_needed"] > n
            assert alone(ratio, sd, int(row["blocks_needed"]), direction, row["level"]) != "inconclusive"


@settings(max_examples=40)
@given(CLAIMS, st.randoms())
def test_order_does_not_matter(claims: list[Any], random: Any) -> None:
    """Claims shuffled keep their verdicts, and their levels where no two are alike."""
    frame = frame_of(claims)
    one, moved = (
        judge_together(frame),
        judge_together(frame.sample(frac=1, random_state=random.randrange(2**31))).sort_index(),
    )
    alike = ["p", "p_holm", "lo", "hi", "verdict"] if one["p"].duplicated().any() else list(COLUMNS)
    pd.testing.assert_frame_equal(one[alike], moved[alike])


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(1.04, 1.5), st.floats(0.002, 0.2), st.integers(2, 30)), min_size=1, max_size=8))
def test_a_claim_can_be_told_from_either_side(claims: list[tuple[float, float, int]]) -> None:
    """B is faster than A says what A ÷ B is slower says; the contrary claim is refuted where it is confirmed."""
    ratio, sd, n = (list(column) for column in zip(*claims, strict=True))
    frame = pd.DataFrame({"ratio": ratio, "sd_log": sd, "n": n})
    faster = judge_together(frame.assign(direction="faster"))
    turned = judge_together(frame.assign(ratio=1 / frame["ratio"], direction="slower"))
    contrary = judge_together(frame.assign(direction="slower"))
    assert list(turned["verdict"]) == list(faster["verdict"])
    assert turned["p"].to_numpy() == pytest.approx(faster["p"].to_numpy(), rel=1e-6)
    assert (1 / turned["lo"]).to_numpy() == pytest.approx(faster["hi"].to_numpy())
    assert (contrary["verdict"] == "refuted").tolist() == (contrary["p_holm"] <= ALPHA).tolist()


def test_three_claims_by_hand() -> None:
    """The clearest is judged at 1 - 0.05 / 3, the next at 1 - 0.05 / 2, the last at 1 - 0.05: all hold."""
    claims = [(1.06, 0.03, 10, "faster"), (1.20, 0.03, 10, "faster"), (0.95, 0.03, 10, "slower")]
    found = judge_together(frame_of(claims))
    assert list(found.columns) == list(COLUMNS)
    assert found["level"].tolist() == [pytest.approx(1 - 0.05 / left) for left in (2, 3, 1)]
    assert found["verdict"].tolist() == ["confirmed"] * 3
    assert found["p_holm"].tolist() == [
        pytest.approx(2 * found["p"][0]),
        pytest.approx(3 * found["p"][1]),
        pytest.approx(found["p"][2]),
    ]


def test_a_claim_that_is_not_decided_ends_it_for_all_that_follow() -> None:
    """Three would each be confirmed alone; the second fails at 1 - 0.05 / 2, and the third is judged as strictly."""
    claims = [(1.3, 0.03, 10, "faster"), (1.036, 0.034, 10, "faster"), (1.036, 0.035, 10, "faster")]
    found = judge_together(frame_of(claims))
    assert [alone(*claim) for claim in claims] == ["confirmed"] * 3
    assert found["verdict"].tolist() == ["confirmed", "inconclusive", "inconclusive"]
    assert found["level"].tolist()[1:] == [pytest.approx(0.975)] * 2


def test_differences_and_their_absence_are_corrected_apart() -> None:
    """Ten clear differences make it no easier to say of one claim that there is none."""
    same = (1.0, 0.03, 9, "faster")
    assert alone(*same) == "no difference"
    assert judge_together(frame_of([same]))["verdict"].tolist() == ["no difference"]
    assert judge_together(frame_of([same, *[(1.5, 0.03, 9, "faster")] * 10]))["verdict"].tolist()[0] == "inconclusive"


def test_a_claim_without_pairs_is_inconclusive_and_no_burden() -> None:
    """One pair has no spread: no p-value, and the other claim is judged as if it were alone."""
    found = judge_together(
        frame_of([(1.05, np.nan, 1, "faster"), (1.2, 0.03, 10, "slower"), (np.nan, np.nan, 0, "faster")])
    )
    assert found["verdict"].tolist() == ["inconclusive", "refuted", "inconclusive"]
    assert found["level"].tolist()[1] == pytest.approx(0.95)
    assert found.loc[[0, 2], ["p", "p_holm", "level", "lo", "hi", "blocks_needed"]].isna().all(axis=None)
    assert len(judge_together(frame_of([]))) == 0


@pytest.mark.parametrize(
    ("truths", "spread"),
    [
        ([1.01, 0.97] * 5, 0.02),
        *(
            pytest.param([truth] * 10, spread, marks=pytest.mark.slow)
            for truth, spread in ((1.03, 0.015), (0.97, 0.015), (1.01, 0.02))
        ),
    ],
)
def test_a_run_seldom_has_any_wrong_verdict(truths: list[float], spread: float) -> None:
    """Ten claims whose truth lies on a margin, 600 runs: at most 5 % of them tell anything wrong (and chance)."""
    random = np.random.default_rng(7)
    runs, blocks = 600, 12
    logs = np.log(truths)[None, :, None] + random.normal(0, spread, (runs, len(truths), blocks))
    truth = np.array(truths)
    wrong = 0
    for run in logs:
        frame = pd.DataFrame({"ratio": np.exp(run.mean(axis=1)), "sd_log": run.std(axis=1, ddof=1), "n": blocks})
        said = judge_together(frame.assign(direction="faster"))["verdict"].to_numpy()
        wrong += bool(
            ((said == "no difference") & ((truth <= 0.97) | (truth >= 1.03))).any()
            or ((said == "confirmed") & (truth <= 1.01)).any()
            or ((said == "refuted") & (truth >= 0.99)).any()
        )
    assert wrong / runs < 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5
