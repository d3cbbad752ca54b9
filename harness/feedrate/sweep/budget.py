"""What a budget has room for: how long trials take, and the cells that fit into what is left of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from feedrate.plan.claim_selection import GROWN, LEAST_BLOCKS, ClaimTracker
from feedrate.plan.duration import TEMPLATE_S
from feedrate.plan.schedule import Plan, PlannedCell

Trials = Iterable[Mapping[str, Any]]
"""Rows of the trials table."""


def wall_s(trials: Trials) -> float:
    """Add up the wall clock of trials."""
    return float(sum(trial["trial_wall_ns"] for trial in trials)) / 1e9


class Durations:
    """How long trials take: as long as they took so far, and longer where a claim has had its cells' windows grow."""

    def __init__(self, plan: Plan, claims: ClaimTracker | None) -> None:
        """Begin with windows as the plan has them; without claims they stay so."""
        self._plan, self._claims = plan, claims
        self._grown: list[set[str]] = []

    def grown(self, block: int) -> set[str]:
        """The cells whose windows are longer in a block; ask when all blocks before it have ended.

        They stay longer, so that what is known of how long a trial takes holds for the blocks that follow.
        """
        while len(self._grown) <= block:
            more = self._claims.grown(len(self._grown)) if self._claims else set[str]()
            self._grown.append(more.union(*self._grown[-1:]))
        return self._grown[block]

    def window_s(self, cell: PlannedCell, block: int) -> float:
        """Least wall clock of a cell's window in a block."""
        return self._plan.window_s(cell) * (GROWN if cell.cell_id in self.grown(block) else 1)

    def timeout_s(self, cell: PlannedCell, block: int) -> float:
        """Most wall clock of a trial: the protocol's, and what its window is longer than the protocol's."""
        return self._plan.matrix.protocol.timeout_s + self.window_s(cell, block) - self._plan.window_s(cell)

    def trials_s(self, cells: Sequence[PlannedCell], block: int, trials: Trials) -> dict[str, float]:
        """Predict how long a trial of each cell takes in a block, from trials that have ended: seconds by cell_id."""
        seconds: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
        for trial in trials:
            cell_id = trial["cell_id"]
            seconds[cell_id, cell_id in self.grown(trial["block"])].append(trial["trial_wall_ns"] / 1e9)
        return {cell.cell_id: self._trial_s(cell, block, seconds) for cell in cells}

    def _trial_s(self, cell: PlannedCell, block: int, seconds: Mapping[tuple[str, bool], list[float]]) -> float:
        plan, key = self._plan, cell.cell_id
        if took := seconds.get((key, key in self.grown(block))):
            return fmean(took)
        shorter = fmean(seconds[key, False]) if (key, False) in seconds else plan.cell_s(cell)
        return shorter + self.window_s(cell, block) - plan.window_s(cell)  # it has just grown


def remaining_s(budget_s: float, trials: Trials, block: int) -> float:
    """What trials before a block left of a budget, in seconds."""
    return budget_s - wall_s(trials) - TEMPLATE_S * (block + 1)


def affordable(
    claims: ClaimTracker, block: int, gone: set[str], compared: set[str], costs: Mapping[str, float], left_s: float
) -> set[str]:
    """Where the budget has no room for all that is open, choose the cells of the claims that it can still decide.

    Without such claims, those of the least certain. What stands beside a claim is left out then. Cells that a
    comparison still wants stay; ``costs`` are seconds of a trial of every cell that is open, ``gone`` the cells that
    only ever failed.
    """
    open_claims = claims.open(block, gone)
    chosen = claims.in_reach(block, gone, costs, left_s) or open_claims
    needed_s = claims.all_s(open_claims, block, costs) if block < LEAST_BLOCKS else 0.0
    if not open_claims or (len(chosen) == len(open_claims) and max(needed_s, sum(costs.values())) <= left_s):
        return set(costs)
    wanted = compared.union(*(claim.deciding for claim in chosen))
    live = set(costs) - (set[str]().union(*(claim.cells for claim in open_claims)) - wanted)
    if sum(costs[cell] for cell in live) <= left_s:
        return live
    fitting: set[str] = set()
    for claim in chosen:  # each with all of its cells or left out
        more = (claim.deciding & costs.keys()) - fitting
        takes_s = sum(costs[cell] for cell in more)
        if takes_s <= left_s:
            fitting |= more
            left_s -= takes_s
    return fitting & live
