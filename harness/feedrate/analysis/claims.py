"""The runs of a machine → a verdict for every claim, where it holds, and the numbers beside it.

An effect has one value a block of a run: the weighted sum of the logs of its cells in it. All runs of a machine that
were measured by one version of the protocol are pooled, whatever they found: over their blocks the values give an
estimate with a Student-t interval. Whether runs differ among themselves is tested and said. Runs whose noise the
intervals do not hold for (``analysis.noise.diagnose``) are left out, and counted aloud.

The cases that an effect is the mean of, and the numbers beside it, have single intervals: they say where, not whether.
But where they contradict one another, no mean is a verdict: the claim *depends*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import f_oneway

from feedrate.analysis.blocks import KEYS, Blocks, Floats, half_width, moments
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.noise import diagnose
from feedrate.analysis.verdicts import ALPHA, COLUMNS, HETEROGENEOUS, heterogeneity, judge, single_verdict
from feedrate.plan.claim import PHOTOGRAPHS, Claim, Claims, Effect, Values, cell_on, terms, untestable
from feedrate.schema.axes import BY_NAME, cell_id
from feedrate.schema.metrics import METRICS
from feedrate.store.manifest import RunManifest

NOT_TESTABLE = "not testable here"
VERDICTS = ("confirmed", "depends", "refuted", "no difference", "inconclusive", NOT_TESTABLE)
"""In the order in which they are listed."""
FEW_BLOCKS = 8
"""A verdict from fewer is marked."""
_UNTELLING = ("step_ms", "n_samples")
"""Axes that go without saying in the name of a case."""
_ESTIMATE = ("ratio", "lo", "hi", "n", "dropped", "sd_log")
_WHO = ("claim", "suite", "run_id", "machine_id", "device", "protocol")
CLAIM_COLUMNS = (
    *_WHO,
    *("verdict", *_ESTIMATE, "p_holm", "level", "blocks_needed"),
    *("runs", "runs_differ", "worst", "worst_case", "depends_on"),
    *("fact", "fact_value", "reason"),
)
"""Of ``Findings.claims``: ``run_id`` is the newest of ``runs`` pooled runs; ``worst`` the least ratio of a case in the
direction that is claimed; ``depends_on`` names the cases that contradict each other."""
_CASE_COLUMNS = (*_WHO, "role", "case", *_ESTIMATE, "verdict", "a_value", "b_value", "fact", "fact_value", "evidence")
_ASIDE_COLUMNS = (*_WHO, "label", "along", *_ESTIMATE, "verdict")
Row = dict[str, Any]
Part = tuple[str, str, int]
"""A claim's id, a role (effect, also, case, against, aside, check) and a place in it."""


def label(case: Values, cases: Sequence[Values]) -> str:
    """Name a case by what tells it from the others, which may be a default; a single one needs no name."""
    names = dict.fromkeys(name for each in cases for name in each if name not in _UNTELLING)
    values = {name: [each.get(name, BY_NAME[name].default) for each in cases] for name in names}
    own = {name: case.get(name, BY_NAME[name].default) for name in names if len(set(values[name])) > 1}
    return settings_text(own)


def settings_text(values: Values) -> str:
    """Write settings as they are typed: ``num_workers=2, pin_memory=true``."""
    return ", ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in values.items()
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """An effect, or a case of it, block by block in one run."""

    photographs: str
    """The workload that was read where the claim names photographs."""
    values: Floats
    """Weighted sums of logs, a value a block of the run; NaN where a trial is missing."""
    dropped: int
    """Blocks in which all of its trials were made and one or more failed."""
    sides: tuple[Floats, Floats]
    """Logs of the metric of A and of B, of single cases."""


