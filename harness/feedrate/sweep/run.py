"""A run in progress: its trials so far, and what the next block runs.

What a block runs is decided from the seed and the blocks before it alone, so that a resumed run goes on with the same
trials in the same order.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from feedrate.machine.probes.gpu import GpuProbe
from feedrate.machine.probes.host import HostProbe
from feedrate.plan.claim_selection import FACT_TRIALS, ClaimTracker
from feedrate.plan.duration import TEMPLATE_S
from feedrate.plan.request import LocalPlan
from feedrate.plan.schedule import PlannedCell
from feedrate.plan.stopping import ContrastTracker, side_by_side
from feedrate.plan.tuning import Searches
from feedrate.schema.axes import Value
from feedrate.store import runs
from feedrate.store.manifest import Dataset
from feedrate.sweep.budget import Durations, affordable, remaining_s, wall_s
from feedrate.sweep.screen import Progress, Screen
from feedrate.trial.rendezvous import Meeting

GIVE_UP_AFTER = 2
"""A cell that failed so often and never ran is left out of the blocks that follow."""


@dataclass(slots=True)
class ActiveRun:
    """A run in progress."""

    local: LocalPlan
    folder: Path
    seed: int
    started_at: str
    screen: Screen
    journal: runs.Journal = field(init=False)
    trials: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the trials that have ended."""
    datasets: list[Dataset] = field(default_factory=list)
    runtime: dict[str, Any] = field(default_factory=dict)
    """What PyTorch and the driver report of themselves."""
    packed: dict[tuple[tuple[str, Value], ...], str] = field(default_factory=dict)
    """Data axes of a set to its folder."""
    noise: dict[str, dict[str, Any]] = field(default_factory=dict)
    """``before`` and ``after`` to the load of the machine then."""
    contrasts: ContrastTracker = field(init=False)
    claims: ClaimTracker = field(init=False)
    searches: Searches | None = field(init=False)
    """What chooses the trials of a tuned sweep."""
    meeting: Meeting | None = None
    """Where the nodes of a cluster meet that run every trial together; their blocks hold all cells, in one order."""
    durations: Durations = field(init=False)
    origin_ns: int = 0
    """When its blocks began, monotonic clock; earlier by what a resumed run had used."""
    began: tuple[float, float] = (0.0, 0.0)
    """CPU of this process and the clock when the blocks began here, in seconds."""
    dated: tuple[datetime, float] = field(init=False)
    """A date, and the clock then that nobody sets; later dates are counted from there."""
    unpacked: dict[tuple[tuple[str, Value], ...], str] = field(default_factory=dict)
    """Data axes of a set that could not be packed, and why."""
    still_s: float = 0.0
    """How long the sweep was stopped: the budget does not count it."""
    host: HostProbe = field(default_factory=HostProbe)
    gpu: GpuProbe | None = field(default_factory=GpuProbe.open)

    def __post_init__(self) -> None:
        plan = self.local.plan
        begun = datetime.fromisoformat(self.started_at)
        self.dated = max(begun, datetime.now(UTC)), time.clock_gettime(time.CLOCK_BOOTTIME)
        self.searches = Searches(plan, self.seed) if self.local.options.tune else None
        compared = {} if self.searches else plan.compared
        ceilings = {cell: stages for cell, stages in plan.ceilings_of.items() if cell in compared}
        self.contrasts = ContrastTracker(plan.rule, compared, ceilings)
        self.claims = ClaimTracker(plan.rule, plan.claims)
        self.journal = runs.Journal(self.folder)
        if (node_part := self.local.node_part) and node_part.meets_at:
            self.meeting = Meeting(node_part.meets_at, node_part.membership.node, node_part.membership.nodes)
        # What one node measured must not change what it runs: the others run the same.
        self.durations = Durations(plan, None if self.meeting else self.claims)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.folder.name

    def add(self, trial: dict[str, Any]) -> None:
        """Add a trial that has ended."""
        self.trials.append(trial)
        ended = datetime.fromisoformat(trial["started_at"]) + timedelta(microseconds=trial["trial_wall_ns"] / 1e3)
        if (behind := ended - self.now()) > timedelta(0):
            self.dated = self.dated[0] + behind, self.dated[1]
        self.claims.add(trial)
        if trial["outcome"] == "ok" and (rate := trial.get("samples_per_s")):
            self.contrasts.logs.add(trial["cell_id"], trial["block"], rate)

    def now(self) -> datetime:
        """Tell the date, which never goes back, though somebody may set the machine's clock meanwhile."""
        date, clock_s = self.dated
        return date + timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - clock_s)

    def begin_blocks(self) -> None:
        """Start the clock of the blocks."""
        self.origin_ns = time.perf_counter_ns() - sum(trial["trial_wall_ns"] for trial in self.trials)
        self.began = (time.process_time(), time.perf_counter())

    def elapsed_s(self) -> float:
        """Wall clock of its blocks so far."""
        return (time.perf_counter_ns() - self.origin_ns) / 1e9 - self.still_s

    def close(self) -> None:
        """Close journal and probes."""
        self.journal.close()
        self.host.close()
        if self.gpu:
            self.gpu.close()

    def given_up(self, before: int | None = None) -> set[str]:
        """Cells that only ever failed, in the blocks before one if one is given."""
        trials = [trial for trial in self.trials if before is None or trial["block"] < before]
        ended_well = {trial["cell_id"] for trial in trials if trial["outcome"] == "ok"}
        tries = Counter(trial["cell_id"] for trial in trials)
        return {cell for cell, count in tries.items() if cell not in ended_well and count >= GIVE_UP_AFTER}

    def order(self, block: int) -> list[PlannedCell]:
        """The block's trials in their order, the control cell after every so many.

        Random, with the sides of a claim's effect close to each other (``plan.stopping``).
        """
        if self.searches or self.meeting:
            return self.live(block)
        gone = self.given_up(block)
        open_claims = self.claims.open(block, gone)
        live = {cell.cell_id: cell for cell in self._affordable(block, gone)}
        effects = [effect.weights for claim in open_claims for effect in claim.effects if effect.metric]
        arranged = side_by_side(list(live), effects, random.Random(f"{self.seed}:{block}:direction"))
        control = replace(self.local.plan.control, role="control")
        every = math.inf if control.cell_id in gone else self.local.plan.matrix.protocol.control_every
        order: list[PlannedCell] = []
        for count, cell in enumerate(arranged, start=1):
            order.append(live[cell])
            if count % every == 0:
                order.append(control)
        return order

    def plan_digest(self) -> str:
        """Digest what all nodes that run trials together must plan alike."""
        cells, protocol = self.local.plan.all_cells, self.local.plan.matrix.protocol
        text = json.dumps([sorted(cell.cell_id for cell in cells), protocol.model_dump()])
        return hashlib.sha256(text.encode()).hexdigest()

    def node_order(self, block: int) -> list[PlannedCell]:
        """The trials of a block that run on this node, too."""
        order, meeting = self.order(block), self.meeting and replace(self.meeting, block=block)
        return [cell for cell in order if not meeting or meeting.turn < int(cell.axes.get("nodes", 1))]

    def live(self, block: int) -> list[PlannedCell]:
        """The cells that a question still wants in a block, in its random order."""
        if self.searches:
            return self.searches.order(block, self.trials)
        cells = sorted(self.local.plan.all_cells, key=lambda cell: cell.cell_id)
        random.Random(f"{self.seed}:{block}").shuffle(cells)
        expected = self.expected(block)
        return [cell for cell in cells if expected.get(cell.cell_id, 0) > block]

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
        live, budget_s = self.live(block), self.local.plan.matrix.budget_s
        if budget_s is None or block == 0:
            return live
        before = [trial for trial in self.trials if trial["block"] < block]
        costs = self.durations.trials_s(live, block, before)
        compared = {cell for cell, blocks in self.contrasts.expected(block, gone).items() if blocks > block}
        paid = affordable(self.claims, block, gone, compared, costs, remaining_s(budget_s, before, block))
        return [cell for cell in live if cell.cell_id in paid]

    def expected(self, block: int) -> dict[str, int]:
        """Predict with how many blocks each cell will be done, from what was measured before a block."""
        if self.meeting:
            return dict.fromkeys((cell.cell_id for cell in self.local.plan.all_cells), self.local.plan.rule.most)
        gone = self.given_up(block)
        checks = {cell.cell_id: FACT_TRIALS for cell in self.local.plan.unclaimed_checks if cell.cell_id not in gone}
        expected = checks | self.claims.expected(block, gone)
        for cell, blocks in self.contrasts.expected(block, gone).items():
            expected[cell] = max(blocks, expected.get(cell, 0))
        return expected

    def data_key(self, cell: PlannedCell) -> tuple[tuple[str, Value], ...]:
        """Key of the packed set that a cell reads."""
        return tuple(self.local.plan.data_axes(cell).items())

    def block_s(self, block: int, order: Sequence[PlannedCell]) -> float:
        """Predict how long trials of a block take, and what comes between them: the trials of other nodes, too."""
        costs = self.durations.trials_s(order, block, self.trials)
        blocks = len({trial["block"] for trial in self.trials})
        between_s = TEMPLATE_S
        if blocks and self.origin_ns:
            between_s = max(0.0, (self.elapsed_s() - wall_s(self.trials)) / blocks)
        return between_s + sum(costs[cell.cell_id] for cell in order)

    def following(self, block: int, order: Sequence[PlannedCell]) -> tuple[int, float]:
        """Predict the number of blocks, and the seconds that those after this one take.

        Cells that will have stopped are left out; nothing runs past the budget.
        """
        plan, expected = self.local.plan, self.expected(block)
        blocks, later_s, left_s = block + 1, 0.0, math.inf
        this_s = self.block_s(block, order)
        if plan.matrix.budget_s is not None:
            left_s = plan.matrix.budget_s - self.elapsed_s() - this_s
        if self.searches:  # how many blocks a search takes is open: as many as the budget has room for, at most
            more = int(max(0.0, left_s) / this_s) if math.isfinite(left_s) else 0
            return blocks + more, more * this_s
        while live := [cell for cell in plan.all_cells if expected.get(cell.cell_id, 0) > blocks]:
            takes_s = self.block_s(block, live)
            if later_s + takes_s > left_s:
                break
            blocks, later_s = blocks + 1, later_s + takes_s
        return blocks, later_s

    def progress(
        self, block: int, position: int, order: Sequence[PlannedCell], following: tuple[int, float]
    ) -> Progress:
        """Say where a run stands when a trial begins; blocks and time left are estimates."""
        blocks, later_s = following
        left_s = later_s + self.block_s(block, order[position:])
        done = len(self.local.plan.all_cells) - len({cell.cell_id for cell in order})
        return Progress(block, blocks, position, len(order), done, left_s)

    def job(self, kind: str, cell: PlannedCell, block: int = 0, meeting: Meeting | None = None) -> dict[str, Any]:
        """What a child is told to do (``feedrate.trial.job.Job``); all cells of a block read samples in one order.

        Nodes that run a trial together without training one model read other samples: what one of them has read a file
        server hands to the next from its memory.
        """
        plan, seed = self.local.plan, random.Random(f"{self.seed}:{block}:samples").getrandbits(31)
        meeting = meeting if int(cell.axes.get("nodes", 1)) > 1 else None
        if meeting and cell.axes.get("parallel") != "ddp":
            seed = random.Random(f"{seed}:{meeting.node}").getrandbits(31)
        return {
            "kind": kind,
            "device": plan.host.device,
            "cell": {**plan.data_axes(cell), **cell.axes},
            "data_root": str(self.local.options.data_root),
            "source": self.local.source(str(cell.axes["workload"])),
            "packed": self.packed.get(self.data_key(cell)),
            "seed": seed,
            "warmup_s": plan.matrix.protocol.warmup_s,
            "window_s": self.durations.window_s(cell, block),
            "min_steps": plan.matrix.protocol.min_steps,
            "meeting": asdict(meeting) if meeting else None,
        }
