"""The proof of the claims' verdicts: what is planted is what is told.

The same cells, with an effect planted as the claim says it, the other way round, not at all, and drowned in scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import NOT_TESTABLE, judge_claims
from feedrate.plan import suite
from feedrate.plan.claim import Claim, Effect, cell_on
from feedrate.schema.axes import Value, cell_id
from feedrate.schema.columns import TRIALS
from feedrate.schema.metrics import METRICS, least_of

ALL = suite.claims()
EFFECTS = {
    f"{name} on {device}": (claim, device)
    for name, (_, claim) in ALL.items()
    for device in (("cpu", "cuda") if claim.on_cuda else ("cpu",) if claim.needs == "cpu" else ("cuda",))
    if claim.effect and claim.needs in ("cpu", "cuda", "gpus")
}
"""Claims where they can be tested, each with a device; those that have an effect of their own on CUDA stand twice."""
SHAPES = {
    (effect.says, bool(effect.figure), effect.level, bool(effect.along), bool(effect.against), bool(claim.also)): name
    for name, (claim, device) in EFFECTS.items()
    if (effect := claim.on(device).effect)
}
"""A claim of each shape that effects have."""
FACTS = [name for name, (_, claim) in ALL.items() if claim.facts]
BLOCKS = 8
PLANTED = 1.2
"""A ratio that no verdict leaves open."""
SCATTER = (0.01, -0.01)
"""Of the logs of B, one block and the next; it averages out over an even number of blocks."""


def columns(metric: str, value: float) -> dict[str, float]:
    """Records from which a metric is computed to be so much."""
    found = METRICS[metric]
    if len(found.columns) > len(set(found.columns)):  # a share: the first column of the whole is what is left
        return dict.fromkeys(found.columns, 0.0) | {found.columns[0]: 1e9 * value, found.down[0][0]: 1e9 * (1 - value)}
    row = {name: 1e9 if name.endswith("_ns") else 50.0 for name in found.columns}
    rest = found.of(row)
    assert rest is not None
    first = (found.up[0],) if isinstance(found.up[0], str) else found.up[0]
    return row | {name: row[name] * value / rest for name in first}


def sides(effect: Effect, ratio: float, held_back: float = 1.0) -> Iterator[tuple[Mapping[str, Value], float, int]]:
    """Every cell of an effect with the factor that is planted into it, and where its scatter goes.

    Told from cases and sides alone, and from no weight: B, and every doubling of a series, is ``ratio`` times A where
    the claim looks, and ``held_back`` times where it is held against; a level is ``ratio`` itself.
    """
    for held, cases in ((False, effect.cases), (True, effect.against)):
        for case in cases:
            for place, (_, values) in enumerate(effect.sides(case), start=int(effect.level)):
                steps = math.log2(float(values[effect.along])) if effect.along else place
                yield values, (held_back if held else ratio) ** steps, (-1 if held else 1) * min(place, 1)


def as_said(effect: Effect) -> float:
    """A ratio, or level, that an effect is confirmed by; of an interaction one that leaves room for a part of it."""
    clear = PLANTED**2 if effect.against else PLANTED
    return effect.figure or {"more": clear, "less": 1 / clear, "same": 1.0}[effect.says]


def contrary_to(effect: Effect) -> tuple[float, ...]:
    """Ratios, or levels, that an effect is refuted by."""
    if effect.figure:
        return (2 * effect.figure if effect.says == "less" else effect.figure / 2,)
    return (PLANTED, 1 / PLANTED) if effect.says == "same" else (1 / as_said(effect),)


def trials(
    claim: Claim, device: str, ratio: float, scatter: Sequence[float] = SCATTER, blocks: int = BLOCKS
) -> pd.DataFrame:
    """Trials in which B is so many times A, every block of its own pace; what the claim says besides is as it says."""
    claim = claim.on(device)
    effect = claim.effect
    assert effect is not None
    # A part may look at the cells that the effect is held against: there is its ratio, and the effect is beyond it.
    besides = [(part.effect, list(sides(part.effect, as_said(part.effect)))) for part in claim.also]
    beyond = math.prod(as_said(part) for part, _ in besides if tuple(part.cases) == tuple(effect.against))
    planted = [(effect, list(sides(effect, ratio * beyond, beyond))), *besides]
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for block in range(blocks):
        for each, factors in planted:
            for values, factor, way in factors:
                cell, _ = cell_on(values, device)
                level = 1.0 if each.level else 1000 * (1 + 0.3 * block)
                value = level * factor * math.exp(way * scatter[block % len(scatter)])
                row = rows.setdefault((cell_id(cell), block), trial(cell, device, block))
                rows[cell_id(cell), block] = {**columns(each.metric, value), **row}
    for row in rows.values():
        if row.get("page_cache") == "cold":  # more was read from storage than the samples take
            row |= {"cached_before_pct": 0.0, "samples": row.get("samples", 1), "stored_bytes": 1, "read_bytes": 10**9}
    return pd.DataFrame(list(rows.values()), columns=[column.name for column in TRIALS])


def trial(cell: Mapping[str, Value], device: str, block: int) -> dict[str, Any]:
    """What every trial says of itself."""
    same = {"run_id": "run", "machine_id": "machine", "protocol_version": 1, "workload_version": 1, "outcome": "ok"}
    return {**cell, **same, "cell_id": cell_id(cell), "device": device, "block": block}


def verdict(name: str, frame: pd.DataFrame) -> str:
    """What the records say of one claim."""
    return str(judged(name, frame)["verdict"])


def judged(name: str, frame: pd.DataFrame) -> Mapping[str, Any]:
    """The row of one claim."""
    asked = {name: ALL[name]}
    (row,) = judge_claims([observe(frame, asked)], asked).claims.to_dict("records")
    assert row["claim"] == name
    return {str(column): value for column, value in row.items()}


def apart() -> Iterator[list[str]]:
    """Claims in groups that one run can have: no two look at the same cells, and all are of one device."""
    groups: list[tuple[str, set[str], list[str]]] = []
    for name, (claim, device) in EFFECTS.items():
        cells = set(trials(claim, device, PLANTED, blocks=1)["cell_id"])
        free = (group for group in groups if group[0] == device and group[1].isdisjoint(cells))
        group = next(free, None)
        if group is None:
            groups.append(group := (device, set(), []))
        group[1].update(cells)
        group[2].append(name)
    yield from (names for _, _, names in groups)


def verdicts(names: Sequence[str], ratios: Callable[[Effect], float]) -> dict[str, str]:
    """What one run says of several claims, with a ratio planted for each."""
    if not names:
        return {}
    asked = {EFFECTS[name][0].id: ALL[EFFECTS[name][0].id] for name in names}
    frames = [trials(claim, device, ratios(effect_of(name))) for name in names for claim, device in [EFFECTS[name]]]
    claims = judge_claims([observe(pd.concat(frames, ignore_index=True), asked)], asked).claims
    return dict(zip(claims["claim"], claims["verdict"], strict=True))


def effect_of(name: str) -> Effect:
    claim, device = EFFECTS[name]
    effect = claim.on(device).effect
    assert effect is not None
    return effect


def without(name: str) -> str:
    """The verdict on a claim where there is no effect."""
    # Eight workers that do as much for large batches as for small ones, for which they must be slower.
    if EFFECTS[name][0].id == "fewer-workers-small-batch":
        return "refuted"
    return "confirmed" if effect_of(name).says == "same" else "no difference"


@pytest.mark.slow
def test_records_decide() -> None:
    """An effect as claimed confirms, its contrary refutes, none is no difference."""
    for names in apart():
        assert set(verdicts(names, as_said).values()) == {"confirmed"}
        assert set(verdicts(names, lambda effect: contrary_to(effect)[0]).values()) == {"refuted"}
        same = [name for name in names if len(contrary_to(effect_of(name))) > 1]
        assert set(verdicts(same, lambda effect: contrary_to(effect)[1]).values()) <= {"refuted"}
        free = [name for name in names if not effect_of(name).figure]
        assert verdicts(free, lambda _: 1.0) == {EFFECTS[name][0].id: without(name) for name in free}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES.values())
def test_scatter_and_a_missing_setting_decide_nothing(name: str) -> None:
    """Scatter larger than an effect leaves it open, and says how many blocks it would take."""
    (claim, device), effect = EFFECTS[name], effect_of(name)
    edge = least_of(effect.figure, effect.says) if effect.figure else 1.0
    scattered = judged(claim.id, trials(claim, device, 1.02 * edge, (0.5, -0.5)))
    assert scattered["verdict"] == "inconclusive"
    assert scattered["blocks_needed"] > BLOCKS
    half = trials(claim, device, PLANTED)
    half = half[half["cell_id"] != half["cell_id"].iloc[-1]]
    assert half.empty or verdict(claim.id, half) == NOT_TESTABLE


@pytest.mark.parametrize("name", FACTS)
def test_checks_decide(name: str) -> None:
    """A fact is confirmed if checks saw it, open if they disagree, else as its claim says."""
    claim = ALL[name][1]
    device = "cpu" if claim.needs == "cpu" else "cuda"
    for saw, wanted in (((True,) * 3, "confirmed"), ((False,) * 3, claim.unseen), ((True, False), "inconclusive")):
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
    found = judged(name, frame)
    assert found["verdict"] == NOT_TESTABLE
    assert "needs" in found["reason"]
