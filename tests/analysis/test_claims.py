"""Runs' records become verdicts: effects, cases, parts and facts, pooled over the runs of a machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials

from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import NOT_TESTABLE, Findings, judge_claims
from feedrate.plan.claim import Claim, Claims, Part, Values, pair, slope

BLOCKS = 10
LOAD: Values = {"mode": "load"}
SPREAD = 0.02


def claim(effect: Any = None, **more: Any) -> dict[str, tuple[str, Claim]]:
    return {"x": ("workers", Claim("x", "It helps.", ("BOT",), "Two cells.", "Others.", effect, **more))}


def judged(*runs: pd.DataFrame, of: Claims, withdrawn: Any = ()) -> Findings:
    """What runs say, the newest first."""
    return judge_claims([observe(trials, of) for trials in runs], of, withdrawn)


def scattered(rate: float, seed: int, spread: float = SPREAD, blocks: int = BLOCKS) -> list[float]:
    """Rates whose logs have exactly this mean and standard deviation."""
    noise = np.random.default_rng(seed).normal(size=blocks)
    return [float(each) for each in rate * np.exp(spread * (noise - noise.mean()) / noise.std(ddof=1))]


def first(frame: pd.DataFrame) -> dict[Any, Any]:
    return frame.to_dict("records")[0]


WORKERS = pair({"num_workers": 0}, {"num_workers": 2}, {**LOAD, "batch_size": 8}, {**LOAD, "batch_size": 32})


def workers(
    small: float, large: float, spread: float = SPREAD, seed: int = 0, speed: float = 1000.0, **more: Any
) -> pd.DataFrame:
    """Two workers are so many times as fast as none, with small batches and with large ones; none does not scatter."""
    return make_trials(
        [
            (
                {**LOAD, "batch_size": size, "num_workers": count},
                scattered(speed * gain, seed + size, spread if count else 0.0),
            )
            for size, gain in ((8, small), (32, large))
            for count, gain in ((0, 1.0), (2, gain))
        ],
        **more,
    )


@pytest.mark.parametrize(
    ("small", "large", "verdict"),
    [(2.0, 2.0, "confirmed"), (0.5, 0.5, "refuted"), (1.0, 1.0, "no difference"), (4.0, 1.5, "confirmed")],
)
def test_an_effect_is_the_mean_of_its_cases(small: float, large: float, verdict: str) -> None:
    """Its ratio is the geometric mean; each case stands beside it with both sides' own rates."""
    found = judged(workers(small, large), of=claim(WORKERS))
    row = first(found.claims)
    assert row["verdict"] == row["own"] == verdict
    assert row["ratio"] == pytest.approx(math.sqrt(small * large))
    assert row["lo"] < row["ratio"] < row["hi"]
    assert (row["n"], row["run_ids"]) == (BLOCKS, ("run",))
    assert found.cases["case"].tolist() == ["batch_size=8", "batch_size=32"]
    assert found.cases["ratio"].tolist() == pytest.approx([small, large])
    assert found.cases["a_value"].tolist() == pytest.approx([1000, 1000])
    assert found.cases["b_value"].tolist() == pytest.approx([1000 * small, 1000 * large])


@pytest.mark.parametrize(
    ("small", "large", "spread", "verdict"),
    [
        (2.0, 0.5, 0.02, "depends"),  # one confirmed, one refuted
        (2.0, 1.0, 0.02, "depends"),  # one confirmed, one without a difference
        (1.036, 1.008, 0.02, "inconclusive"),  # the same, but their intervals have much in common
        (1.0258, 1.008, 0.02, "inconclusive"),  # none on average, which a case by itself does not show
        (1.008, 0.995, 0.02, "no difference"),  # and here each does
        (1.3, 1.0, 0.05, "inconclusive"),  # one confirmed, one open, and they differ: it may hold in both
        (1.5, 1.03, 0.05, "inconclusive"),  # the same, and it does
        (1.05, 1.02, 0.04, "confirmed"),  # one confirmed, one open, and nothing says that they differ
        (9.0, 1.2, 0.02, "confirmed"),  # they differ, and it holds in either
        (0.9, 0.2, 0.02, "refuted"),
    ],
)
def test_cases_that_contradict_each_other_depend(small: float, large: float, spread: float, verdict: str) -> None:
    """No mean speaks for cases that contradict each other; how much differs between them is no contradiction."""
    row = first(judged(workers(small, large, spread), of=claim(WORKERS)).claims)
    assert row["verdict"] == verdict
    named = f"batch_size=32 ({large:.2f}×) against batch_size=8 ({small:.2f}×)"
    assert row["depends_on"] == (named if verdict == "depends" else "")
    open_case = "batch_size=8" if small < 1.05 else "batch_size=32"
    assert row["undecided"] == (open_case if verdict == "inconclusive" else "")


