"""Verdicts over many runs: for each machine and claim the newest run that tested it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from harness.analysis.claimed import NOT_TESTABLE, Judged, judged
from harness.claim import Claims
from harness.manifest import RunManifest
from harness.records import PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Measured:
    """A run as far as claims go."""

    run_id: str
    says: Judged | None
    """None where it has no trials, or was measured by another version of the protocol."""
    asked: frozenset[str]
    """Claims that the run was made for, those among them that its plan could not test."""
    other_version: bool = False

    @classmethod
    def of(cls, manifest: RunManifest, trials: pd.DataFrame, claims: Claims) -> Measured:
        """Judge claims by a stored run.

        Args:
            manifest: the run's.
            trials: its rows of ``records.TRIALS``.
            claims: id to suite and claim.
        """
        asked = (one.claim for one in manifest.claims)
        return measured(manifest.run_id, trials, claims, manifest.untestable, asked)


def measured(
    run_id: str,
    trials: pd.DataFrame,
    claims: Claims,
    untestable: Mapping[str, str] = MappingProxyType({}),
    asked: Iterable[str] = (),
) -> Measured:
    """Judge claims by the trials of a run.

    Args:
        run_id: of the run.
        trials: its rows of ``records.TRIALS``; none is fine.
        claims: id to suite and claim.
        untestable: claim to why the run's plan could not test it.
        asked: claims that the run was made for.
    """
    other = bool(set(trials["protocol_version"].dropna().astype(int)) - {PROTOCOL_VERSION})
    says = judged(trials, claims, untestable) if len(trials) and not other else None
    return Measured(run_id, says, frozenset((*asked, *untestable)), other)


@dataclass(frozen=True, slots=True)
class Answered:
    """What runs say of claims."""

    found: Judged
    """Frames over all machines; a claim stands there once a machine."""
    left_out: tuple[str, ...]
    """Runs of another version of the protocol: what was measured in another way is not shown beside this."""


def answered(runs: Iterable[Measured], claims: Claims) -> Answered:
    """Put together what all runs of any number of machines say of claims.

    Args:
        runs: newest first, each judged by the same claims.
        claims: id to suite and claim.

    Returns:
        For each machine, device and claim what the newest run says that was made to test it; where there is none, the
        newest that has its cells all the same, or why the newest run that was made for it could not test it.
        Blocks of two runs are never mixed, nor are versions of the protocol.
    """
    kept: list[Judged] = []
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
        return Answered(Judged(*(_joined([getattr(one, part) for one in kept]) for part in _PARTS)), tuple(left_out))
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
    return Answered(Judged(chosen, *beside), tuple(left_out))


_PARTS = ("claims", "cases", "asides")
_KEYS = ["machine_id", "run_id", "claim"]


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Rows of several frames of the same columns; empty ones have no say in what a column holds."""
    filled = [frame.astype(object) for frame in frames if len(frame)]
    if filled:
        return pd.concat(filled, ignore_index=True)
    return frames[0] if frames else pd.DataFrame(columns=_KEYS)
