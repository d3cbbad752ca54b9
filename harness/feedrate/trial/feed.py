"""Where a trial's batches come from: the DataLoader, or one resident batch.

Real epochs: a loader whose iterator is made anew every so many batches, as ``for batch in loader`` does.

What an epoch's border costs, workers that end and workers that start, or that are told to go on, is paid where a
training script pays it: in the wait for the first batch of the next epoch.

Epochs deal out one endless order, each the next part of it. So the batches are the same ones in the same order whatever
the length of an epoch is, and whether its workers are kept; and an epoch as long as the set is one new permutation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import torch

from feedrate.formats import Manifest, Reader, ReadOptions, Stream
from feedrate.schema import plugins, window
from feedrate.schema.errors import InputError
from feedrate.trial import cache, distributed, index, loader, page_cache, threads
from feedrate.trial import collate as trial_collate
from feedrate.trial.index import IndexedDataset
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch, Batches, StampedDataset, StampedStream
from feedrate.trial.plants import Plants


class EpochBatches:
    """Batches of indices for one epoch at every iteration: a ``batch_sampler``."""

    def __init__(self, batches: Iterable[list[int]], steps: int) -> None:
        """Cut an order into epochs."""
        self._batches = iter(batches)
        self._steps = steps

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self._batches, self._steps)


class Epochs:
    """The batches of one epoch after the other, without end."""

    def __init__(self, source: Iterable[Batch]) -> None:
        """Begin no epoch yet."""
        self._source = source
        self.begun = 0
        """Epochs whose first batch was asked for."""

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self.begun += 1
            yield from self._source


@dataclass(frozen=True, slots=True)
class Feed:
    """Batches, and what it took to get the first."""

    batches: Iterator[Batch]
    """Endless, unless a sample may be read once only."""
    startup_ns: int | None
    """From creating the iterator to holding the first batch; None where no loader runs."""
    manifest: Manifest
    batch_bytes: int
    """Of the tensors of a batch."""
    cached: float | None = None
    """Share of what the window reads in the page cache before it was opened; None where no loader runs."""
    most_steps: int | None = None
    """Steps that a window may have where a sample may be read once only."""
    settled_ns: int = 0
    """Settling the page cache, filling a cache on disk and building an index; no part of any measured time."""
    epochs: Epochs | None = None
    """Counts the epochs that begin; None where batches come without end."""


def open_feed(job: Job, device: torch.device) -> Feed:
    """Open the packed samples of a trial and start what delivers them.

    Raises:
        DataError: the page cache is not in the state that the cell asks for, or the samples are damaged.
        InputError: more workers than the samples have shards, or too few samples to read each once only.
    """
    if job.value("mode") in ("compute", "copy"):
        manifest, dataset, collate = samples(job)
        resident = _resident(job, device, dataset, collate)
        return Feed(repeat(resident), None, manifest, _bytes(resident))
    settling = time.perf_counter_ns()
    cached = page_cache.settle(packed(job), job.value("page_cache"))
    manifest, dataset, collate = samples(job)
    if read_from(job) != packed(job):
        cached = page_cache.settle(read_from(job), job.value("page_cache"))
    read = indexed(job, dataset)
    settled_ns = time.perf_counter_ns() - settling
    most_steps = _most_steps(job, dataset) if once(job) else None
    source = _source(job, read, collate, manifest.count)
    epochs = Epochs(source) if job.value("epoch_steps") else None
    begun = time.perf_counter_ns()
    batches: Iterator[Batch] = iter(epochs or source)
    if finish := trial_collate.on_host(job):
        batches = trial_collate.finished(batches, finish)
    first = next(batches)
    startup_ns = time.perf_counter_ns() - begun
    delivered = chain([first], batches)
    return Feed(delivered, startup_ns, manifest, _bytes(first), cached, most_steps, settled_ns, epochs)


def indexed(job: Job, dataset: StampedDataset | StampedStream) -> StampedDataset | StampedStream | IndexedDataset:
    """Put what a dataset keeps of every entry before it, where the cell asks for that."""
    if job.value("index_kind") == "none" or isinstance(dataset, StampedStream):
        return dataset
    return IndexedDataset(dataset, index.build(job.value("index_kind"), job.value("index_entries")))


def _source(
    job: Job, dataset: StampedDataset | StampedStream | IndexedDataset, collate: loader.StampedCollate, count: int
) -> Iterable[Batch]:
    """Assemble the loader that a cell names: threads, or PyTorch's own; an iteration is an epoch, or has no end."""
    batches: Iterable[list[int]] | None = None
    if not isinstance(dataset, StampedStream):
        whole, steps = order(job, count), job.value("epoch_steps")
        batches = EpochBatches(whole, steps) if steps else whole
    workers = job.value("num_workers")
    common: dict[str, Any] = {
        "batches": batches,
        "num_workers": workers,
        "prefetch_factor": job.value("prefetch_factor") if workers else None,
        "pin_memory": job.value("pin_memory"),
    }
    if workers and job.value("worker_kind") == "thread":
        return threads.build(dataset, collate, **common)
    return loader.build(
        dataset,
        collate,
        batch_size=job.value("batch_size"),
        start_method=job.value("start_method"),
        persistent_workers=job.value("persistent_workers"),
        **common,
    )


