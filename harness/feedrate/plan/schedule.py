"""A plan: what would run on this machine, how long it would take, and how many blocks its questions need.

Loads neither torch nor pandas: a plan is there in the time that it takes to read it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from feedrate.machine.probes import gpu
from feedrate.plan import duration, suite
from feedrate.plan.claim_selection import PlannedClaim, compared_with
from feedrate.plan.duration import TEMPLATE_S
from feedrate.plan.matrix import Matrix
from feedrate.plan.stopping import Rule, blocks_to, contrasts
from feedrate.schema import axes
from feedrate.schema.axes import BY_NAME, Value, cell_id, stand_ins
from feedrate.store.manifest import Counted, Spread

BLOCKS_WANTED = 5
"""Below this many blocks an interval is too wide to decide much."""
CEILING_WINDOW_S = 1.0
"""Longest window of what no GPU computes in, and of a ceiling that the matrix does not ask for."""
AVERAGED_WINDOW_S = gpu.LEAST_WINDOW_NS / 1e9
"""Least window of cells that are asked for what the GPU's driver averages."""
DATA_AXES = ("workload", "storage_format", "n_samples", "patch_size", "scale")
"""They name a packed set."""
KIND_AXES = ("workload", "patch_size", "scale")
"""They say what its samples are; all but the first may not apply."""
DIV2K_FOLDERS = ("DIV2K_train_HR_sub", "DIV2K_valid_HR_sub")
"""What ``make div2k`` leaves below the data folder; the first that is whole is read."""
PETS_FOLDER = "oxford-iiit-pet"


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell, and the suite that asks for it."""

    cell_id: str
    axes: Mapping[str, Value]
    """The axes that apply, in the table's order."""
    suite: str
    role: str = "cell"
    """One of ``columns.ROLES``."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a plan is made: what decides which cells are distinct and can run."""

    device: str
    data_root: Path
    data: Path | None = None
    """Folder of photographs that replaces div2k."""
    in_memory: bool = False
    """Whether packed samples lie in a file system in memory, which cannot be cold."""
    read_ahead_bytes: int | None = None
    """How far the kernel reads around a fault in a mapped file of the data folder; None where it is not known."""
    unable: Mapping[str, str] = field(default_factory=dict)
    """Axes that cells ask for and that cannot be set for a trial here, with the reason."""
    shm_bytes: int | None = None
    """Free shared memory; None where it is not known."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """cell_id to the wall clock of its trials in earlier runs here."""
    spread: Mapping[str, Spread] = field(default_factory=dict)
    """cell_id to the spread of its trials in earlier runs here."""
    gpus: int = 0
    """GPUs that CUDA will see."""
    cores: int = 1
    """Logical cores."""
    nodes: int = 1
    """Nodes that can run a trial at the same moment."""
    one_machine: bool = False
    """Whether all of them are one machine, whose page cache they share."""

    @property
    def div2k(self) -> Path | None:
        """The folder of DIV2K's sub-images, or None where none is whole."""
        folders = (self.data_root / name for name in DIV2K_FOLDERS)
        return next((folder for folder in folders if (folder / "cut.json").is_file()), None)

    @property
    def photographs(self) -> str:
        """The workload that stands in div2k's place: the real one where it is at hand."""
        if self.data is not None:
            return "folder"
        return "div2k" if self.div2k else "div2k_standin"

    @property
    def stand_ins(self) -> dict[str, str]:
        """The workloads that stand in the place of those that read images of the user's."""
        return stand_ins(self.photographs)


class Outlook(NamedTuple):
    """How many blocks it takes until intervals are as narrow as the protocol wants, at the spread of earlier runs."""

    half: int
    """Blocks after which half of the contrasts are done."""
    most: int
    """Blocks after which nine in ten are."""
    within: float
    """Share of the variance between trials that arises within their windows: longer windows would lessen it."""


