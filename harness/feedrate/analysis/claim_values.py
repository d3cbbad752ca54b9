"""What a run has to say of claims, before anything is judged: effects block by block, and what checks saw.

An effect has one value a block of a run: the weighted sum of the logs of its cells in it; of a level, less the log of
the source's figure, so that its ratio is one to the figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, Blocks
from feedrate.analysis.diagnosis import diagnose, diagnose_effect
from feedrate.analysis.estimate import Floats
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import doubtful
from feedrate.plan.claim import Claim, Claims, Effect, Values, cell_on, terms, untestable
from feedrate.schema.axes import BY_NAME, PHOTOGRAPHS, cell_id
from feedrate.schema.metrics import METRICS

_UNTELLING = ("step_ms", "n_samples")
"""Axes that go without saying in the name of a case."""
Row = dict[str, Any]
EffectKey = tuple[str, str, int]
"""A claim's id, a role (effect, also, case, against, aside, check; for the cases of a part ``also 0`` and so on) and a
place in it."""


def label(case: Values, cases: Sequence[Values]) -> str:
    """Name a case by what tells it from the others, which may be a default; a single one needs no name."""
    names = dict.fromkeys(name for other in cases for name in other if name not in _UNTELLING)
    if case.get("mode", "train") != "train":
        names.pop("step", None)  # a default that means nothing there
    values = {name: [other.get(name, BY_NAME[name].default) for other in cases] for name in names}
    differing = {name: case.get(name, BY_NAME[name].default) for name in names if len(set(values[name])) > 1}
    return settings_text(differing)


def settings_text(values: Values) -> str:
    """Write settings as they are typed: ``num_workers=2, pin_memory=true``."""
    return ", ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in values.items()
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """An effect, or a case of it, block by block in one run."""

    photographs: str
    """The workload that was read where the claim names photographs."""
    values: Floats
    """Weighted sums of logs, a value a block of the run; NaN where a trial is missing."""
    dropped: int
    """Blocks in which all of its trials were made and one or more failed."""
    sides: tuple[Floats, Floats]
    """Logs of the metric of A and of B, of single cases."""
    withheld: str
    """Why its interval does not hold for the noise of its own cells; empty where it does."""

    @property
    def complete(self) -> Floats:
        """The values of the blocks in which no trial is missing."""
        return self.values[np.isfinite(self.values)]


@dataclass(frozen=True, slots=True)
class RunValues:
    """What one run has to say of claims, before anything is judged."""

    run_id: str
    machine_id: str
    device: str
    untestable: Mapping[str, str]
    """Claim to what the run's plan said speaks against testing it."""
    withheld: str
    """Why intervals do not hold for this run's noise; empty where they do."""
    effects: Mapping[EffectKey, Seen]
    checks: Mapping[EffectKey, Sequence[Row]]
    """Trials of the checks of facts that ended well: ``fact``, ``fact_value``, ``evidence``."""

    @property
    def pool(self) -> tuple[str, str]:
        """What is pooled: machine and device."""
        return self.machine_id, self.device


def observe(trials: pd.DataFrame, claims: Claims, why_not: Mapping[str, str] | None = None) -> RunValues:
    """Collect what a run has to say of claims.

    Args:
        trials: rows of ``columns.TRIALS`` of one run, at least one.
        claims: id to suite and claim (``suite.claims()``).
        why_not: claim to what the run's plan said speaks against testing it.
    """
    run_id, machine, device = (str(trials[name].iloc[0]) for name in ("run_id", "machine_id", "device"))
    why_not = why_not or {}
    cells = _Cells(trials[~doubtful(trials)])
    effects, checks = dict[EffectKey, Seen](), dict[EffectKey, Sequence[Row]]()
    for name, (_, general) in claims.items():
        claim = general.on(device)
        if untestable(claim, device) or name in why_not:
            continue
        for (role, index), effect, cases in parts(claim):
            if seen := cells.observe(effect, cases):
                effects[name, role, index] = seen
        for index, values in enumerate(claim.facts):
            if rows := cells.checks(values):
                checks[name, "check", index] = rows
    return RunValues(run_id, machine, device, why_not, diagnose(trials).reason, effects, checks)


def parts(claim: Claim) -> Iterator[tuple[tuple[str, int], Effect, Sequence[tuple[float, Values]] | None]]:
    """All effects of a claim with their role and place, and the weighted cases where not all of them count."""
    if claim.effect:
        yield ("effect", 0), claim.effect, None
        for role, cases in (("case", claim.effect.cases), ("against", claim.effect.against)):
            for index, case in enumerate(cases):
                yield (role, index), claim.effect, [(1.0, case)]
    for index, also in enumerate(claim.also):
        yield ("also", index), also.effect, None
        for case_index, case in enumerate(also.effect.cases):
            yield (f"also {index}", case_index), also.effect, [(1.0, case)]
    for index, effect in enumerate(claim.asides.values()):
        yield ("aside", index), effect, None


_CHECKED = ["fact", "fact_value", "evidence"]


class _Cells:
    """The blocks of a run by metric, and which cells it has."""

    def __init__(self, trials: pd.DataFrame) -> None:
        self._trials = trials
        self._run_id, self._device = (str(trials[name].iloc[0]) for name in ("run_id", "device"))
        self._ids = set(trials["cell_id"])
        ended = trials["outcome"].eq("ok") & (trials["fact"].notna() if "fact" in trials else False)
        self._checks = trials.reindex(columns=["cell_id", *_CHECKED])[ended]
        self._blocks: dict[str, Blocks] = {}
        present = set(trials["workload"].dropna())
        only_files = "folder" if "imagefolder" in present else PHOTOGRAPHS[0]
        self._photographs = [name for name in PHOTOGRAPHS if name in present] or [only_files]

    def observe(self, effect: Effect, cases: Sequence[tuple[float, Values]] | None) -> Seen | None:
        """The values of an effect, or of some of its cases; None where the run lacks a cell."""
        for photographs in self._photographs:
            wanted = terms(effect, self._device, photographs, cases)
            if all(term.cell_id in self._ids for term in wanted):
                break
        else:
            return None
        ids = [term.cell_id for term in wanted]
        values: Floats = np.array([term.weight for term in wanted]) @ (logs := self._logs(effect.metric, ids))
        if effect.level and effect.figure:
            values -= np.log(effect.figure)
        attempts = self._blocks[effect.metric].tried([self._run_id] * len(ids), ids).all(axis=0)
        dropped = int(attempts.sum()) - int(np.isfinite(values).sum())
        return Seen(photographs, values, dropped, (logs[0], logs[-1]), diagnose_effect(logs).reason)

    def _logs(self, metric: str, ids: Sequence[str]) -> Floats:
        """Logs of a metric, cells × blocks."""
        if metric not in self._blocks:
            number = METRICS[metric]
            columns = [name for name in number.columns if name in self._trials]
            values = pd.Series([number.of(row) for row in rows_of(self._trials[columns])], self._trials.index)
            self._blocks[metric] = Blocks(self._trials[[*KEYS, "block", "outcome"]].assign(samples_per_s=values))
        return self._blocks[metric].logs([self._run_id] * len(ids), ids)

    def checks(self, values: Values) -> list[Row]:
        """What the checks of a fact saw."""
        cell, _ = cell_on({"mode": "check", **values}, self._device)
        return rows_of(self._checks.loc[self._checks["cell_id"].eq(cell_id(cell)), _CHECKED])
