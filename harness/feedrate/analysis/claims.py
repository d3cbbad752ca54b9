"""The runs of a machine → a verdict for every claim, where it holds, and the numbers beside it.

An effect has one value a block of a run (``claim_values``). All runs of a machine and device that tested a claim are
pooled, whatever they found, with random effects of runs (``pooling``). Runs whose noise the intervals do not hold for
(``analysis.diagnosis``: of the whole run, or of the effect's own cells) are left out, and counted aloud; where there
are no others, nothing is decided. Nor is anything from fewer than six blocks. What a check saw of a fact needs no
interval: all runs count.

The cases that an effect is the mean of decide with it, by their own intervals. Where one confirms what is said, another
contradicts it and the two intervals have nothing in common, no mean is a verdict: the claim *depends*. No difference is
said only where each case shows none. Where intervals of cases have nothing in common, each must say what the mean says.
Numbers beside a claim have single intervals.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd

from feedrate.analysis.claim_values import EffectKey, Row, RunValues, Seen, label
from feedrate.analysis.estimate import Estimate, half_width, moments
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.pooling import between_runs, pooled
from feedrate.analysis.verdicts import ALPHA, COLUMNS, judge, single_verdict
from feedrate.plan.claim import Claim, Claims, Effect, untestable
from feedrate.plan.claim_selection import LEAST_BLOCKS
from feedrate.schema.axes import PHOTOGRAPHS
from feedrate.store.manifest import RunManifest

NOT_TESTABLE = "not testable here"
VERDICTS = ("confirmed", "depends", "refuted", "no difference", "inconclusive", NOT_TESTABLE)
"""In the order in which they are listed."""
FEW_BLOCKS = 8
"""A verdict from fewer is marked."""
_FIRST = ("refuted", "no difference", "depends", "inconclusive", "confirmed")
"""Of a claim that says several things the first of these is its verdict."""
_ESTIMATE = ("ratio", "lo", "hi", "n", "dropped", "sd_log", "units", "run_ids", "photographs")
_WHO = ("claim", "suite", "run_id", "machine_id", "device")
CLAIM_COLUMNS = (
    *_WHO,
    *("verdict", "own", *_ESTIMATE, "p_holm", "level", "blocks_needed"),
    *("withheld", "withdrawn", "worst", "worst_case", "depends_on", "undecided"),
    *("fact", "fact_value", "reason"),
)
"""Of ``Findings.claims``: ``own`` is the verdict on the effect alone, without what a claim says besides; ``n`` counts
blocks and ``units`` as many independent values as give the same interval (``pooling``); ``run_ids`` are the pooled
runs, newest first, ``run_id`` the first of them and ``photographs`` the workload that they read; ``withheld`` and
``withdrawn`` count runs that tested the claim and are left out; ``worst`` is the ratio of the case that is least in the
direction that is claimed; ``depends_on`` names the cases that contradict each other, ``undecided`` the first case that
does not say by itself what the mean says; ``reason`` says why a claim is not testable here, or why no run's intervals
hold. Text that does not apply is empty."""
_NOTHING = {"own": "", "run_ids": (), "worst_case": "", "depends_on": "", "undecided": "", "reason": ""}
_CASE_COLUMNS = (
    *(*_WHO, "role", "place", "case", *_ESTIMATE),
    *("verdict", "a_value", "b_value", "fact", "fact_value", "evidence"),
)
_ASIDE_COLUMNS = (*_WHO, "place", "label", "along", *_ESTIMATE, "verdict")


class _Pool:
    """The runs of one machine and device, newest first."""

    def __init__(self, runs: Sequence[RunValues], withdrawn: Iterable[RunManifest]) -> None:
        self.runs = runs
        self.newest = runs[0]
        gone = [run for run in withdrawn if (run.machine.machine_id, run.device) == self.newest.pool]
        self.withdrawn = Counter(tested.claim for run in gone for tested in run.claims)
        parts = dict.fromkeys(key for run in runs for key in run.effects if key[1] in ("effect", "also"))
        self.between = between_runs([seen.complete for _, seen in self.seen(key)] for key in parts)
        self._estimates: dict[EffectKey, Row] = {}

    def tests(self, name: str, claim: Claim) -> bool:
        """Whether a run has all that decides a claim."""
        if claim.facts:
            return any((name, "check", 0) in run.checks for run in self.runs)
        return all(any(key in run.effects for run in self.runs) for key, _ in _deciding(name, claim))

    def seen(self, key: EffectKey) -> list[tuple[RunValues, Seen]]:
        """The runs that have an effect's cells, all on the same photographs; withheld ones if there are no others."""
        tested = [(run, run.effects[key]) for run in self.runs if key in run.effects]
        tested = [pair for pair in tested if not _withheld(*pair)] or tested
        best = min((PHOTOGRAPHS.index(seen.photographs) for _, seen in tested), default=0)
        return [(run, seen) for run, seen in tested if PHOTOGRAPHS.index(seen.photographs) == best]

    def reason(self, key: EffectKey) -> str:
        """Why an estimate decides nothing: the intervals of no run hold; empty where those of one do."""
        return next((_withheld(*pair) for pair in self.seen(key)), "")

    def estimate(self, key: EffectKey) -> Row:
        """Exponential of the mean over all runs, with its 95 % interval; empty where no run has it."""
        if key not in self._estimates:
            self._estimates[key] = self._estimated(key)
        return self._estimates[key]

    def _estimated(self, key: EffectKey) -> Row:
        if not (runs := self.seen(key)):
            return {}
        values = [seen.complete for _, seen in runs]
        spread, blocks = pooled(values, self.between)
        return Estimate.of_moments(*spread).row() | {
            "n": blocks,
            "dropped": sum(seen.dropped for _, seen in runs),
            "sd_log": float(spread.sd),
            "units": float(spread.n),
            "run_ids": tuple(run.run_id for run, _ in runs),
            "photographs": runs[0][1].photographs,
        }

    def basis(self, key: EffectKey) -> Row:
        """Which runs an effect comes from, and which are left out."""
        ids = self.estimate(key)["run_ids"]
        tested = [(run, run.effects[key]) for run in self.runs if key in run.effects and run.run_id not in ids]
        withheld = sum(bool(_withheld(*pair)) for pair in tested)
        return {"run_id": ids[0]} | self.left_out(key[0], withheld)

    def left_out(self, claim: str, withheld: int = 0) -> Row:
        """How many runs of a claim do not count."""
        return {"withheld": withheld, "withdrawn": self.withdrawn[claim]}

    def alone(self, key: EffectKey, effect: Effect, level: float = 1 - ALPHA) -> str:
        """What the interval of an effect, or of a case, says by itself."""
        estimate = self.estimate(key)
        if self.reason(key) or estimate["n"] < LEAST_BLOCKS:
            return "inconclusive"
        return single_verdict(asked(estimate, effect), level)

    def case(self, key: EffectKey) -> Row:
        """The estimate of a case, with the metric's geometric mean on either side."""
        if not (row := self.estimate(key)):
            return {}
        sides = (np.concatenate([seen.sides[side] for _, seen in self.seen(key)]) for side in (0, 1))
        a_value, b_value = (float(np.exp(moments(logs).mean)) for logs in sides)
        return {**row, "a_value": a_value, "b_value": b_value}


