"""How far a run will come: seconds of a block, blocks that follow, and the progress that the screen shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from feedrate.plan.duration import TEMPLATE_S
from feedrate.plan.schedule import PlannedCell
from feedrate.sweep.budget import wall_s
from feedrate.sweep.run import ActiveRun
from feedrate.sweep.screen import Progress


def block_s(active: ActiveRun, block: int, order: Sequence[PlannedCell]) -> float:
    """Predict how long trials of a block take, and what comes between them: the trials of other nodes, too."""
    costs = active.durations.trials_s(order, block, active.trials)
    blocks = len({trial["block"] for trial in active.trials})
    between_s = TEMPLATE_S
    if blocks and active.origin_ns:
        between_s = max(0.0, (active.elapsed_s() - wall_s(active.trials)) / blocks)
    return between_s + sum(costs[cell.cell_id] for cell in order)


def following(active: ActiveRun, block: int, order: Sequence[PlannedCell]) -> tuple[int, float]:
    """Predict the number of blocks, and the seconds that those after this one take.

    Cells that will have stopped are left out; nothing runs past the budget.
    """
    plan, expected = active.local.plan, active.expected(block)
    blocks, later_s, left_s = block + 1, 0.0, math.inf
    this_s = block_s(active, block, order)
    if plan.matrix.budget_s is not None:
        left_s = plan.matrix.budget_s - active.elapsed_s() - this_s
    if active.searches:  # how many blocks a search takes is open: as many as the budget has room for, at most
        more = int(max(0.0, left_s) / this_s) if math.isfinite(left_s) else 0
        return blocks + more, more * this_s
    while live := [cell for cell in plan.all_cells if expected.get(cell.cell_id, 0) > blocks]:
        takes_s = block_s(active, block, live)
        if later_s + takes_s > left_s:
            break
        blocks, later_s = blocks + 1, later_s + takes_s
    return blocks, later_s


def progress(
    active: ActiveRun, block: int, position: int, order: Sequence[PlannedCell], later: tuple[int, float]
) -> Progress:
    """Say where a run stands when a trial begins; blocks and time left are estimates."""
    blocks, later_s = later
    left_s = later_s + block_s(active, block, order[position:])
    done = len(active.local.plan.all_cells) - len({cell.cell_id for cell in order})
    return Progress(block, blocks, position, len(order), done, left_s)
