"""A run's records become verdicts: effects, cases, facts, and what cannot be judged together."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.analysis.claims import NOT_TESTABLE, judge_claims, judge_run, latest_findings
from feedrate.plan.claim import Aside, Claim, Values, pair, slope
from feedrate.schema.axes import AXES, applicable, cell_id
from feedrate.schema.errors import InputError

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
