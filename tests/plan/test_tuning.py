"""Tuned sweeps: which cells form a task, what a search measures of them, and what it finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feedrate.plan import cells, matrix, request, schedule, tuning
from feedrate.plan.options import SweepOptions
from feedrate.plan.search import GRID_BLOCKS
from feedrate.schema.errors import InputError

TEXT = """
version: 1
protocol: {{timeout_s: 30, blocks: [8, 60]}}
suites: {{loader: [{slices}]}}
profiles: {{quick: {{}}}}
"""
GRID = "{mode: load, storage_format: [png, lmdb, memmap], num_workers: [0, 1, 2, 4, 8, 16], prefetch_factor: [2, 4, 8]}"
PREPARING_NS = {"png": 20e6, "lmdb": 6e6, "memmap": 5e6}
CORES = 8
STEPS = 100


def planned(folder: Path, slices: str) -> schedule.Plan:
    path = folder / "matrix.yaml"
    path.write_text(TEXT.format(slices=slices))
    return tuning.narrowed(cells.expand(matrix.load(path), schedule.Host("cpu", folder, cores=CORES)))


def step_ns(cell: schedule.PlannedCell) -> float:
    """The truth: the workers' rate, cores that are slower together, and a training process that takes 1 ms a batch."""
    workers, preparing = int(cell.axes["num_workers"]), PREPARING_NS[str(cell.axes["storage_format"])]
    if not workers:
        return preparing + 1e6
    return max(1e6, preparing * (1 + 0.02 * workers) / min(workers, CORES)) * (1.01 if workers > CORES else 1)


def trial_of(cell: schedule.PlannedCell, block: int, noise: float) -> dict[str, Any]:
    """A row of a trial that was never run; other workers divide the same work."""
    wall = step_ns(cell) * STEPS * (1 + noise)
    batch = PREPARING_NS[str(cell.axes["storage_format"])] * STEPS * (1 + noise)
    share = 100 * batch / wall
    rest = {"wall_ns": int(wall), "host_fetch_ns": int(0.9 * wall), "worker_decode_ns": int(batch)}
    of = {"cell_id": cell.cell_id, "block": block, "outcome": "ok", "samples_per_s": 32 * STEPS / wall * 1e9}
    return {**cell.axes, **of, **rest, "steps": STEPS, "samples": 32 * STEPS, "main_cpu_pct": share}


def search(plan: schedule.Plan, seed: int, fails: Callable[[schedule.PlannedCell], bool] = lambda _: False) -> Any:
    """Play a search over made-up trials to its end: the searches, the trials, the orders."""
    chance, searches = random.Random(seed), tuning.Searches(plan, seed)
    trials, orders = list[dict[str, Any]](), list[list[str]]()
    while order := searches.order(len(orders), trials):
        orders.append([cell.cell_id for cell in order])
        wobble = chance.gauss(0, 0.05)
        for cell in order:
            trial = trial_of(cell, len(orders) - 1, wobble + chance.gauss(0, 0.01))
            trials.append({**trial, "outcome": "error", "samples_per_s": None} if fails(cell) else trial)
    return searches, trials, orders


def test_cells_that_differ_in_knobs_alone_form_a_task(tmp_path: Path) -> None:
    """Batch sizes and modes are tasks of their own; what has nothing to choose from is left out or refused."""
    plan = planned(
        tmp_path,
        "{mode: [load, train], storage_format: [png, webdataset], access: sequential, num_workers: [2, 0], "
        "prefetch_factor: [4, 2], batch_size: [8, 32]}, {mode: compute}, {mode: load, batch_size: 128}",
    )
    found = tuning.tasks(plan.cells)
    assert [len(task.cells) for task in found] == [6] * 4
    assert len(plan.cells) == len(plan.all_cells) == 24
    for task in found:
        kinds = {(cell.axes["mode"], cell.axes["batch_size"]) for cell in task.cells}
        assert len(kinds) == 1
        costs = [(cell.axes["num_workers"], cell.axes.get("prefetch_factor", 0)) for cell in task.cells]
        assert costs == [(0, 0), (0, 0), (2, 2), (2, 2), (2, 4), (2, 4)]
    reasons = {counted.reason: counted.count for counted in plan.excluded}
    assert reasons["--tune: no other setting of the same task"] == 1
    assert reasons["--tune: neither training nor loading"] == 1
    with pytest.raises(InputError, match="no two settings of mode train or load differ in loader"):
        planned(tmp_path, "{mode: load, batch_size: [8, 32]}")


@pytest.mark.parametrize("seed", range(2))
def test_the_best_is_found_in_few_trials(tmp_path: Path, seed: int) -> None:
    """Within the tolerance and its bound, by fewer trials than a sixth of the grid."""
    plan = planned(tmp_path, GRID)
    searches, trials, _ = search(plan, seed)
    (found,) = searches.results(trials)
    times = {cell.cell_id: step_ns(cell) for cell in plan.cells}
    regret_pct = 100 * (times[found.recommended] / min(times.values()) - 1)
    assert found.known
    assert searches.settled
    assert regret_pct <= found.bound_pct <= found.within_pct
    assert (found.settings, found.trials) == (len(plan.cells), len(trials))
    assert len(trials) < found.settings * GRID_BLOCKS / 6
    left = found.settings - len({trial["cell_id"] for trial in trials})
    assert sum(counted.count for counted in found.aside) == left


@pytest.mark.slow
def test_a_resumed_search_goes_on_in_the_same_order(tmp_path: Path) -> None:
    """Whenever it was interrupted, also amid a block: decisions come from the seed and earlier blocks alone."""
    plan = planned(tmp_path, GRID)
    _, trials, orders = search(plan, 3)
    for ended in range(1, len(trials), 6):
        block = trials[ended - 1]["block"]
        again = tuning.Searches(plan, 3)
        assert [cell.cell_id for cell in again.order(block, trials[:ended])] == orders[block]


def test_what_fails_is_not_tried_again(tmp_path: Path) -> None:
    """Settings that fail cost one trial each; where all fail the search ends without a finding."""
    plan = planned(tmp_path, GRID)
    searches, trials, _ = search(plan, 1, lambda cell: cell.axes["storage_format"] == "memmap")
    failed = [trial["cell_id"] for trial in trials if trial["outcome"] == "error"]
    assert failed
    assert len(set(failed)) == len(failed)
    (found,) = searches.results(trials)
    assert found.recommended not in failed
    searches, trials, _ = search(plan, 1, lambda _: True)
    assert len(trials) == len(plan.cells)
    assert searches.results(trials) == ()
    assert not searches.settled


def test_a_tuned_plan_has_a_key_and_a_command_of_its_own(tmp_path: Path) -> None:
    """No run of whole blocks is resumed as a search; the command that repeats it says --tune."""
    (tmp_path / "matrix.yaml").write_text(TEXT.format(slices=GRID))
    given = {"matrix": tmp_path / "matrix.yaml", "data_root": tmp_path, "results": tmp_path / "results"}
    whole, tuned = (request.make(SweepOptions(**given, tune=tune)) for tune in (False, True))
    assert whole.key() != tuned.key()
    assert "--tune" in tuned.options.command().split()
    assert "--tune" not in whole.options.command()