def test_few_blocks_decide_nothing() -> None:
    """However clear an effect is: five blocks leave it open, six do not."""
    for blocks, verdict in ((5, "inconclusive"), (6, "confirmed")):
        trials = workers(2.0, 2.0)
        found = judged(trials[trials["block"] < blocks], of=claim(WORKERS))
        assert set(found.cases["verdict"]) == {first(found.claims)["verdict"]} == {verdict}


BESIDES = Part("four are slower than none", pair({"num_workers": 0}, {"num_workers": 4}, LOAD, says="less"))


@pytest.mark.parametrize(
    ("two", "four", "verdict", "part"),
    [
        (2.0, 0.5, "confirmed", "confirmed"),
        (2.0, 1.5, "refuted", "refuted"),
        (2.0, 0.98, "inconclusive", "inconclusive"),
        (1.02, 1.5, "refuted", "refuted"),
        (1.02, 0.5, "inconclusive", "confirmed"),
        (0.5, 0.5, "refuted", "confirmed"),
        (2.0, 1.0, "no difference", "no difference"),
    ],
)
def test_a_claim_holds_only_if_all_holds_that_it_says(two: float, four: float, verdict: str, part: str) -> None:
    """A claim is refuted or open if one of its parts is; each part keeps its verdict."""
    gains = {0: 1.0, 2: two, 4: four}
    trials = make_trials(
        [({**LOAD, "num_workers": n}, scattered(1000 * gain, n, 0.03 if n else 0.0)) for n, gain in gains.items()]
    )
    found = judged(trials, of=claim(pair({"num_workers": 0}, {"num_workers": 2}, LOAD), also=(BESIDES,)))
    row, (besides,) = first(found.claims), found.cases[found.cases["role"].eq("also")].to_dict("records")
    assert (row["verdict"], besides["verdict"], besides["case"]) == (verdict, part, BESIDES.label)
    assert besides["ratio"] == pytest.approx(four)
    assert (row["blocks_needed"] > BLOCKS) == (verdict == "inconclusive")


def test_a_part_has_one_verdict_wherever_it_stands() -> None:
    """A part whose cases differ is open in its own row as in the whole."""
    trials = workers(0.5, 1.0)
    small = pair(*(values for _, values in WORKERS.steps), WORKERS.cases[0], says="less")
    found = judged(trials, of=claim(small, also=(Part("two are faster", WORKERS),)))
    (besides,) = found.cases[found.cases["role"].eq("also")].to_dict("records")
    assert besides["ratio"] == pytest.approx(0.5**0.5, rel=0.01)
    assert (first(found.claims)["verdict"], besides["verdict"]) == ("inconclusive", "inconclusive")


def test_runs_of_a_machine_are_pooled() -> None:
    """Two runs count all their blocks; pairs lie within a run, however fast its day was."""
    old = workers(1.5, 1.5, run_id="old")
    new = workers(1.501, 1.501, seed=60, speed=3000, run_id="new")
    (one, other), both = (
        (first(judged(run, of=claim(WORKERS)).claims) for run in (old, new)),
        judged(new, old, of=claim(WORKERS)),
    )
    row = first(both.claims)
    assert (row["n"], row["run_ids"], row["run_id"]) == (2 * BLOCKS, ("new", "old"), "new")
    assert row["ratio"] == pytest.approx(math.sqrt(1.5 * 1.501), rel=1e-4)
    assert row["lo"] < min(each["lo"] for each in (one, other))  # another run may well differ by more than its blocks
    assert set(both.cases["n"]) == {2 * BLOCKS}
    assert len(both.claims) == 1


