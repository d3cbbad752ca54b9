"""A run's records → a verdict for every claim, where it holds, and the numbers beside it.

An effect has one value a block: the weighted sum of the logs of its cells in it. Over blocks that gives an estimate
with a Student-t interval as for any contrast. The cases that an effect is the mean of, and the numbers beside it, have
single intervals and no correction: they say where, not whether.

A run's claims are judged together: the more are asked, the more each must show. A claim says of two cells that B is
faster or slower than A. Each is tested for two things, by the margins of ``contrasts``: that there is no difference
(two one-sided tests), and that there is one (against a ratio of 1.01 or less for confirmed, of 0.99 or more for
refuted). A p-value is the smallest a at which the interval of level 1 - a says so. S. Holm's procedure (Scandinavian
Journal of Statistics 6, 1979) corrects either family for the number of claims: the chance that *any* verdict of a run
is wrong stays under alpha.

The two families are corrected apart, although a claim that got its verdict from one needs none from the other. In one
procedure the claims that are decided first would loosen the level of those left over, which are then the likeliest to
be decided wrongly: in simulated runs of 10 claims whose truth is a difference of 3 %, up to 14 % had a wrong verdict
(22 % with 30 claims); with two families it is 3 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtr

from feedrate.analysis.blocks import CONFIDENCE, KEYS, Blocks, Floats, blocks_for, half_width, moments
from feedrate.analysis.contrasts import room, verdicts
from feedrate.analysis.estimates import rows_of
from feedrate.plan.claim import PHOTOGRAPHS, Claim, Claims, Effect, Term, Values, cell_on, terms, untestable
from feedrate.schema.axes import BY_NAME, cell_id
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.errors import InputError
from feedrate.schema.metrics import METRICS
from feedrate.store.manifest import RunManifest

ALPHA = 1 - CONFIDENCE
COLUMNS = ("p", "p_holm", "level", "lo", "hi", "verdict", "blocks_needed")
DIRECTION = {"more": "faster", "less": "slower"}
"""What a claim says of B's metric, as ``analysis.contrasts`` has it."""
NOT_TESTABLE = "not testable here"
VERDICTS = ("confirmed", "refuted", "no difference", "inconclusive", NOT_TESTABLE)
"""In the order in which they are listed."""
_UNTELLING = ("mode", "step", "step_ms", "n_samples")
"""Axes that go without saying in the name of a case."""
_ESTIMATE = ("ratio", "lo", "hi", "n", "dropped", "sd_log")
_WHO = ("claim", "suite", "run_id", "machine_id", "device")
CLAIM_COLUMNS = (*_WHO, "verdict", *_ESTIMATE, "p_holm", "level", "blocks_needed", "fact", "fact_value", "reason")
_CASE_COLUMNS = (*_WHO, "role", "case", *_ESTIMATE, "verdict", "a_value", "b_value", "fact", "fact_value", "evidence")
_ASIDE_COLUMNS = (*_WHO, "label", "along", *_ESTIMATE, "verdict")
Row = dict[str, Any]


