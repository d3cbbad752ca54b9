"""A run in progress: its trials so far, what the next block runs, and the manifest that it ends with.

What a block runs is decided from the seed and the blocks before it alone, so that a resumed run goes on with the same
trials in the same order.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from feedrate import __version__
from feedrate.machine.probes.gpu import GpuProbe
from feedrate.machine.probes.host import HostProbe
from feedrate.plan.claim_selection import FACT_TRIALS, GROWN, ClaimTracker
from feedrate.plan.duration import TEMPLATE_S
from feedrate.plan.request import LocalPlan
from feedrate.plan.schedule import PlannedCell
from feedrate.plan.stopping import ContrastTracker, side_by_side
from feedrate.plan.tuning import Searches
from feedrate.schema.axes import Value
from feedrate.store import runs
from feedrate.store.manifest import AskedClaim, Dataset, RunManifest, Spread, Stopped
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
    meeting: Meeting | None = field(init=False)
    """Where the nodes of a cluster meet that run every trial together; their blocks hold all cells, in one order."""
    _grown: dict[int, set[str]] = field(default_factory=dict)
    """Block to the cells whose windows are longer in it."""
    origin_ns: int = 0
    """When its blocks began, monotonic clock; earlier by what a resumed run had used."""
    began: tuple[float, float] = (0.0, 0.0)
    """CPU of this process and the clock when the blocks began here, in seconds."""
    host: HostProbe = field(default_factory=HostProbe)
    gpu: GpuProbe | None = field(default_factory=GpuProbe.open)

    def __post_init__(self) -> None:
        plan = self.local.plan
        self.searches = Searches(plan, self.seed) if self.local.options.tune else None
        compared = {} if self.searches else plan.compared
        ceilings = {cell: stages for cell, stages in plan.ceilings_of.items() if cell in compared}
        self.contrasts = ContrastTracker(plan.rule, compared, ceilings)
        self.claims = ClaimTracker(plan.rule, plan.claims)
        self.journal = runs.Journal(self.folder)
        options = self.local.options
        member = options.cluster
        self.meeting = Meeting(options.meets_at, member.node, member.nodes) if member and options.meets_at else None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.folder.name

    def add(self, trial: dict[str, Any]) -> None:
        """Add a trial that has ended."""
        self.trials.append(trial)
        self.claims.add(trial)
        if trial["outcome"] == "ok" and (rate := trial.get("samples_per_s")):
            self.contrasts.logs.add(trial["cell_id"], trial["block"], rate)

    def begin_blocks(self) -> None:
        """Start the clock of the blocks."""
        self.origin_ns = time.perf_counter_ns() - sum(trial["trial_wall_ns"] for trial in self.trials)
        self.began = (time.process_time(), time.perf_counter())

    def elapsed_s(self) -> float:
        """Wall clock of its blocks so far."""
        return (time.perf_counter_ns() - self.origin_ns) / 1e9

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
        live = {cell.cell_id: cell for cell in self._affordable(block, self.live(block))}
        open_claims = self.claims.open(block, gone)
        effects = [effect.weights for claim in open_claims for effect in claim.effects if effect.metric]
        arranged = side_by_side(list(live), effects, random.Random(f"{self.seed}:{block}:direction"))
        control = replace(self.local.plan.control, role="control")
        every = math.inf if control.cell_id in gone else self.local.plan.matrix.protocol.control_every
        order: list[PlannedCell] = []
        for place, cell in enumerate(arranged, start=1):
            order.append(live[cell])
            if place % every == 0:
                order.append(control)
        return order

    def plan_digest(self) -> str:
        """Digest what all nodes that run trials together must plan alike."""
        cells, protocol = self.local.plan.all_cells, self.local.plan.matrix.protocol
        text = json.dumps([sorted(cell.cell_id for cell in cells), protocol.model_dump()])
        return hashlib.sha256(text.encode()).hexdigest()

    def own(self, block: int) -> list[PlannedCell]:
        """The trials of a block that run on this node, too."""
        order, meeting = self.order(block), self.meeting and replace(self.meeting, block=block)
        return [cell for cell in order if not meeting or meeting.turn < int(cell.axes.get("nodes", 1))]

    def live(self, block: int) -> list[PlannedCell]:
        """The cells that a question still wants in a block, in its random order."""
        if self.searches:
            return self.searches.order(block, self.trials)
        cells = sorted(self.local.plan.all_cells, key=lambda cell: cell.cell_id)
        random.Random(f"{self.seed}:{block}").shuffle(cells)
        expected = self._expected(block)
        return [cell for cell in cells if expected.get(cell.cell_id, 0) > block]

    def answered(self, block: int) -> bool:
        """Whether every question whose cells ran was answered as well as the protocol wants, before a block."""
        if self.searches:
            return self.searches.settled
        gone = self.given_up(block)
        claims = [claim for claim in self.claims.claims if gone.isdisjoint(claim.deciding)]
        certain = all(self.claims.certainty(claim, block) >= 1 for claim in claims)
        return certain and not any(self.contrasts.expected(block, gone).values())

    def _affordable(self, block: int, live: list[PlannedCell]) -> list[PlannedCell]:
        """Where the budget has no room for all that is open, the cells of the claims that it can still decide.

        Without such claims, those of the least certain.
        """
        budget, gone = self.local.plan.matrix.budget_s, self.given_up(block)
        claims = self.claims.open(block, gone)
        if budget is None or block == 0 or not claims:
            return live
        before = [trial for trial in self.trials if trial["block"] < block]
        left_s = budget - sum(trial["trial_wall_ns"] for trial in before) / 1e9 - TEMPLATE_S * (block + 1)
        seconds = self._seconds(before)
        costs = {cell.cell_id: self._cell_s(cell, block, seconds) for cell in live}
        chosen = self.claims.in_reach(block, gone, costs, left_s) or claims
        if len(chosen) == len(claims) and sum(costs.values()) <= left_s:
            return live
        wanted = {cell for claim in chosen for cell in self.claims.cells(claim, block)}
        wanted |= {cell for cell, blocks in self.contrasts.expected(block, gone).items() if blocks > block}
        waiting = {cell for claim in claims for cell in claim.cells} - wanted
        live = [cell for cell in live if cell.cell_id not in waiting]
        if sum(costs[cell.cell_id] for cell in live) <= left_s:
            return live
        fitting: set[str] = set()
        for claim in chosen:  # each with all of its cells or left out
            more = (self.claims.cells(claim, block) & costs.keys()) - fitting
            takes = sum(costs[cell] for cell in more)
            if takes <= left_s:
                fitting |= more
                left_s -= takes
        return [cell for cell in live if cell.cell_id in fitting]

    def _expected(self, block: int) -> dict[str, int]:
        """Predict with how many blocks each cell will be done, from what was measured before a block."""
        if self.meeting:  # what one node measured must not change what it runs: the others run the same
            return dict.fromkeys((cell.cell_id for cell in self.local.plan.all_cells), self.local.plan.rule.most)
        gone = self.given_up(block)
        checks = {cell.cell_id: FACT_TRIALS for cell in self.local.plan.unclaimed_checks if cell.cell_id not in gone}
        expected = checks | self.claims.expected(block, gone)
        for cell, blocks in self.contrasts.expected(block, gone).items():
            expected[cell] = max(blocks, expected.get(cell, 0))
        return expected

    def block_s(self, block: int, order: list[PlannedCell]) -> float:
        """Predict how long trials of a block take: as long as they took so far, and what comes between them.

        What other nodes run meanwhile counts as what comes between.
        """
        seconds = self._seconds(self.trials)
        blocks = len({trial["block"] for trial in self.trials})
        known = sum(map(sum, seconds.values()))
        between = max(0.0, (self.elapsed_s() - known) / blocks) if blocks and self.origin_ns else TEMPLATE_S
        return between + sum(self._cell_s(cell, block, seconds) for cell in order)

    def _seconds(self, trials: Iterable[Mapping[str, Any]]) -> dict[tuple[str, bool], list[float]]:
        """Wall clock of trials, by cell_id and whether their windows were longer."""
        seconds: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
        for trial in trials:
            cell = trial["cell_id"]
            seconds[cell, cell in self.grown(trial["block"])].append(trial["trial_wall_ns"] / 1e9)
        return seconds

    def _cell_s(self, cell: PlannedCell, block: int, seconds: Mapping[tuple[str, bool], list[float]]) -> float:
        """Predict how long a trial takes in a block: as it took so far, and longer where its window has just grown."""
        plan, key = self.local.plan, cell.cell_id
        if took := seconds.get((key, key in self.grown(block))):
            return fmean(took)
        shorter = fmean(seconds[key, False]) if (key, False) in seconds else plan.cell_s(cell)
        return shorter + self.window_s(cell, block) - plan.window_s(cell)

    def data_key(self, cell: PlannedCell) -> tuple[tuple[str, Value], ...]:
        """Key of the packed set that a cell reads."""
        return tuple(self.local.plan.data_axes(cell).items())

    def job(self, kind: str, cell: PlannedCell, block: int = 0) -> dict[str, Any]:
        """What a child is told to do (``feedrate.trial.job.Job``); all cells of a block read samples in one order."""
        plan = self.local.plan
        return {
            "kind": kind,
            "device": plan.place.device,
            "cell": {**plan.data_axes(cell), **cell.axes},
            "data_root": str(self.local.options.data_root),
            "source": self.local.source(str(cell.axes["workload"])),
            "packed": self.packed.get(self.data_key(cell)),
            "seed": random.Random(f"{self.seed}:{block}:samples").getrandbits(31),
            "warmup_s": plan.matrix.protocol.warmup_s,
            "window_s": self.window_s(cell, block),
            "min_steps": plan.matrix.protocol.min_steps,
        }

    def met(self, job: dict[str, Any], cell: PlannedCell, meeting: Meeting | None) -> dict[str, Any]:
        """Complete the job of a trial that runs on several nodes; those that do not train one model read other samples.

        What one node has read a file server hands to the next from its memory.
        """
        if not meeting or int(cell.axes.get("nodes", 1)) == 1:
            return job
        seed = job["seed"]
        if cell.axes.get("parallel") != "ddp":
            seed = random.Random(f"{seed}:{meeting.node}").getrandbits(31)
        return job | {"seed": seed, "meeting": asdict(meeting)}

    def grown(self, block: int) -> set[str]:
        """The cells whose windows are longer in a block; ask when all blocks before it have ended.

        They stay longer, so that what is known of how long a trial takes holds for the blocks that follow.
        """
        for each in range(block + 1):
            if each not in self._grown:
                more = set() if self.meeting else self.claims.grown(each)
                self._grown[each] = self._grown.get(each - 1, set()) | more
        return self._grown[block]

    def window_s(self, cell: PlannedCell, block: int) -> float:
        """Least wall clock of a cell's window in a block."""
        return self.local.plan.window_s(cell) * (GROWN if cell.cell_id in self.grown(block) else 1)

    def timeout_s(self, cell: PlannedCell, block: int) -> float:
        """Most wall clock of a trial: the protocol's, and what its window is longer than the protocol's."""
        return self.local.plan.matrix.protocol.timeout_s + self.window_s(cell, block) - self.local.plan.window_s(cell)

    def forecast(self, block: int, order: list[PlannedCell]) -> tuple[int, float]:
        """Predict the number of blocks, and the seconds that those after this one take.

        Cells that will have stopped are left out; nothing runs past the budget.
        """
        plan, expected = self.local.plan, self._expected(block)
        blocks, later, left = block + 1, 0.0, math.inf
        if plan.matrix.budget_s is not None:
            left = plan.matrix.budget_s - self.elapsed_s() - self.block_s(block, order)
        if self.searches:  # how many blocks a search takes is not known: as many as the budget has room for, at most
            more = int(max(0.0, left) / self.block_s(block, order)) if math.isfinite(left) else 0
            return blocks + more, more * self.block_s(block, order)
        while live := [cell for cell in plan.all_cells if expected.get(cell.cell_id, 0) > blocks]:
            takes = self.block_s(block, live)
            if later + takes > left:
                break
            blocks, later = blocks + 1, later + takes
        return blocks, later

    def progress(self, block: int, place: int, order: list[PlannedCell], forecast: tuple[int, float]) -> Progress:
        """Where it stands when a trial begins; blocks and time left are estimates."""
        blocks, later = forecast
        rest = later + self.block_s(block, order[place:])
        done = len(self.local.plan.all_cells) - len({cell.cell_id for cell in order})
        return Progress(block, blocks, place, len(order), done, rest)

    def _stopped_contrasts(self, reason: str, failed: set[str]) -> Iterator[Stopped]:
        """Every contrast, and why it was not measured further."""
        for pair in self.contrasts.pairs:
            values = self.contrasts.values(pair)
            why = "target" if self.contrasts.rule.done(values) else reason
            if not failed.isdisjoint((pair.cell_a, pair.cell_b)):
                why = "failed"
            yield Stopped(axis=pair.axis, cell_a=pair.cell_a, cell_b=pair.cell_b, blocks=len(values), reason=why)

    def _stopped_claims(self, reason: str, failed: set[str]) -> Iterator[AskedClaim]:
        """Every claim, and why it was not measured further."""
        for claim in self.claims.claims:
            why = "blocks" if self.claims.done(claim) else reason
            if not failed.isdisjoint(claim.deciding):
                why = "failed"
            elif self.claims.certainty(claim) >= 1:
                why = "done"
            blocks = min(len(self.claims.values(effect)) for effect in claim.effects)
            yield AskedClaim(claim=claim.id, blocks=blocks, reason=why)

    def _spread(self) -> dict[str, Spread]:
        """How each cell's log throughput varied: between blocks, and within windows by their halves.

        A window's log throughput is about the mean of its halves', whose difference is the log of their ratio: half the
        spread of that is the window's own share.
        """
        halves: defaultdict[str, list[float]] = defaultdict(list)
        for trial in self.trials:
            if trial["outcome"] == "ok" and (ratio := trial.get("half_ratio")):
                halves[trial["cell_id"]].append(math.log(ratio) / 2)
        found = {}
        for cell in self.local.plan.all_cells:
            logs, own = self.contrasts.logs.sums({cell.cell_id: 1.0}), halves[cell.cell_id]
            if len(logs) > 1:
                within = round(stdev(own), 6) if len(own) > 1 else 0.0
                found[cell.cell_id] = Spread(sd=round(stdev(logs), 6), within=within)
        return found

    def manifest(self, reason: str) -> RunManifest:
        """What the run records of itself, having stopped for a reason."""
        local, plan, failed = self.local, self.local.plan, self.given_up()
        ended = Counter(trial["block"] for trial in self.trials)
        complete = [block for block, trials in ended.items() if trials >= len(self.own(block))]
        cpu_s, clock_s = self.began
        wall_s = time.perf_counter() - clock_s
        return RunManifest(
            feedrate_version=__version__,
            run_id=self.run_id,
            machine=local.machine,
            software=local.software,
            device=plan.place.device,
            command=local.options.command(),
            cluster=local.options.cluster,
            profile=plan.matrix.profile,
            suites=plan.matrix.suites(),
            protocol=plan.matrix.protocol,
            budget_s=plan.matrix.budget_s,
            seed=self.seed,
            combinations=plan.combinations,
            cells=len(plan.cells),
            merged=plan.merged,
            excluded=plan.excluded,
            substitutions=plan.substitutions,
            runtime=self.runtime,
            datasets=tuple(self.datasets),
            started_at=self.started_at,
            ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
            blocks=len(complete),
            stop_reason=reason,
            control=plan.control.cell_id,
            ceilings=len(plan.ceilings),
            contrasts=tuple(self._stopped_contrasts(reason, failed)),
            claims=tuple(self._stopped_claims(reason, failed)),
            tuned=self.searches.results(self.trials) if self.searches else (),
            untestable=dict(plan.untestable),
            noise_before=self.noise.get("before", {}),
            noise_after=self.noise.get("after", {}),
            outcomes=dict(Counter(trial["outcome"] for trial in self.trials)),
            cell_seconds=_cell_seconds(self.trials),
            cell_spread=self._spread(),
            parent_cpu_pct=round(100 * (time.process_time() - cpu_s) / wall_s, 2) if clock_s else 0.0,
        )


def _cell_seconds(trials: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """cell_id to the mean wall clock of its trials, in seconds."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for trial in trials:
        seconds[trial["cell_id"]].append(trial["trial_wall_ns"] / 1e9)
    return {cell: round(fmean(times), 3) for cell, times in seconds.items()}
