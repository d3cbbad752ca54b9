"""A run under way: its journal, its clock, its probes, and what it says of itself at the end."""

from __future__ import annotations

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from feedrate import __version__
from feedrate.machine.probes.gpu import GpuProbe
from feedrate.machine.probes.host import HostProbe
from feedrate.plan.claim_selection import FACT_TRIALS, Asked, Asking
from feedrate.plan.request import Here
from feedrate.plan.schedule import TEMPLATE_S, PlannedCell
from feedrate.plan.stopping import Questions, side_by_side
from feedrate.schema.axes import Value
from feedrate.store import runs
from feedrate.store.manifest import AskedClaim, Dataset, RunManifest, Spread, Stopped
from feedrate.sweep.screen import Progress, Screen

GIVE_UP_AFTER = 2
"""A cell that failed so often and never ran is left out of the blocks that follow."""


@dataclass(slots=True)
class Running:
    """A run under way."""

    here: Here
    folder: Path
    run_id: str
    seed: int
    started_at: str
    journal: runs.Journal
    screen: Screen
    datasets: list[Dataset] = field(default_factory=list)
    runtime: dict[str, Any] = field(default_factory=dict)
    """What PyTorch and the driver say of themselves."""
    packed: dict[tuple[tuple[str, Value], ...], str] = field(default_factory=dict)
    """Data axes of a set to its folder."""
    entries: list[dict[str, Any]] = field(default_factory=list)
    noise: dict[str, dict[str, Any]] = field(default_factory=dict)
    """``before`` and ``after`` to what a look at the machine saw."""
    questions: Questions = field(init=False)
    asking: Asking = field(init=False)
    origin_ns: int = 0
    """When its blocks began, monotonic clock; earlier by what a resumed run had used."""
    began: tuple[float, float] = (0.0, 0.0)
    """CPU of this process and the clock when the blocks began here, in seconds."""
    host: HostProbe = field(default_factory=HostProbe)
    gpu: GpuProbe | None = field(default_factory=GpuProbe.open)

    def __post_init__(self) -> None:
        plan = self.here.plan
        needs = {cell: stages for cell, stages in plan.needs.items() if cell in plan.compared}
        self.questions = Questions(plan.rule, plan.compared, needs)
        self.asking = Asking(plan.rule, plan.asked)

    def take(self, entry: dict[str, Any]) -> None:
        """Take in a trial that has ended."""
        self.entries.append(runs.without_details(entry))
        trial = entry["trial"]
        self.asking.add(trial)
        if trial["outcome"] == "ok" and (rate := trial.get("samples_per_s")):
            self.questions.add(trial["cell_id"], trial["block"], rate)

    def begin_blocks(self) -> None:
        """Start the clock of the blocks."""
        self.origin_ns = time.perf_counter_ns() - sum(e["trial"]["trial_wall_ns"] for e in self.entries)
        self.began = (time.process_time(), time.perf_counter())

    def own_cpu_pct(self) -> float:
        """CPU of this process, probes included, since the blocks began; 100 is one core."""
        wall = time.perf_counter() - self.began[1]
        return 100 * (time.process_time() - self.began[0]) / wall if self.began[1] else 0.0

    def close(self) -> None:
        """Let go of journal and probes."""
        self.journal.close()
        self.host.close()
        if self.gpu:
            self.gpu.close()

    def elapsed_s(self) -> float:
        """Wall clock of its blocks so far."""
        return (time.perf_counter_ns() - self.origin_ns) / 1e9

    def given_up(self, before: int | None = None) -> set[str]:
        """Cells that only ever failed, in the blocks before one if one is given."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for entry in self.entries:
            if before is None or entry["trial"]["block"] < before:
                counts[entry["trial"]["cell_id"]][entry["trial"]["outcome"]] += 1
        return {cell for cell, seen in counts.items() if not seen["ok"] and seen.total() >= GIVE_UP_AFTER}

    def order(self, block: int) -> list[PlannedCell]:
        """The block's trials in their random order, the control cell after every so many.

        The sides of a claim's effect come close to each other (``ordering``). It depends on the seed and on the blocks
        before alone, so that a resumed run goes on with the same.
        """
        live = {cell.cell_id: cell for cell in self._affordable(block, self.live(block))}
        effects = [claim.weights for claim in self.asking.open(block, self.given_up(block)) if claim.metric]
        arranged = side_by_side(list(live), effects, random.Random(f"{self.seed}:{block}:direction"))
        control = replace(self.here.plan.control, role="control")
        every = math.inf if control.cell_id in self.given_up(block) else self.here.plan.matrix.protocol.control_every
        order: list[PlannedCell] = []
        for place, cell in enumerate(arranged, start=1):
            order.append(live[cell])
            if place % every == 0:
                order.append(control)
        return order

    def live(self, block: int) -> list[PlannedCell]:
        """The cells that a question still wants in a block, in its random order."""
        cells = sorted(self.here.plan.everything, key=lambda cell: cell.cell_id)
        random.Random(f"{self.seed}:{block}").shuffle(cells)
        wanted = self._wanted(block)
        return [cell for cell in cells if wanted.get(cell.cell_id, 0) > block]

    def answered(self, block: int) -> bool:
        """Whether every question whose cells ran was answered as well as the protocol wants, before a block."""
        gone = self.given_up(block)
        asked = [claim for claim in self.asking.asked if gone.isdisjoint(claim.weights)]
        certain = all(self.asking.certainty(claim, block) >= 1 for claim in asked)
        return certain and not any(self.questions.expected(block, gone).values())

    def _affordable(self, block: int, live: list[PlannedCell]) -> list[PlannedCell]:
        """Where the budget has no room for all that is open, the cells of the claims that it can still decide.

        Without such claims, those of the least certain. Told from the blocks before alone, so that a resumed run takes
        the same.
        """
        budget, gone = self.here.plan.matrix.budget_s, self.given_up(block)
        claims = self.asking.open(block, gone)
        if budget is None or block == 0 or not claims:
            return live
        before = [entry["trial"] for entry in self.entries if entry["trial"]["block"] < block]
        left = budget - sum(trial["trial_wall_ns"] for trial in before) / 1e9 - TEMPLATE_S * (block + 1)
        seen = self._seconds(before)
        costs = {cell.cell_id: self._cell_s(cell, seen) for cell in live}
        chosen = self.asking.in_reach(block, gone, costs, left) or claims
        if len(chosen) == len(claims) and sum(costs.values()) <= left:
            return live
        waiting = self._waiting(block, claims, chosen)
        live = [cell for cell in live if cell.cell_id not in waiting]
        if sum(costs[cell.cell_id] for cell in live) <= left:
            return live
        fits = self._fitting(block, chosen, costs, left)
        return [cell for cell in live if cell.cell_id in fits]

    def _waiting(self, block: int, claims: list[Asked], chosen: list[Asked]) -> set[str]:
        """Cells of open claims that neither a chosen one nor another question wants in a block."""
        found = {cell for claim in claims for cell in claim.cells}
        found -= {cell for claim in chosen for cell in self.asking.cells(claim, block)}
        expected = self.questions.expected(block, self.given_up(block))
        return found - {cell for cell, blocks in expected.items() if blocks > block}

    def _fitting(self, block: int, claims: list[Asked], costs: Mapping[str, float], left_s: float) -> set[str]:
        """Cells of the claims that there is time for, in their order: each with all of its cells or left out."""
        found: set[str] = set()
        for claim in claims:
            more = {cell for cell in self.asking.cells(claim, block) if cell in costs} - found
            takes = sum(costs[cell] for cell in more)
            if takes <= left_s:
                found |= more
                left_s -= takes
        return found

    def _wanted(self, block: int) -> dict[str, int]:
        gone = self.given_up(block)
        checks = {cell.cell_id: FACT_TRIALS for cell in self.here.plan.unasked_checks if cell.cell_id not in gone}
        wanted = checks | self.asking.expected(block, gone)
        for cell, blocks in self.questions.expected(block, gone).items():
            wanted[cell] = max(blocks, wanted.get(cell, 0))
        return wanted

    def block_s(self, order: list[PlannedCell]) -> float:
        """Predict how long a block takes: its trials as long as they took so far, and what comes between them."""
        seen = self._seconds([entry["trial"] for entry in self.entries])
        blocks = len({entry["trial"]["block"] for entry in self.entries})
        known = sum(map(sum, seen.values()))
        between = max(0.0, (self.elapsed_s() - known) / blocks) if blocks and self.origin_ns else TEMPLATE_S
        return between + sum(self._cell_s(cell, seen) for cell in order)

    def _cell_s(self, cell: PlannedCell, seen: Mapping[str, list[float]]) -> float:
        """Predict how long a trial takes: as it took so far, else as planned."""
        return fmean(seen[cell.cell_id]) if cell.cell_id in seen else self.here.plan.cell_s(cell)

    def _seconds(self, trials: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
        """cell_id to the wall clock of its trials."""
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        for trial in trials:
            seconds[trial["cell_id"]].append(trial["trial_wall_ns"] / 1e9)
        return dict(seconds)

    def set_of(self, cell: PlannedCell) -> tuple[tuple[str, Value], ...]:
        """Key of the packed set that a cell reads."""
        return tuple(self.here.plan.data_axes(cell).items())

    def job(self, kind: str, cell: PlannedCell, block: int = 0) -> dict[str, Any]:
        """What a child is asked to do (``feedrate.trial.job.Job``); all cells of a block see samples in one order."""
        protocol = self.here.plan.matrix.protocol
        return {
            "kind": kind,
            "device": self.here.plan.place.device,
            "cell": {**self.here.plan.data_axes(cell), **cell.axes},
            "data_root": str(self.here.options.data_root),
            "source": self.here.source(str(cell.axes["workload"])),
            "packed": self.packed.get(self.set_of(cell)),
            "seed": random.Random(f"{self.seed}:{block}:samples").getrandbits(31),
            "warmup_s": protocol.warmup_s,
            "window_s": self.here.plan.window_s(cell),
            "min_steps": protocol.min_steps,
        }

    def forecast(self, block: int, order: list[PlannedCell]) -> tuple[int, float]:
        """Predict the number of blocks, and the seconds that those after this one take.

        Cells that will have stopped are left out; nothing runs past the budget.
        """
        plan, wanted = self.here.plan, self._wanted(block)
        blocks, later, left = block + 1, 0.0, math.inf
        if plan.matrix.budget_s is not None:
            left = plan.matrix.budget_s - self.elapsed_s() - self.block_s(order)
        while live := [cell for cell in plan.everything if wanted.get(cell.cell_id, 0) > blocks]:
            takes = self.block_s(live)
            if later + takes > left:
                break
            blocks, later = blocks + 1, later + takes
        return blocks, later

    def progress(self, block: int, place: int, order: list[PlannedCell], forecast: tuple[int, float]) -> Progress:
        """Where it stands when a trial begins; blocks and time left are estimates."""
        blocks, later = forecast
        rest = later + self.block_s(order[place:])
        done = len(self.here.plan.everything) - len({cell.cell_id for cell in order})
        return Progress(block, blocks, place, len(order), done, rest)

    def _stopped(self, reason: str) -> tuple[Stopped, ...]:
        """Every contrast, and why it was not measured further."""
        failed, rule = self.given_up(), self.questions.rule
        found = []
        for pair in self.questions.pairs:
            values = self.questions.values(pair)
            why = "target" if rule.done(values) else reason
            if {pair.cell_a, pair.cell_b} & failed:
                why = "failed"
            found.append(
                Stopped(axis=pair.axis, cell_a=pair.cell_a, cell_b=pair.cell_b, blocks=len(values), reason=why)
            )
        return tuple(found)

    def _asked(self, reason: str) -> tuple[AskedClaim, ...]:
        """Every claim, and why it was not measured further."""
        gone = self.given_up()
        found = []
        for claim in self.asking.asked:
            over = "blocks" if self.asking.done(claim) else reason
            why = "failed" if gone & set(claim.weights) else "done" if self.asking.certainty(claim) >= 1 else over
            found.append(AskedClaim(claim=claim.name, blocks=len(self.asking.values(claim)), reason=why))
        return tuple(found)

    def _spread(self) -> dict[str, Spread]:
        """How each cell's log throughput varied: between blocks, and within windows by their halves.

        A window's log throughput is about the mean of its halves', whose difference is the log of their ratio: half the
        spread of that is the window's own share.
        """
        halves: defaultdict[str, list[float]] = defaultdict(list)
        for entry in self.entries:
            if entry["trial"]["outcome"] == "ok" and (ratio := entry["trial"].get("half_ratio")):
                halves[entry["trial"]["cell_id"]].append(math.log(ratio) / 2)
        found = {}
        for cell in self.here.plan.everything:
            logs = self.questions.alone(cell.cell_id)
            if len(logs) > 1:
                own = halves[cell.cell_id]
                found[cell.cell_id] = Spread(
                    sd=round(stdev(logs), 6), within=round(stdev(own), 6) if len(own) > 1 else 0.0
                )
        return found

    def _is_whole(self, block: int) -> bool:
        """Whether every trial of a block has ended."""
        ended = len([entry for entry in self.entries if entry["trial"]["block"] == block])
        return ended > 0 and ended >= len(self.order(block))

    def manifest(self, reason: str) -> RunManifest:
        """What the run says of itself, having stopped for a reason."""
        here, plan = self.here, self.here.plan
        took = self._seconds([entry["trial"] for entry in self.entries])
        whole = filter(self._is_whole, {entry["trial"]["block"] for entry in self.entries})
        return RunManifest(
            feedrate_version=__version__,
            run_id=self.run_id,
            machine=here.machine,
            software=here.software,
            device=plan.place.device,
            command=here.options.command(),
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
            blocks=len(list(whole)),
            stop_reason=reason,
            control=plan.control.cell_id,
            ceilings=len(plan.ceilings),
            contrasts=self._stopped(reason),
            claims=self._asked(reason),
            untestable=dict(plan.untestable),
            noise_before=self.noise.get("before", {}),
            noise_after=self.noise.get("after", {}),
            outcomes=dict(Counter(entry["trial"]["outcome"] for entry in self.entries)),
            cell_seconds={cell: round(fmean(times), 3) for cell, times in took.items()},
            cell_spread=self._spread(),
            parent_cpu_pct=round(self.own_cpu_pct(), 2),
        )
