"""A run's records → a verdict for every claim, where it holds, and the numbers beside it.

An effect has one value a block: the weighted sum of the logs of its cells in it. Over blocks that gives an estimate
with a Student-t interval as for any contrast. Verdicts are corrected for the number of claims of the run
(``analysis.claims``); the cases that an effect is the mean of, and the numbers beside it, have single intervals and no
correction: they say where, not whether.

A run's claims, judged together: the more are asked, the more each must show.

A claim says of two cells that B is faster or slower than A. Each is tested for two things, by the margins of
``contrasts``: that there is no difference (two one-sided tests), and that there is one (against a ratio of 1.01 or less
for confirmed, of 0.99 or more for refuted). A p-value is the smallest a at which the interval of level 1 - a says so.
S. Holm's procedure (Scandinavian Journal of Statistics 6, 1979) corrects either family for the number of claims: the
chance that *any* verdict of a run is wrong stays under alpha.

The two families are corrected apart, although a claim that got its verdict from one needs none from the other. In one
procedure the claims that are decided first would loosen the level of those left over, which are then the likeliest to
be decided wrongly: in simulated runs of 10 claims whose truth is a difference of 3 %, up to 14 % had a wrong verdict
(22 % with 30 claims); with two families it is 3 %.

Verdicts over many runs: for each machine and claim the newest run that tested it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtr

from feedrate.analysis.blocks import CONFIDENCE, KEYS, Blocks, Floats, blocks_for, half_width, moments
from feedrate.analysis.contrasts import room, verdicts
from feedrate.plan.claim import PHOTOGRAPHS, Claim, Claims, Effect, Term, Values, cells_of, terms, untestable
from feedrate.schema.axes import BY_NAME, Value, cell_id
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.errors import InputError
from feedrate.schema.metrics import METRICS
from feedrate.store.manifest import RunManifest

ALPHA = 1 - CONFIDENCE
COLUMNS = ("p", "p_holm", "level", "lo", "hi", "verdict", "blocks_needed")


def p_values(ratio: Any, sd_log: Any, n: Any, directions: Any) -> tuple[Floats, Floats]:
    """Say how strongly records speak for either thing that a claim is tested for."""
    counts = np.asarray(n, dtype=np.float64)
    usable = np.where(counts >= 2, counts, np.nan)
    error = np.asarray(sd_log, dtype=np.float64) / np.sqrt(usable)
    same, differ = room(ratio, directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [np.minimum(1.0, 2 * stdtr(usable - 1, -each / error)) for each in (same, differ)]
    return np.asarray(found[0]), np.asarray(found[1])


def holm(p: npt.ArrayLike) -> Floats:
    """Adjust p-values for their number (Holm 1979): the family-wise error that rejecting each would mean."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    family = int(np.isfinite(values).sum())
    adjusted = np.full(values.shape, np.nan)
    members = order[:family]
    stepped = np.maximum.accumulate(values[members] * np.arange(family, 0, -1))
    adjusted[members] = np.minimum(1.0, stepped)
    return adjusted


def _levels(p: Floats, p_holm: Floats, alpha: float) -> Floats:
    """Level at which each claim is judged; where Holm stops, it stays for all claims that follow."""
    family = int(np.isfinite(p).sum())
    decided = int((p_holm <= alpha).sum())
    rank = np.empty(len(p), dtype=np.int64)
    rank[np.argsort(p, kind="stable")] = np.arange(len(p))
    left = np.maximum(1, family - np.minimum(rank, decided))
    return np.where(np.isfinite(p), 1 - alpha / left, np.nan)


