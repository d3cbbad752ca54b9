"""Orders of samples, streams that workers share, and workers: of every start method, which end with their trial.

Workers that are threads keep the DataLoader's promises without processes.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from beside import tried
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.formats import Manifest, Sample, Stream
from feedrate.schema import plugins
from feedrate.schema.errors import DataError
from feedrate.schema.plugins import ROOT
from feedrate.sweep.launcher import Template
from feedrate.trial import feed, loader
from feedrate.trial.job import Job
from feedrate.trial.loader import STAMPS, Batch, Batches, StampedCollate, StampedStream, ThreadLoader

COUNT, SHARDS = 60, 6
METHODS = ("fork", "spawn", "forkserver")
READ_ONE_BY_ONE = [name for name in plugins.names("feedrate.formats") if not plugins.traits(name).streamed]
PLANTED = {"read_us": 1, "decode_us": 1, "collate_us": 1, "payload_bytes": 8, "read_shape": "jittered"}
NEW_INTERPRETERS_S = 120
"""Two interpreters that import torch beside other work."""
Fetch = Callable[[Job, int], list[Batch]]


class Numbers(Stream):
    """A stream whose samples are their own numbers, ten a shard."""

    def __init__(self) -> None:
        self.root = Path("numbers")
        self.manifest = Manifest(COUNT, ((1, 1, 1),), 0, "", 1, 1, 0.0)

    @property
    def shards(self) -> int:
        return SHARDS

    def records(self, shard: int) -> Iterator[int]:
        yield from range(shard * 10, shard * 10 + 10)

    def decode(self, raw: Any) -> Sample:
        return (np.full((1, 1, 1), raw, np.uint8),)


def tensors(sample: Sample) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(field) for field in sample)


def stream(*, workers: int = 0, endless: bool = False, buffer: int = 0, seed: int = 1) -> Iterator[list[int]]:
    dataset = StampedStream(Numbers(), tensors, seed=seed, buffer=buffer, endless=endless)
    built = loader.build(
        dataset,
        StampedCollate(dataset),
        batches=None,
        batch_size=5,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        pin_memory=False,
    )
    for batch in built:
        yield batch.fields[0].flatten().tolist()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("buffer", [0, 7, 1000])
def test_a_pass_over_a_stream_has_every_sample_once(workers: int, buffer: int) -> None:
    """However many workers share the shards, and however they are shuffled."""
    assert sorted(number for batch in stream(workers=workers, buffer=buffer) for number in batch) == list(range(COUNT))


def test_a_stream_goes_on_for_ever_in_new_orders() -> None:
    """Each pass has every sample once and takes the shards in another order; a shard's own order stays."""
    numbers = [number for batch in islice(stream(endless=True), 3 * COUNT // 5) for number in batch]
    passes = [numbers[start : start + COUNT] for start in range(0, 3 * COUNT, COUNT)]
    assert all(sorted(one) == list(range(COUNT)) for one in passes)
    orders = [tuple(number // 10 for number in one[::10]) for one in passes]
    assert len(set(orders)) == 3
    assert all(one[place] + 1 == one[place + 1] for one in passes for place in range(COUNT - 1) if (place + 1) % 10)


def test_a_shuffle_buffer_mixes_within_its_reach_and_is_seeded() -> None:
    """No sample comes earlier than the buffer allows; the same seed gives the same order, another another."""
    plain = [number for batch in stream() for number in batch]
    mixed = [number for batch in stream(buffer=7) for number in batch]
    assert mixed != plain
    assert any(mixed.index(number) < COUNT // 2 for number in plain[:7])
    assert all(plain.index(number) <= place + 7 for place, number in enumerate(mixed))
    assert mixed == [number for batch in stream(buffer=7) for number in batch]
    assert mixed != [number for batch in stream(buffer=7, seed=2) for number in batch]


def test_batches_are_new_permutations_or_come_as_they_lie_on_disk() -> None:
    """Incomplete ones are left out; pass after pass without end, or one pass for a trial that reads nothing twice."""
    passes = list(islice(Batches(10, 3, seed=5), 6))
    first, second = [i for batch in passes[:3] for i in batch], [i for batch in passes[3:] for i in batch]
    assert first != second
    assert len(set(first)) == len(set(second)) == 9
    assert list(Batches(10, 3, seed=5, endless=False)) == passes[:3]
    assert list(islice(Batches(7, 3, 0, shuffled=False), 4)) == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5]]


def job(packed: str, **cell: object) -> Job:
    own = {"workload": "synthetic", "mode": "load", "patch_size": 8, "n_samples": 24, "batch_size": 4}
    limits: dict[str, Any] = {"warmup_s": 0.05, "window_s": 0.2}
    return Job("trial", cell=own | {"storage_format": "memmap"} | cell, packed=packed, seed=5, **limits)


@pytest.mark.parametrize("storage_format", plugins.names("feedrate.formats"))
def test_all_that_a_worker_needs_survives_a_pickle(pack: Callable[..., str], storage_format: str) -> None:
    """Of every format, with planted costs and an index where they can be, opened before or not."""
    access = {"access": "sequential"} if storage_format in ("tfrecord", "webdataset") else {"index_kind": "numpy"}
    cell = {"storage_format": storage_format, "index_entries": 48, **access, **PLANTED}
    _, *pair = feed.samples(job(pack(storage_format), **cell))

    def batch(dataset: Any, collate: Any) -> bytes:
        stream = isinstance(dataset, StampedStream)
        taken = list(islice(dataset, 3)) if stream else [dataset[i] for i in (0, 5, 23)]
        return collate(taken).fields[0].numpy().tobytes()

    expected = batch(*pickle.loads(pickle.dumps(pair)))
    assert batch(*pair) == expected
    assert batch(*pickle.loads(pickle.dumps(pair))) == expected


@pytest.mark.parametrize("workload", plugins.names("feedrate.workloads"))
def test_transforms_survive_a_pickle(workload: str) -> None:
    """Of every workload, as the same function in the worker."""
    transform = plugins.load("feedrate.workloads", workload).transform
    assert pickle.loads(pickle.dumps(transform)) is transform


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_batches_epoch_after_epoch(
    pack: Callable[..., str], fetch: Fetch, method: str
) -> None:
    """A new interpreter that got everything in a pickle reads what this process reads; kept workers and new ones."""

    def batches(**cell: object) -> list[bytes]:
        return [batch.fields[0].numpy().tobytes() for batch in fetch(job(pack(), **cell), 5)]

    cell, expected = {"num_workers": 1, "epoch_steps": 3, "start_method": method}, batches()
    assert batches(**cell, persistent_workers=True) == expected
    assert batches(**cell) == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_trial_leaves_nothing_behind(pack: Callable[..., str], method: str) -> None:
    """Neither workers nor their server nor the tracker of their semaphores; start-up is in its column."""
    asked = json.dumps(asdict(job(pack(), num_workers=2, start_method=method)))
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with Template() as template:
        seen: set[int] = set()

        def watch(event: str, pid: int, _: dict[str, Any]) -> None:
            if event == "first_batch":
                seen.update(process.pid for process in psutil.Process(pid).children(recursive=True))

        answer = template.run(asked, timeout_s=NEW_INTERPRETERS_S, watch=watch)
        assert answer.outcome == "ok", answer.message
        assert answer.left_processes == 0
        assert len(seen) == {"fork": 2, "spawn": 3, "forkserver": 4}[method]
        assert not any(psutil.pid_exists(pid) for pid in seen)
    assert {process.pid for process in psutil.Process().children(recursive=True)} == before
    startup_s = answer.result["row"]["startup_ns"] / 1e9
    assert startup_s > 1 or method == "fork"


TRAINING = """
import json, sys
import torch
from feedrate.trial import feed
from feedrate.trial.job import Job
if __name__ == "__main__":
    opened = feed.open_feed(Job(**json.loads(sys.argv[1])), torch.device("cpu"))
    print("ready", flush=True)
    while True:
        next(opened.batches)
"""


@pytest.mark.slow
@tried
@pytest.mark.parametrize("method", METHODS)
def test_workers_are_gone_when_the_training_process_is_killed(
    pack: Callable[..., str], tmp_path: Path, method: str
) -> None:
    """By SIGKILL, at which it can do nothing itself: within four seconds no worker, server or tracker is left."""
    asked = json.dumps(asdict(job(pack(), num_workers=2, start_method=method)))
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    command, environment = [sys.executable, os.fspath(script), asked], os.environ | {"PYTHONPATH": os.fspath(ROOT)}
    training = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    assert training.stdout is not None
    assert training.stdout.readline() == b"ready\n"
    training.stdout.close()
    family = psutil.Process(training.pid).children(recursive=True)
    training.kill()
    training.wait()
    until = time.monotonic() + 4
    while any(map(running, family)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(running, family))


def running(process: psutil.Process) -> bool:
    """Whether it still runs; the dead may wait to be reaped."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
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
    made = list(ThreadLoader([numbered] * workers, batches, ahead))
    assert delivered(iter(made)) == batches
    assert [batch.stamps for batch in made] == [f"loader worker {i % workers}".encode() for i in range(len(batches))]


def test_order_holds_where_a_worker_is_slow() -> None:
    """What another worker has ready waits for its turn."""

    def slow(indices: list[int]) -> Batch:
        time.sleep(0.02)
        return numbered(indices)

    batches = [[i] for i in range(9)]
    assert delivered(iter(ThreadLoader([slow, numbered, numbered], batches, 2))) == batches


def test_a_loader_is_iterated_again_and_again() -> None:
    """Each iteration asks the sampler anew, with threads of its own."""
    source = ThreadLoader([numbered] * 2, [[1], [2], [3]], 1)
    assert [delivered(iter(source)) for _ in range(2)] == [[[1], [2], [3]]] * 2


def test_no_more_than_the_stock_is_prepared_ahead() -> None:
    """Before the first batch is taken: ``ahead`` batches a worker; with each that is taken one more."""
    begun: list[int] = []

    def noted(indices: list[int]) -> Batch:
        begun.extend(indices)
        return numbered(indices)

    batches = iter(ThreadLoader([noted] * 3, ([i] for i in range(1000)), 2))
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
        counted = ThreadLoader([lambda _: Batch((), bytes([torch.get_num_threads()]))] * 3, [[0]] * 6, 1)
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
        found.extend(ThreadLoader([damaged] * 2, [[0], [1], [2], [3]], 2))
    assert delivered(iter(found)) == [[0], [1]]


def test_an_iterator_that_is_dropped_ends_its_threads() -> None:
    """Without end, with work dealt and work under way: nothing is left once nobody asks any more."""
    endless = iter(ThreadLoader([numbered] * 3, Batches(10, 2, 0), 4))
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
    _, dataset, collate = feed.samples(job(pack(), read_us=3000, collate_us=4000))
    batches = [[index] for index in range(24)]
    source = loader.build_threads(dataset, collate, batches=batches, num_workers=3, prefetch_factor=2, pin_memory=False)
    accounts = [STAMPS.unpack(batch.stamps) for batch in source]
    assert len(accounts) == 24
    assert min(account[0] for account in accounts) >= 1_500_000  # half of a wait may be taken off for one before it
    assert sorted(account[3] for account in accounts)[12] >= 4_000_000
    assert dataset.spent == [0, 0, 0]


@pytest.mark.parametrize("storage_format", READ_ONE_BY_ONE)
def test_threads_and_processes_give_the_same_batches(
    pack: Callable[..., str], fetch: Fetch, storage_format: str
) -> None:
    """Sample by sample and in order, for every format that is read one by one, all threads opening it at once."""

    def pixels(**cell: object) -> list[bytes]:
        batches = fetch(job(pack(storage_format), storage_format=storage_format, **cell), 12)
        return [batch.fields[0].numpy().tobytes() for batch in batches]

    by_threads = pixels(worker_kind="thread", num_workers=4, prefetch_factor=1)
    assert by_threads == pixels(num_workers=0)
    if storage_format == "lmdb":
        assert by_threads == pixels(num_workers=2, prefetch_factor=1)


def test_every_thread_has_a_dataset_of_its_own(pack: Callable[..., str]) -> None:
    """Copied together with the collation that closes its account; an index, which never changes, is shared."""
    _, indexed, collate = feed.samples(job(pack(), index_kind="list", index_entries=50))
    made = loader.build_threads(
        indexed, collate, batches=[[0]], num_workers=2, prefetch_factor=1, pin_memory=False
    )._workers
    first, second = ((worker._dataset, worker._collate) for worker in made)  # type: ignore[attr-defined]
    assert first[0].dataset is first[1]._dataset
    assert second[0].dataset is second[1]._dataset
    assert first[0].dataset is not second[0].dataset
    assert first[0].dataset._reader is not second[0].dataset._reader
    assert first[0].index is second[0].index is indexed.index