@dataclass(frozen=True, slots=True)
class RunValues:
    """What one run has to say of claims, before anything is judged."""

    run_id: str
    machine_id: str
    device: str
    protocol: int
    untestable: Mapping[str, str]
    """Claim to what the run's plan said speaks against testing it."""
    withheld: str
    """Why intervals do not hold for this run's noise; empty where they do."""
    effects: Mapping[Part, _Seen] = field(default_factory=dict)
    checks: Mapping[Part, Sequence[Row]] = field(default_factory=dict)
    """Trials of the checks of facts that ended well: ``fact``, ``fact_value``, ``evidence``."""

    @property
    def place(self) -> tuple[str, str, int]:
        """What is pooled: machine, device and version of the protocol."""
        return self.machine_id, self.device, self.protocol


def observe(manifest: RunManifest, trials: pd.DataFrame, claims: Claims) -> RunValues:
    """Collect what a stored run has to say of claims."""
    who = (manifest.run_id, manifest.machine.machine_id, manifest.device, manifest.protocol_version)
    if not len(trials):
        return RunValues(*who, manifest.untestable, "")
    cells, effects, checks = _Cells(trials), dict[Part, _Seen](), dict[Part, Sequence[Row]]()
    for name, (_, general) in claims.items():
        claim = general.on(manifest.device)
        if untestable(claim, manifest.device) or name in manifest.untestable:
            continue
        for (role, place), effect, cases in _parts(claim):
            if seen := cells.observe(effect, cases):
                effects[name, role, place] = seen
        for place, values in enumerate(claim.facts):
            if rows := cells.checks(values):
                checks[name, "check", place] = rows
    return RunValues(*who, manifest.untestable, diagnose(trials).reason, effects, checks)


def _parts(claim: Claim) -> Iterator[tuple[tuple[str, int], Effect, Sequence[tuple[float, Values]] | None]]:
    """All effects of a claim with their role and place, and the weighted cases where not all of them count."""
    if claim.effect:
        yield ("effect", 0), claim.effect, None
        for role, cases in (("case", claim.effect.cases), ("against", claim.effect.against)):
            for place, case in enumerate(cases):
                yield (role, place), claim.effect, [(1.0, case)]
    for place, part in enumerate(claim.also):
        yield ("also", place), part.effect, None
    for place, aside in enumerate(claim.asides):
        yield ("aside", place), aside.effect, None


class _Cells:
    """The blocks of a run by metric, and which cells it has."""

    def __init__(self, trials: pd.DataFrame) -> None:
        self._trials = trials
        self._run_id, self._device = (str(trials[name].iloc[0]) for name in ("run_id", "device"))
        self._ids = set(trials["cell_id"])
        self._tried = trials[["cell_id", "block"]].drop_duplicates()
        ended = trials["outcome"].eq("ok") & (trials["fact"].notna() if "fact" in trials else False)
        self._checks = trials[ended]
        self._blocks: dict[str, Blocks] = {}
        present = set(trials["workload"].dropna())
        self._photographs = [name for name in PHOTOGRAPHS if name in present] or [PHOTOGRAPHS[0]]

    def observe(self, effect: Effect, cases: Sequence[tuple[float, Values]] | None) -> _Seen | None:
        """The values of an effect, or of some of its cases; None where the run lacks a cell."""
        for photographs in self._photographs:
            wanted = terms(effect, self._device, photographs, cases)
            if all(term.cell_id in self._ids for term in wanted):
                break
        else:
            return None
        ids = [term.cell_id for term in wanted]
        values: Floats = np.array([term.weight for term in wanted]) @ (logs := self._logs(effect.metric, ids))
        attempts = self._tried.loc[self._tried["cell_id"].isin(ids), "block"].value_counts()
        dropped = int((attempts == len(ids)).sum()) - int(np.isfinite(values).sum())
        return _Seen(photographs, values, dropped, (logs[0], logs[-1]))

    def _logs(self, metric: str, ids: Sequence[str]) -> Floats:
        """Logs of a metric, cells × blocks."""
        if metric not in self._blocks:
            number = METRICS[metric]
            columns = [name for name in (*number.up, *number.down) if name in self._trials]
            values = pd.Series([number.of(row) for row in rows_of(self._trials[columns])], self._trials.index)
            self._blocks[metric] = Blocks(self._trials[[*KEYS, "block", "outcome"]].assign(samples_per_s=values))
        return self._blocks[metric].logs([self._run_id] * len(ids), ids)

    def checks(self, values: Values) -> list[Row]:
        """What the checks of a fact saw."""
        cell, _ = cell_on({"mode": "check", **values}, self._device)
        return rows_of(self._checks[self._checks["cell_id"].eq(cell_id(cell))][["fact", "fact_value", "evidence"]])