def _withheld(run: RunValues, seen: Seen) -> str:
    """Why the interval of an effect of a run does not hold; empty where it does."""
    return run.withheld or seen.withheld


@dataclass(frozen=True, slots=True)
class Findings:
    """What records say of claims."""

    claims: pd.DataFrame
    """A row a claim and place: ``CLAIM_COLUMNS``."""
    cases: pd.DataFrame
    """A row a case of an effect, or a check; ``role`` is case, against, also or check."""
    asides: pd.DataFrame
    """A row a number beside a claim; ``along`` is the axis of a fitted line."""


def judge_claims(runs: Iterable[RunValues], claims: Claims, withdrawn: Sequence[RunManifest] = ()) -> Findings:
    """Judge claims by all runs: each by those of a machine and device that tested it, together.

    Args:
        runs: newest first, observed with the same claims.
        claims: id to suite and claim (``suite.claims()``).
        withdrawn: of runs that do not count, to be counted where they tested a claim.

    Returns:
        A verdict for every claim and place. One whose cells no run has is ``not testable here``, with the reason that
        the newest run gives.
    """
    places: defaultdict[tuple[str, str], list[RunValues]] = defaultdict(list)
    for run in runs:
        places[run.pool].append(run)
    rows: list[Row] = []
    cases: list[Row] = []
    asides: list[Row] = []
    for pool in places.values():
        for into, judged in zip((rows, cases, asides), _judge_place(pool, claims, withdrawn), strict=True):
            into.extend(judged)
    return Findings(
        pd.DataFrame(rows, columns=list(CLAIM_COLUMNS)),
        pd.DataFrame(cases, columns=list(_CASE_COLUMNS)),
        pd.DataFrame(asides, columns=list(_ASIDE_COLUMNS)),
    )


