"""Where batches come from: orders, real epochs, what reads were planted to wait, and an index, shared or copied."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from itertools import chain, count, islice, pairwise, takewhile
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.formats import Reader
from feedrate.loaders import Batch, StampedDataset
from feedrate.machine.linux import last_level_cache_bytes
from feedrate.trial import feed, index
from feedrate.trial.job import Job

COUNT, SIZE = 40, 4
CPU = torch.device("cpu")
KINDS = ("list", "numpy", "serialized")
"""Of an index."""
CELL = {"workload": "synthetic", "mode": "load", "storage_format": "memmap", "patch_size": 8}
CELL |= {"n_samples": COUNT, "batch_size": SIZE}
TWO, THREADS = {"num_workers": 2}, {"num_workers": 2, "loader": "threads"}
Fetch = Callable[[Job, int], list[Batch]]


@pytest.fixture(scope="module")
def packed(pack: Callable[..., str]) -> str:
    """A small set on disk."""
    return pack(count=COUNT)


def job(packed: str, **cell: object) -> Job:
    return Job("trial", cell=CELL | cell, packed=packed, seed=7)


def pixels(batches: list[Batch]) -> list[bytes]:
    return [batch.fields[0].numpy().tobytes() for batch in batches]


def test_an_epoch_begins_when_its_first_batch_is_asked_for() -> None:
    """The last batch of an epoch does not begin the next; each has a fresh iterator, and the old one has ended."""
    made, ended = count(), count()

    class Source:
        def __iter__(self) -> Iterator[Any]:
            next(made)
            yield from (1, 2)
            next(ended)

    epochs = feed.Epochs(Source())
    batches = iter(epochs)
    assert epochs.begun == 0
    assert [next(batches), next(batches)] == [1, 2]
    assert (epochs.begun, next(ended)) == (1, 0)
    assert next(batches) == 1
    assert (epochs.begun, next(ended), next(made)) == (2, 2, 2)


SLOW_EPOCHS = [{"epoch_steps": 3, **TWO}, {"epoch_steps": 25, **TWO, "persistent_workers": True}]


@pytest.mark.parametrize(
    "cell",
    [
        {"epoch_steps": 10},
        {"epoch_steps": 3, **THREADS},
        *(pytest.param(cell, marks=pytest.mark.slow) for cell in SLOW_EPOCHS),
    ],
    ids=str,
)
def test_all_epochs_give_the_same_batches(packed: str, fetch: Fetch, cell: dict[str, object]) -> None:
    """Sample by sample what comes without epochs and without workers: across borders, and beyond a pass of the set."""
    expected = pixels(fetch(job(packed), 14))
    assert pixels(fetch(job(packed, **cell), 14)) == expected
    assert len(set(expected)) == 14


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_workers_that_are_kept_are_the_same_processes(packed: str, kept: bool) -> None:
    """persistent_workers keeps them from epoch to epoch; without it every epoch has its own."""
    batches = feed.open_feed(job(packed, **TWO, epoch_steps=3, persistent_workers=kept), CPU).batches
    processes = []
    for _ in range(2):
        list(islice(batches, 2))
        processes.append({child.pid for child in multiprocessing.active_children()})
        next(batches)
    first, second = processes
    assert first == second if kept else not first & second
    assert len(first) == 2


def test_a_cold_order_ends(packed: str) -> None:
    """Whatever asks for more than one pass over the set gets none."""
    assert len(list(feed.batch_order(job(packed, page_cache="cold"), COUNT))) == COUNT // SIZE


def test_the_planted_truth_follows_the_order(packed: str) -> None:
    """What reads were planted to wait is summed over the samples that came, in stored order too; epochs change none."""
    planted: dict[str, Any] = {"read_us": 100, "read_shape": "jittered"}
    orders = [job(packed, **planted, access=access) for access in ("random", "sequential")]
    assert {feed.planted_read_ns(order, 0, COUNT // SIZE) for order in orders} == {COUNT * 100_000}
    assert len({feed.planted_read_ns(order, 0, 4) for order in orders}) == 2
    assert feed.planted_read_ns(job(packed, **planted, epoch_steps=3), 4, 9) == feed.planted_read_ns(orders[0], 4, 9)
    entries = job(packed, **planted, index_kind="numpy", index_entries=10 * COUNT)
    assert feed.planted_read_ns(entries, 0, 100) == 10 * COUNT * 100_000
    assert feed.planted_read_ns(entries, 3, 4) != feed.planted_read_ns(orders[0], 3, 4)


@given(count=st.integers(1, 300), places=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=9))
@settings(max_examples=30)
def test_all_kinds_give_equal_entries(count: int, places: list[float]) -> None:
    """Whatever is looked up, in whatever order, and out of a pickle as spawned workers get it."""
    expected = list(index.entries(count))
    for kind in KINDS:
        built = pickle.loads(pickle.dumps(index.build_index(kind, count)))
        for place in (*(int(share * count) for share in places), *range(count)):
            assert built[place] == expected[place]
            assert [type(value) for value in built[place].values()] == [str, int, int]
        assert len(built) == count


@pytest.fixture
def dataset(numbers: Reader) -> StampedDataset:
    return StampedDataset(numbers, lambda sample: (torch.from_numpy(sample[0]),))


def test_packed_samples_stand_for_all_entries_in_turn(dataset: StampedDataset) -> None:
    """Entry i is read from packed sample i mod count, and every one of them is looked up."""
    looked: list[int] = []

    class Noted(list):
        def __getitem__(self, place: int) -> index.Entry:
            looked.append(place)
            return super().__getitem__(place)

    indexed = index.IndexedDataset(dataset, Noted(index.entries(3 * len(dataset))))
    assert [int(indexed[place][0]) for place in range(len(indexed))] == list(range(len(dataset))) * 3
    assert looked == list(range(3 * len(dataset)))


@pytest.mark.parametrize("cell", [{}, THREADS, pytest.param(TWO, marks=pytest.mark.slow)], ids=str)
def test_all_kinds_read_the_same_samples(packed: str, fetch: Fetch, cell: dict[str, object]) -> None:
    """Batch by batch, in one order over all entries; each packed sample as often as it stands for one."""
    jobs = [job(packed, index_kind=kind, index_entries=100, **cell) for kind in KINDS]
    first, *others = (pixels(fetch(one, 25)) for one in jobs)
    assert others == [first, first]
    assert pixels(fetch(job(packed, index_kind="list", index_entries=100), 25)) == first
    assert sorted(chain.from_iterable(islice(feed.batch_order(jobs[0], COUNT), 25))) == list(range(100))


def test_a_copy_alone_copies_what_training_copies(packed: str) -> None:
    """Batches in turn, of memory that other processes can write to, together larger than the last-level cache."""
    opened = feed.open_feed(job(packed, mode="copy", batch_size=COUNT), CPU)
    first = next(opened.batches).fields
    assert opened.batch_bytes == sum(field.nbytes for field in first)
    every = [first, *takewhile(lambda fields: fields[0] is not first[0], (batch.fields for batch in opened.batches))]
    places = sorted((field.data_ptr(), field.nbytes) for fields in every for field in fields)
    assert all(begin + size <= after for (begin, size), (after, _) in pairwise(places)), "no two overlap"
    assert sum(size for _, size in places) > last_level_cache_bytes()
    assert all(torch.equal(field, same) for field, same in zip(first, every[-1], strict=True))
    if not (child := os.fork()):
        first[0].view(-1)[0] = 5.0
        os._exit(0)
    os.waitpid(child, 0)
    assert first[0].view(-1)[0] == 5.0, "shared with whoever was forked"
