"""Which claims a plan tests, and which still get blocks: the certain ones stop, early and rarely wrongly."""

from __future__ import annotations

import math
from typing import Any

import pytest

from feedrate.plan import suite
from feedrate.plan.claim import Claim, Part, pair, terms
from feedrate.plan.claim_selection import (
    FACT_TRIALS,
    GROWS_AFTER,
    LEAST_BLOCKS,
    ClaimTracker,
    PlannedClaim,
    PlannedEffect,
    claims_of,
    plan_claims,
)
from feedrate.plan.stopping import Rule

RULE = Rule(fewest=8, most=30, target=math.log1p(0.03))
WORKERS = pair({"num_workers": 0}, {"num_workers": 2}, {"mode": "load", "workload": "synthetic"})
FIVE_TIMES = pair({"batch_size": 1}, {"batch_size": 64}, {"mode": "load", "workload": "synthetic"}, figure=5.0)
PINNING = pair({"pin_memory": False}, {"pin_memory": True}, {"mode": "load"})
RANKS = pair({"world_size": 1}, {"world_size": 2}, {"parallel": "ddp"})
IDS = {term.cell_id for term in terms(WORKERS, "cpu")}


def plan(cells: set[str], cores: int = 1, impossible: str | None = None, device: str = "cpu", **more: Any) -> Any:
    """Plan a claim about workers; its cells with workers are impossible where a reason is given."""
    claim = Claim("x", "It helps.", ("BOT",), "Two cells.", **{"effect": WORKERS, "not_shown": "The rest.", **more})
    why_not = lambda cell: impossible if cell["num_workers"] else None  # noqa: E731
    return plan_claims([claim], cells, device, "div2k_standin", why_not, cores)


def test_a_claim_is_planned_where_all_its_cells_run() -> None:
    """With the weights of its sides; what it says besides decides it, too, by the figure of its source."""
    (planned,), reasons = plan(IDS)
    (effect,) = planned.effects
    assert (planned.id, effect.metric, effect.least, reasons) == ("x", "throughput", None, {})
    assert sorted(effect.weights.values()) == [-1, 1]
    assert planned.cells == planned.deciding == effect.weights.keys() == IDS
    also, both = (Part("Five times.", FIVE_TIMES),), IDS | {term.cell_id for term in terms(FIVE_TIMES, "cpu")}
    (planned,), _ = plan(both, also=also)
    assert [effect.least for effect in planned.effects] == [None, 4.0]
    assert planned.deciding == both
    assert plan(IDS, also=also) == ((), {"x": "this run leaves out settings of it"})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"cells": IDS, "most_cores": 4, "cores": 4}, None),
        ({"cells": IDS, "most_cores": 4, "cores": 5}, "its settings need 4 cores at most; this machine has 5"),
        ({"cells": IDS, "least_cores": 2, "cores": 1}, "its settings need 2 cores or more; this machine has 1"),
        ({"cells": set(), "effect": PINNING, "needs": "cuda"}, "needs a CUDA device"),
        ({"cells": set(), "effect": RANKS, "needs": "gpus"}, "needs two CUDA devices"),
        ({"cells": set(), "impossible": "no room"}, "no room"),
        ({"cells": set()}, "this run leaves out settings of it"),
    ],
)
def test_what_speaks_against_a_claim_is_kept(given: dict[str, Any], reason: str | None) -> None:
    """Cores, the device, then what makes a cell impossible, then that this run leaves it out."""
    planned, reasons = plan(**given)
    assert reasons == ({"x": reason} if reason else {})
    assert bool(planned) == (reason is None)


def test_suites_test_their_own_claims_and_the_suite_of_all_everybodys() -> None:
    """A suite whose slices are another question's tests none by itself."""
    everything = suite.claims()
    assert {claim.id for claim in claims_of(["claims"])} == set(everything)
    own = {name for name, (owner, _) in everything.items() if owner == "workers"}
    assert {claim.id for claim in claims_of(["workers"])} == own
    assert claims_of(["loader", "storage", "calibration", "gone"]) == []


def claim(name: str, metric: str | None = "throughput", least: float | None = None) -> PlannedClaim:
    """A pair of cells of its own."""
    cells = {f"{name}-a": -1.0, f"{name}-b": 1.0}
    effect = PlannedEffect(metric, cells if metric else {f"{name}-a": 1.0}, least)
    return PlannedClaim(name, (effect,), frozenset((*cells, f"{name}-beside")))


def trial(cell: str, block: int, rate: float, **columns: object) -> dict[str, Any]:
    return {"cell_id": cell, "block": block, "outcome": "ok", "samples_per_s": rate, **columns}


def tell(tracker: ClaimTracker, name: str, effect: float, spread: float = 0.0, blocks: int = 8) -> None:
    """Blocks whose B ÷ A is the exponential of an effect, by turns above and below it."""
    for block in range(blocks):
        tracker.add(trial(f"{name}-a", block, 100.0))
        tracker.add(trial(f"{name}-b", block, 100 * math.exp(effect + spread * (-1) ** block)))


def told(**claims: tuple[float, float, int]) -> ClaimTracker:
    """Claims by name that had so large an effect, with such a spread, in so many blocks."""
    tracker = ClaimTracker(RULE, [claim(name) for name in claims])
    for name, blocks in claims.items():
        tell(tracker, name, *blocks)
    return tracker