def test_runs_that_differ_are_pooled_all_the_same() -> None:
    """A run is never left out for what it found; where runs differ widely, their interval holds all of them."""
    usual, other = (workers(gain, gain, seed=100 * at, run_id=str(at)) for at, gain in enumerate((1.5, 0.8)))
    row = first(judged(other, usual, of=claim(WORKERS)).claims)
    assert (row["n"], row["verdict"]) == (2 * BLOCKS, "inconclusive")
    assert row["ratio"] == pytest.approx(math.sqrt(1.5 * 0.8), rel=1e-3)
    assert row["lo"] < 0.8 < 1.5 < row["hi"]


def test_a_run_without_the_cells_hides_nothing() -> None:
    """Newer runs of other cells take no verdict away; machines stand apart."""
    old = workers(2, 2, run_id="old")
    without = make_trials([(LOAD, [1.0, 1.0])], run_id="new")
    other = workers(0.5, 0.5, run_id="other").assign(machine_id="else")
    found = judged(without, old, other, of=claim(WORKERS))
    assert dict(zip(found.claims["run_id"], found.claims["verdict"], strict=True)) == {
        "old": "confirmed",
        "other": "refuted",
    }
    assert set(found.cases["run_id"]) == {"old", "other"}
    assert judge_claims([], claim(WORKERS)).claims.empty


def wandering(seed: int, sizes: Sequence[int]) -> list[tuple[dict[str, Any], list[float]]]:
    """Cells that go their own way from block to block: each trial resembles that of the block before."""
    cells = [(size, count) for size in sizes for count in (0, 2)]
    steps = 0.05 * np.random.default_rng(seed).normal(size=(len(cells), 40)).cumsum(axis=1)
    rates = 1000 * np.exp(steps - steps.mean(axis=1, keepdims=True))
    return [
        ({**LOAD, "batch_size": size, "num_workers": count}, ((3 if count else 1) * series).tolist())
        for (size, count), series in zip(cells, rates, strict=True)
    ]


def test_an_effect_whose_own_cells_depend_on_their_blocks_decides_nothing() -> None:
    """Among many quiet cells a run does not show it: the claim's own cells are asked."""
    quiet = [({**LOAD, "batch_size": 33 + n}, scattered(1000, n, blocks=40)) for n in range(60)]
    row = first(judged(make_trials([*wandering(5, (8, 32)), *quiet]), of=claim(WORKERS)).claims)
    assert row["lo"] > 1.5
    assert (row["verdict"], "depend on one another" in row["reason"]) == ("inconclusive", True)


def test_a_run_whose_intervals_do_not_hold_decides_nothing() -> None:
    """Alone it leaves a claim open, with the reason, however clear; beside another run it is left out and counted."""
    noisy = make_trials(wandering(3, (8, 16, 32, 64, 128, 256)), run_id="noisy")
    quiet = workers(2, 2, run_id="quiet")
    alone = judged(noisy, of=claim(WORKERS))
    row = first(alone.claims)
    assert row["lo"] > 1.5
    assert row["verdict"] == "inconclusive"
    assert "depend on one another" in row["reason"]
    assert set(alone.cases["verdict"]) == {"inconclusive"}
    row = first(judged(noisy, quiet, of=claim(WORKERS)).claims)
    assert (row["verdict"], row["reason"], row["withheld"]) == ("confirmed", "", 1)
    assert (row["run_ids"], row["n"]) == (("quiet",), BLOCKS)


def test_withdrawn_runs_are_counted() -> None:
    """Those of the same machine and device that were made for the claim."""

    def gone(machine: str = "machine", device: str = "cpu", name: str = "x") -> Any:
        return SimpleNamespace(
            machine=SimpleNamespace(machine_id=machine), device=device, claims=[SimpleNamespace(claim=name)]
        )

    withdrawn = [gone(), gone(name="y"), gone(machine="else"), gone(device="cuda")]
    row = first(judged(workers(2, 2), of=claim(WORKERS), withdrawn=withdrawn).claims)
    assert (row["withdrawn"], row["n"]) == (1, BLOCKS)