def judge(claims: pd.DataFrame, alpha: float = ALPHA) -> pd.DataFrame:
    """Judge all claims of one run.

    In either family the claims are sorted by p; the i-th of m, from 0, is judged by its interval of level
    1 - alpha / (m - i). The first that this leaves undecided ends it for all later ones. A claim gets the verdict that
    its single interval gives it, if the family that this verdict is from grants it, else it is inconclusive: correcting
    for the number of claims takes verdicts away and adds none. Claims with fewer than two pairs are inconclusive and
    count for nothing.
    """
    ratio, sd, n = (claims[name].to_numpy(dtype=np.float64) for name in ("ratio", "sd_log", "n"))
    directions = claims["direction"].to_numpy(dtype=object)
    half = half_width(sd, n, 1 - alpha)
    lo, hi = ratio * np.exp(-half), ratio * np.exp(half)
    alone = verdicts(ratio, lo, hi, directions)
    families = p_values(ratio, sd, n, directions)
    open_to_both = (alone == "inconclusive") & (families[0] <= families[1])
    at = np.where((alone == "no difference") | open_to_both, 0, 1), np.arange(len(claims))
    adjusted = [holm(p) for p in families]
    levels = [_levels(p, p_holm, alpha) for p, p_holm in zip(families, adjusted, strict=True)]
    p_holm, level = np.array(adjusted)[at], np.array(levels)[at]
    verdict = np.where(p_holm <= alpha, alone, "inconclusive")
    needed = blocks_for(np.array(room(ratio, directions))[at], sd, level)
    needed = np.where(verdict == "inconclusive", needed, np.nan)
    columns = (np.array(families)[at], p_holm, level, lo, hi, verdict, needed)
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)), index=claims.index)


DIRECTION = {"more": "faster", "less": "slower"}
"""What a claim says of B's metric, as ``analysis.contrasts`` has it."""
NOT_TESTABLE = "not testable here"
VERDICTS = ("confirmed", "refuted", "no difference", "inconclusive", NOT_TESTABLE)
"""In the order in which they are listed."""
_ESTIMATE = ("ratio", "lo", "hi", "n", "dropped", "sd_log")
_UNTELLING = ("mode", "step", "step_ms", "n_samples")
"""Axes that go without saying in the name of a case."""
_CHECKED = ("fact", "fact_value", "evidence")
"""What the check of a fact reports."""
_WHO = ("claim", "suite", "run_id", "machine_id", "device")
CLAIM_COLUMNS = (*_WHO, "verdict", *_ESTIMATE, "p_holm", "level", "blocks_needed", "fact", "fact_value", "reason")
CASE_COLUMNS = (*_WHO, "role", "case", *_ESTIMATE, "verdict", "a_value", "b_value", "fact", "fact_value", "evidence")
ASIDE_COLUMNS = (*_WHO, "label", "along", *_ESTIMATE, "verdict")


@dataclass(frozen=True, slots=True)
class Findings:
    """What the records of one run say of claims."""

    claims: pd.DataFrame
    """A row a claim: ``CLAIM_COLUMNS``; ``reason`` says why one is not testable here."""
    cases: pd.DataFrame
    """A row a case of an effect, or a check: ``CASE_COLUMNS``; ``role`` is case, against or check."""
    asides: pd.DataFrame
    """A row a number beside a claim: ``ASIDE_COLUMNS``; ``along`` is the axis of a fitted line."""