class _Pool:
    """The runs of one machine, device and protocol, newest first."""

    def __init__(self, runs: Sequence[RunValues]) -> None:
        self.usable = [run for run in runs if not run.withheld]
        self.withheld = next((run.withheld for run in runs if run.withheld), "")
        self.newest = runs[0]

    def seen(self, part: Part) -> list[tuple[RunValues, _Seen]]:
        """The runs that have the cells of an effect, all on the same photographs."""
        found = [(run, run.effects[part]) for run in self.usable if part in run.effects]
        best = min((PHOTOGRAPHS.index(seen.photographs) for _, seen in found), default=0)
        return [(run, seen) for run, seen in found if PHOTOGRAPHS.index(seen.photographs) == best]

    def estimate(self, part: Part) -> Row:
        """Exponential of the mean over all blocks of all runs, with its 95 % interval; empty where no run has it."""
        if not (found := self.seen(part)):
            return {}
        mean, sd, n = moments(np.concatenate([seen.values for _, seen in found]))
        half = half_width(sd, n)
        return {
            "ratio": float(np.exp(mean)),
            "lo": float(np.exp(mean - half)),
            "hi": float(np.exp(mean + half)),
            "n": int(n),
            "dropped": sum(seen.dropped for _, seen in found),
            "sd_log": float(sd),
        }

    def runs(self, part: Part) -> Row:
        """Which runs an effect comes from, and whether they differ by more than their blocks do."""
        found = self.seen(part)
        groups = [seen.values[np.isfinite(seen.values)] for _, seen in found]
        groups = [values for values in groups if len(values) > 1]
        differ = len(groups) > 1 and bool(f_oneway(*groups).pvalue < HETEROGENEOUS)
        return {"run_id": found[0][0].run_id, "runs": len(found), "runs_differ": differ}

    def case(self, part: Part) -> Row:
        """The estimate of a case, with the metric's geometric mean on either side."""
        if not (row := self.estimate(part)):
            return {}
        sides = (np.concatenate([seen.sides[side] for _, seen in self.seen(part)]) for side in (0, 1))
        a_value, b_value = (float(np.exp(moments(logs).mean)) for logs in sides)
        return {**row, "a_value": a_value, "b_value": b_value}

    def case_values(self, claim: str, cases: int) -> Floats:
        """Log ratios of all cases, cases × blocks of all runs that have all of them."""
        every = [self.seen((claim, "case", place)) for place in range(cases)]
        shared = [run for run in self.usable if all(any(run is other for other, _ in seen) for seen in every)]
        columns = [[run.effects[claim, "case", place].values for run in shared] for place in range(cases)]
        return np.array([np.concatenate(values) for values in columns]) if shared else np.empty((cases, 0))


@dataclass(frozen=True, slots=True)
class Findings:
    """What records say of claims."""

    claims: pd.DataFrame
    """A row a claim: ``CLAIM_COLUMNS``; ``reason`` says why one is not testable here."""
    cases: pd.DataFrame
    """A row a case of an effect, or a check; ``role`` is case, against, also or check."""
    asides: pd.DataFrame
    """A row a number beside a claim; ``along`` is the axis of a fitted line."""


