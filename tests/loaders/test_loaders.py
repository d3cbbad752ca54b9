"""The promises of every loader, whatever its workers are; streams that workers share, and orders of samples."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from numbered import Pictures, fields
from PIL import Image
from torch.utils.data import default_collate

from feedrate.formats import Manifest, Sample, Stream
from feedrate.loaders import (
    NOBODY,
    STAMPS,
    Batch,
    Batches,
    LoadOptions,
    StampedCollate,
    StampedDataset,
    StampedStream,
)
from feedrate.schema import plugins
from feedrate.schema.axes import BY_NAME
from feedrate.schema.errors import DataError
from feedrate.trial import feed, prepare
from feedrate.trial.job import Job
from feedrate.workloads._classification import MEAN, STD

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
COUNT, SHARDS, SIZE = 60, 6, 5
LOADERS = [name for name in plugins.names("feedrate.loaders") if not plugins.loader_traits(name).streams]
STREAMING = [
    (name, storage_format)
    for name in plugins.names("feedrate.loaders")
    for storage_format in plugins.loader_traits(name).streams
    if not plugins.loader_traits(name).decodes
]
DECODING = [name for name in plugins.names("feedrate.loaders") if plugins.loader_traits(name).decodes]
DEFAULT = BY_NAME["loader"].default
SPAWNING = {name for name in LOADERS if plugins.loader_traits(name).spawns}
"""That takes seconds a worker."""
WITH_WORKERS = [
    pytest.param(loader, workers, marks=[pytest.mark.slow] * (loader in SPAWNING))
    for loader in LOADERS
    for workers in ((1,) if loader in SPAWNING else (1, 3))
]
OF_THREADS = [name for name in LOADERS if plugins.loader_traits(name).workers == "threads"]
FAILING = [(DEFAULT, 0), *((name, workers) for name in OF_THREADS for workers in (1, 3))]
FAILING += [
    pytest.param(name, 1 if name in SPAWNING else 2, marks=pytest.mark.slow)
    for name in LOADERS
    if name not in OF_THREADS
]
READ_ONE_BY_ONE = [name for name in plugins.names("feedrate.formats") if not plugins.traits(name).streamed]
PLANTED = {"read_us": 1, "decode_us": 1, "collate_us": 1, "payload_bytes": 8, "read_shape": "jittered"}


def loaded(
    loader: str, workers: int, order: Iterable[list[int]], *, damaged: int | None = None, **knobs: Any
) -> Iterable[Batch]:
    """Build a loader over pictures."""
    dataset = StampedDataset(Pictures(damaged), fields)
    options = LoadOptions(batch_size=SIZE, num_workers=workers, **knobs)
    return plugins.load("feedrate.loaders", loader).build(dataset, StampedCollate(dataset), order, options)  # type: ignore[no-any-return]


@cache
def begun(loader: str) -> None:
    """Use a loader once: some start what they keep for the process, such as a resource tracker."""
    next(iter(loaded(loader, 1, [[0]])))


@pytest.fixture
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test there is no thread and no process more than before, once nobody holds the traceback."""
    begun(request.getfixturevalue("loader"))

    def alive() -> set[Any]:
        multiprocessing.active_children()  # some loaders leave it to this to wait for workers that ended
        return {*threading.enumerate(), *psutil.Process().children(recursive=True)}

    before = alive()
    yield
    gc.collect()
    until = time.monotonic() + 5
    while not alive() <= before and time.monotonic() < until:
        time.sleep(0.01)
    assert alive() <= before


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("loader", "workers"), [(DEFAULT, 0), *WITH_WORKERS])
def test_batches_are_what_a_plain_loop_makes_of_them(loader: str, workers: int) -> None:
    """Every sample once a pass, in the order that was asked for, of the same shapes and types, pass after pass."""
    order = Batches(COUNT, SIZE, seed=1)
    asked = list(islice(order, 2 * COUNT // SIZE))
    for batch, indices in zip(loaded(loader, workers, order), asked, strict=False):
        expected = default_collate([fields(Pictures()[index]) for index in indices])
        assert [field.dtype for field in batch.fields] == [torch.float32, torch.int64]
        assert all(map(torch.equal, batch.fields, expected))
        *spent, begun, ended, worker = STAMPS.unpack(batch.stamps)
        assert 0 < sum(spent) <= ended - begun
        assert worker in (range(workers) if workers else [NOBODY])
    everything = list(chain.from_iterable(asked))
    assert sorted(everything[:COUNT]) == sorted(everything[COUNT:]) == list(range(COUNT))


@pytest.mark.parametrize(
    ("loader", "workers"), [(DEFAULT, 0), *((name, 1) for name in LOADERS if name not in SPAWNING)]
)
def test_each_iteration_is_an_epoch_that_ends(loader: str, workers: int) -> None:
    """One order is delivered again and again; an epoch may be empty."""
    source = loaded(loader, workers, [[3, 1], [2, 0]])
    assert [[batch.fields[1].tolist() for batch in source] for _ in range(2)] == [[[3, 1], [2, 0]]] * 2
    assert list(loaded(loader, workers, [])) == []


def test_ranks_share_every_batch() -> None:
    """Each gets its share of each batch, in step; all of them together have the batch."""
    first, second, plain = (
        list(islice(Batches(COUNT, 2 * SIZE, seed=1, rank=rank, ranks=ranks), 2 * COUNT // (2 * SIZE)))
        for rank, ranks in ((0, 2), (1, 2), (0, 1))
    )
    assert {len(share) for share in first + second} == {SIZE}
    assert [sorted(mine + theirs) for mine, theirs in zip(first, second, strict=True)] == list(map(sorted, plain))


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("loader", "workers"), FAILING)
def test_an_error_is_raised_where_its_batch_is_waited_for(loader: str, workers: int) -> None:
    """After the batches before it, of its own class, with the line that raised it."""
    source, batches = loaded(loader, workers, [[0], [1], [2], [3]], damaged=2), []
    with pytest.raises(DataError, match=r"pixels\.bin: damaged") as caught:
        batches.extend(source)  # what came before the error is kept
    assert [batch.fields[1].item() for batch in batches] == [0, 1]
    assert "in decode" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("storage_format", READ_ONE_BY_ONE)
def test_every_loader_gives_the_same_batches(
    job: Callable[..., Job], fetch: Callable[[Job, int], list[Batch]], storage_format: str
) -> None:
    """Of every format that is read one by one, all threads opening it at once; processes open what is pickled."""

    def pixels(**axes: object) -> list[bytes]:
        return [batch.fields[0].numpy().tobytes() for batch in fetch(job(storage_format=storage_format, **axes), 12)]

    expected = pixels(num_workers=0)
    for loader in sorted({*LOADERS} - SPAWNING) if storage_format == "lmdb" else ("threads",):
        assert pixels(loader=loader, num_workers=4, prefetch_factor=1) == expected


@pytest.mark.parametrize(("loader", "storage_format"), STREAMING)
@pytest.mark.parametrize("buffer", [0, 20])
def test_a_loader_that_streams_has_every_sample_once(
    job: Callable[..., Job], fetch: Callable[[Job, int], list[Batch]], loader: str, storage_format: str, buffer: int
) -> None:
    """The same as are read one by one, pass after pass, whichever worker has them; a buffer changes their order."""

    def pixels(count: int, **axes: object) -> list[bytes]:
        batches = fetch(job(batch_size=4, num_workers=2, **axes), count)
        return [picture.numpy().tobytes() for batch in batches for picture in batch.fields[0]]

    expected = pixels(6, storage_format="png")
    streamed = pixels(12, storage_format=storage_format, loader=loader, access="sequential", shuffle_buffer=buffer)
    assert sorted(streamed[: len(expected)]) == sorted(streamed[len(expected) :]) == sorted(expected)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Job]:
    """Makes jobs of 24 photographs, each of a class of its own, as a loader that decodes gets them."""
    folder = tmp_path_factory.mktemp("photographs")
    random = np.random.default_rng(1)
    for number in range(24):
        (folder / "files" / f"{number:02d}").mkdir(parents=True)
        coarse = Image.fromarray(random.integers(0, 255, (6, 8, 3), np.uint8))
        coarse.resize((80, 60), Image.Resampling.BICUBIC).save(folder / "files" / f"{number:02d}" / "a.jpg")

    def make(**axes: object) -> Job:
        cell = {"workload": "imagefolder", "mode": "load", "patch_size": 32, "n_samples": 24, "batch_size": 4}
        cell |= {"access": "sequential"} | axes
        job = Job("trial", cell=cell, data_root=str(folder), source=str(folder / "files"), seed=3)
        storage_format = str(cell["storage_format"])
        prepare.prepare(job.data_spec(), storage_format, folder, lambda _done, _total: None)
        return replace(job, packed=str(prepare.dataset_root(folder, job.data_spec(), storage_format)))

    return make


@pytest.mark.parametrize(("loader", "storage_format"), STREAMING)
def test_a_loader_that_streams_files_sees_the_same_crops(
    photographs: Callable[..., Job], fetch: Callable[[Job, int], list[Batch]], loader: str, storage_format: str
) -> None:
    """Of every photograph and in every pass those that a loader sees that reads one by one."""

    def pictures(**axes: object) -> list[int]:  # their hashes: pytest shows for minutes how long bytes differ
        batches = fetch(photographs(collate="fast", normalize_on="none", **axes), 12)
        return [hash(picture.numpy().tobytes()) for batch in batches for picture in batch.fields[0]]

    expected = pictures(storage_format="folder", access="random")
    streamed = pictures(storage_format=storage_format, loader=loader, num_workers=2)
    assert set(expected[:24]).isdisjoint(expected[24:])
    assert sorted(streamed[:24]) == sorted(expected[:24])
    assert sorted(streamed[24:]) == sorted(expected[24:])


@pytest.mark.parametrize("loader", DECODING)
@pytest.mark.parametrize("buffer", [0, 10])
def test_a_loader_that_decodes_makes_the_same_of_files(
    photographs: Callable[..., Job], fetch: Callable[[Job, int], list[Batch]], loader: str, buffer: int
) -> None:
    """Every file once a pass, shapes and types of PyTorch's; pixels whose mean and spread are those of its crops."""
    trait = plugins.loader_traits(loader)
    floats = trait.delivers == "floats"
    delivers = {"collate": "totensor"} if floats else {"collate": "fast", "normalize_on": "none"}

    def batches(**axes: object) -> list[Batch]:
        cell = {"num_workers": 2, "shuffle_buffer": buffer, "storage_format": trait.streams[0]} | delivers | axes
        return fetch(photographs(**cell), 120)

    ours, theirs = batches(), batches(loader=loader)
    for mine, other in zip(ours, theirs, strict=True):
        assert [(field.shape, field.dtype) for field in mine.fields] == [(f.shape, f.dtype) for f in other.fields]
    classes = [int(label[0]) for batch in theirs for label in batch.fields[1].view(4, -1)]
    assert all(sorted(classes[first : first + 24]) == list(range(24)) for first in range(0, len(classes), 24))
    assert (classes[:24] == sorted(classes[:24])) == (not buffer)
    pixels, expected = (torch.cat([batch.fields[0] for batch in some]).float() for some in (theirs, ours))
    if floats:
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
        pixels, expected = pixels * std + mean, expected * std + mean
    assert float(pixels.mean()) == pytest.approx(float(expected.mean()), rel=0.02)
    assert float(pixels.std()) == pytest.approx(float(expected.std()), rel=0.03)


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
    options = LoadOptions(batch_size=5, num_workers=workers)
    for batch in plugins.load("feedrate.loaders", "torch").build(dataset, StampedCollate(dataset), None, options):
        yield batch.fields[0].flatten().tolist()


@pytest.mark.parametrize(("workers", "buffer"), [(0, 7), (0, 1000), (1, 0), (3, 7)])
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


@pytest.mark.parametrize("storage_format", plugins.names("feedrate.formats"))
def test_all_that_a_worker_needs_survives_a_pickle(job: Callable[..., Job], storage_format: str) -> None:
    """Of every format, with planted costs and an index where they can be, opened before or not."""
    access = {"access": "sequential"} if storage_format in ("tfrecord", "webdataset") else {"index_kind": "numpy"}
    cell = {"storage_format": storage_format, "index_entries": 48, **access, **PLANTED}
    _, *pair = feed.open_samples(job(**cell))

    def batch(dataset: Any, collate: Any) -> bytes:
        stream = isinstance(dataset, StampedStream)
        taken = list(islice(dataset, 3)) if stream else [dataset[i] for i in (0, 5, 23)]
        return collate(taken).fields[0].numpy().tobytes()

    expected = batch(*pickle.loads(pickle.dumps(pair)))
    assert batch(*pair) == expected
    assert batch(*pickle.loads(pickle.dumps(pair))) == expected
