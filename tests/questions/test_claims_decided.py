"""The proof of the claims' verdicts: what is planted is what is told.

The same cells, with an effect planted as the claim says it, the other way round, not at all, and drowned in scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.claims import NOT_TESTABLE, judge_claims
from feedrate.plan import suite
from feedrate.plan.claim import Claim, Effect, cell_on
from feedrate.schema.axes import Value, cell_id
from feedrate.schema.columns import TRIALS
from feedrate.schema.metrics import METRICS

ALL = suite.claims()
EFFECTS = {
    f"{name} on {device}": (claim, device)
    for name, (_, claim) in ALL.items()
    for device in (("cpu", "cuda") if claim.on_cuda else ("cpu",) if claim.needs == "cpu" else ("cuda",))
    if claim.effect and claim.needs in ("cpu", "cuda", "gpus")
}
"""Claims where they can be tested, each with a device; those that have an effect of their own on CUDA stand twice."""
FACTS = [name for name, (_, claim) in ALL.items() if claim.facts]
BLOCKS = 12
PLANTED = 1.2
"""A ratio that no verdict leaves open."""
SCATTER = (0.01, -0.01)
"""Of the logs of B, one block and the next; it averages out over an even number of blocks."""


def columns(metric: str, value: float) -> dict[str, float]:
    """Records from which a metric is computed to be so much."""
    found = METRICS[metric]
    row = {name: 1e9 if name.endswith("_ns") else 50.0 for name in (*found.up, *found.down)}
    first = found.up[0]
    rest = found.of(row)
    assert rest is not None
    row[first] *= value / rest
    return row


def sides(effect: Effect, ratio: float) -> Iterator[tuple[Mapping[str, Value], float, int]]:
    """Every cell of an effect with the factor that is planted into it, and where its scatter goes.

    Told from cases and sides alone, and from no weight: B, and every doubling of a series, is ``ratio`` times A where
    the claim looks, and the same where it is held against.
    """
    for held, cases in ((False, effect.cases), (True, effect.against)):
        for case in cases:
            for place, (_, values) in enumerate(effect.sides(case)):
                steps = math.log2(float(values[effect.along])) if effect.along else place
                yield values, 1.0 if held else ratio**steps, (-1 if held else 1) * min(place, 1)


def trials(
    claim: Claim, device: str, ratio: float, scatter: Sequence[float] = SCATTER, blocks: int = BLOCKS
) -> pd.DataFrame:
    """Trials of a claim's cells, in which B is so many times A; every block is faster or slower than the one before."""
    effect = claim.on(device).effect
    assert effect is not None
    rows = []
    for block in range(blocks):
        for values, factor, way in sides(effect, ratio):
            cell, _ = cell_on(values, device)
            value = 1000 * factor * math.exp(way * scatter[block % len(scatter)]) * (1 + 0.3 * block)
            rows.append({**trial(cell, device, block), **columns(effect.metric, value)})
    frame = pd.DataFrame(rows, columns=[column.name for column in TRIALS])
    return frame.drop_duplicates(["cell_id", "block"])


def trial(cell: Mapping[str, Value], device: str, block: int) -> dict[str, Any]:
    """What every trial says of itself."""
    same = {"run_id": "run", "machine_id": "machine", "protocol_version": 1, "workload_version": 1, "outcome": "ok"}
    return {**cell, **same, "cell_id": cell_id(cell), "device": device, "block": block}


def verdict(name: str, frame: pd.DataFrame) -> str:
    """What the records say of one claim."""
    found = judge_claims(frame, {name: ALL[name]}).claims
    assert list(found["claim"]) == [name]
    return str(found["verdict"].iloc[0])


@pytest.mark.parametrize("name", EFFECTS)
def test_records_decide(name: str) -> None:
    """An effect as the claim has it confirms it, the contrary refutes it, none is no difference."""
    claim, device = EFFECTS[name]
    effect = claim.on(device).effect
    assert effect is not None
    as_said = PLANTED if effect.says == "more" else 1 / PLANTED
    assert verdict(claim.id, trials(claim, device, as_said)) == "confirmed"
    assert verdict(claim.id, trials(claim, device, 1 / as_said)) == "refuted"
    assert verdict(claim.id, trials(claim, device, 1.0)) == "no difference"


@pytest.mark.parametrize("name", EFFECTS)
def test_scatter_decides_nothing(name: str) -> None:
    """Trials that scatter more than the effect leave the claim open, and say how many blocks it would take."""
    claim, device = EFFECTS[name]
    frame = trials(claim, device, 1.02, (0.5, -0.5))
    assert verdict(claim.id, frame) == "inconclusive"
    assert judge_claims(frame, {claim.id: ALL[claim.id]}).claims["blocks_needed"].iloc[0] > BLOCKS


@pytest.mark.parametrize("name", EFFECTS)
def test_a_claim_without_one_of_its_cells_is_not_judged(name: str) -> None:
    """Half of a comparison says nothing."""
    claim, device = EFFECTS[name]
    frame = trials(claim, device, PLANTED)
    gone = frame["cell_id"].iloc[-1]
    assert verdict(claim.id, frame[frame["cell_id"] != gone]) == NOT_TESTABLE


@pytest.mark.parametrize("name", FACTS)
def test_checks_decide(name: str) -> None:
    """A fact is confirmed where the checks saw it, refuted where they did not, open where they disagree."""
    claim = ALL[name][1]
    device = "cpu" if claim.needs == "cpu" else "cuda"
    for saw, wanted in (((True,) * 3, "confirmed"), ((False,) * 3, "refuted"), ((True, False), "inconclusive")):
        rows = []
        for at, values in enumerate(claim.facts):
            cell, _ = cell_on({"mode": "check", **values}, device)
            for block, fact in enumerate(saw):
                # The first check decides; the others say the opposite here.
                seen = {"fact": fact == (at == 0), "fact_value": 0.5, "evidence": "It was seen."}
                rows.append({**trial(cell, device, block), **seen})
        assert verdict(name, pd.DataFrame(rows, columns=[column.name for column in TRIALS])) == wanted


@pytest.mark.parametrize("name", ["storage-device", "io-scheduler"])
def test_what_one_run_cannot_tell(name: str) -> None:
    """Where machines or disks must be compared, a run says so, and what it would take."""
    frame = trials(ALL["workers-async"][1], "cpu", PLANTED)
    found = judge_claims(frame, {name: ALL[name]}).claims.iloc[0]
    assert found["verdict"] == NOT_TESTABLE
    assert "needs" in found["reason"]