def judge_claims(runs: Iterable[RunValues], claims: Claims) -> Findings:
    """Judge claims by all runs, those of each machine, device and newest protocol together.

    Args:
        runs: newest first, observed with the same claims.
        claims: id to suite and claim (``suite.claims()``).

    Returns:
        A verdict for every claim and place. One whose cells no run has is ``not testable here``, with the reason that
        the newest run gives.
    """
    places: defaultdict[tuple[str, str], list[RunValues]] = defaultdict(list)
    for run in runs:
        places[run.place[:2]].append(run)
    rows: list[Row] = []
    cases: list[Row] = []
    asides: list[Row] = []
    for own in places.values():
        newest = max(run.protocol for run in own)
        found = _judge_place([run for run in own if run.protocol == newest], claims)
        for into, part in zip((rows, cases, asides), found, strict=True):
            into += part
    return Findings(
        pd.DataFrame(rows, columns=list(CLAIM_COLUMNS)),
        pd.DataFrame(cases, columns=list(_CASE_COLUMNS)),
        pd.DataFrame(asides, columns=list(_ASIDE_COLUMNS)),
    )


def _judge_place(runs: Sequence[RunValues], claims: Claims) -> tuple[list[Row], list[Row], list[Row]]:
    """Judge claims by runs that may be pooled."""
    pool, device = _Pool(runs), runs[0].device
    rows, cases, asides = [], [], []
    effects: dict[Part, Row] = {}
    for name, (suite, general) in claims.items():
        claim = general.on(device)
        who = {"claim": name, "suite": suite, "run_id": pool.newest.run_id, "machine_id": pool.newest.machine_id}
        row, own = _row(pool, name, claim)
        who |= {"device": device, "protocol": pool.newest.protocol}
        rows.append(who | row)
        who["run_id"] = row.get("run_id", who["run_id"])
        cases += [who | case for case in own]
        asides += [who | aside for aside in _asides(pool, name, claim)]
        for part in (("effect", 0), *(("also", place) for place in range(len(claim.also)))):
            if row["verdict"] != NOT_TESTABLE and claim.effect and (found := pool.estimate((name, *part))):
                effect = claim.effect if part[0] == "effect" else claim.also[part[1]].effect
                effects[name, *part] = found | _question(effect)
    if effects:
        judged = judge(pd.DataFrame(list(effects.values())))
        verdicts = dict(zip(effects, rows_of(judged[[*COLUMNS]]), strict=True))
        for row in rows:
            _conclude(row, claims[row["claim"]][1].on(device), verdicts, pool)
        for case in cases:
            if case["role"] == "also":
                case["verdict"] = verdicts[case["claim"], "also", case.pop("place")]["verdict"]
    return rows, cases, asides


def _question(effect: Effect) -> Row:
    """What ``verdicts.judge`` has to know of an effect beside its estimate."""
    return {"says": effect.says, "figure": np.nan if effect.figure is None else effect.figure}


def _row(pool: _Pool, name: str, claim: Claim) -> tuple[Row, list[Row]]:
    """A claim's row before anything is judged, and those of its cases, parts or checks."""
    if claim.facts:
        return _facts(pool, name, claim)
    found = pool.estimate((name, "effect", 0))
    parts = [pool.estimate((name, "also", place)) for place in range(len(claim.also))]
    if claim.effect is None or not found or not all(parts):
        return {"verdict": NOT_TESTABLE, "reason": _why_not(pool, name, claim)}, []
    cases = list(_cases(pool, name, claim.effect))
    cases += [
        {"role": "also", "case": also.label, "place": place, **part}
        for place, (also, part) in enumerate(zip(claim.also, parts, strict=True))
    ]
    return {"verdict": "inconclusive", **found, **pool.runs((name, "effect", 0))}, cases


def _why_not(pool: _Pool, name: str, claim: Claim) -> str:
    if reason := untestable(claim, pool.newest.device):
        return reason
    if not pool.usable:
        return pool.withheld
    reasons = [run.untestable[name] for run in pool.usable if name in run.untestable]
    return reasons[0] if reasons else "no run has cells of it"


