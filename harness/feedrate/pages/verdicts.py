"""What the records say of claims: for each claim, machine and device, what the newest run that tested it found.

A run counts by its records, whatever it was made for. Runs of another version of the protocol were measured in another
way and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from feedrate.analysis.claims import CLAIM_COLUMNS, NOT_TESTABLE, VERDICTS, RunFindings, judge_run, latest_findings
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.sentences import sentence
from feedrate.pages import descriptions
from feedrate.pages.runs import RunView
from feedrate.plan import suite
from feedrate.plan.claim import Claim, Claims

Row = Mapping[str, Any]
Each = Callable[[Callable[[RunView], RunFindings], Iterable[RunView]], Iterable[RunFindings]]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What is known of a claim on one machine and device."""

    claim: Claim
    view: RunView
    """The newest run that tested it; where none did, the newest of the machine."""
    device: str
    row: Row
    """Of ``Findings.claims``."""
    cases: Sequence[Row] = ()
    asides: Sequence[Row] = ()

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``."""
        return str(self.row["verdict"])

    @property
    def tested(self) -> bool:
        """Whether a run has its cells."""
        return self.verdict != NOT_TESTABLE

    @property
    def sentence(self) -> str:
        """The verdict in plain words."""
        return sentence(self.row, self.cases, self.claim)


@dataclass(frozen=True, slots=True)
class Place:
    """A machine and device on which claims were tested."""

    view: RunView
    """Its newest run."""
    device: str
    several: bool
    """Whether runs of both devices were made on this machine."""

    @property
    def name(self) -> str:
        """For people; with the device where that does not follow from the machine."""
        machine = self.view.manifest.machine
        if self.several:
            return f"{descriptions.name_of(machine)}, on {self.device.upper()}"
        return descriptions.on(machine, self.device)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What runs say of all claims, on every machine and device."""

    claims: Claims
    places: tuple[Place, ...]
    results: Mapping[str, tuple[ClaimResult, ...]]
    """Claim to what is known of it, in the order of the places."""
    left_out: tuple[RunView, ...]
    """Runs of another version of the protocol."""

    def frame(self) -> pd.DataFrame:
        """Rows of ``Findings.claims`` of what was tested, a row a claim and place."""
        tested = [dict(each.row) for part in self.results.values() for each in part if each.tested]
        return pd.DataFrame(tested, columns=list(CLAIM_COLUMNS))

    def tally(self, place: int) -> dict[str, int]:
        """Count the verdicts of a place, in the order of ``VERDICTS``."""
        words = [part[place].verdict for part in self.results.values()]
        return {verdict: words.count(verdict) for verdict in VERDICTS if verdict in words}


def load_verdicts(runs: Sequence[RunView], asked: Claims | None = None, each: Each = map) -> Verdicts:
    """Judge the claims of all suites, or those that are asked, by every run, newest first.

    ``each`` judges by one run after another, as ``map`` does; processes may share them.
    """
    asked = suite.claims() if asked is None else asked
    by_id = {view.manifest.run_id: view for view in runs}
    latest = latest_findings(each(partial(_judged, asked), by_id.values()), asked)
    claims, cases, asides = (rows_of(getattr(latest.found, part)) for part in ("claims", "cases", "asides"))
    rows = {(row["claim"], str(row["machine_id"]), str(row["device"])): row for row in claims}
    keys = dict.fromkeys(key[1:] for key, row in rows.items() if row["verdict"] != NOT_TESTABLE)
    newest = {view.where: view for view in reversed(runs)}
    machines = [machine for machine, _ in keys]
    places = tuple(Place(newest[key], key[1], machines.count(key[0]) > 1) for key in keys)
    results = {}
    for name, (_, claim) in asked.items():
        own_results = []
        for key, place in zip(keys, places, strict=True):
            row = rows[name, *key]
            own = (
                [part for part in parts if (part["run_id"], part["claim"]) == (row["run_id"], row.get("claim"))]
                for parts in (cases, asides)
            )
            own_results.append(ClaimResult(claim.on(key[1]), by_id.get(row["run_id"], place.view), key[1], row, *own))
        results[name] = tuple(own_results)
    return Verdicts(asked, places, results, tuple(by_id[name] for name in latest.left_out))


def _judged(asked: Claims, view: RunView) -> RunFindings:
    return judge_run(view.manifest, view.trials, asked)