class _Run:
    """The blocks of a run by metric, and which cells it has."""

    def __init__(self, trials: pd.DataFrame) -> None:
        self.trials = trials
        self.run_id = str(trials["run_id"].iloc[0])
        self.device = str(trials["device"].iloc[0])
        self.ids = set(trials["cell_id"])
        self._tried = trials[["cell_id", "block"]].drop_duplicates()
        ended = trials["outcome"].eq("ok") & (trials["fact"].notna() if "fact" in trials else False)
        self._checks = trials.loc[ended, ["cell_id", *(name for name in _CHECKED if name in trials)]]
        self._blocks: dict[str, Blocks] = {}
        present = set(trials["workload"].dropna())
        self.photographs = [name for name in PHOTOGRAPHS if name in present] or [PHOTOGRAPHS[0]]

    def blocks(self, metric: str) -> Blocks:
        """Logs of a metric, cells × blocks."""
        if metric not in self._blocks:
            found = METRICS[metric]
            columns = [name for name in (*found.up, *found.down) if name in self.trials]
            known = self.trials[columns].astype(object).where(self.trials[columns].notna(), None)
            each = zip(*(known[name] for name in columns), strict=True)
            values = pd.Series([found.of(dict(zip(columns, row, strict=True))) for row in each], self.trials.index)
            told = self.trials[[*KEYS, "block", "outcome"]]
            self._blocks[metric] = Blocks(told.assign(samples_per_s=values))
        return self._blocks[metric]

    def found(self, effect: Effect, cases: Sequence[tuple[float, Values]] | None = None) -> tuple[list[Term], str]:
        """The cells of an effect and the photographs that they read; no cells where the run lacks any."""
        for photographs in self.photographs:
            wanted = terms(effect, self.device, photographs, cases)
            if all(term.cell_id in self.ids for term in wanted):
                return wanted, photographs
        return [], PHOTOGRAPHS[0]

    def estimate(self, wanted: Sequence[Term], metric: str) -> dict[str, Any]:
        """Exponential of the mean weighted sum over blocks, with its 95 % interval."""
        blocks = self.blocks(metric)
        logs = blocks.logs([self.run_id] * len(wanted), [term.cell_id for term in wanted])
        weights = np.array([term.weight for term in wanted])
        sums: Floats = weights @ logs
        mean, sd, n = (each[0] for each in moments(sums[None, :]))
        half = half_width(sd, n)
        tried = self._tried[self._tried["cell_id"].isin([term.cell_id for term in wanted])]
        attempted = int((tried["block"].value_counts() == len(wanted)).sum())
        low, high = float(np.exp(mean - half)), float(np.exp(mean + half))
        return {
            "ratio": float(np.exp(mean)),
            "lo": low,
            "hi": high,
            "n": int(n),
            "dropped": attempted - int(n),
            "sd_log": float(sd),
        }

    def level(self, values: Values, metric: str, photographs: str) -> float:
        """A side's own metric: its geometric mean over blocks."""
        cell, _ = cells_of(values, self.device, photographs)
        logs = self.blocks(metric).logs([self.run_id], [cell_id(cell)])
        return float(np.exp(moments(logs).mean[0]))

    def check(self, values: Values) -> dict[str, Any] | None:
        """What the checks of a fact saw: whether all that ended agree, the median number, the newest evidence."""
        cell, _ = cells_of({"mode": "check", **values}, self.device)
        rows = self._checks[self._checks["cell_id"].eq(cell_id(cell))]
        if rows.empty:
            return None
        facts = set(rows["fact"].astype(bool))
        return {
            "n": len(rows),
            "fact": facts.pop() if len(facts) == 1 else None,
            "fact_value": float(rows["fact_value"].astype("float64").median()),
            "evidence": str(rows["evidence"].iloc[-1]),
        }


def label(case: Values, cases: Sequence[Values]) -> str:
    """Name a case by what tells it from the others, which may be a default; a single one needs no name."""
    names = dict.fromkeys(name for each in cases for name in each if name not in _UNTELLING)
    values = {name: [each.get(name, BY_NAME[name].default) for each in cases] for name in names}
    telling = [name for name in names if len(set(values[name])) > 1]
    return ", ".join(f"{name}={_word(case.get(name, BY_NAME[name].default))}" for name in telling)


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    alone(trials)
    run = _Run(trials)
    who = {"run_id": run.run_id, "machine_id": str(trials["machine_id"].iloc[0]), "device": run.device}
    rows, cases, asides = [], [], []
    why_not = why_not or {}
    asked = {name: (suite, claim.on(run.device)) for name, (suite, claim) in claims.items()}
    for name, (suite, claim) in asked.items():
        mine = {"claim": name, "suite": suite, **who}
        row, parts = _found(run, claim) if name not in why_not else ({"verdict": NOT_TESTABLE}, [])
        if row["verdict"] == NOT_TESTABLE:
            row["reason"] = untestable(claim, run.device) or why_not.get(name) or "the run has no cells of it"
        else:
            asides += [{**mine, **aside} for aside in _asides(run, claim)]
        rows.append({**mine, **row})
        cases += [{**mine, **part} for part in parts]
    frame = pd.DataFrame(rows, columns=list(CLAIM_COLUMNS))
    _correct(frame, asked)
    return Findings(
        frame, pd.DataFrame(cases, columns=list(CASE_COLUMNS)), pd.DataFrame(asides, columns=list(ASIDE_COLUMNS))
    )


