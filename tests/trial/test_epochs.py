"""Real epochs: the same batches in the same order, whatever an epoch's length and its workers' life."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.trial import feed, prepare, run
from feedrate.trial.feed import EpochBatches, Epochs
from feedrate.trial.job import Job, Reporter
from feedrate.trial.loader import Batches
from feedrate.workloads import DataSpec

COUNT, SIZE = 40, 4
CELL = {
    "workload": "synthetic",
    "mode": "load",
    "storage_format": "memmap",
    "patch_size": 8,
    "n_samples": COUNT,
    "batch_size": SIZE,
}


class Answers(Reporter):
    """Keeps what a trial reports."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.sent: dict[str, dict[str, Any]] = {}

    def send(self, event: str, **fields: Any) -> None:
        self.sent[event] = fields


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small set on disk."""
    root, spec = tmp_path_factory.mktemp("data"), DataSpec("synthetic", COUNT, 8, 1)
    prepare.prepare(spec, "memmap", root, lambda done, total: None)
    return prepare.dataset_root(root, spec, "memmap")


def job(packed: Path, **cell: object) -> Job:
    return Job("trial", cell=CELL | cell, packed=os.fspath(packed), seed=7, warmup_s=0.0, window_s=1e-4, min_steps=2)


def pixels(packed: Path, batches: int, **cell: object) -> list[torch.Tensor]:
    """The first batches of a trial's feed."""
    opened = feed.open_feed(job(packed, **cell), torch.device("cpu"))
    return [batch.fields[0].clone() for batch in islice(opened.batches, batches)]


@given(samples=st.integers(1, 60), size=st.integers(1, 9), steps=st.integers(1, 20), seed=st.integers(0, 99))
@settings(max_examples=50)
def test_epochs_deal_out_one_order(samples: int, size: int, steps: int, seed: int) -> None:
    """Epochs of any length, put together, are the batches of the endless order; each has its length."""
    size = min(size, samples)
    whole = list(islice(Batches(samples, size, seed), 3 * steps))
    sampler = EpochBatches(Batches(samples, size, seed), steps)
    epochs = [list(sampler) for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [steps] * 3
    assert list(chain.from_iterable(epochs)) == whole


def test_an_epoch_as_long_as_the_set_is_a_new_permutation() -> None:
    """Every sample once in each, in another order every time."""
    sampler = EpochBatches(Batches(COUNT, SIZE, seed=3), COUNT // SIZE)
    first, second = ([index for batch in sampler for index in batch] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second


def test_an_epoch_begins_when_its_first_batch_is_asked_for() -> None:
    """The last batch of an epoch does not begin the next; each has a fresh iterator, and the old one has ended."""
    made, ended = count(), count()

    class Source:
        def __iter__(self) -> Iterator[Any]:
            next(made)
            yield from (1, 2)
            next(ended)

    epochs = Epochs(Source())
    batches = iter(epochs)
    assert epochs.begun == 0
    assert [next(batches), next(batches)] == [1, 2]
    assert (epochs.begun, next(ended)) == (1, 0)
    assert next(batches) == 1
    assert (epochs.begun, next(ended), next(made)) == (2, 2, 2)


@pytest.mark.parametrize(
    "cell",
    [
        {"epoch_steps": 3},
        {"epoch_steps": 3, "num_workers": 2},
        {"epoch_steps": 3, "num_workers": 2, "persistent_workers": True},
        {"epoch_steps": 3, "num_workers": 2, "worker_kind": "thread"},
        {"epoch_steps": 25, "num_workers": 2, "persistent_workers": True},
    ],
    ids=str,
)
def test_all_epochs_give_the_same_batches(packed: Path, cell: dict[str, object]) -> None:
    """Sample by sample what comes without epochs and without workers: across borders, and beyond a pass of the set."""
    expected = pixels(packed, 14)
    found = pixels(packed, 14, **cell)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert len({batch.numpy().tobytes() for batch in expected}) == 14


@pytest.mark.parametrize(("workers", "kept"), [(0, False), (2, False), (2, True)])
def test_a_window_has_whole_epochs(packed: Path, workers: int, kept: bool) -> None:
    """It begins and ends at an epoch's border, has two epochs at least, and counts those that began in it."""
    answers, cell = Answers(), {"num_workers": workers, "persistent_workers": kept, "epoch_steps": 5}
    run.run_trial(job(packed, **cell), answers)
    row = answers.sent["result"]["row"]
    assert row["warmup_steps"] % 5 == 0
    assert row["warmup_steps"] >= 5 + bool(workers)
    assert row["steps"] % 5 == 0
    assert row["epochs"] == row["steps"] // 5 >= 2
    assert row["half_ratio"] is not None


def test_without_epochs_none_are_counted(packed: Path) -> None:
    """Null is not zero."""
    answers = Answers()
    run.run_trial(job(packed), answers)
    assert answers.sent["result"]["row"]["epochs"] is None


def test_respawning_is_paid_in_the_wait_for_a_batch(packed: Path) -> None:
    """The first step of an epoch waits for its workers to start, and the longest waits are those of the borders."""
    answers = Answers()
    run.run_trial(job(packed, num_workers=1, epoch_steps=10), answers)
    fetch = np.array(answers.sent["result"]["steps"]["fetch_ns"]).reshape(-1, 10)
    assert np.median(fetch[:, 0]) > 3 * np.median(fetch[:, 1:])


@pytest.mark.slow
def test_workers_that_are_kept_are_the_same_processes(packed: Path) -> None:
    """persistent_workers keeps them from epoch to epoch; without it every epoch has its own."""

    def processes(kept: bool) -> tuple[set[int], set[int]]:
        cell = {"num_workers": 2, "epoch_steps": 3, "persistent_workers": kept}
        opened = feed.open_feed(job(packed, **cell), torch.device("cpu"))
        found = []
        for _ in range(2):
            list(islice(opened.batches, 2))
            found.append({child.pid for child in multiprocessing.active_children()})
            next(opened.batches)
        return found[0], found[1]

    first, second = processes(kept=True)
    assert first == second
    assert len(first) == 2
    first, second = processes(kept=False)
    assert not first & second


def test_the_planted_truth_holds_across_epochs(packed: Path) -> None:
    """What reads were planted to wait follows from the order, which epochs do not change."""
    planted = {"read_us": 100, "read_shape": "heavy_tailed"}
    plain, short = job(packed, **planted), job(packed, **planted, epoch_steps=3)
    assert feed.planted_read_ns(plain, 4, 9) == feed.planted_read_ns(short, 4, 9)
