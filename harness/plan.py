"""What a matrix expands to on this machine: cells, and every combination that is none of its own, with the reason.

Loads neither torch nor pandas: a plan is there in the time that it takes to read it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import registry
from harness.axes import AXES, BY_NAME, Cell, Value, applicable, cell_id
from harness.errors import InputError
from harness.manifest import Counted
from harness.matrix import Matrix, SuiteSlice

MOST_COMBINATIONS = 100_000
"""More than this need ``--yes``: nobody sweeps a million cells on purpose."""
BLOCKS_WANTED = 5
"""Below this many blocks an interval is too wide to decide much."""
FORK_S, WORKER_S, CUDA_S, TEMPLATE_S = 0.25, 0.05, 2.0, 4.0
"""Where nothing was measured: a trial beside warm-up and window, each worker, a CUDA context, a block's template."""
DATA_AXES = ("workload", "storage_format", "n_samples", "patch_size", "scale")
"""They name a packed set."""
DIV2K_FOLDER = "DIV2K_train_HR"


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell and who asked for it."""

    cell_id: str
    axes: Mapping[str, Value]
    """The axes that apply, in the table's order."""
    suite: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a plan is made: what decides which cells are distinct and can run."""

    device: str
    data_root: Path
    data: Path | None = None
    """Folder of photographs that replaces div2k."""
    shm_bytes: int | None = None
    """Free shared memory; None where it cannot be told."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """cell_id to the wall clock of its trials in earlier runs here."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A matrix, expanded."""

    matrix: Matrix
    place: Place
    combinations: int
    cells: tuple[PlannedCell, ...]
    merged: tuple[Counted, ...]
    excluded: tuple[Counted, ...]
    substitutions: tuple[str, ...]

    def data_axes(self, cell: PlannedCell) -> dict[str, Value]:
        """Which packed set a cell reads; a cell without a loader takes a batch from any set of its kind."""
        axes = cell.axes
        if "n_samples" not in axes:
            same = ("workload", "patch_size", "scale")
            alike = (other.axes for other in self.cells if "n_samples" in other.axes)
            axes = next((other for other in alike if all(other.get(a) == axes.get(a) for a in same)), axes)
        return {name: axes.get(name, BY_NAME[name].default) for name in DATA_AXES if name != "scale" or "scale" in axes}

    def cell_s(self, cell: PlannedCell) -> float:
        """Seconds that a trial of a cell takes: as it took here before, else by the protocol."""
        protocol = self.matrix.protocol
        if known := self.place.seconds.get(cell.cell_id):
            return known
        workers = int(cell.axes.get("num_workers", 0))
        step_s = float(cell.axes.get("step_ms", 0)) / 1000
        warm_steps = max(5, workers * (int(cell.axes.get("prefetch_factor", 0)) + 1))
        warm_up = max(protocol.warmup_s, warm_steps * step_s)
        start = FORK_S + workers * WORKER_S + (CUDA_S if self.place.device == "cuda" else 0)
        return start + warm_up + max(protocol.window_s, protocol.min_steps * step_s)

    @property
    def block_s(self) -> float:
        """Seconds that a block takes: every cell once, and the template's start."""
        return TEMPLATE_S + sum(self.cell_s(cell) for cell in self.cells)

    @property
    def blocks(self) -> int:
        """Whole blocks that fit the budget, at most the protocol's most."""
        most = self.matrix.protocol.blocks[1]
        return most if self.matrix.budget_s is None else min(most, int(self.matrix.budget_s / self.block_s))

    @property
    def measured_share(self) -> float:
        """Share of the cells whose time is known from earlier runs."""
        return sum(cell.cell_id in self.place.seconds for cell in self.cells) / max(1, len(self.cells))

    def cuts(self) -> list[str]:
        """Values to leave out, dearest first, until ``BLOCKS_WANTED`` blocks would fit; empty when they do."""
        budget = self.matrix.budget_s
        if budget is None or self.blocks >= BLOCKS_WANTED:
            return []
        allowed, left = budget / BLOCKS_WANTED - TEMPLATE_S, list(self.cells)
        cuts: list[str] = []
        while left and sum(map(self.cell_s, left)) > allowed and len(cuts) < 8:
            cost: defaultdict[tuple[str, Value], float] = defaultdict(float)
            kept: dict[str, set[Value]] = {}
            for cell in left:
                for name, value in cell.axes.items():
                    cost[name, value] += self.cell_s(cell)
                    kept.setdefault(name, set()).add(value)
            spare = {key: seconds for key, seconds in cost.items() if len(kept[key[0]]) > 1}
            if not spare:
                break
            excess = sum(map(self.cell_s, left)) - allowed
            enough = {key: seconds for key, seconds in spare.items() if seconds >= excess}
            name, value = min(enough, key=enough.__getitem__) if enough else max(spare, key=spare.__getitem__)
            left = [cell for cell in left if cell.axes.get(name) != value]
            cuts.append(f"{name}: {value} (saves {spare[name, value]:.0f} s a block)")
        return cuts