def alone(trials: pd.DataFrame) -> None:
    """Refuse what must not be judged together.

    Raises:
        InputError: trials of several runs, or of several versions of the protocol; or none.
    """
    versions = sorted(set(trials["protocol_version"].dropna().astype(int)))
    if len(versions) > 1:
        raise InputError(
            f"trials of the protocol's versions {' and '.join(map(str, versions))} stand together; expected one: what "
            "was measured in different ways is not compared. Repeat the older run"
        )
    if trials["run_id"].nunique() != 1:
        raise InputError(f"trials of {trials['run_id'].nunique()} runs; expected one: blocks pair within a run")


def _found(run: _Run, claim: Claim) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The claim's row and those of its cases; where an axis does not matter its two sides would be one cell."""
    if untestable(claim, run.device):
        return {"verdict": NOT_TESTABLE}, []
    return _facts(run, claim) if claim.facts else _effect(run, claim)


def _effect(run: _Run, claim: Claim) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    effect = claim.effect
    wanted = run.found(effect)[0] if effect else []
    if effect is None or not wanted:
        return {"verdict": NOT_TESTABLE}, []
    row = run.estimate(wanted, effect.metric)
    row["verdict"] = "inconclusive"
    return row, list(_cases(run, effect))


def _cases(run: _Run, effect: Effect) -> Iterator[dict[str, Any]]:
    """Every case by itself."""
    everything = [*effect.cases, *effect.against]
    for role, cases in (("case", effect.cases), ("against", effect.against)):
        for case in cases:
            wanted, photographs = run.found(effect, [(1.0, case)])
            if not wanted:
                continue
            found = run.estimate(wanted, effect.metric)
            sides = effect.sides(case)
            first, last = (run.level(values, effect.metric, photographs) for _, values in (sides[0], sides[-1]))
            word = verdicts(found["ratio"], found["lo"], found["hi"], DIRECTION[effect.says])
            yield {
                "role": role,
                "case": label(case, everything),
                **found,
                "verdict": str(word),
                "a_value": first,
                "b_value": last,
            }


def _asides(run: _Run, claim: Claim) -> Iterator[dict[str, Any]]:
    for aside in claim.asides:
        wanted, _ = run.found(aside.effect)
        if wanted:
            found = run.estimate(wanted, aside.effect.metric)
            word = verdicts(found["ratio"], found["lo"], found["hi"], DIRECTION[aside.effect.says])
            yield {"label": aside.label, "along": aside.effect.along, **found, "verdict": str(word)}


