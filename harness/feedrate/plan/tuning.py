"""A tuned sweep: cells that differ in knobs alone are searched for the best (``plan.search``), not all measured.

Such cells form a task. Knobs are what a user sets on loader and storage without changing what is trained
(``schema.axes.KNOBS``). What a search knows before it measures a setting comes from trials of others:

- **Step**: the least (wall clock - fetch) ÷ steps of any trial of the task.
- **Preparing** and **CPU** of a batch: the least sum of the workers' stages, and of the CPU time of all processes, over
  trials that share every knob but ``UNPREPARED``. A setting of which neither is known has no floor and no prediction.

With workers a step takes max(step, preparing ÷ num_workers, CPU ÷ cores), without them step + preparing. The floor is
that of the least values. The prediction takes them from trials with workers for settings with workers, from those
without for those without: the same batch costs a worker more, as it is handed over through shared memory.

Pure Python: the parent of a sweep loads neither pandas nor SciPy.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from feedrate.plan.schedule import Plan, PlannedCell
from feedrate.plan.search import Search, Setting
from feedrate.schema.axes import BY_NAME, KNOBS
from feedrate.schema.columns import WORKER_STAGES
from feedrate.schema.errors import InputError
from feedrate.store.manifest import Audited, Counted, Tuned

UNPREPARED = frozenset(
    (
        *("num_workers", "prefetch_factor", "start_method", "persistent_workers"),
        *("pin_memory", "non_blocking", "prefetcher"),
    )
)
"""Knobs that leave the preparing of a batch as it is."""
Trial = Mapping[str, Any]
"""A row of the trials table."""


@dataclass(frozen=True, slots=True)
class Task:
    """Settings to choose among."""

    cells: tuple[PlannedCell, ...]
    """Cheapest first: fewest workers, then fewest batches ahead, then as the matrix lists them."""

    @property
    def present(self) -> str | None:
        """cell_id of the setting whose knobs all stand at their defaults, if it is one of them."""
        return next((cell.cell_id for cell in self.cells if not _off_default(cell, KNOBS)), None)


def _off_default(cell: PlannedCell, names: Iterable[str]) -> dict[str, Any]:
    """Those of some axes that do not stand at their default; one that does not apply counts as if it did."""
    return {
        name: cell.axes[name]
        for name in sorted(names)
        if cell.axes.get(name, default := BY_NAME[name].default) != default
    }


def _key(cell: PlannedCell, names: Iterable[str]) -> str:
    return json.dumps(_off_default(cell, names))


def tasks(cells: Iterable[PlannedCell]) -> tuple[Task, ...]:
    """Form tasks of the training and loading cells; one without another setting is none."""
    found: defaultdict[str, list[PlannedCell]] = defaultdict(list)
    for cell in cells:
        if _tunable(cell):
            found[_key(cell, BY_NAME.keys() - KNOBS)].append(cell)
    return tuple(Task(tuple(sorted(group, key=_cost))) for group in found.values() if len(group) > 1)


def _tunable(cell: PlannedCell) -> bool:
    return cell.role == "cell" and cell.axes["mode"] in ("train", "load")


def _cost(cell: PlannedCell) -> tuple[int, int]:
    return int(cell.axes["num_workers"]), int(cell.axes.get("prefetch_factor", 0))


def narrowed(plan: Plan) -> Plan:
    """Leave the cells of tasks in a plan: neither ceilings nor claims are measured.

    Raises:
        InputError: there is no task.
    """
    kept = tuple(cell for task in tasks(plan.cells) for cell in task.cells)
    if not kept:
        raise InputError(
            f"TUNE: {plan.matrix.path}, profile {plan.matrix.profile}: no two cells of mode train or load differ in "
            "settings of loader and storage alone; expected several values of num_workers, storage_format, …"
        )
    left = Counter(
        "TUNE: no other setting of the same task" if _tunable(cell) else "TUNE: neither training nor loading"
        for cell in plan.cells
        if cell not in kept
    )
    more = tuple(Counted(count=count, reason=reason) for reason, count in left.items())
    excluded = (*plan.excluded, *more)
    return replace(plan, cells=kept, ceilings=(), claims=(), untestable={}, excluded=excluded)


class Searches:
    """The searches of a run, one a task; what a block measures comes from the seed and the blocks before it alone."""

    def __init__(self, plan: Plan, seed: int) -> None:
        """Begin with no trial."""
        self._tasks, self._cores, self._seed = tasks(plan.cells), plan.place.cores, seed
        self._most = plan.rule.most
        self._cells = {cell.cell_id: cell for task in self._tasks for cell in task.cells}
        self._searches = [
            Search(
                [cell.cell_id for cell in task.cells],
                within=plan.rule.target,
                seed=random.Random(f"{seed}:{place}:search").getrandbits(32),
                present=task.present,
            )
            for place, task in enumerate(self._tasks)
        ]
        self._of_cell = {cell: search for search in self._searches for cell in search.settings}
        self._trials: dict[tuple[str, int], Trial] = {}
        """(cell_id, block) to the trials that the searches know of."""
        self._orders: list[list[PlannedCell]] = []

    def order(self, block: int, trials: Sequence[Trial]) -> list[PlannedCell]:
        """Name the trials of a block in their order; none where all searches have ended.

        Args:
            block: the block.
            trials: of the blocks before it at least.
        """
        while len(self._orders) <= block:
            self._learn(trial for trial in trials if trial["block"] == len(self._orders) - 1)
            self._orders.append(self._following(len(self._orders)))
        return self._orders[block]

    def _following(self, block: int) -> list[PlannedCell]:
        able = (search for search in self._searches if block < self._most and set(search.settings) - search.failed)
        order = [self._cells[cell] for search in able for cell in search.next_block(block)]
        random.Random(f"{self._seed}:{block}").shuffle(order)
        return order

    def _learn(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            cell, rate = trial["cell_id"], trial.get("samples_per_s")
            self._trials[cell, trial["block"]] = trial
            took = -math.log(rate) if trial["outcome"] == "ok" and rate else None
            self._of_cell[cell].add(trial["block"], cell, took)
        for task, search in zip(self._tasks, self._searches, strict=True):
            own = [trial for (cell, _), trial in self._trials.items() if self._of_cell[cell] is search]
            search.expect(*expected(task, own, self._cores))

    @property
    def known(self) -> bool:
        """Whether every task's recommended setting is known to be near enough to its best."""
        return all(search.measured and search.outcome().known for search in self._searches)

    def found(self, trials: Iterable[Trial]) -> tuple[Tuned, ...]:
        """What the searches found by all trials, in the order of the tasks; nothing of one in which none ended well."""
        self._learn(trial for trial in trials if trial["block"] >= len(self._orders) - 1)
        ran = Counter(id(self._of_cell[cell]) for cell, _ in self._trials)
        return tuple(
            told(search, str, settings=len(search.settings), trials=ran[id(search)])
            for search in self._searches
            if search.measured
        )