def test_blocks_without_all_sides_are_dropped() -> None:
    """A block in which a side failed has no value and is counted; of several runs all such blocks are."""
    one = pair({"num_workers": 0}, {"num_workers": 2}, LOAD)
    runs = []
    for run_id, failures in (("a", (3,)), ("b", (0, 5))):
        rates: list[float | None] = [*scattered(2000, len(failures))]
        for block in failures:
            rates[block] = None
        cells = [({**LOAD, "num_workers": 0}, scattered(1000, 7)), ({**LOAD, "num_workers": 2}, rates)]
        runs.append(make_trials(cells, run_id=run_id))
    row = first(judged(*runs, of=claim(one)).claims)
    assert (row["n"], row["dropped"]) == (2 * BLOCKS - 3, 3)


def test_a_line_through_logs_gives_what_a_doubling_does() -> None:
    """Throughput that grows with the square root of the batch: 1.41 for every doubling, beside what decides."""
    trials = make_trials([({**LOAD, "batch_size": size}, scattered(100 * size**0.5, size)) for size in (8, 16, 64)])
    line = slope("batch_size", (8, 16, 64), LOAD)
    assert first(judged(trials, of=claim(line)).claims)["ratio"] == pytest.approx(math.sqrt(2), rel=0.02)
    pairs = pair({"batch_size": 8}, {"batch_size": 64}, LOAD)
    beside = first(judged(trials, of=claim(pairs, asides={"per doubling": line})).asides)
    assert (beside["label"], beside["along"]) == ("per doubling", "batch_size")
    assert beside["ratio"] == pytest.approx(math.sqrt(2), rel=0.02)


def test_another_metric_is_judged() -> None:
    """The workers' CPU time for a sample: 40 % of a core over 2 s and 100 samples against 10 %."""
    formats, held = [{"storage_format": name} for name in ("png", "lmdb")], {**LOAD, "num_workers": 2}
    trials = make_trials([({**held, **axes}, [1.0] * BLOCKS) for axes in formats])
    trials = trials.assign(wall_ns=2_000_000_000, samples=100)
    trials["workers_cpu_pct"] = np.repeat([40.0, 10.0], BLOCKS) * np.exp(np.tile(np.linspace(-0.01, 0.01, BLOCKS), 2))
    found = judged(trials, of=claim(pair(*formats, held, metric="workers_cpu", says="less")))
    assert first(found.claims)["verdict"] == "confirmed"
    assert first(found.cases)["a_value"] == pytest.approx(0.8, rel=0.02)


def test_a_run_without_the_cells_says_why() -> None:
    """What the claim needs, else the reason of the run's plan, else that the cells are not there."""
    trials = make_trials([(LOAD, [1.0, 1.0])])
    on_cuda = pair({"pin_memory": False}, {"pin_memory": True}, LOAD)
    assert first(judged(trials, of=claim(WORKERS)).claims)["reason"] == "no run has settings of it"
    assert (
        first(judge_claims([observe(trials, claim(WORKERS), {"x": "no room"})], claim(WORKERS)).claims)["reason"]
        == "no room"
    )
    row = first(judged(trials, of=claim(on_cuda, needs="cuda")).claims)
    assert (row["verdict"], row["reason"]) == (NOT_TESTABLE, "needs a CUDA device")


def test_photographs_stand_in_for_each_other_within_a_run() -> None:
    """A claim that names div2k is judged by the stand-in's cells, and by a folder's before those."""
    effect = pair({"num_workers": 0}, {"num_workers": 2}, {**LOAD, "workload": "div2k"})
    for name in ("div2k_standin", "folder", "div2k"):
        trials = make_trials(
            [({**LOAD, "workload": name, "num_workers": n}, scattered(1000 + 1000 * n, n)) for n in (0, 2)]
        )
        assert first(judged(trials, of=claim(effect)).claims)["verdict"] == "confirmed"
        assert first(judged(trials, of=claim(effect)).cases)["a_value"] == pytest.approx(1000, rel=0.03)


def test_what_was_warm_is_not_taken_for_cold() -> None:
    """Cold trials that did not read their samples from storage say nothing of a claim."""
    states = [
        ({**LOAD, "page_cache": state}, scattered(1000 * gain, gain)) for state, gain in (("cold", 1), ("warm", 2))
    ]
    trials, asked = make_trials(states), claim(pair({"page_cache": "cold"}, {"page_cache": "warm"}, LOAD))
    assert first(judged(trials, of=asked).claims)["verdict"] == "confirmed"
    trials.loc[trials["page_cache"].eq("cold"), "read_bytes"] = 100
    assert first(judged(trials, of=asked).claims)["verdict"] == "not testable here"
