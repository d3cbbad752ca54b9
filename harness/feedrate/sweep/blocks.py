"""The blocks of a run: what the next one measures, and how long its trials take.

What a block runs is decided from the seed and the blocks before it alone, so that a resumed run goes on with the same
trials in the same order.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from feedrate.plan.claim_selection import FACT_TRIALS, GROWN, LEAST_BLOCKS, ClaimTracker
from feedrate.plan.duration import TEMPLATE_S
from feedrate.plan.schedule import Plan, PlannedCell
from feedrate.plan.stopping import ContrastTracker, side_by_side
from feedrate.plan.tuning import Searches

GIVE_UP_AFTER = 2
"""A cell that failed so often and never ran is left out of the blocks that follow."""


class Blocks:
    """The trials of a run that have ended, and those that are to come."""

    def __init__(self, plan: Plan, seed: int, *, tune: bool, together: bool) -> None:
        """Begin with no trial.

        Args:
            plan: the plan of the run.
            seed: orders its blocks.
            tune: whether searches choose the trials.
            together: whether nodes run every trial together: what one of them measured changes nothing then.
        """
        self.plan, self._seed, self._together = plan, seed, together
        self.trials: list[dict[str, Any]] = []
        """Rows of the trials that have ended."""
        self.searches = Searches(plan, seed) if tune else None
        compared = {} if tune else plan.compared
        ceilings = {cell: stages for cell, stages in plan.ceilings_of.items() if cell in compared}
        self.contrasts = ContrastTracker(plan.rule, compared, ceilings)
        self.claims = ClaimTracker(plan.rule, plan.claims)
        self._grown: list[set[str]] = []

    def add(self, trial: dict[str, Any]) -> None:
        """Add a trial that has ended."""
        self.trials.append(trial)
        self.claims.add(trial)
        if trial["outcome"] == "ok" and (rate := trial.get("samples_per_s")):
            self.contrasts.logs.add(trial["cell_id"], trial["block"], rate)

    def before(self, block: int) -> list[dict[str, Any]]:
        """The trials of earlier blocks."""
        return [trial for trial in self.trials if trial["block"] < block]

    def given_up(self, before: float = math.inf) -> set[str]:
        """Cells that only ever failed, in the blocks before one if one is given."""
        trials = [trial for trial in self.trials if trial["block"] < before]
        ended_well = {trial["cell_id"] for trial in trials if trial["outcome"] == "ok"}
        tries = Counter(trial["cell_id"] for trial in trials)
        return {cell for cell, count in tries.items() if cell not in ended_well and count >= GIVE_UP_AFTER}

    def order(self, block: int) -> list[PlannedCell]:
        """The block's trials in their order, the control cell after every so many.

        Random, with the sides of a claim's effect close to each other (``plan.stopping``).
        """
        if self.searches or self._together:
            return self.live(block)
        gone = self.given_up(block)
        live = {cell.cell_id: cell for cell in self._affordable(block, gone)}
        open_claims = self.claims.open(block, gone)
        effects = [effect.weights for claim in open_claims for effect in claim.effects if effect.metric]
        arranged = side_by_side(list(live), effects, random.Random(f"{self._seed}:{block}:direction"))
        control = replace(self.plan.control, role="control")
        every = math.inf if control.cell_id in gone else self.plan.matrix.protocol.control_every
        order: list[PlannedCell] = []
        for count, cell in enumerate(arranged, start=1):
            order += [live[cell], control] if count % every == 0 else [live[cell]]
        return order

    def live(self, block: int) -> list[PlannedCell]:
        """The cells that a question still wants in a block, in its random order."""
        if self.searches:
            return self.searches.order(block, self.trials)
        cells = sorted(self.plan.all_cells, key=lambda cell: cell.cell_id)
        random.Random(f"{self._seed}:{block}").shuffle(cells)
        expected = self.expected(block)
        return [cell for cell in cells if expected.get(cell.cell_id, 0) > block]

    def expected(self, block: int) -> dict[str, int]:
        """Predict with how many blocks each cell will be done, from what was measured before a block."""
        if self._together:
            return dict.fromkeys((cell.cell_id for cell in self.plan.all_cells), self.plan.rule.most)
        gone = self.given_up(block)
        checks = {cell.cell_id: FACT_TRIALS for cell in self.plan.unclaimed_checks if cell.cell_id not in gone}
        expected = checks | self.claims.expected(block, gone)
        for cell, blocks in self.contrasts.expected(block, gone).items():
            expected[cell] = max(blocks, expected.get(cell, 0))
        return expected

    def answered(self, block: int) -> bool:
        """Whether every question whose cells ran was answered as well as the protocol wants, before a block."""
        if self.searches:
            return self.searches.settled
        gone = self.given_up(block)
        claims = [claim for claim in self.claims.claims if gone.isdisjoint(claim.deciding)]
        certain = all(self.claims.certainty(claim, block) >= 1 for claim in claims)
        return certain and not any(self.contrasts.expected(block, gone).values())

    def _affordable(self, block: int, gone: set[str]) -> list[PlannedCell]:
        """The live cells for which the budget has room."""
        live, budget_s = self.live(block), self.plan.matrix.budget_s
        if budget_s is None or block == 0:
            return live
        before = self.before(block)
        left_s = budget_s - wall_s(before) - TEMPLATE_S * (block + 1)
        compared = {cell for cell, blocks in self.contrasts.expected(block, gone).items() if blocks > block}
        paid = affordable(self.claims, block, gone, compared, self.trials_s(live, block, before), left_s)
        return [cell for cell in live if cell.cell_id in paid]

    def _has_grown(self, block: int) -> set[str]:
        """The cells whose windows are longer in a block, by all blocks before it; they stay longer."""
        if self._together:
            return set()
        while len(self._grown) <= block:
            self._grown.append(self.claims.grown(len(self._grown)).union(*self._grown[-1:]))
        return self._grown[block]

    def window_s(self, cell: PlannedCell, block: int) -> float:
        """Least wall clock of a cell's window in a block: longer where a claim has had it grow."""
        return self.plan.window_s(cell) * (GROWN if cell.cell_id in self._has_grown(block) else 1)

    def timeout_s(self, cell: PlannedCell, block: int) -> float:
        """Most wall clock of a trial: the protocol's, and what its window is longer than the plan has it."""
        return self.plan.matrix.protocol.timeout_s + self.window_s(cell, block) - self.plan.window_s(cell)

    def trials_s(
        self, cells: Sequence[PlannedCell], block: int, trials: Iterable[Mapping[str, Any]]
    ) -> dict[str, float]:
        """Predict how long a trial of each cell takes in a block, from trials that have ended: seconds by cell_id."""
        seconds: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
        for trial in trials:
            cell_id = trial["cell_id"]
            seconds[cell_id, cell_id in self._has_grown(trial["block"])].append(trial["trial_wall_ns"] / 1e9)
        return {cell.cell_id: self._trial_s(cell, block, seconds) for cell in cells}

    def _trial_s(self, cell: PlannedCell, block: int, seconds: Mapping[tuple[str, bool], list[float]]) -> float:
        key = cell.cell_id
        if took := seconds.get((key, key in self._has_grown(block))):
            return fmean(took)
        shorter = fmean(seconds[key, False]) if (key, False) in seconds else self.plan.cell_s(cell)
        return shorter + self.window_s(cell, block) - self.plan.window_s(cell)  # it has just grown


def wall_s(trials: Iterable[Mapping[str, Any]]) -> float:
    """Add up the wall clock of trials."""
    return float(sum(trial["trial_wall_ns"] for trial in trials)) / 1e9


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
