"""Which machines and runs are shown in full where there are too many to show them all.

The home page, suites and claims speak of the machines that were measured last; every machine and every run has a page
of its own, a short one where it is not among them. Reference runs of the main suite keep their full page, and their
place on the page of the experiment. With few machines all of them are shown in full.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from harness import suite
from harness.pages import known
from harness.pages.gathered import Shown
from harness.store_beside import REFERENCE

MACHINES = 8
"""Machines that the home page and the Claims page speak of."""
CHARTED = 2
"""Machines whose charts stand on a suite's page: each adds some thirty kilobytes, compressed."""
RUNS = 3
"""Of each suite and device of such a machine: the newest may have tested less than the one before. As many again of the
main suite are reference runs, where it has them."""
DETAILED = 24
"""The newest runs of all, whose own pages have charts, a grade and what holds each setting back."""


@dataclass(frozen=True)
class Cast:
    """All runs, newest first, sorted by how they are shown; those that were withdrawn are in ``withdrawn`` alone."""

    every: Sequence[Shown]
    featured: Sequence[Shown]
    """Those that home, suites and claims may draw on."""
    detailed: Sequence[Shown]
    """Those with a page in full: the featured ones among them."""
    brief: Sequence[Shown]
    """All others."""
    withdrawn: Sequence[Shown] = ()
    """Runs that are shown nowhere but on a page of their own, which says why."""

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Every measure of every cell of all runs (``known.cells``)."""
        return known.cells([shown.run for shown in self.every])

    @cached_property
    def machines(self) -> dict[str, list[Shown]]:
        """Every machine with its runs, newest first; the machine that was measured last comes first."""
        found: dict[str, list[Shown]] = {}
        for shown in self.every:
            found.setdefault(shown.machine_id, []).append(shown)
        return found

    def of_suite(self, name: str) -> list[Shown]:
        """Featured runs of the machines that a suite's page speaks of."""
        return self._of(lambda shown: name in shown.manifest.suites, CHARTED)

    def at_home(self) -> list[Shown]:
        """Featured runs of the machines that the home page speaks of: first those whose settings were asked for."""
        return self._of(lambda shown: any(map(suite.for_machines, shown.manifest.suites)))

    def of_claims(self) -> list[Shown]:
        """Featured runs of the machines that the Claims page speaks of: first those that were asked about claims."""
        return self._of(lambda shown: bool(shown.manifest.claims))

    def _of(self, first: Callable[[Shown], bool], most: int | None = None) -> list[Shown]:
        machines = [*_ids(filter(first, self.featured)), *_ids(self.featured)]
        kept = set(list(dict.fromkeys(machines))[: most or MACHINES])
        return [shown for shown in self.featured if shown.machine_id in kept]


def cast(runs: Sequence[Shown]) -> Cast:
    """Decide how each run is shown.

    Args:
        runs: all runs, newest first.
    """
    withdrawn = [shown for shown in runs if shown.beside.withdrawn]
    runs = [shown for shown in runs if not shown.beside.withdrawn]
    told = _featured(runs)
    in_full = told | {shown.page for shown in runs[:DETAILED]}
    return Cast(
        runs,
        [shown for shown in runs if shown.page in told],
        [shown for shown in runs if shown.page in in_full],
        [shown for shown in runs if shown.page not in in_full],
        withdrawn,
    )


def _featured(runs: Sequence[Shown]) -> set[str]:
    """Pages of the newest runs of each suite on each device of the machines that were measured last.

    Reference runs of the main suite are counted apart: what others measure after them pushes none of them off.
    """
    counts: defaultdict[tuple[str, bool], dict[str, Counter[str]]] = defaultdict(dict)
    found = set()
    for shown in runs:
        for name in shown.manifest.suites:
            apart = name == suite.MAIN and shown.beside.tier == REFERENCE
            machines = counts[name, apart]
            if shown.machine_id in machines or len(machines) < MACHINES:
                own = machines.setdefault(shown.machine_id, Counter())
                own[shown.manifest.device] += 1
                if own[shown.manifest.device] <= RUNS:
                    found.add(shown.page)
    return found


def _ids(runs: Iterable[Shown]) -> list[str]:
    return list(dict.fromkeys(shown.machine_id for shown in runs))
