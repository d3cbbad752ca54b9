"""A run's records become verdicts: effects, cases and facts; Holm against its textbook definition."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from feedrate.analysis.blocks import half_width
from feedrate.analysis.claims import (
    ALPHA,
    COLUMNS,
    NOT_TESTABLE,
    judge_claims,
    judge_run,
    judge_together,
    latest_findings,
    p_values,
)
from feedrate.analysis.contrasts import verdict
from feedrate.plan.claim import Aside, Claim, Values, pair, slope
from feedrate.schema.axes import AXES, applicable, cell_id
from feedrate.schema.errors import InputError

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


Trials = Callable[..., pd.DataFrame]
BLOCKS = 10
LOAD: Values = {"mode": "load"}


def claim(effect: Any = None, **more: Any) -> dict[str, tuple[str, Claim]]:
    return {"x": ("workers", Claim("x", "It helps.", ("BOT",), "Two cells.", effect, **more))}


def scattered(rate: float, seed: int, spread: float = 0.02) -> list[float]:
    return list(rate * np.exp(np.random.default_rng(seed).normal(0, spread, BLOCKS)))


def first(frame: pd.DataFrame) -> dict[Any, Any]:
    return frame.to_dict("records")[0]


WORKERS = pair({"num_workers": 0}, {"num_workers": 2}, {**LOAD, "batch_size": 8}, {**LOAD, "batch_size": 32})


def workers(trials_of: Trials, small: float, large: float, **columns: Any) -> pd.DataFrame:
    """Two workers are so many times as fast as none, with small batches and with large ones."""
    return trials_of(
        [
            ({**LOAD, "batch_size": size, "num_workers": count}, scattered(1000 * gain, size + count))
            for size, gain in ((8, small), (32, large))
            for count, gain in ((0, 1.0), (2, gain))
        ],
        **columns,
    )


@pytest.mark.parametrize(
    ("small", "large", "verdict"),
    [(2.0, 2.0, "confirmed"), (0.5, 0.5, "refuted"), (1.0, 1.0, "no difference"), (4.0, 1.0, "confirmed")],
)
def test_an_effect_is_the_mean_of_its_cases(trials_of: Trials, small: float, large: float, verdict: str) -> None:
    """Its ratio is the geometric mean; each case stands beside it with both sides' own rates."""
    found = judge_claims(workers(trials_of, small, large), claim(WORKERS))
    row = first(found.claims)
    assert row["verdict"] == verdict
    assert row["ratio"] == pytest.approx(math.sqrt(small * large), rel=0.03)
    assert row["lo"] < row["ratio"] < row["hi"]
    assert row["n"] == BLOCKS
    assert found.cases["case"].tolist() == ["batch_size=8", "batch_size=32"]
    assert found.cases["ratio"].tolist() == pytest.approx([small, large], rel=0.03)
    assert found.cases["a_value"].tolist() == pytest.approx([1000, 1000], rel=0.03)
    assert found.cases["b_value"].tolist() == pytest.approx([1000 * small, 1000 * large], rel=0.03)


def test_what_is_said_to_be_less_is_confirmed_by_less(trials_of: Trials) -> None:
    """The direction is the claim's."""
    effect = pair({"num_workers": 0}, {"num_workers": 2}, *WORKERS.cases, says="less")
    assert first(judge_claims(workers(trials_of, 0.5, 0.5), claim(effect)).claims)["verdict"] == "confirmed"
    assert first(judge_claims(workers(trials_of, 2, 2), claim(effect)).claims)["verdict"] == "refuted"


def test_a_case_against_another_is_an_interaction(trials_of: Trials) -> None:
    """What workers gain with small batches, over what they gain with large ones."""
    effect = pair(*({"num_workers": n} for n in (0, 2)), WORKERS.cases[0], against=WORKERS.cases[1:])
    found = judge_claims(workers(trials_of, 3.0, 1.5), claim(effect))
    assert first(found.claims)["ratio"] == pytest.approx(2, rel=0.05)
    assert found.cases["role"].tolist() == ["case", "against"]


