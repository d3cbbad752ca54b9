"""Which runs and machines each page speaks of.

Every run that is here has a page in full. The home page, suites and claims speak of the machines that were measured
last; reference runs of the main suite keep their place there. With few machines all of them are spoken of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from feedrate.pages.runs import RunView
from feedrate.plan import suite
from feedrate.store.marks import REFERENCE

MACHINES = 8
"""Machines that the home page and the Claims page speak of."""
CHARTED = 2
"""Machines whose charts stand on a suite's page: each adds some thirty kilobytes, compressed."""
RUNS = 3
"""Of each suite and device of such a machine: the newest may have tested less than the one before. As many again of the
main suite are reference runs, where it has them."""


@dataclass(frozen=True)
class Selection:
    """Runs that pages are made of, newest first; those that were withdrawn are in ``withdrawn`` alone."""

    every: Sequence[RunView]
    featured: Sequence[RunView]
    """Those that home, suites and claims may draw on."""
    withdrawn: Sequence[RunView] = ()
    """Runs that are shown nowhere but on a page of their own, which says why."""

    @property
    def machines(self) -> int:
        """How many machines there are."""
        return len({view.machine_id for view in self.every})

    def of_suite(self, name: str) -> list[RunView]:
        """Featured runs of the machines that a suite's page speaks of."""
        return self._of(lambda view: name in view.manifest.suites, CHARTED)

    def at_home(self) -> list[RunView]:
        """Featured runs of the machines that the home page speaks of: first those with a suite that is for machines."""
        return self._of(lambda view: any(map(suite.for_machines, view.manifest.suites)))

    def of_claims(self) -> list[RunView]:
        """Runs of the machines that the Claims page speaks of, first those on which claims were tested.

        Featured ones, and all that were made for claims: verdicts pool them, and none is left out.
        """
        featured = self._of(lambda view: bool(view.manifest.claims))
        machines, pages = {view.machine_id for view in featured}, {view.page for view in featured}
        views = [view for view in self.every if view.machine_id in machines]
        return [view for view in views if view.manifest.claims or view.page in pages]

    def _of(self, comes_first: Callable[[RunView], bool], most: int = 0) -> list[RunView]:
        machines = [view.machine_id for view in (*filter(comes_first, self.featured), *self.featured)]
        kept = list(dict.fromkeys(machines))[: most or MACHINES]
        return [view for view in self.featured if view.machine_id in kept]


def select(every: Sequence[RunView]) -> Selection:
    """Decide which of some runs, newest first, home, suites and claims may draw on."""
    runs = [view for view in every if not view.beside.withdrawn]
    featured = _featured(runs)
    withdrawn = [view for view in every if view.beside.withdrawn]
    return Selection(runs, [view for view in runs if view.page in featured], withdrawn)


def _featured(runs: Sequence[RunView]) -> set[str]:
    """Pages of the newest runs of each suite and device; reference runs of the main suite are counted apart."""
    counts: defaultdict[tuple[str, bool], dict[str, Counter[str]]] = defaultdict(dict)
    featured = set()
    for view in runs:
        for name in view.manifest.suites:
            apart = name == suite.MAIN and view.beside.tier == REFERENCE
            machines = counts[name, apart]
            if view.machine_id in machines or len(machines) < MACHINES:
                by_device = machines.setdefault(view.machine_id, Counter())
                by_device[view.manifest.device] += 1
                if by_device[view.manifest.device] <= RUNS:
                    featured.add(view.page)
    return featured