def _judge_place(
    runs: Sequence[RunValues], claims: Claims, withdrawn: Sequence[RunManifest]
) -> tuple[list[Row], list[Row], list[Row]]:
    """Judge claims by the runs of one machine and device, pooled."""
    pool = _Pool(runs, withdrawn)
    machine, device = pool.newest.pool
    rows, cases, asides = [], [], []
    deciding: dict[EffectKey, Effect] = {}
    for name, (suite, general) in claims.items():
        claim = general.on(device)
        ids: Row = {"claim": name, "suite": suite, "run_id": pool.newest.run_id, "machine_id": machine}
        row, own_cases = _row(pool, name, claim)
        rows.append(row := ids | {"device": device, **_NOTHING} | row)
        who = {column: row[column] for column in _WHO}
        cases += [who | case for case in own_cases]
        asides += [who | aside for aside in _asides(pool, name, claim)]
        if row["verdict"] != NOT_TESTABLE and not row["reason"]:
            decide = _deciding(name, claim)
            deciding |= {key: effect for key, effect in decide if pool.estimate(key)["n"] >= LEAST_BLOCKS}
    verdicts = _judged(pool, deciding)
    for row in rows:
        claim = claims[row["claim"]][1].on(row["device"])
        if all(key in verdicts for key, _ in _deciding(row["claim"], claim)) and claim.effect:
            _conclude(row, claim, verdicts)
    for case in cases:
        if judged_case := verdicts.get((case["claim"], case["role"], int(case["place"]))):
            case["verdict"] = judged_case["verdict"]
    return rows, cases, asides


def _judged(pool: _Pool, deciding: Mapping[EffectKey, Effect]) -> dict[EffectKey, Row]:
    """Judge effects together, each with what its cases leave of its verdict."""
    if not deciding:
        return {}
    estimates = [asked(pool.estimate(key), effect) for key, effect in deciding.items()]
    verdicts = dict(zip(deciding, rows_of(judge(pd.DataFrame(estimates))[[*COLUMNS]]), strict=True))
    for key, effect in deciding.items():
        word, of_cases = _by_cases(pool, key, effect, verdicts[key]["verdict"])
        counts = {column: pool.estimate(key)[column] for column in ("n", "units")}
        verdicts[key] = {**verdicts[key], **counts, "verdict": word, "of_cases": of_cases}
    return verdicts


def _deciding(name: str, claim: Claim) -> Iterator[tuple[EffectKey, Effect]]:
    """What must hold for a claim to hold."""
    if claim.effect:
        yield (name, "effect", 0), claim.effect
        for index, also in enumerate(claim.also):
            yield (name, "also", index), also.effect


