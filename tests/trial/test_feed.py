"""Where batches come from: orders, real epochs, and what reads were planted to wait."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from itertools import chain, count, islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.trial import feed
from feedrate.trial.feed import EpochBatches, Epochs
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch, Batches

COUNT, SIZE = 40, 4
CELL = {"workload": "synthetic", "mode": "load", "storage_format": "memmap", "patch_size": 8}
CELL |= {"n_samples": COUNT, "batch_size": SIZE}


@pytest.fixture(scope="module")
def packed(pack: Callable[..., str]) -> str:
    """A small set on disk."""
    return pack(count=COUNT)


def job(packed: str, **cell: object) -> Job:
    return Job("trial", cell=CELL | cell, packed=packed, seed=7)


@given(samples=st.integers(1, 60), size=st.integers(1, 9), steps=st.integers(1, 20), seed=st.integers(0, 99))
@settings(max_examples=50)
def test_epochs_deal_out_one_order(samples: int, size: int, steps: int, seed: int) -> None:
    """Epochs of any length, put together, are the batches of the endless order; each has its length."""
    size = min(size, samples)
    endless = list(islice(Batches(samples, size, seed), 3 * steps))
    sampler = EpochBatches(iter(Batches(samples, size, seed)), steps)
    epochs = [list(sampler) for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [steps] * 3
    assert list(chain.from_iterable(epochs)) == endless


def test_an_epoch_as_long_as_the_set_is_a_new_permutation() -> None:
    """Every sample once in each, in another order every time."""
    sampler = EpochBatches(iter(Batches(COUNT, SIZE, seed=3)), COUNT // SIZE)
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
        {"epoch_steps": 10},
        {"epoch_steps": 3, "num_workers": 2},
        {"epoch_steps": 3, "num_workers": 2, "persistent_workers": True},
        {"epoch_steps": 3, "num_workers": 2, "worker_kind": "thread"},
        {"epoch_steps": 25, "num_workers": 2, "persistent_workers": True},
    ],
    ids=str,
)
def test_all_epochs_give_the_same_batches(
    packed: str, fetch: Callable[[Job, int], list[Batch]], cell: dict[str, object]
) -> None:
    """Sample by sample what comes without epochs and without workers: across borders, and beyond a pass of the set."""
    expected = [batch.fields[0] for batch in fetch(job(packed), 14)]
    batches = fetch(job(packed, **cell), 14)
    assert all(torch.equal(batch.fields[0], one) for batch, one in zip(batches, expected, strict=True))
    assert len({batch.numpy().tobytes() for batch in expected}) == 14


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_workers_that_are_kept_are_the_same_processes(packed: str, kept: bool) -> None:
    """persistent_workers keeps them from epoch to epoch; without it every epoch has its own."""
    opened = feed.open_feed(job(packed, num_workers=2, epoch_steps=3, persistent_workers=kept), torch.device("cpu"))
    processes = []
    for _ in range(2):
        list(islice(opened.batches, 2))
        processes.append({child.pid for child in multiprocessing.active_children()})
        next(opened.batches)
    first, second = processes
    assert first == second if kept else not first & second
    assert len(first) == 2


def test_a_cold_order_ends(packed: str) -> None:
    """Whatever asks for more than one pass over the set gets none."""
    assert len(list(feed.order(job(packed, page_cache="cold"), COUNT))) == COUNT // SIZE


def test_the_planted_truth_follows_the_order(packed: str) -> None:
    """What reads were planted to wait is summed over the samples that came, in stored order too; epochs change none."""
    planted = {"read_us": 100, "read_shape": "jittered"}
    orders = [job(packed, **planted, access=access) for access in ("random", "sequential")]
    assert {feed.planted_read_ns(order, 0, COUNT // SIZE) for order in orders} == {COUNT * 100_000}
    assert len({feed.planted_read_ns(order, 0, 4) for order in orders}) == 2
    assert feed.planted_read_ns(job(packed, **planted, epoch_steps=3), 4, 9) == feed.planted_read_ns(orders[0], 4, 9)