def told(
    search: Search[Setting],
    cell_of: Callable[[Setting], str],
    *,
    settings: int,
    trials: int,
    gain: tuple[float, float, float] | None = None,
) -> Tuned:
    """Tell in a manifest what a search found.

    Args:
        search: has trials that ended well.
        cell_of: gives the cell_id of a setting.
        settings: how many there are to choose from.
        trials: how many ran.
        gain: how many times as fast the recommended setting is as the present one, and the ends of its interval.
    """
    outcome = search.outcome()
    return Tuned(
        recommended=cell_of(outcome.recommended),
        present=cell_of(search.present) if search.present is not None else None,
        settings=settings,
        trials=trials,
        within_pct=round(100 * math.expm1(search.within), 3),
        bound_pct=round(100 * math.expm1(outcome.bound), 3) if math.isfinite(outcome.bound) else None,
        known=outcome.known,
        gain=gain,
        aside=tuple(Counted(count=count, reason=reason) for reason, count in search.aside()),
        audits=tuple(
            Audited(
                cell_id=cell_of(each.setting),
                predicted=round(math.exp(-each.predicted), 4),
                measured=round(math.exp(-each.measured), 4),
            )
            for each in search.audits()
        ),
    )


class _Batch(NamedTuple):
    """What a batch took in a trial, in ns."""

    preparing: float
    cpu: float
    workers: bool
    """Whether workers prepared it."""


