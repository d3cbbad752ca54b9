"""A run in progress: its folder, data, probes and clock, and the jobs of its trials."""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from feedrate.machine.probes.gpu import GpuProbe
from feedrate.machine.probes.host import HostProbe
from feedrate.plan.duration import TEMPLATE_S
from feedrate.plan.request import LocalPlan
from feedrate.plan.schedule import PlannedCell
from feedrate.schema.axes import Value
from feedrate.store import runs
from feedrate.store.manifest import Dataset
from feedrate.sweep.blocks import Blocks, wall_s
from feedrate.sweep.screen import Progress, Screen
from feedrate.trial.rendezvous import Meeting

DataKey = tuple[tuple[str, Value], ...]
"""Names and values of the axes that name a packed set."""


@dataclass(slots=True)
class ActiveRun:
    """A run in progress."""

    local: LocalPlan
    folder: Path
    seed: int
    started_at: str
    screen: Screen
    journal: runs.Journal = field(init=False)
    blocks: Blocks = field(init=False)
    """Its trials so far, and those to come."""
    datasets: list[Dataset] = field(default_factory=list)
    runtime: dict[str, Any] = field(default_factory=dict)
    """What PyTorch and the driver report of themselves."""
    packed: dict[DataKey, str] = field(default_factory=dict)
    """Data axes of a set to its folder."""
    noise: dict[str, dict[str, Any]] = field(default_factory=dict)
    """``before`` and ``after`` to the load of the machine then."""
    meeting: Meeting | None = None
    """Where the nodes of a cluster meet that run every trial together; their blocks hold all cells, in one order."""
    origin_ns: int = 0
    """When its blocks began, monotonic clock; earlier by what a resumed run had used."""
    began: tuple[float, float] = (0.0, 0.0)
    """CPU of this process and the clock when the blocks began here, in seconds."""
    dated: tuple[datetime, float] = field(init=False)
    """A date, and the clock then that nobody sets; later dates are counted from there."""
    unpacked: dict[DataKey, str] = field(default_factory=dict)
    """Data axes of a set that could not be packed, and why."""
    still_s: float = 0.0
    """How long the sweep was stopped: the budget does not count it."""
    host: HostProbe = field(default_factory=HostProbe)
    gpu: GpuProbe | None = field(default_factory=GpuProbe.open)

    def __post_init__(self) -> None:
        begun = datetime.fromisoformat(self.started_at)
        self.dated = max(begun, datetime.now(UTC)), time.clock_gettime(time.CLOCK_BOOTTIME)
        self.journal = runs.Journal(self.folder)
        if (node_part := self.local.node_part) and node_part.meets_at:
            self.meeting = Meeting(node_part.meets_at, node_part.membership.node, node_part.membership.nodes)
        tune = self.local.options.tune
        self.blocks = Blocks(self.local.plan, self.seed, tune=tune, together=self.meeting is not None)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.folder.name

    def add(self, trial: dict[str, Any]) -> None:
        """Add a trial that has ended."""
        self.blocks.add(trial)
        ended = datetime.fromisoformat(trial["started_at"]) + timedelta(microseconds=trial["trial_wall_ns"] / 1e3)
        if (behind := ended - self.now()) > timedelta(0):
            self.dated = self.dated[0] + behind, self.dated[1]

    def now(self) -> datetime:
        """Tell the date, which never goes back, though somebody may set the machine's clock meanwhile."""
        date, clock_s = self.dated
        return date + timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - clock_s)

    def begin_blocks(self) -> None:
        """Start the clock of the blocks."""
        self.origin_ns = time.perf_counter_ns() - sum(trial["trial_wall_ns"] for trial in self.blocks.trials)
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

    def plan_digest(self) -> str:
        """Digest what all nodes that run trials together must plan alike."""
        cells, protocol = self.local.plan.all_cells, self.local.plan.matrix.protocol
        text = json.dumps([sorted(cell.cell_id for cell in cells), protocol.model_dump()])
        return hashlib.sha256(text.encode()).hexdigest()

    def node_order(self, block: int) -> list[PlannedCell]:
        """The trials of a block that run on this node, too."""
        order, meeting = self.blocks.order(block), self.meeting and replace(self.meeting, block=block)
        return [cell for cell in order if not meeting or meeting.turn < int(cell.axes.get("nodes", 1))]

    def data_key(self, cell: PlannedCell) -> DataKey:
        """Key of the packed set that a cell reads."""
        return tuple(self.local.plan.data_axes(cell).items())

    def block_s(self, block: int, order: Sequence[PlannedCell]) -> float:
        """Predict how long trials of a block take, and what comes between them: the trials of other nodes, too."""
        costs = self.blocks.trials_s(order, block, self.blocks.trials)
        blocks = len({trial["block"] for trial in self.blocks.trials})
        between_s = TEMPLATE_S
        if blocks and self.origin_ns:
            between_s = max(0.0, (self.elapsed_s() - wall_s(self.blocks.trials)) / blocks)
        return between_s + sum(costs[cell.cell_id] for cell in order)

    def following(self, block: int, order: Sequence[PlannedCell]) -> tuple[int, float]:
        """Predict the number of blocks, and the seconds that those after this one take.

        Cells that will have stopped are left out; nothing runs past the budget.
        """
        plan, expected = self.local.plan, self.blocks.expected(block)
        blocks, later_s, left_s = block + 1, 0.0, math.inf
        this_s = self.block_s(block, order)
        if plan.matrix.budget_s is not None:
            left_s = plan.matrix.budget_s - self.elapsed_s() - this_s
        if self.blocks.searches:  # how many blocks a search takes is open: as many as the budget has room for, at most
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
            "window_s": self.blocks.window_s(cell, block),
            "min_steps": plan.matrix.protocol.min_steps,
            "meeting": asdict(meeting) if meeting else None,
        }