def p_values(ratio: Any, sd_log: Any, n: Any, directions: Any) -> tuple[Floats, Floats]:
    """How strongly records speak for no difference, and for one; NaN with fewer than two pairs."""
    counts = np.asarray(n, dtype=np.float64)
    usable = np.where(counts >= 2, counts, np.nan)
    error = np.asarray(sd_log, dtype=np.float64) / np.sqrt(usable)
    same, differ = room(ratio, directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [np.minimum(1.0, 2 * stdtr(usable - 1, -each / error)) for each in (same, differ)]
    return np.asarray(found[0]), np.asarray(found[1])


def _holm(p: npt.ArrayLike) -> Floats:
    """Adjust p-values for their number (Holm 1979): the family-wise error that rejecting each would mean."""
    values = np.asarray(p, dtype=np.float64)
    family = int(np.isfinite(values).sum())
    members = np.argsort(values, kind="stable")[:family]
    adjusted = np.full(values.shape, np.nan)
    adjusted[members] = np.minimum(1.0, np.maximum.accumulate(values[members] * np.arange(family, 0, -1)))
    return adjusted


def _levels(p: Floats, p_holm: Floats) -> Floats:
    """Level at which each claim is judged; where Holm stops, it stays for all claims that follow."""
    family = int(np.isfinite(p).sum())
    decided = int((p_holm <= ALPHA).sum())
    rank = np.empty(len(p), dtype=np.int64)
    rank[np.argsort(p, kind="stable")] = np.arange(len(p))
    left = np.maximum(1, family - np.minimum(rank, decided))
    return np.where(np.isfinite(p), 1 - ALPHA / left, np.nan)


def judge_together(claims: pd.DataFrame) -> pd.DataFrame:
    """Judge all claims of one run: ``COLUMNS``, a row a claim.

    In either family the claims are sorted by p; the i-th of m, from 0, is judged by its interval of level
    1 - alpha / (m - i). The first that this leaves undecided ends it for all later ones. A claim gets the verdict that
    its single interval gives it, if the family that this verdict is from grants it, else it is inconclusive: correcting
    for the number of claims takes verdicts away and adds none. Claims with fewer than two pairs are inconclusive and
    count for nothing.

    Args:
        claims: ``ratio``, ``sd_log``, ``n`` and ``direction`` (faster or slower).
    """
    ratio, sd, n = (claims[name].to_numpy(dtype=np.float64) for name in ("ratio", "sd_log", "n"))
    directions = claims["direction"].to_numpy(dtype=object)
    half = half_width(sd, n, 1 - ALPHA)
    lo, hi = ratio * np.exp(-half), ratio * np.exp(half)
    alone = verdicts(ratio, lo, hi, directions)
    families = p_values(ratio, sd, n, directions)
    open_to_both = (alone == "inconclusive") & (families[0] <= families[1])
    at = np.where((alone == "no difference") | open_to_both, 0, 1), np.arange(len(claims))
    adjusted = [_holm(p) for p in families]
    levels = [_levels(p, p_holm) for p, p_holm in zip(families, adjusted, strict=True)]
    p_holm, level = np.array(adjusted)[at], np.array(levels)[at]
    verdict = np.where(p_holm <= ALPHA, alone, "inconclusive")
    needed = blocks_for(np.array(room(ratio, directions))[at], sd, level)
    needed = np.where(verdict == "inconclusive", needed, np.nan)
    columns = (np.array(families)[at], p_holm, level, lo, hi, verdict, needed)
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)), index=claims.index)


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


class _Run:
    """The blocks of a run by metric, and which cells it has."""

    def __init__(self, trials: pd.DataFrame) -> None:
        self.trials = trials
        self.run_id = str(trials["run_id"].iloc[0])
        self.device = str(trials["device"].iloc[0])
        self._ids = set(trials["cell_id"])
        self._tried = trials[["cell_id", "block"]].drop_duplicates()
        ended = trials["outcome"].eq("ok") & (trials["fact"].notna() if "fact" in trials else False)
        self._checks = trials[ended]
        self._blocks: dict[str, Blocks] = {}
        present = set(trials["workload"].dropna())
        self._photographs = [name for name in PHOTOGRAPHS if name in present] or [PHOTOGRAPHS[0]]

    def judge(self, claim: Claim) -> tuple[Row, list[Row]]:
        """The claim's row, uncorrected, and those of its cases."""
        if claim.facts:
            return self._facts(claim)
        if claim.effect is None or not (found := self.estimate(claim.effect)):
            return {"verdict": NOT_TESTABLE}, []
        return {**found, "verdict": "inconclusive"}, list(self._cases(claim.effect))

    def estimate(self, effect: Effect, cases: Sequence[tuple[float, Values]] | None = None) -> Row:
        """Exponential of the mean weighted sum over blocks, with its 95 % interval; empty where a cell is missing."""
        wanted, _ = self._terms(effect, cases)
        if not wanted:
            return {}
        ids = [term.cell_id for term in wanted]
        logs = self._logs(effect.metric, ids)
        sums: Floats = np.array([term.weight for term in wanted]) @ logs
        mean, sd, n = (each[0] for each in moments(sums[None, :]))
        half = half_width(sd, n)
        attempts = self._tried.loc[self._tried["cell_id"].isin(ids), "block"].value_counts()
        return {
            "ratio": float(np.exp(mean)),
            "lo": float(np.exp(mean - half)),
            "hi": float(np.exp(mean + half)),
            "n": int(n),
            "dropped": int((attempts == len(ids)).sum()) - int(n),
            "sd_log": float(sd),
        }

    def _terms(self, effect: Effect, cases: Sequence[tuple[float, Values]] | None) -> tuple[list[Term], str]:
        """The cells of an effect and the photographs that they read; no cells where the run lacks any."""
        for photographs in self._photographs:
            wanted = terms(effect, self.device, photographs, cases)
            if all(term.cell_id in self._ids for term in wanted):
                return wanted, photographs
        return [], PHOTOGRAPHS[0]

    def _logs(self, metric: str, ids: Sequence[str]) -> Floats:
        """Logs of a metric, cells × blocks."""
        if metric not in self._blocks:
            number = METRICS[metric]
            columns = [name for name in (*number.up, *number.down) if name in self.trials]
            values = pd.Series([number.of(row) for row in rows_of(self.trials[columns])], self.trials.index)
            self._blocks[metric] = Blocks(self.trials[[*KEYS, "block", "outcome"]].assign(samples_per_s=values))
        return self._blocks[metric].logs([self.run_id] * len(ids), ids)

    def _cases(self, effect: Effect) -> Iterator[Row]:
        """Every case by itself, with the metric's geometric mean on either side."""
        for role, cases in (("case", effect.cases), ("against", effect.against)):
            for case in cases:
                if not (found := self.estimate(effect, [(1.0, case)])):
                    continue
                _, photographs = self._terms(effect, [(1.0, case)])
                sides = effect.sides(case)
                cells = [cell_on(values, self.device, photographs)[0] for _, values in (sides[0], sides[-1])]
                means = moments(self._logs(effect.metric, [cell_id(cell) for cell in cells])).mean
                yield {
                    "role": role,
                    "case": label(case, [*effect.cases, *effect.against]),
                    **found,
                    "verdict": single_verdict(found, effect),
                    "a_value": float(np.exp(means[0])),
                    "b_value": float(np.exp(means[1])),
                }

    def asides(self, claim: Claim) -> Iterator[Row]:
        for aside in claim.asides:
            if found := self.estimate(aside.effect):
                word = single_verdict(found, aside.effect)
                yield {"label": aside.label, "along": aside.effect.along, **found, "verdict": word}

    def _facts(self, claim: Claim) -> tuple[Row, list[Row]]:
        """The first check decides; the others say where else."""
        found = [self._check(values) for values in claim.facts]
        parts = [
            {"role": "check", "case": label(values, claim.facts), **seen}
            for values, seen in zip(claim.facts, found, strict=True)
            if seen
        ]
        if not found[0]:
            return {"verdict": NOT_TESTABLE}, parts
        return {name: parts[0][name] for name in ("n", "fact", "fact_value", "verdict")}, parts

    def _check(self, values: Values) -> Row:
        """What the checks of a fact saw: whether all that ended agree, the median number, the newest evidence."""
        cell, _ = cell_on({"mode": "check", **values}, self.device)
        rows = self._checks[self._checks["cell_id"].eq(cell_id(cell))]
        if rows.empty:
            return {}
        facts = set(rows["fact"].astype(bool))
        fact = facts.pop() if len(facts) == 1 else None
        return {
            "n": len(rows),
            "fact": fact,
            "fact_value": float(rows["fact_value"].astype("float64").median()),
            "evidence": str(rows["evidence"].iloc[-1]),
            "verdict": {None: "inconclusive", True: "confirmed", False: "refuted"}[fact],
        }