def _facts(run: _Run, claim: Claim) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first check decides; the others say where else."""
    found = [run.check(values) for values in claim.facts]
    words = {None: "inconclusive", True: "confirmed", False: "refuted"}
    parts = [
        {"role": "check", "case": label(values, claim.facts), **seen, "verdict": words[seen["fact"]]}
        for values, seen in zip(claim.facts, found, strict=True)
        if seen is not None
    ]
    if found[0] is None:
        return {"verdict": NOT_TESTABLE}, parts
    return {name: parts[0][name] for name in ("n", "fact", "fact_value", "verdict")}, parts


def _correct(frame: pd.DataFrame, claims: Claims) -> None:
    """Correct the verdicts of effects for their number, in place."""
    tested = frame["ratio"].notna()
    if not tested.any():
        return
    effects = {name: claim.effect for name, (_, claim) in claims.items() if claim.effect}
    asked = frame[tested].assign(direction=[DIRECTION[effects[name].says] for name in frame["claim"][tested]])
    found = judge(asked)
    for column in ("verdict", "p_holm", "level", "blocks_needed"):
        frame[column] = frame[column].astype(object)
        frame.loc[tested, column] = found[column].astype(object)


@dataclass(frozen=True, slots=True)
class RunFindings:
    """A run as far as claims go."""

    run_id: str
    says: Findings | None
    """None where it has no trials, or was measured by another version of the protocol."""
    asked: frozenset[str]
    """Claims that the run was made for, those among them that its plan could not test."""
    other_version: bool = False

    @classmethod
    def of(cls, manifest: RunManifest, trials: pd.DataFrame, claims: Claims) -> RunFindings:
        """Judge claims by a stored run.

        Args:
            manifest: the run's.
            trials: its rows of ``records.TRIALS``.
            claims: id to suite and claim.
        """
        asked = (one.claim for one in manifest.claims)
        return judge_run(manifest.run_id, trials, claims, manifest.untestable, asked)


def judge_run(
    run_id: str,
    trials: pd.DataFrame,
    claims: Claims,
    untestable: Mapping[str, str] = MappingProxyType({}),
    asked: Iterable[str] = (),
) -> RunFindings:
    """Judge claims by the trials of a run."""
    other = bool(set(trials["protocol_version"].dropna().astype(int)) - {PROTOCOL_VERSION})
    says = judge_claims(trials, claims, untestable) if len(trials) and not other else None
    return RunFindings(run_id, says, frozenset((*asked, *untestable)), other)


@dataclass(frozen=True, slots=True)
class LatestFindings:
    """What runs say of claims."""

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
    kept: list[Findings] = []
    left_out: list[str] = []
    asked: set[tuple[str, str]] = set()
    for run in runs:
        left_out += [run.run_id] if run.other_version else []
        if run.says:
            kept.append(run.says)
            asked |= {(run.run_id, name) for name in run.asked}
    order = list(claims)
    verdicts = _joined([one.claims for one in kept])
    if verdicts.empty:
        return LatestFindings(
            Findings(*(_joined([getattr(one, part) for one in kept]) for part in _PARTS)), tuple(left_out)
        )
    tested = verdicts["verdict"].ne(NOT_TESTABLE)
    place = verdicts["claim"].map(order.index)
    meant = [key in asked for key in zip(verdicts["run_id"], verdicts["claim"], strict=True)]
    ranked = verdicts.assign(_untested=~tested, _by_chance=~np.array(meant, dtype=bool), _place=place)
    ranked = ranked.sort_values(["_untested", "_by_chance"], kind="stable")
    chosen = ranked.drop_duplicates(["machine_id", "device", "claim"]).sort_values(
        ["machine_id", "device", "_place"], kind="stable"
    )
    chosen = chosen.drop(columns=["_untested", "_by_chance", "_place"]).reset_index(drop=True)
    keys = pd.MultiIndex.from_frame(chosen[_KEYS])
    beside = []
    for part in _PARTS[1:]:
        rows = _joined([getattr(one, part) for one in kept])
        beside.append(rows[pd.MultiIndex.from_frame(rows[_KEYS]).isin(keys)].reset_index(drop=True))
    return LatestFindings(Findings(chosen, *beside), tuple(left_out))


_PARTS = ("claims", "cases", "asides")
_KEYS = ["machine_id", "run_id", "claim"]


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Rows of several frames of the same columns; empty ones have no say in what a column holds."""
    filled = [frame.astype(object) for frame in frames if len(frame)]
    if filled:
        return pd.concat(filled, ignore_index=True)
    return frames[0] if frames else pd.DataFrame(columns=_KEYS)
