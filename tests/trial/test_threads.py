"""Workers that are threads: the DataLoader's promises, kept without processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.schema import plugins
from feedrate.schema.errors import DataError
from feedrate.schema.plugins import traits
from feedrate.trial import feed, loader
from feedrate.trial.job import Job
from feedrate.trial.loader import STAMPS, Batch, Batches

COUNT = 24
CELL = {"workload": "synthetic", "mode": "load", "patch_size": 8, "n_samples": COUNT, "batch_size": 3}
FORMATS = tuple(name for name in plugins.names("feedrate.formats") if not traits(name).streamed)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """After each test there is no thread more than before."""
    before = set(threading.enumerate())
    yield
    assert [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("loader")] == []


def numbered(indices: list[int]) -> Batch:
    """A batch that holds its samples' indices, and the thread that made it."""
    return Batch((torch.tensor(indices),), threading.current_thread().name.encode())


def delivered(found: Iterator[Batch]) -> list[list[int]]:
    return [batch.fields[0].tolist() for batch in found]


@given(
    batches=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=3), max_size=12),
    workers=st.integers(1, 4),
    ahead=st.integers(1, 3),
)
@settings(max_examples=40)
def test_what_is_dealt_is_delivered_in_order(batches: list[list[int]], workers: int, ahead: int) -> None:
    """Every batch once, in the sampler's order, dealt to the workers in turn; then the iteration ends."""
    made = list(loader.ThreadLoader([numbered] * workers, batches, ahead))
    assert delivered(iter(made)) == batches
    assert [batch.stamps for batch in made] == [f"loader worker {i % workers}".encode() for i in range(len(batches))]


def test_order_holds_where_a_worker_is_slow() -> None:
    """What another worker has ready waits for its turn."""

    def slow(indices: list[int]) -> Batch:
        time.sleep(0.02)
        return numbered(indices)

    batches = [[i] for i in range(9)]
    assert delivered(iter(loader.ThreadLoader([slow, numbered, numbered], batches, 2))) == batches


def test_a_loader_is_iterated_again_and_again() -> None:
    """Each iteration asks the sampler anew, with threads of its own."""
    source = loader.ThreadLoader([numbered] * 2, [[1], [2], [3]], 1)
    assert [delivered(iter(source)) for _ in range(2)] == [[[1], [2], [3]]] * 2


def test_no_more_than_the_stock_is_prepared_ahead() -> None:
    """Before the first batch is taken: ``ahead`` batches a worker; with each that is taken one more."""
    begun: list[int] = []

    def noted(indices: list[int]) -> Batch:
        begun.extend(indices)
        return numbered(indices)

    batches = iter(loader.ThreadLoader([noted] * 3, ([i] for i in range(1000)), 2))
    for taken in range(1, 5):
        next(batches)
        until = time.monotonic() + 5
        while len(begun) < 6 + taken and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(0.01)
        assert sorted(begun) == list(range(6 + taken))
    del batches


def test_workers_compute_with_one_thread_and_the_training_keeps_its_own() -> None:
    """As PyTorch's worker processes do; the training process' threads stay as many as they were."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counted = loader.ThreadLoader([lambda _: Batch((), bytes([torch.get_num_threads()]))] * 3, [[0]] * 6, 1)
        assert {batch.stamps for batch in counted} == {b"\x01"}
        assert torch.get_num_threads() == 2
        later: list[int] = []  # autograd's and other threads that begin after the workers
        beginner = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        beginner.start()
        beginner.join()
        assert later == [2]
    finally:
        torch.set_num_threads(before)


def test_an_error_is_raised_where_its_batch_is_waited_for() -> None:
    """After the batches before it, of its own class, with the worker's traceback in its words; threads end."""

    def damaged(indices: list[int]) -> Batch:
        if indices == [2]:
            raise DataError("pixels.bin: damaged")
        return numbered(indices)

    found = []
    with pytest.raises(DataError, match=r"(?s)in loader thread 0.*in damaged.*pixels\.bin: damaged"):
        found.extend(loader.ThreadLoader([damaged] * 2, [[0], [1], [2], [3]], 2))
    assert delivered(iter(found)) == [[0], [1]]