def single_verdict(row: Mapping[str, Any], effect: Effect) -> str:
    """What an effect would be called by its own interval, without a correction for the number of claims."""
    return str(verdicts(row["ratio"], row["lo"], row["hi"], DIRECTION[effect.says]))


@dataclass(frozen=True, slots=True)
class Findings:
    """What records say of claims."""

    claims: pd.DataFrame
    """A row a claim: ``CLAIM_COLUMNS``; ``reason`` says why one is not testable here."""
    cases: pd.DataFrame
    """A row a case of an effect, or a check; ``role`` is case, against or check."""
    asides: pd.DataFrame
    """A row a number beside a claim; ``along`` is the axis of a fitted line."""


def judge_claims(trials: pd.DataFrame, claims: Claims, why_not: Mapping[str, str] | None = None) -> Findings:
    """Judge claims by the records of one run.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
        claims: id to suite and claim (``suite.claims()``).
        why_not: id to what the run's plan said speaks against testing it.

    Returns:
        A verdict for every claim. One whose cells the run lacks is ``not testable here``, with the reason.

    Raises:
        InputError: trials of several runs, or of several versions of the protocol.
    """
    _check_alone(trials)
    run, why_not = _Run(trials), why_not or {}
    who = {"run_id": run.run_id, "machine_id": str(trials["machine_id"].iloc[0]), "device": run.device}
    rows, cases, asides, directions = [], [], [], []
    for name, (suite, general) in claims.items():
        claim = general.on(run.device)
        own = {"claim": name, "suite": suite, **who}
        reason = untestable(claim, run.device) or why_not.get(name)
        row, parts = ({"verdict": NOT_TESTABLE}, []) if reason else run.judge(claim)
        if row["verdict"] == NOT_TESTABLE:
            row["reason"] = reason or "the run has no cells of it"
        else:
            asides += [{**own, **aside} for aside in run.asides(claim)]
        rows.append({**own, **row})
        cases += [{**own, **part} for part in parts]
        directions.append(DIRECTION[claim.effect.says] if claim.effect else None)
    frame = pd.DataFrame(rows, columns=list(CLAIM_COLUMNS))
    tested = frame["ratio"].notna()
    if tested.any():
        judged = judge_together(frame.assign(direction=pd.Series(directions, dtype=object))[tested])
        for column in ("verdict", "p_holm", "level", "blocks_needed"):
            frame[column] = frame[column].astype(object)
            frame.loc[tested, column] = judged[column].astype(object)
    columns = list(_CASE_COLUMNS), list(_ASIDE_COLUMNS)
    return Findings(frame, pd.DataFrame(cases, columns=columns[0]), pd.DataFrame(asides, columns=columns[1]))


