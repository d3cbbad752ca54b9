"""What the records say of claims: for each claim, machine and device, what all runs found.

A run counts by its records, whatever it was made for and whatever it found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from feedrate.analysis.claim_values import RunValues, observe
from feedrate.analysis.claims import CLAIM_COLUMNS, NOT_TESTABLE, VERDICTS, judge_claims
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.sentences import sentence
from feedrate.pages.runs import RunView
from feedrate.plan import suite
from feedrate.plan.claim import Claim, Claims

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What is known of a claim on one machine and device."""

    claim: Claim
    views: tuple[RunView, ...]
    """The runs that tested it and count, newest first; where none did, the newest of the machine."""
    row: Row
    """Of ``Findings.claims``."""
    cases: Sequence[Row] = ()
    asides: Sequence[Row] = ()

    @property
    def view(self) -> RunView:
        """The newest of the runs."""
        return self.views[0]

    @property
    def device(self) -> str:
        """On which they were made."""
        return self.view.manifest.device

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
class Verdicts:
    """What runs say of all claims, on every machine and device."""

    claims: Claims
    platforms: tuple[RunView, ...]
    """The newest run of each machine and device on which claims were tested."""
    results: Mapping[str, tuple[ClaimResult, ...]]
    """Claim to what is known of it, in the order of the platforms."""
    views: Mapping[str, RunView]
    """The runs that were asked, by id."""

    def frame(self) -> pd.DataFrame:
        """Rows of ``Findings.claims`` of what was tested, a row a claim and platform."""
        tested = [dict(result.row) for results in self.results.values() for result in results if result.tested]
        return pd.DataFrame(tested, columns=list(CLAIM_COLUMNS))

    def tally(self, index: int) -> dict[str, int]:
        """Count the verdicts of a platform, in the order of ``VERDICTS``."""
        words = [results[index].verdict for results in self.results.values()]
        return {verdict: words.count(verdict) for verdict in VERDICTS if verdict in words}

    def holding(self, index: int) -> list[Claim]:
        """The claims that a platform confirms."""
        return [self.claims[name][1] for name, results in self.results.items() if results[index].verdict == "confirmed"]


def observed(view: RunView) -> RunValues:
    """What a run has to say of the claims of all suites."""
    return observe(view.trials, suite.claims(), view.manifest.untestable)


def load_verdicts(
    runs: Sequence[RunView],
    observed: Callable[[RunView], RunValues] = observed,
    withdrawn: Sequence[RunView] = (),
) -> Verdicts:
    """Judge the claims of all suites by all runs, newest first.

    ``observed`` gives what a run has to say of them. Runs that were withdrawn are counted, not read.
    """
    asked = suite.claims()
    by_id = {view.manifest.run_id: view for view in runs if view.manifest.outcomes}
    gone = [view.manifest for view in withdrawn]
    findings = judge_claims(map(observed, by_id.values()), asked, gone)
    rows, cases, asides = (_by_claim(getattr(findings, table)) for table in ("claims", "cases", "asides"))
    keys = dict.fromkeys(key[1:] for key, (row,) in rows.items() if row["verdict"] != NOT_TESTABLE)
    newest = {view.where: view for view in reversed(by_id.values())}
    platforms = tuple(newest[key] for key in keys)
    results = {}
    for name, (_, claim) in asked.items():
        of_claim = []
        for key, platform in zip(keys, platforms, strict=True):
            (row,), at = rows[name, *key], (name, *key)
            views = tuple(by_id[run_id] for run_id in row["run_ids"]) or (platform,)
            of_claim.append(ClaimResult(claim.on(key[1]), views, row, cases.get(at, ()), asides.get(at, ())))
        results[name] = tuple(of_claim)
    return Verdicts(asked, platforms, results, by_id)


def _by_claim(frame: pd.DataFrame) -> dict[tuple[str, str, str], list[Row]]:
    """Rows by claim, machine and device."""
    rows_of_claim: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows_of(frame):
        rows_of_claim.setdefault((row["claim"], row["machine_id"], row["device"]), []).append(row)
    return rows_of_claim