def test_a_line_through_logs_gives_what_a_doubling_does(trials_of: Trials) -> None:
    """Throughput that grows with the square root of the batch: 1.41 for every doubling, beside what decides."""
    trials = trials_of([({**LOAD, "batch_size": size}, scattered(100 * size**0.5, size)) for size in (8, 16, 64)])
    line = slope("batch_size", (8, 16, 64), LOAD)
    assert first(judge_claims(trials, claim(line)).claims)["ratio"] == pytest.approx(math.sqrt(2), rel=0.02)
    pairs = pair({"batch_size": 8}, {"batch_size": 64}, LOAD)
    beside = first(judge_claims(trials, claim(pairs, asides=(Aside("per doubling", line),))).asides)
    assert (beside["label"], beside["along"]) == ("per doubling", "batch_size")
    assert beside["ratio"] == pytest.approx(math.sqrt(2), rel=0.02)


def test_another_metric_is_judged(trials_of: Trials) -> None:
    """The workers' CPU time for a sample: 40 % of a core over 2 s and 100 samples against 10 %."""
    cells = [{**LOAD, "num_workers": 2, "storage_format": name} for name in ("png", "lmdb")]
    trials = trials_of([(cell, [1.0] * BLOCKS) for cell in cells]).assign(wall_ns=2_000_000_000, samples=100)
    trials["workers_cpu_pct"] = trials["storage_format"].map({"png": 40.0, "lmdb": 10.0})
    trials["workers_cpu_pct"] *= np.exp(np.tile(np.linspace(-0.01, 0.01, BLOCKS), 2))
    effect = pair(
        {"storage_format": "png"},
        {"storage_format": "lmdb"},
        {**LOAD, "num_workers": 2},
        metric="workers_cpu",
        says="less",
    )
    found = judge_claims(trials, claim(effect))
    assert first(found.claims)["verdict"] == "confirmed"
    assert first(found.cases)["a_value"] == pytest.approx(0.8, rel=0.02)


def test_a_run_without_the_cells_says_why(trials_of: Trials) -> None:
    """What the claim needs, else the reason of the run's plan, else that the cells are not there."""
    trials = trials_of([(LOAD, [1.0, 1.0])])
    on_cuda = pair({"pin_memory": False}, {"pin_memory": True}, LOAD)
    assert first(judge_claims(trials, claim(WORKERS)).claims)["reason"] == "the run has no cells of it"
    assert first(judge_claims(trials, claim(WORKERS), {"x": "no room"}).claims)["reason"] == "no room"
    row = first(judge_claims(trials, claim(on_cuda, needs="cuda")).claims)
    assert (row["verdict"], row["reason"]) == (NOT_TESTABLE, "needs a CUDA device")


def test_photographs_stand_in_for_each_other_within_a_run(trials_of: Trials) -> None:
    """A claim that names div2k is judged by the stand-in's cells, and by a folder's before those."""
    effect = pair({"num_workers": 0}, {"num_workers": 2}, {**LOAD, "workload": "div2k"})
    for name in ("div2k_standin", "folder", "div2k"):
        trials = trials_of(
            [({**LOAD, "workload": name, "num_workers": n}, scattered(1000 + 1000 * n, n)) for n in (0, 2)]
        )
        assert first(judge_claims(trials, claim(effect)).claims)["verdict"] == "confirmed"
        assert first(judge_claims(trials, claim(effect)).cases)["a_value"] == pytest.approx(1000, rel=0.03)