def packed(job: Job) -> Path:
    """Folder of the packed samples of a trial."""
    return Path(job.packed or "")


def read_from(job: Job) -> Path:
    """Folder that a trial reads in its window: the packed samples, or its cache."""
    return packed(job) if job.value("cache") == "none" else cache.folder(job)


def once(job: Job) -> bool:
    """Whether a trial may read every sample once only."""
    return bool(job.value("page_cache") == "cold")


def order(job: Job, count: int) -> Iterable[list[int]]:
    """The order of a trial's samples, in batches of this process."""
    shuffled = job.value("access") == "random"
    if job.value("index_kind") != "none":
        count = job.value("index_entries")
    size = job.value("batch_size") * job.value("world_size")
    if job.value("cache") == "batch":  # what is ordered are the whole batches, one for every replica
        count, size = cache.batches_in(job, count), job.value("world_size")
    return distributed.of(job).share(Batches(count, size, job.seed, shuffled=shuffled, endless=not once(job)))


def _most_steps(job: Job, dataset: StampedDataset | StampedStream) -> int:
    shards = dataset.shards if isinstance(dataset, StampedStream) else None
    size, workers, ahead = job.value("batch_size"), job.value("num_workers"), job.value("prefetch_factor")
    steps = window.steps_once(window.batches_once(len(dataset), size, workers, shards), workers, ahead)
    if steps < window.whole(job.min_steps, workers):
        raise InputError(
            f"{packed(job)}: {len(dataset)} samples are too few to read each once only (page_cache = cold); expected "
            f"{window.samples_once(size, workers, ahead, job.min_steps)} or more. Raise n_samples, or lower batch_size"
        )
    return steps


def _bytes(batch: Batch) -> int:
    return sum(field.nbytes for field in batch.fields)


def samples(job: Job) -> tuple[Manifest, StampedDataset | StampedStream, loader.StampedCollate]:
    """Open the packed samples of a trial, its planted costs around them, and what makes batches of them.

    Where the cell asks for a cache, it is filled if it is not there, and stands in their place.
    """
    plants = Plants.of(job)
    reader = opened(job)
    each, together = trial_collate.ways(job)
    transform, collate = plants.transform(each), plants.collate(together)
    dataset: StampedDataset | StampedStream
    if isinstance(reader, Stream):
        if reader.shards < job.value("num_workers"):
            raise InputError(
                f"{packed(job)}: {reader.shards} shards for {job.value('num_workers')} workers; expected one for each"
            )
        buffer = job.value("shuffle_buffer")
        dataset = StampedStream(reader, transform, seed=job.seed, buffer=buffer, endless=not once(job))
    else:
        items, transform, collate = cache.cached(job, plants.reader(reader), transform, collate)
        dataset = StampedDataset(items, transform)
    return reader.manifest, dataset, loader.StampedCollate(dataset, collate)


def opened(job: Job) -> Reader | Stream:
    """Open the packed samples of a trial as its cell says, without anything planted."""
    options = ReadOptions(job.value("decoder"), job.value("readahead"), job.value("swmr"))
    found: Reader | Stream = plugins.load("feedrate.formats", job.value("storage_format")).open(packed(job), options)
    return found


def planted_read_ns(job: Job, before: int, batches: int) -> int | None:
    """Sum up what the reads of a stretch of batches were planted to wait.

    Where waits vary, a stretch seldom has their mean. As the order of samples follows from the seed, its truth can be
    told exactly.
    """
    if not job.value("read_us") or job.value("cache") != "none":
        return None
    count: int = job.value("n_samples")
    waits = Plants.of(job).waits_ns(count)
    return sum(waits[place % count] for batch in islice(order(job, count), before, before + batches) for place in batch)


def _resident(
    job: Job, device: torch.device, dataset: StampedDataset | StampedStream, collate: loader.StampedCollate
) -> Batch:
    """One batch for ever: on the device (compute), or on the host, pinned or not (copy)."""
    size = job.value("batch_size")
    if isinstance(dataset, StampedStream):
        batch = collate(list(islice(dataset, size)))
    else:
        batch = collate([dataset[i % len(dataset)] for i in range(size)])
    if job.value("mode") == "compute":
        fields = tuple(field.to(device) for field in batch.fields)
    else:
        fields = tuple(field.pin_memory() if job.value("pin_memory") else field for field in batch.fields)
    return batch._replace(fields=fields)
