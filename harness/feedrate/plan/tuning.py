"""A tuned sweep: cells that differ in knobs alone are searched for the best (``plan.search``), not all measured.

Such cells form a task. Knobs are what a user sets on loader and storage without changing what is trained
(``schema.axes.KNOBS``). What a search knows before it measures a setting comes from trials of others:

- **Step**: the least (wall clock - fetch) ÷ steps of any trial of the task.
- **Preparing** and **CPU** of a batch: the least sum of the workers' stages, and of the CPU time of all processes, over
  trials that share every knob but ``UNPREPARED``. A setting of which neither is known has no floor and no prediction.

With workers a step takes max(step, preparing ÷ num_workers, CPU ÷ cores), without them step + preparing. The floor is
that of the least values. The prediction takes them from trials with workers for settings with workers, from those
without for those without: the same batch costs a worker more, as it is handed over through shared memory.

Pure Python: the parent of a sweep loads no pandas.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from feedrate.plan.evidence import Model, Parts, Setting
from feedrate.plan.schedule import Plan, PlannedCell
from feedrate.plan.search import Search
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, KNOBS, Value
from feedrate.schema.columns import WORKER_STAGES
from feedrate.schema.errors import InputError
from feedrate.store.manifest import Audited, Counted, Tuned

UNPREPARED = {
    *("num_workers", "prefetch_factor", "start_method", "persistent_workers"),
    *("pin_memory", "non_blocking", "prefetcher"),
}
"""Knobs that leave the preparing of a batch as it is."""
Trial = Mapping[str, Any]
"""A row of the trials table."""
Changes = frozenset[tuple[str, Value]]
"""Names and values of axes that do not stand at their default."""


@dataclass(frozen=True, slots=True)
class Task:
    """Settings to choose among."""

    cells: tuple[PlannedCell, ...]
    """Cheapest first: fewest workers, then fewest batches ahead, then as the matrix lists them."""

    @property
    def present(self) -> str | None:
        """cell_id of the setting whose knobs all stand at their defaults, if it is one of them."""
        return next((cell.cell_id for cell in self.cells if not _changes(cell, KNOBS)), None)


def _changes(cell: PlannedCell, names: Iterable[str]) -> Changes:
    """What of some axes a cell changes; one that does not apply counts as if it stood at its default."""
    defaults = {name: BY_NAME[name].default for name in names}
    given = {name: cell.axes.get(name, default) for name, default in defaults.items()}
    return frozenset(given.items() - defaults.items())


def _knobs(cell: PlannedCell) -> tuple[tuple[str, Value], ...]:
    return tuple((name, cell.axes[name]) for name in KNOBS if name in cell.axes)


def tasks(cells: Iterable[PlannedCell]) -> tuple[Task, ...]:
    """Form tasks of the training and loading cells; one without another setting is none."""
    groups: defaultdict[Changes, list[PlannedCell]] = defaultdict(list)
    for cell in filter(_tunable, cells):
        groups[_changes(cell, BY_NAME.keys() - set(KNOBS))].append(cell)
    return tuple(Task(tuple(sorted(group, key=_cost))) for group in groups.values() if len(group) > 1)


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
            f"--tune: {plan.matrix.path}, profile {plan.matrix.profile}: no two settings of mode train or load differ "
            "in loader and storage alone; expected several values of num_workers, storage_format, …"
        )
    left = Counter(
        "--tune: no other setting of the same task" if _tunable(cell) else "--tune: neither training nor loading"
        for cell in plan.cells
        if cell not in kept
    )
    excluded = (*plan.excluded, *(Counted(count=count, reason=reason) for reason, count in left.items()))
    return replace(plan, cells=kept, ceilings=(), claims=(), untestable={}, excluded=excluded)


class Searches:
    """The searches of a run, one a task; what a block measures comes from the seed and the blocks before it alone."""

    def __init__(self, plan: Plan, seed: int) -> None:
        """Begin with no trial."""
        self._seed, self._most, self._cores = seed, plan.rule.most, plan.host.cores
        self._tasks: dict[Search[str], Task] = {}
        for number, task in enumerate(tasks(plan.cells)):
            search = Search(
                [cell.cell_id for cell in task.cells],
                within=plan.rule.target,
                seed=random.Random(f"{seed}:{number}:search").getrandbits(32),
                present=task.present,
                knobs={cell.cell_id: _knobs(cell) for cell in task.cells}.__getitem__,
            )
            self._tasks[search] = task
        self._cells = {cell.cell_id: (cell, search) for search, task in self._tasks.items() for cell in task.cells}
        self._trials: dict[tuple[str, int], Trial] = {}
        """(cell_id, block) to the trials that the searches know of."""
        self._orders: list[list[PlannedCell]] = []

    def order(self, block: int, trials: Sequence[Trial]) -> list[PlannedCell]:
        """The trials of a block in their order, by those of the blocks before it; none where every search has ended."""
        while len(self._orders) <= block:
            self._learn(trial for trial in trials if trial["block"] == len(self._orders) - 1)
            self._orders.append(self._following(len(self._orders)))
        return self._orders[block]

    def _following(self, block: int) -> list[PlannedCell]:
        able = (search for search in self._tasks if block < self._most and set(search.settings) - search.failed)
        order = [self._cells[cell][0] for search in able for cell in search.next_block(block)]
        random.Random(f"{self._seed}:{block}").shuffle(order)
        return order

    def _learn(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            key = cell, block = trial["cell_id"], trial["block"]
            rate = trial.get("samples_per_s") if trial["outcome"] == "ok" else None
            self._trials[key] = trial
            self._cells[cell][1].add(block, cell, -math.log(rate) if rate else None)
        for search, task in self._tasks.items():
            of_task = [trial for (cell, _), trial in self._trials.items() if self._cells[cell][1] is search]
            search.expect(expected(task, of_task, self._cores))

    @property
    def settled(self) -> bool:
        """Whether every task's recommended setting is known to be near enough to its best."""
        return all(search.measured and search.outcome().settled for search in self._tasks)

    def results(self, trials: Iterable[Trial]) -> tuple[Tuned, ...]:
        """What the searches found by all trials, in the order of the tasks; nothing of one in which none ended well."""
        self._learn(trial for trial in trials if trial["block"] >= len(self._orders) - 1)
        searches = [self._cells[cell][1] for cell, _ in self._trials]
        return tuple(
            manifest_entry(search, str, settings=len(search.settings), trials=searches.count(search))
            for search in self._tasks
            if search.measured
        )