def _combinations(part: SuiteSlice) -> Iterator[dict[str, Value]]:
    values = [part.axes.get(axis.name, (axis.default,)) for axis in AXES]
    for chosen in itertools.product(*values):
        yield dict(zip((axis.name for axis in AXES), chosen, strict=True))


def _substituted(part: SuiteSlice, place: Place, said: dict[str, None]) -> SuiteSlice:
    """Put the photographs that are at hand in div2k's place, and say so; never silently."""
    workloads = part.axes.get("workload", ())
    if "div2k" not in workloads:
        return part
    if place.data is not None:
        name, why = "folder", "the photographs that DATA= names"
    elif (place.data_root / DIV2K_FOLDER).is_dir():
        return part
    else:
        name = "div2k_standin"
        why = f"procedural images of its geometry, as the data folder holds no {DIV2K_FOLDER} with the real ones"
    said[f"workload div2k is replaced by {name}: {why}"] = None
    swapped = tuple(dict.fromkeys(name if workload == "div2k" else workload for workload in workloads))
    return SuiteSlice(part.suite, {**part.axes, "workload": swapped}, part.device)


def batch_bytes(cell: Cell) -> int:
    """Bytes of a batch on its way to the step: input and target, three channels, float32."""
    return int(cell["batch_size"]) * 2 * 3 * int(cell["patch_size"]) ** 2 * 4


def _impossible(cell: Cell, place: Place) -> str | None:
    """Why a cell cannot run here, or None."""
    for package, axis in (("harness.workloads", "workload"), ("harness.formats", "storage_format")):
        if axis in cell and (lacking := registry.missing(package, str(cell[axis]))):
            return f"{axis} {cell[axis]} needs {', '.join(lacking)} (pip install {' '.join(lacking.values())})"
    if cell["workload"] == "folder" and place.data is None:
        return "workload folder needs a folder of photographs (DATA=DIR)"
    if cell["mode"] == "copy" and place.device != "cuda":
        return "mode copy needs a CUDA device"
    if "n_samples" in cell and int(cell["batch_size"]) > int(cell["n_samples"]):
        return "batch_size above n_samples"
    workers = int(cell.get("num_workers", 0))
    if place.shm_bytes and workers * int(cell.get("prefetch_factor", 0)) * batch_bytes(cell) > place.shm_bytes:
        return "prefetched batches would not fit into /dev/shm (lower num_workers, prefetch_factor or batch_size)"
    return None


def _counted(counts: Counter[str]) -> tuple[Counted, ...]:
    return tuple(Counted(count=count, reason=reason) for reason, count in counts.most_common())


def _why_merged(part: SuiteSlice, reasons: Mapping[str, str]) -> str:
    """Name the swept axes that do not apply, grouped by reason; a repetition of another slice otherwise."""
    grouped: dict[str, list[str]] = {}
    for axis, reason in reasons.items():
        if len(part.axes.get(axis, ())) > 1:
            grouped.setdefault(reason, []).append(axis)
    if not grouped:
        return "the same cell stands in another slice"
    return "; ".join(f"{', '.join(axes)}: {reason}" for reason, axes in grouped.items())


def expand(matrix: Matrix, place: Place, *, yes: bool = False) -> Plan:
    """Expand a matrix on a machine.

    Args:
        matrix: what is wanted.
        place: device, data and memory of this machine.
        yes: do not refuse a matrix of more than ``MOST_COMBINATIONS``.

    Raises:
        InputError: too many combinations, or no cell that can run here.
    """
    total = sum(math.prod(len(values) for values in part.axes.values()) for part in matrix.slices)
    if total > MOST_COMBINATIONS and not yes:
        raise InputError(
            f"{matrix.path}: profile {matrix.profile} expands to {total:,} combinations; expected at most "
            f"{MOST_COMBINATIONS:,}. Leave values out, or say --yes (YES=1) if you mean it"
        )
    cells: dict[str, PlannedCell] = {}
    merged: Counter[str] = Counter()
    excluded: Counter[str] = Counter()
    said: dict[str, None] = {}
    for original in matrix.slices:
        part = _substituted(original, place, said)
        for combination in _combinations(part):
            cell, reasons = applicable(combination, place.device)
            key = cell_id(cell)
            if part.device not in (None, place.device):
                excluded[f"wanted on {part.device} only; this machine has {place.device}"] += 1
            elif key in cells:
                merged[_why_merged(part, reasons)] += 1
            elif why := _impossible(cell, place):
                excluded[why] += 1
            else:
                cells[key] = PlannedCell(key, cell, part.suite)
    if not cells:
        why_not = (
            "; ".join(f"{count} × {reason}" for reason, count in excluded.most_common()) or "no combination at all"
        )
        raise InputError(f"{matrix.path}: profile {matrix.profile}: no cell can run here: {why_not}")
    return Plan(matrix, place, total, tuple(cells.values()), _counted(merged), _counted(excluded), tuple(said))


def free_shared_memory() -> int | None:
    """Bytes free under /dev/shm, or None where it is not mounted."""
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108 - asked, not written
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