def ids(claims: list[PlannedClaim]) -> list[str]:
    return [one.id for one in claims]


def test_a_clear_effect_is_certain_after_six_blocks() -> None:
    """Only effects clear of 1, or of the source's figure, stop after six blocks, the least certain first."""
    tracker = told(clear=(0.47, 0.02, 6), wild=(0.47, 0.3, 6), small=(0.02, 0.02, 6), early=(0.47, 0.001, 5))
    assert ids(tracker.open(6)) == ["early", "small", "wild"]
    assert tracker.certainty(tracker.claims[0]) > 1
    assert tracker.certainty(tracker.claims[3]) == 0
    tracker = ClaimTracker(RULE, [claim("plain"), claim("more", least=2.4), claim("near", least=4.0)])
    for one in tracker.claims:
        tell(tracker, one.id, math.log(4), 0.02)
    assert ids(tracker.open(8)) == ["near"]


@pytest.mark.parametrize(("other", "is_open"), [(0.02, True), (0.4, False)])
def test_a_claim_goes_on_until_each_of_its_cases_is_decided(other: float, is_open: bool) -> None:
    """A mean that is certain may hide a case that contradicts it; with all cases clear the claim is done."""
    cases = (claim("x").effects[0].weights, claim("y").effects[0].weights)
    weights = {cell: weight / 2 for case in cases for cell, weight in case.items()}
    alone, mean = (
        PlannedClaim("mean", (PlannedEffect("throughput", weights, cases=of),), frozenset(weights))
        for of in ((), cases)
    )
    tracker = ClaimTracker(RULE, [mean])
    tell(tracker, "x", 0.5, 0.01)
    tell(tracker, "y", other, 0.02)
    assert tracker.certainty(alone) > 1
    assert bool(tracker.open(8)) == is_open


def test_windows_grow_for_what_stays_open_near_no_difference() -> None:
    """After ten blocks, for estimates within 3 %: no larger effect, nothing that is certain, and nothing sooner."""
    near, far, same = (0.01, 0.05, GROWS_AFTER), (0.04, 0.05, GROWS_AFTER), (0.0, 0.001, GROWS_AFTER)
    tracker = told(near=near, far=far, same=same, soon=(0.01, 0.05, GROWS_AFTER - 1))
    assert tracker.grown(GROWS_AFTER) == {"near-a", "near-b"}
    assert tracker.grown(GROWS_AFTER - 1) == set()


def test_a_narrow_interval_is_not_enough() -> None:
    """One that ends a contrast may leave two verdicts: the claim goes on, up to the protocol's most blocks."""
    tracker = told(x=(0.025, 0.02, RULE.most))
    (planned,) = tracker.claims
    assert RULE.done(tracker.values(planned.effects[0], before=8))
    assert not tracker.done(planned, before=8)
    assert tracker.done(planned)


def reach(tracker: ClaimTracker, before: int, left_s: float, **seconds: float) -> list[str]:
    """Names of what is in reach where a trial takes 1.5 s, or what is given for a claim, so that a pair takes 3 s."""
    costs = {cell: seconds.get(claim.id, 1.5) for claim in tracker.claims for cell in claim.cells}
    return ids(tracker.in_reach(before, (), costs, left_s))


def test_time_goes_to_what_it_can_decide_the_quickest_first() -> None:
    """Claims that need the fewest blocks run first; hopeless ones only in time left over."""
    tracker = told(near=(0.1, 0.05, 8), next=(0.06, 0.05, 8), far=(0.015, 0.05, 8))
    assert reach(tracker, 8, 40.0) == ["near", "next"]
    assert reach(tracker, 8, 350.0, near=150.0) == ["next", "near"]
    assert reach(tracker, 8, 3.0) == ["near"]
    assert reach(tracker, 8, 2.9) == []
    tracker, rest_s = told(near=(0.1, 0.06, 8), far=(0.015, 0.05, 8)), 3.0 * (RULE.most - 8)
    assert reach(tracker, 8, 3.0 + rest_s) == ["near", "far"]
    assert reach(tracker, 8, 2.9 + rest_s) == ["near"]


def test_time_that_is_short_goes_to_what_can_have_enough_blocks() -> None:
    """After one block the cheapest claims that can still have six run, within the time left."""
    tracker = told(cheap=(0.1, 0.05, 1), dear=(0.1, 0.05, 1))
    more = LEAST_BLOCKS - 1
    assert reach(tracker, 1, more * 23.0, dear=10.0) == ["cheap", "dear"]
    assert reach(tracker, 1, more * 22.9, dear=10.0) == ["cheap"]
    assert reach(tracker, 1, more * 2.9, dear=10.0) == []
    costs = {cell: 1.5 for one in tracker.claims for cell in one.cells}
    assert tracker.all_s(tracker.claims, 1, costs) == more * 9.0  # with the cell that stands beside each


def test_a_fact_is_checked_twice() -> None:
    """It has no throughput; each check that ended well counts."""
    tracker = ClaimTracker(RULE, [claim("fact", None)])
    for block in range(FACT_TRIALS):
        assert tracker.open(block)
        tracker.add({"cell_id": "fact-a", "block": block, "outcome": "ok", "fact": True})
    assert not tracker.open(FACT_TRIALS)