def manifest_entry(
    search: Search[Setting],
    cell_of: Callable[[Setting], str],
    *,
    settings: int,
    trials: int,
    gain: tuple[float, float, float] | None = None,
) -> Tuned:
    """Say in a manifest what a search found, whose settings are cells by ``cell_of``.

    ``gain`` is how many times as fast the recommended setting is as the present one, and the ends of its interval.
    """
    outcome = search.outcome()
    return Tuned(
        recommended=cell_of(outcome.recommended),
        present=cell_of(search.present) if search.present is not None else None,
        settings=settings,
        trials=trials,
        within_pct=round(100 * math.expm1(search.within), 3),
        compared=outcome.compared,
        bound_pct=round(100 * math.expm1(outcome.bound), 3) if math.isfinite(outcome.bound) else None,
        known=outcome.settled,
        unseen=outcome.unseen,
        model_error_pct=round(100 * math.expm1(outcome.model_error), 3) if outcome.unseen else None,
        gain=gain,
        aside=tuple(Counted(count=count, reason=reason) for reason, count in search.aside()),
        audits=tuple(
            Audited(
                cell_id=cell_of(audit.setting),
                predicted=round(math.exp(-audit.predicted), 4),
                measured=round(math.exp(-audit.measured), 4),
            )
            for audit in search.audits()
        ),
    )