def checks(facts: list[bool], **axes: Any) -> pd.DataFrame:
    cell = applicable({axis.name: axis.default for axis in AXES} | {"mode": "check", **axes}, "cpu")[0]
    rows = [
        {
            **cell,
            "cell_id": cell_id(cell),
            "run_id": "run",
            "machine_id": "machine",
            "device": "cpu",
            "protocol_version": 1,
            "block": block,
            "outcome": "ok",
            "samples_per_s": None,
            "fact": fact,
            "fact_value": float(block),
            "evidence": f"Seen {fact}.",
        }
        for block, fact in enumerate(facts)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [([True] * 3, "confirmed"), ([False] * 3, "refuted"), ([True, False, True], "inconclusive")],
)
def test_a_fact_is_what_its_checks_agree_on(facts: list[bool], verdict: str) -> None:
    """The first check decides; checks that disagree decide nothing; the others stand beside it."""
    fact = claim(None, facts=({"check": "next_epoch", "persistent_workers": True}, {"check": "next_epoch"}))
    trials = pd.concat([checks(facts, persistent_workers=True), checks([False] * 3)], ignore_index=True)
    found = judge_claims(trials, fact)
    assert first(found.claims)["verdict"] == verdict
    assert found.cases["verdict"].tolist() == [verdict, "refuted"]
    assert found.cases["case"].tolist()[0] == "persistent_workers=true"
    assert first(found.cases)["evidence"] == f"Seen {facts[-1]}."


def test_versions_of_the_protocol_are_never_mixed(trials_of: Trials) -> None:
    """Nor are runs: blocks pair within one."""
    trials = workers(trials_of, 2, 2)
    trials.loc[0, "protocol_version"] = 2
    with pytest.raises(InputError, match=r"versions 1 and 2 stand together; expected one"):
        judge_claims(trials, claim(WORKERS))
    two = pd.concat([workers(trials_of, 2, 2), workers(trials_of, 2, 2, run_id="other")])
    with pytest.raises(InputError, match="trials of 2 runs; expected one"):
        judge_claims(two, claim(WORKERS))


def test_more_claims_need_more_evidence(trials_of: Trials) -> None:
    """An effect that is confirmed alone is inconclusive among twenty that show nothing."""
    trials = trials_of(
        [({**LOAD, "num_workers": n}, scattered(1000 * (1 + 0.045 * n / 2), n, 0.025)) for n in (0, 2)]
        + [({**LOAD, "replica": n}, scattered(1000, 10 + n, 0.2)) for n in range(1, 40)]
    )
    one = pair({"num_workers": 0}, {"num_workers": 2}, LOAD)
    rest = [pair({"replica": n}, {"replica": n + 1}, LOAD) for n in range(1, 39, 2)]
    alone = first(judge_claims(trials, claim(one)).claims)
    assert alone["verdict"] == "confirmed"
    many = {str(k): claim(effect)["x"] for k, effect in enumerate([one, *rest])}
    among = first(judge_claims(trials, many).claims)
    assert among["verdict"] == "inconclusive"
    assert among["level"] > alone["level"]
    assert among["blocks_needed"] > BLOCKS


def test_the_newest_run_that_tested_a_claim_speaks_for_its_machine(trials_of: Trials) -> None:
    """A newer run without its cells does not hide it; another machine stands beside; an older protocol is left out."""
    old = workers(trials_of, 2, 2, run_id="old")
    without = trials_of([(LOAD, [1.0, 1.0])], run_id="new")
    other = workers(trials_of, 0.5, 0.5, run_id="other").assign(machine_id="else")
    ancient = workers(trials_of, 0.5, 0.5, run_id="ancient").assign(protocol_version=0)
    runs = [
        judge_run(SimpleNamespace(run_id=str(frame["run_id"].iloc[0]), claims=(), untestable={}), frame, claim(WORKERS))
        for frame in (ancient, without, old, other)
    ]
    found = latest_findings(runs, claim(WORKERS))
    assert dict(zip(found.found.claims["run_id"], found.found.claims["verdict"], strict=True)) == {
        "old": "confirmed",
        "other": "refuted",
    }
    assert found.left_out == ("ancient",)
    assert set(found.found.cases["run_id"]) == {"old", "other"}
    assert latest_findings([], claim(WORKERS)).found.claims.empty
