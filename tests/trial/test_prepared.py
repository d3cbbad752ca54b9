"""When batches were prepared, and by whom: stamps of real trials, for every kind of loader."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside import tried

from feedrate.schema.columns import PHASES, STEPS, WORKER_STAGES
from feedrate.trial import prepare, run
from feedrate.trial.job import Job, Reporter
from feedrate.workloads import DataSpec

COUNT, SIZE = 48, 4
CELL = {"workload": "synthetic", "mode": "load", "patch_size": 8, "n_samples": COUNT, "batch_size": SIZE}
TWO = {"num_workers": 2, "prefetch_factor": 2}
Single = dict[str, list[Any]]
GAPS = "gaps_ns"
"""Of the window, what lies in no phase: a process can lose its core between two stamps."""


class Answers(Reporter):
    """Keeps what a trial reports."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.sent: dict[str, dict[str, Any]] = {}

    def send(self, event: str, **fields: Any) -> None:
        self.sent[event] = fields


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Single]:
    """Runs a short trial in this process and gives its single steps, and ``GAPS``."""
    root, spec = tmp_path_factory.mktemp("data"), DataSpec("synthetic", COUNT, 8, 1)

    def make(storage_format: str = "memmap", **cell: object) -> Single:
        prepare.prepare(spec, storage_format, root, lambda done, total: None)
        packed = os.fspath(prepare.dataset_root(root, spec, storage_format))
        answers = Answers()
        asked = CELL | {"storage_format": storage_format} | cell
        run.run_trial(
            Job("trial", cell=asked, packed=packed, seed=7, warmup_s=0.0, window_s=1e-4, min_steps=12), answers
        )
        found: Single = answers.sent["result"]["steps"]
        assert set(found) <= {column.name for column in STEPS}
        return found | {GAPS: [answers.sent["result"]["row"]["wall_ns"] - int(_steps(found).sum())]}

    return make


def _steps(found: Single) -> np.ndarray:
    """How long each step took: all of its phases together."""
    return np.array([found[f"{phase}_ns"] for phase in PHASES if f"{phase}_ns" in found]).sum(axis=0)


WAYS: dict[str, dict[str, Any]] = {
    "no workers": {},
    "processes": TWO,
    "threads": {**TWO, "worker_kind": "thread"},
    "a stream": {**TWO, "storage_format": "webdataset"},
    "cached samples": {**TWO, "cache": "sample"},
    "cached batches": {**TWO, "cache": "batch"},
    "collated at once": {**TWO, "collate": "fast", "normalize_on": "device"},
    "an index": {**TWO, "index_kind": "numpy", "index_entries": COUNT},
    "planted waits": {**TWO, "read_us": 500, "collate_us": 500},
    "a training step": {**TWO, "mode": "train", "step": "emulated", "step_ms": 2.0},
    "spawned": {**TWO, "start_method": "spawn"},
}
SLOW = ("spawned",)


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way in SLOW)) for way in WAYS])
def test_a_batch_is_begun_then_whole_then_fetched(way: str, trial: Callable[..., Single]) -> None:
    """By one clock for all processes; its stages lie in between; all workers are there, each at one batch at a time."""
    cell = WAYS[way]
    found = trial(**cell)
    begun, ended = (np.array(found[f"worker_{moment}_ns"]) for moment in ("begun", "ended"))
    fetched = np.array([0, *np.cumsum(_steps(found))[:-1]]) + np.array(found["fetch_ns"])
    assert (begun < ended).all()
    assert (ended <= fetched + found[GAPS][0]).all()
    assert (sum(np.array(found[f"worker_{stage}_ns"]) for stage in WORKER_STAGES) <= ended - begun).all()
    assert set(found["worker"]) == (set(range(cell["num_workers"])) if cell else {None})
    for worker in set(found["worker"]):
        mine = np.array([number == worker for number in found["worker"]])
        assert (ended[mine][:-1] <= begun[mine][1:]).all()


@tried
def test_batches_are_dealt_in_turn_and_the_first_were_ready_before_the_window(trial: Callable[..., Single]) -> None:
    """Worker after worker, and with a step to hide behind, moments before the window are negative."""
    found = trial(**WAYS["a training step"])
    assert found["worker"][:4] in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert found["worker_begun_ns"][0] < 0


def test_without_workers_a_batch_is_prepared_while_it_is_fetched(trial: Callable[..., Single]) -> None:
    """In the training process: nothing of it lies before the fetch began."""
    found = trial()
    steps = np.cumsum(np.array(found["fetch_ns"]) + np.array(found["other_ns"]))
    assert (np.array(found["worker_begun_ns"]) >= [0, *steps[:-1]]).all()


def test_an_epochs_workers_begin_anew(trial: Callable[..., Single]) -> None:
    """Numbers come again with each epoch, and every batch has its own moments."""
    found = trial(**TWO, epoch_steps=4)
    assert found["worker"] == [0, 1, 0, 1] * (len(found["worker"]) // 4)
    assert len(set(found["worker_begun_ns"])) == len(found["worker_begun_ns"])


def test_where_no_loader_runs_nothing_is_stamped(trial: Callable[..., Single]) -> None:
    """A resident batch was prepared by nobody."""
    assert "worker" not in trial(mode="compute", model="srcnn")