def _case_keys(key: EffectKey, effect: Effect) -> list[EffectKey]:
    """The several cases of what decides a claim."""
    name, role, index = key
    return [(name, "case" if role == "effect" else f"also {index}", case) for case in range(len(effect.several))]


def asked(estimate: Row, effect: Effect) -> Row:
    """What ``verdicts.judge`` has to know of an effect: its estimate, and what is said of it."""
    figure = np.nan if effect.figure is None else 1.0 if effect.level else effect.figure
    return estimate | {"n": estimate["units"], "says": effect.says, "figure": figure}


def _row(pool: _Pool, name: str, claim: Claim) -> tuple[Row, list[Row]]:
    """A claim's row before anything is judged, and those of its cases, parts or checks."""
    if claim.facts:
        return _facts(pool, name, claim)
    deciding = dict(_deciding(name, claim))
    estimates = [pool.estimate(key) for key in deciding]
    if claim.effect is None or not all(estimates):
        return {"verdict": NOT_TESTABLE, "reason": _why_not(pool, name, claim)}, []
    cases = list(_cases(pool, name, claim.effect))
    for index, (also, estimate) in enumerate(zip(claim.also, estimates[1:], strict=True)):
        cases.append({"role": "also", "case": also.label, "place": index, **estimate, "verdict": "inconclusive"})
        cases += _listed_cases(pool, f"{also.label}: ", _case_keys((name, "also", index), also.effect), also.effect)
    reason = next(filter(None, map(pool.reason, deciding)), "")
    row = {
        "verdict": "inconclusive",
        "own": "inconclusive",
        "reason": reason,
        **estimates[0],
        **pool.basis((name, "effect", 0)),
    }
    return row | _worst(claim.effect, cases), cases


def _why_not(pool: _Pool, name: str, claim: Claim) -> str:
    if reason := untestable(claim, pool.newest.device):
        return reason
    return next((run.untestable[name] for run in pool.runs if name in run.untestable), "no run has settings of it")


def _cases(pool: _Pool, name: str, effect: Effect) -> Iterator[Row]:
    for role, cases in (("case", effect.cases), ("against", effect.against)):
        yield from _listed_cases(pool, "", [(name, role, index) for index in range(len(cases))], effect)


def _listed_cases(pool: _Pool, of: str, parts: Sequence[EffectKey], effect: Effect) -> Iterator[Row]:
    """The rows of cases, each with a single verdict."""
    for key in parts:
        _, role, index = key
        if estimate := pool.case(key):
            case = (effect.against if role == "against" else effect.cases)[index]
            named = of + label(case, [*effect.cases, *effect.against])
            yield {"role": role, "place": index, "case": named, **estimate, "verdict": pool.alone(key, effect)}


def _worst(effect: Effect, cases: Sequence[Row]) -> Row:
    """The case that is least in the direction that is claimed; of an interaction, or a single case, none."""
    compared = [case for case in cases if case["role"] == "case" and np.isfinite(case["ratio"])]
    if len(compared) < 2 or effect.against:
        return {}
    worst = min(compared, key=lambda case: _towards(effect, case["ratio"]))
    return {"worst": worst["ratio"], "worst_case": worst["case"]}


def _towards(effect: Effect, ratio: float) -> float:
    """How far a ratio lies in the direction that is claimed."""
    log = float(np.log(ratio))
    return {"more": log, "less": -log, "same": -abs(log)}[effect.says]


def _asides(pool: _Pool, name: str, claim: Claim) -> Iterator[Row]:
    for index, (what, effect) in enumerate(claim.asides.items()):
        if estimate := pool.estimate(key := (name, "aside", index)):
            verdict = pool.alone(key, effect)
            yield {"place": index, "label": what, "along": effect.along, **estimate, "verdict": verdict}