class Expected(NamedTuple):
    """What trials tell of settings, by cell_id."""

    predicted: dict[str, float]
    """Log of the seconds that a sample takes."""
    floors: dict[str, float]
    """Log of the seconds that it takes at least."""
    bases: dict[str, int]
    """Trials of which preparing and CPU were taken."""
    rooms: dict[tuple[str, str], list[float]]
    """Two settings to the logs of how many times as fast the second can be at most, by each trial of the first."""


def expected(task: Task, trials: Sequence[Trial], cores: int) -> Expected:
    """Tell of settings what trials of others show.

    Args:
        task: the settings.
        trials: of the task.
        cores: cores of the machine.
    """
    ended = [trial for trial in trials if trial["outcome"] == "ok" and trial.get("samples_per_s")]
    keys = {cell.cell_id: _key(cell, KNOBS - UNPREPARED) for cell in task.cells}
    seen: defaultdict[str, list[_Batch]] = defaultdict(list)
    for trial in ended:
        seen[keys[trial["cell_id"]]] += _batches(trial)
    found = Expected({}, {}, {}, _rooms(task, ended, keys, cores))
    for cell in task.cells:
        if batches := seen[keys[cell.cell_id]]:
            workers = int(cell.axes["num_workers"])
            step = min((trial["wall_ns"] - trial["host_fetch_ns"]) / trial["steps"] for trial in ended)
            scale = 1e9 * ended[0]["samples"] / ended[0]["steps"]
            alike = [batch for batch in batches if batch.workers == bool(workers)] or batches
            found.predicted[cell.cell_id] = math.log(_step_ns(step, alike, workers, cores) / scale)
            found.floors[cell.cell_id] = math.log(_step_ns(step, batches, workers, cores) / scale)
            found.bases[cell.cell_id] = len(alike)
    return found


def _rooms(
    task: Task, trials: Sequence[Trial], keys: Mapping[str, str], cores: int
) -> dict[tuple[str, str], list[float]]:
    """What trials with workers leave to gain for settings that take no less of the machine.

    Args:
        task: the settings.
        trials: those that ended well.
        keys: of settings; equal ones prepare a batch alike.
        cores: cores of the machine.
    """
    left: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    places = {cell.cell_id: place for place, cell in enumerate(task.cells)}
    for trial in trials:
        if not trial["num_workers"]:
            continue
        own, batch = trial["cell_id"], next(_batches(trial), None)
        step = (trial["wall_ns"] - trial["host_fetch_ns"]) / trial["steps"]
        for other in task.cells[places[own] + 1 :]:
            alike = [batch] if batch and keys[own] == keys[other.cell_id] else []
            least = _step_ns(step, alike, int(other.axes["num_workers"]), cores) if alike else step
            left[own, other.cell_id].append(math.log(trial["wall_ns"] / trial["steps"] / least))
    return left


def _batches(trial: Trial) -> Iterator[_Batch]:
    """What a batch took in a trial; nothing where its stages were not stamped."""
    stages = [trial.get(f"worker_{stage}_ns") for stage in WORKER_STAGES]
    if known := [stage for stage in stages if stage is not None]:
        cpu_pct = (trial.get("main_cpu_pct") or 0.0) + (trial.get("workers_cpu_pct") or 0.0)
        steps, workers = trial["steps"], bool(trial["num_workers"])
        yield _Batch(sum(known) / steps, cpu_pct / 100 * trial["wall_ns"] / steps, workers)


def _step_ns(step: float, batches: Sequence[_Batch], workers: int, cores: int) -> float:
    """What a step takes by the closed form, in ns."""
    preparing, cpu = min(batch.preparing for batch in batches), min(batch.cpu for batch in batches)
    return max(step, preparing / workers, cpu / cores) if workers else step + preparing
