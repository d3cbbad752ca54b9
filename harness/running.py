"""A run under way: its journal, its clock, its probes, and what it says of itself at the end."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import __version__, store
from harness.axes import Value
from harness.here import Here
from harness.manifest import Dataset, RunManifest
from harness.plan import PlannedCell
from harness.probes.gpu import GpuProbe
from harness.probes.host import HostProbe
from harness.progress import Progress, Screen

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
    journal: store.Journal
    screen: Screen
    datasets: list[Dataset] = field(default_factory=list)
    runtime: dict[str, Any] = field(default_factory=dict)
    """What PyTorch and the driver say of themselves."""
    packed: dict[tuple[tuple[str, Value], ...], str] = field(default_factory=dict)
    """Data axes of a set to its folder."""
    entries: list[dict[str, Any]] = field(default_factory=list)
    origin_ns: int = 0
    """When its blocks began, monotonic clock; earlier by what a resumed run had used."""
    began: tuple[float, float] = (0.0, 0.0)
    """CPU of this process and the clock when the blocks began here, in seconds."""
    host: HostProbe = field(default_factory=HostProbe)
    gpu: GpuProbe | None = field(default_factory=GpuProbe.open)

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

    def done(self) -> set[tuple[int, str]]:
        """(block, cell_id) of the trials in the journal."""
        return {(e["trial"]["block"], e["trial"]["cell_id"]) for e in self.entries}

    def elapsed_s(self) -> float:
        """Wall clock of its blocks so far."""
        return (time.perf_counter_ns() - self.origin_ns) / 1e9

    def given_up(self) -> set[str]:
        """Cells that only ever failed."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for entry in self.entries:
            counts[entry["trial"]["cell_id"]][entry["trial"]["outcome"]] += 1
        return {cell for cell, seen in counts.items() if not seen["ok"] and seen.total() >= GIVE_UP_AFTER}

    def order(self, block: int) -> list[PlannedCell]:
        """The block's cells in its random order."""
        cells = sorted(self.here.plan.cells, key=lambda cell: cell.cell_id)
        random.Random(f"{self.seed}:{block}").shuffle(cells)
        return cells

    def set_of(self, cell: PlannedCell) -> tuple[tuple[str, Value], ...]:
        """Key of the packed set that a cell reads."""
        return tuple(self.here.plan.data_axes(cell).items())

    def job(self, kind: str, cell: PlannedCell, block: int = 0) -> dict[str, Any]:
        """What a child is asked to do (``harness.trial.job.Job``); all cells of a block see samples in one order."""
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
            "window_s": protocol.window_s,
            "min_steps": protocol.min_steps,
        }

    def progress(self, block: int, place: int) -> Progress:
        """Where it stands when a trial begins; blocks and time left are estimates."""
        plan, spent, cells = self.here.plan, self.elapsed_s(), len(self.here.plan.cells)
        begun = block + place / cells
        block_s = spent / begun if begun > 0.5 else plan.block_s
        most = plan.matrix.protocol.blocks[1]
        blocks = (
            most if plan.matrix.budget_s is None else max(block + 1, min(most, int(plan.matrix.budget_s / block_s)))
        )
        return Progress(block, blocks, place, cells, max(0.0, (blocks - begun) * block_s))

    def manifest(self, reason: str) -> RunManifest:
        """What the run says of itself, having stopped for a reason."""
        here, plan = self.here, self.here.plan
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        per_block: Counter[int] = Counter()
        for entry in self.entries:
            trial = entry["trial"]
            seconds[trial["cell_id"]].append(trial["trial_wall_ns"] / 1e9)
            per_block[trial["block"]] += 1
        expected = len(plan.cells) - len(self.given_up())
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
            blocks=sum(count >= expected for count in per_block.values()),
            stop_reason=reason,
            outcomes=dict(Counter(entry["trial"]["outcome"] for entry in self.entries)),
            cell_seconds={cell: round(sum(times) / len(times), 3) for cell, times in seconds.items()},
            parent_cpu_pct=round(self.own_cpu_pct(), 2),
        )