def _facts(pool: _Pool, name: str, claim: Claim) -> tuple[Row, list[Row]]:
    """The first check decides; the others say where else."""
    parts = []
    for index, values in enumerate(claim.facts):
        rows = [row for run in pool.runs for row in reversed(run.checks.get((name, "check", index), ()))]
        if rows:
            facts = {bool(row["fact"]) for row in rows}
            fact = facts.pop() if len(facts) == 1 else None
            seen = {
                "n": len(rows),
                "fact": fact,
                "fact_value": float(np.median([float(row["fact_value"]) for row in rows])),
                "evidence": str(rows[0]["evidence"]),
                "verdict": {None: "inconclusive", True: "confirmed", False: claim.unseen}[fact],
            }
            parts.append({"role": "check", "place": index, "case": label(values, claim.facts), **seen})
    ids = tuple(run.run_id for run in pool.runs if (name, "check", 0) in run.checks)
    if not ids:
        return {"verdict": NOT_TESTABLE, "reason": _why_not(pool, name, claim)}, parts
    deciding = {column: parts[0][column] for column in ("n", "fact", "fact_value", "verdict")}
    return deciding | {"run_id": ids[0], "run_ids": ids} | pool.left_out(name), parts


def _conclude(row: Row, claim: Claim, verdicts: Mapping[EffectKey, Row]) -> None:
    """Put a claim's verdict together: its effect's, and what it says besides."""
    words, undecided = [], []
    for key, _ in _deciding(row["claim"], claim):
        judged = verdicts[key]
        word, of_cases = judged["verdict"], judged["of_cases"]
        if of_cases:
            column = "depends_on" if word == "depends" else "undecided"
            row[column] = row[column] or of_cases
        if word == "inconclusive":
            more = judged["n"] * (judged["blocks_needed"] / judged["units"] - 1)
            undecided.append(np.nan if of_cases else math.ceil(more) if np.isfinite(more) else more)
        words.append(word)
    effect = verdicts[row["claim"], "effect", 0]
    row |= {"p_holm": effect["p_holm"], "level": effect["level"], "own": words[0]}
    row["verdict"] = next(word for word in _FIRST if word in words)
    if row["verdict"] == "inconclusive":
        row["blocks_needed"] = row["n"] + max(undecided)


def _by_cases(pool: _Pool, key: EffectKey, effect: Effect, word: str) -> tuple[str, str]:
    """Give what the cases of an effect leave of its verdict, and the cases that speak against it."""
    parts = _case_keys(key, effect)
    estimates = [pool.estimate(case) for case in parts]
    if len(estimates) < 2 or not all(estimates):
        return word, ""
    level = 1 - ALPHA / len(estimates)
    verdicts = [pool.alone(case, effect, level) for case in parts]
    ends = [(np.log(row["ratio"]), float(half_width(row["sd_log"], row["units"], level))) for row in estimates]
    apart = [
        (one, other)
        for one, other in permutations(range(len(estimates)), 2)
        if abs(ends[one][0] - ends[other][0]) > ends[one][1] + ends[other][1]
    ]
    if any(verdicts[one] == "confirmed" and verdicts[other] in ("refuted", "no difference") for one, other in apart):
        return "depends", _extremes(pool, key, effect)
    none = "confirmed" if effect.says == "same" else "no difference"
    if word == none or (apart and word != "inconclusive"):
        for case, tested in zip(effect.cases, parts, strict=True):
            if pool.alone(tested, effect) != word:
                return "inconclusive", label(case, effect.cases)
    return word, ""


def _extremes(pool: _Pool, key: EffectKey, effect: Effect) -> str:
    """Name the cases that contradict each other most, with their ratios."""
    ratios = [pool.estimate(case)["ratio"] for case in _case_keys(key, effect)]
    order = sorted(range(len(ratios)), key=lambda index: _towards(effect, ratios[index]))
    ends = [effect.cases[index] for index in (order[0], order[-1])]
    return " against ".join(
        f"{label(case, ends)} ({ratios[index]:.2f}×)" for case, index in zip(ends, (order[0], order[-1]), strict=True)
    )