def _check_alone(trials: pd.DataFrame) -> None:
    """Refuse what must not be judged together: several runs, or several versions of the protocol."""
    versions = sorted(set(trials["protocol_version"].dropna().astype(int)))
    if len(versions) > 1:
        raise InputError(
            f"trials of the protocol's versions {' and '.join(map(str, versions))} stand together; expected one: what "
            "was measured in different ways is not compared. Repeat the older run"
        )
    if trials["run_id"].nunique() != 1:
        raise InputError(f"trials of {trials['run_id'].nunique()} runs; expected one: blocks pair within a run")


@dataclass(frozen=True, slots=True)
class RunFindings:
    """What one run says of claims."""

    run_id: str
    findings: Findings | None
    """None where it has no trials, or was measured by another version of the protocol."""
    asked: frozenset[str]
    """Claims that the run was made for, those among them that its plan could not test."""
    other_version: bool


def judge_run(manifest: RunManifest, trials: pd.DataFrame, claims: Claims) -> RunFindings:
    """Judge claims by a stored run."""
    other = bool(set(trials["protocol_version"].dropna().astype(int)) - {PROTOCOL_VERSION})
    findings = judge_claims(trials, claims, manifest.untestable) if len(trials) and not other else None
    asked = frozenset((*(one.claim for one in manifest.claims), *manifest.untestable))
    return RunFindings(manifest.run_id, findings, asked, other)


@dataclass(frozen=True, slots=True)
class LatestFindings:
    """What many runs say of claims."""

    found: Findings
    """Frames over all machines; a claim stands there once a machine."""
    left_out: tuple[str, ...]
    """Runs of another version of the protocol: what was measured in another way is not shown beside this."""


def latest_findings(runs: Iterable[RunFindings], claims: Claims) -> LatestFindings:
    """Put together what all runs of any number of machines say of claims.

    Args:
        runs: newest first, each judged by the same claims.
        claims: id to suite and claim.

    Returns:
        For each machine, device and claim what the newest run says that was made to test it; where there is none, the
        newest that has its cells all the same, or why the newest run that was made for it could not test it.
        Blocks of two runs are never mixed, nor are versions of the protocol.
    """
    runs = list(runs)
    left_out = tuple(run.run_id for run in runs if run.other_version)
    kept = [run.findings for run in runs if run.findings]
    asked = {(run.run_id, name) for run in runs if run.findings for name in run.asked}
    parts = [_joined([getattr(one, name) for one in kept]) for name in ("claims", "cases", "asides")]
    verdicts = parts[0]
    if verdicts.empty:
        return LatestFindings(Findings(*parts), left_out)
    meant = [key in asked for key in zip(verdicts["run_id"], verdicts["claim"], strict=True)]
    rank = 2 * verdicts["verdict"].eq(NOT_TESTABLE) + ~np.array(meant, dtype=bool)
    ranked = verdicts.assign(_rank=rank, _place=verdicts["claim"].map(list(claims).index))
    ranked = ranked.sort_values("_rank", kind="stable").drop_duplicates(["machine_id", "device", "claim"])
    ranked = ranked.sort_values(["machine_id", "device", "_place"], kind="stable")
    chosen = ranked.drop(columns=["_rank", "_place"]).reset_index(drop=True)
    keys = pd.MultiIndex.from_frame(chosen[_KEYS])
    beside = [part[pd.MultiIndex.from_frame(part[_KEYS]).isin(keys)].reset_index(drop=True) for part in parts[1:]]
    return LatestFindings(Findings(chosen, *beside), left_out)


_KEYS = ["machine_id", "run_id", "claim"]


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Rows of several frames of the same columns; empty ones have no say in what a column holds."""
    filled = [frame.astype(object) for frame in frames if len(frame)]
    if filled:
        return pd.concat(filled, ignore_index=True)
    return frames[0] if frames else pd.DataFrame(columns=_KEYS)