@dataclass(frozen=True)
class Plan:
    """A matrix, expanded."""

    matrix: Matrix
    host: Host
    combinations: int
    cells: tuple[PlannedCell, ...]
    """What the matrix asks for."""
    ceilings: tuple[PlannedCell, ...]
    """What the harness adds: the stages of the training cells, each alone."""
    merged: tuple[Counted, ...]
    excluded: tuple[Counted, ...]
    substitutions: tuple[str, ...]
    claims: tuple[PlannedClaim, ...] = ()
    """The claims that its cells are to judge."""
    untestable: Mapping[str, str] = field(default_factory=dict)
    """Claim to why it cannot be tested here."""

    @cached_property
    def all_cells(self) -> tuple[PlannedCell, ...]:
        """All cells that run."""
        return (*self.cells, *self.ceilings)

    @cached_property
    def control(self) -> PlannedCell:
        """The cell that runs every ``control_every`` trials to show drift.

        It should feel the machine: no emulated step, no workers if possible; then the fewest axes off their default.
        """

        def rank(cell: PlannedCell) -> tuple[bool, bool, int, str]:
            off = sum(value != BY_NAME[name].default for name, value in cell.axes.items())
            return cell.axes.get("step") in axes.EMULATED_STEPS, bool(cell.axes.get("num_workers")), off, cell.cell_id

        return min((cell for cell in self.cells if cell.axes["mode"] != "check"), key=rank, default=self.cells[0])

    @cached_property
    def unclaimed_checks(self) -> tuple[PlannedCell, ...]:
        """Checks that no claim asks for."""
        claimed = {cell for claim in self.claims for cell in claim.cells}
        return tuple(cell for cell in self.cells if cell.axes["mode"] == "check" and cell.cell_id not in claimed)

    @cached_property
    def compared(self) -> dict[str, Mapping[str, Value]]:
        """The cells whose contrasts are measured, by id: neither checks nor what is there for its claims alone."""
        timed = (cell for cell in self.cells if cell.axes["mode"] != "check")
        return {cell.cell_id: cell.axes for cell in timed if not (self.claims and suite.for_claims(cell.suite))}

    @cached_property
    def ceilings_of(self) -> dict[str, tuple[str, ...]]:
        """Training cell to those of its ceilings that run."""
        run = {cell.cell_id for cell in self.all_cells}
        return {
            cell.cell_id: tuple(
                stage for stage in map(cell_id, axes.ceilings(cell.axes, self.host.device).values()) if stage in run
            )
            for cell in self.cells
            if cell.axes["mode"] == "train"
        }

    @property
    def rule(self) -> Rule:
        """When a contrast is done."""
        protocol = self.matrix.protocol
        return Rule(*protocol.blocks, math.log1p(protocol.ci_target_pct / 100))

    def outlook(self) -> Outlook | None:
        """Predict the blocks that the contrasts take; None where too little is known from earlier runs."""
        seen, rule = self.host.spread, self.rule
        pairs = contrasts(self.compared)
        spreads = sorted(
            math.hypot(seen[pair.cell_a].sd, seen[pair.cell_b].sd) for pair in pairs if seen.keys() >= {*pair.weights}
        )
        if not spreads or len(spreads) < len(pairs) / 2:
            return None
        half, most = (
            blocks_to(rule.target, spreads[int(share * (len(spreads) - 1))], rule.fewest, rule.most)
            for share in (0.5, 0.9)
        )
        earlier = [seen[cell.cell_id] for cell in self.cells if cell.cell_id in seen]
        total = fmean(spread.sd**2 for spread in earlier)
        return Outlook(half, most, min(1.0, fmean(spread.within**2 for spread in earlier) / total) if total else 0.0)

    def data_axes(self, cell: PlannedCell) -> dict[str, Value]:
        """Which packed set a cell reads; a cell without a loader takes a batch from any set of its kind."""
        reader = cell.axes
        if "n_samples" not in reader:
            alike = (other.axes for other in self.all_cells if "n_samples" in other.axes)
            same = (other for other in alike if all(other.get(name) == reader.get(name) for name in KIND_AXES))
            reader = next(same, reader)
        named = (name for name in DATA_AXES if name in reader or name not in KIND_AXES)
        return {name: reader.get(name, BY_NAME[name].default) for name in named}

    def cell_s(self, cell: PlannedCell) -> float:
        """Seconds that a trial of a cell takes: as in earlier runs here, else as ``duration`` predicts."""
        host = self.host
        if seconds := host.seconds.get(cell.cell_id):
            return seconds
        return duration.trial_s(cell.axes, self.matrix.protocol, self.window_s(cell), host.device, host.cores)

    @cached_property
    def averaged(self) -> frozenset[str]:
        """The cells that are asked for utilization or power, which NVML averages, and all that is compared with them.

        Claims are about them, or they are the training of a suite whose charts draw utilization along an axis, and some
        of it differs in that axis alone.
        """
        if self.host.device != "cuda":
            return frozenset()
        suites = {cell.cell_id: cell.suite for cell in self.cells}
        training = {cell: axes for cell, axes in self.compared.items() if axes["mode"] == "train" and "model" in axes}
        along = {name: suite.load(name).utilization_along for name in set(suites.values())}
        drawn = {suites[pair.cell_a] for pair in contrasts(training) if pair.axis == along[suites[pair.cell_a]]}
        asked = {cell for cell in training if suites[cell] in drawn}.union(*(claim.averaged for claim in self.claims))
        return frozenset(compared_with(asked, [effect for claim in self.claims for effect in claim.effects]))

    def window_s(self, cell: PlannedCell) -> float:
        """Least wall clock of a cell's window: long where a GPU's probes are asked, or what is loaded varies much."""
        window_s = self.matrix.protocol.window_s
        if cell.cell_id in self.averaged:
            return max(window_s, AVERAGED_WINDOW_S)
        computes = self.host.device != "cuda" or "model" in cell.axes
        window_s = window_s if computes and cell.role != "ceiling" else min(window_s, CEILING_WINDOW_S)
        return max(window_s, suite.load(cell.suite).window_s)

    @property
    def block_s(self) -> float:
        """Seconds that a block takes: every cell once, the control cell now and then, and the template's start."""
        controls = len(self.all_cells) // self.matrix.protocol.control_every
        return TEMPLATE_S + sum(map(self.cell_s, self.all_cells)) + controls * self.cell_s(self.control)

    @property
    def blocks(self) -> int:
        """Whole blocks that fit the budget, at most the protocol's most."""
        most = self.matrix.protocol.blocks[1]
        return most if self.matrix.budget_s is None else min(most, int(self.matrix.budget_s / self.block_s))

    def cuts(self) -> list[str]:
        """Values to leave out, dearest first, until ``BLOCKS_WANTED`` blocks would fit; empty when they do."""
        budget = self.matrix.budget_s
        if budget is None or self.blocks >= BLOCKS_WANTED:
            return []
        allowed, left = budget / BLOCKS_WANTED - TEMPLATE_S, list(self.cells)
        cuts: list[str] = []
        while left and (excess := sum(map(self.cell_s, left)) - allowed) > 0 and len(cuts) < 8:
            cost: defaultdict[tuple[str, Value], float] = defaultdict(float)
            for cell in left:
                for value in cell.axes.items():
                    cost[value] += self.cell_s(cell)
            values = Counter(name for name, _ in cost)
            spare = {key: seconds for key, seconds in cost.items() if values[key[0]] > 1}
            if not spare:
                break
            enough = {key: seconds for key, seconds in spare.items() if seconds >= excess}
            cut = min(enough, key=enough.__getitem__) if enough else max(spare, key=spare.__getitem__)
            left = [cell for cell in left if cut not in cell.axes.items()]
            cuts.append(f"{cut[0]}: {cut[1]} (saves {spare[cut]:.0f} s a repetition)")
        return cuts