def _cases(pool: _Pool, name: str, effect: Effect) -> Iterator[Row]:
    for role, cases in (("case", effect.cases), ("against", effect.against)):
        for place, case in enumerate(cases):
            if found := pool.case((name, role, place)):
                named = label(case, [*effect.cases, *effect.against])
                yield {"role": role, "case": named, **found, "verdict": single_verdict(found | _question(effect))}


def _asides(pool: _Pool, name: str, claim: Claim) -> Iterator[Row]:
    for place, aside in enumerate(claim.asides):
        if found := pool.estimate((name, "aside", place)):
            verdict = single_verdict(found | _question(aside.effect))
            yield {"label": aside.label, "along": aside.effect.along, **found, "verdict": verdict}


def _facts(pool: _Pool, name: str, claim: Claim) -> tuple[Row, list[Row]]:
    """The first check decides; the others say where else."""
    parts = []
    for place, values in enumerate(claim.facts):
        rows = [row for run in pool.usable for row in run.checks.get((name, "check", place), ())]
        if rows:
            facts = {bool(row["fact"]) for row in rows}
            fact = facts.pop() if len(facts) == 1 else None
            seen = {
                "n": len(rows),
                "fact": fact,
                "fact_value": float(np.median([float(row["fact_value"]) for row in rows])),
                "evidence": str(rows[0]["evidence"]),
                "verdict": {None: "inconclusive", True: "confirmed", False: "refuted"}[fact],
            }
            parts.append({"role": "check", "case": label(values, claim.facts), "place": place, **seen})
    if not parts or parts[0].pop("place"):
        return {"verdict": NOT_TESTABLE, "reason": _why_not(pool, name, claim)}, parts
    runs = sum((name, "check", 0) in run.checks for run in pool.usable)
    return {column: parts[0][column] for column in ("n", "fact", "fact_value", "verdict")} | {"runs": runs}, parts


def _conclude(row: Row, claim: Claim, verdicts: Mapping[Part, Row], pool: _Pool) -> None:
    """Put a claim's verdict together: its effect's, what it says besides, and whether its cases contradict it."""
    name = row["claim"]
    if claim.effect is None or (name, "effect", 0) not in verdicts:
        return
    own = verdicts[name, "effect", 0]
    row |= {column: own[column] for column in ("verdict", "p_holm", "level", "blocks_needed")}
    words = [own["verdict"], *(verdicts[name, "also", place]["verdict"] for place in range(len(claim.also)))]
    row["verdict"] = next(word for word in ("refuted", "no difference", "inconclusive", "confirmed") if word in words)
    if len(claim.effect.cases) > 1 and not claim.effect.against:
        row |= _contradiction(name, claim.effect, pool)
        if row["depends_on"]:
            row["verdict"] = "depends"


def _contradiction(name: str, effect: Effect, pool: _Pool) -> Row:
    """Find the worst case, and the cases that contradict each other, if there are any."""
    count = len(effect.cases)
    found = [pool.estimate((name, "case", place)) for place in range(count)]
    if not all(found):
        return {"depends_on": None}
    ends = sorted(range(count), key=lambda place: found[place]["ratio"], reverse=effect.says == "less")
    names = [label(case, effect.cases) for case in effect.cases]
    strict = [single_verdict(each | _question(effect), 1 - ALPHA / count) for each in found]
    alone = {single_verdict(each | _question(effect)) for each in found}
    contrary = "confirmed" in strict and not {"refuted", "no difference"}.isdisjoint(strict)
    split = len(alone) > 1 and not alone.isdisjoint({"confirmed", "refuted"})
    differ = split and heterogeneity(pool.case_values(name, count)) < HETEROGENEOUS
    worst, best = ends[0], ends[-1]
    depends = f"{names[worst]} ({found[worst]['ratio']:.2f}×) against {names[best]} ({found[best]['ratio']:.2f}×)"
    return {
        "worst": found[worst]["ratio"],
        "worst_case": names[worst],
        "depends_on": depends if contrary or differ else None,
    }