def test_an_iterator_that_is_dropped_ends_its_threads() -> None:
    """Without end, with work dealt and work under way: nothing is left once nobody asks any more."""
    endless = iter(loader.ThreadLoader([numbered] * 3, Batches(10, 2, 0), 4))
    list(islice(endless, 5))
    assert sum(thread.name.startswith("loader worker") for thread in threading.enumerate()) == 3
    del endless


def test_pinning_is_done_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor of a batch, and only where the cell asks for it."""
    by: list[str] = []

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        by.append(threading.current_thread().name)
        return tensor + 1

    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    samples: Any = [torch.zeros(1), torch.ones(1)]

    def first(pin: bool) -> Batch:
        common: dict[str, Any] = {"batches": [[0, 1]], "num_workers": 1, "prefetch_factor": 1, "pin_memory": pin}
        (batch,) = loader.build_threads(samples, lambda found: Batch((torch.cat(found),), b""), **common)
        return batch

    assert first(pin=False).fields[0].tolist() == [0, 1]
    assert by == []
    assert first(pin=True).fields[0].tolist() == [1, 2]
    assert by == ["loader worker 0"]


def test_a_batch_has_an_account_of_its_own(pack: Callable[..., str]) -> None:
    """Threads that read at the same time do not book on each other's batches: each has what was planted into it."""
    cell = {"storage_format": "memmap", "n_samples": COUNT, "read_us": 3000, "collate_us": 4000}
    _, dataset, collate = feed.samples(Job("trial", cell=CELL | cell, packed=pack()))
    batches = [[index] for index in range(COUNT)]
    source = loader.build_threads(dataset, collate, batches=batches, num_workers=3, prefetch_factor=2, pin_memory=False)
    accounts = [STAMPS.unpack(batch.stamps) for batch in source]
    assert len(accounts) == COUNT
    assert min(account[0] for account in accounts) >= 1_500_000  # half of a wait may be taken off for one before it
    assert sorted(account[3] for account in accounts)[COUNT // 2] >= 4_000_000
    assert dataset.spent == [0, 0, 0]


@pytest.mark.parametrize("storage_format", FORMATS)
def test_threads_and_processes_give_the_same_batches(
    pack: Callable[..., str], fetch: Callable[[Job, int], list[Batch]], storage_format: str
) -> None:
    """Sample by sample and in order, for every format that is read one by one, all threads opening it at once."""

    def pixels(**cell: object) -> list[bytes]:
        job = Job("trial", cell=CELL | {"storage_format": storage_format} | cell, packed=pack(storage_format), seed=3)
        return [batch.fields[0].numpy().tobytes() for batch in fetch(job, 2 * COUNT // 3)]

    by_threads = pixels(worker_kind="thread", num_workers=4, prefetch_factor=1)
    assert by_threads == pixels(num_workers=0)
    if storage_format == "lmdb":
        assert by_threads == pixels(num_workers=2, prefetch_factor=1)


def test_every_thread_has_a_dataset_of_its_own(pack: Callable[..., str]) -> None:
    """Copied together with the collation that closes its account; an index, which never changes, is shared."""
    cell = {"storage_format": "memmap", "index_kind": "list", "index_entries": 50}
    _, indexed, collate = feed.samples(Job("trial", cell=CELL | cell, packed=pack()))
    made = loader.build_threads(
        indexed, collate, batches=[[0]], num_workers=2, prefetch_factor=1, pin_memory=False
    )._workers
    first, second = ((worker._dataset, worker._collate) for worker in made)  # type: ignore[attr-defined]
    assert first[0].dataset is first[1]._dataset
    assert second[0].dataset is second[1]._dataset
    assert first[0].dataset is not second[0].dataset
    assert first[0].dataset._reader is not second[0].dataset._reader
    assert first[0].index is second[0].index is indexed.index