def sentences(tuned: Tuned) -> Iterator[str]:
    """Say how much faster than the recommended setting another one may be."""
    others = words.plural(tuned.compared, "other setting")
    if not tuned.compared:
        yield "no other setting was measured often enough to be compared"
    elif tuned.bound_pct is None:
        yield f"compared with {others}, too seldom to tell how much faster one may be"
    else:
        most = words.per_cent(tuned.bound_pct, 1)
        yield f"compared with {others}: the best is at most {most} faster, with 95 % confidence"
    if not tuned.known:
        yield f"the search ended too early to rule out settings that are {tuned.within_pct:g} % faster"
    if tuned.model_error_pct is not None:
        seen, factor = words.plural(tuned.unseen, "setting"), 1 + tuned.model_error_pct / 100
        missed = words.per_cent(tuned.model_error_pct, 1) if factor < 2 else f"a factor of {words.number(factor, 2)}"
        yield f"the model missed {seen} that it had not seen by {missed}"


class _Batch(NamedTuple):
    """What a batch took in a trial, in ns."""

    preparing: float
    cpu: float
    workers: bool
    """Whether workers prepared it."""


def expected(task: Task, trials: Sequence[Trial], cores: int) -> Model[str]:
    """What trials of a task show of its settings, by cell_id."""
    ended = [trial for trial in trials if trial["outcome"] == "ok" and trial.get("samples_per_s")]
    keys = {cell.cell_id: _changes(cell, set(KNOBS) - UNPREPARED) for cell in task.cells}
    prepared: defaultdict[Changes, list[_Batch]] = defaultdict(list)
    for trial in ended:
        prepared[keys[trial["cell_id"]]] += _batches(trial)
    predicted, floors, bases = dict[str, float](), dict[str, float](), dict[str, int]()
    for cell in task.cells:
        if batches := prepared[keys[cell.cell_id]]:
            workers = int(cell.axes["num_workers"])
            step, scale = min(map(_step_ns, ended)), 1e9 * ended[0]["samples"] / ended[0]["steps"]
            alike = [batch for batch in batches if batch.workers == bool(workers)] or batches
            predicted[cell.cell_id] = math.log(_parts(step, alike, cores).step_with(workers) / scale)
            floors[cell.cell_id] = math.log(_parts(step, batches, cores).step_with(workers) / scale)
            bases[cell.cell_id] = len(alike)
    return Model(predicted, floors, bases, _rooms(task, ended, keys, cores))


def _rooms(
    task: Task, trials: Sequence[Trial], keys: Mapping[str, Changes], cores: int
) -> Mapping[tuple[str, str], Sequence[float]]:
    """What trials with workers leave to gain for settings that take no less; those of one key prepare batches alike."""
    rooms: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    cells = [cell.cell_id for cell in task.cells]
    for trial in trials:
        if not trial["num_workers"]:
            continue
        cell, step = trial["cell_id"], _step_ns(trial)
        same, unlike = _parts(step, list(_batches(trial)), cores), _parts(step, (), cores)
        for other in task.cells[cells.index(cell) + 1 :]:
            parts = same if keys[cell] == keys[other.cell_id] else unlike
            least = parts.step_with(int(other.axes["num_workers"]))
            rooms[cell, other.cell_id].append(math.log(trial["wall_ns"] / trial["steps"] / least))
    return rooms


def _step_ns(trial: Trial) -> float:
    return float((trial["wall_ns"] - trial["host_fetch_ns"]) / trial["steps"])


def _batches(trial: Trial) -> Iterator[_Batch]:
    """What a batch took in a trial; nothing where its stages were not stamped."""
    stages = [took for stage in WORKER_STAGES if (took := trial.get(f"worker_{stage}_ns")) is not None]
    if stages:
        cpu_pct = (trial.get("main_cpu_pct") or 0.0) + (trial.get("workers_cpu_pct") or 0.0)
        steps, workers = trial["steps"], bool(trial["num_workers"])
        yield _Batch(sum(stages) / steps, cpu_pct / 100 * trial["wall_ns"] / steps, workers)


def _parts(step: float, batches: Sequence[_Batch], cores: int) -> Parts:
    """The least that the parts of a step took; the step alone where no batch tells more."""
    preparing, cpu = (min((getattr(batch, name) for batch in batches), default=0.0) for name in ("preparing", "cpu"))
    return Parts(step, preparing, cpu / cores, handed_over=step)
