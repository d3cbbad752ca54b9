"""Where a trial's batches come from: the loader, or resident batches.

Real epochs: a loader whose iterator is made anew every so many batches, as ``for batch in loader`` does. What an
epoch's border costs is paid where a training script pays it: in the wait for the first batch of the next epoch. Epochs
deal out one endless order, each the next part of it: batches are the same in the same order whatever their length is.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import chain, cycle, islice
from pathlib import Path

import torch

from feedrate.formats import Manifest, Reader, ReadOptions, Stream
from feedrate.loaders import Batch, Batches, LoadOptions, StampedCollate, StampedDataset, StampedStream
from feedrate.machine import linux
from feedrate.schema import plugins, window
from feedrate.schema.errors import InputError
from feedrate.trial import cache, collate, distributed, page_cache, plants, visits
from feedrate.trial.index import IndexedDataset, build_index
from feedrate.trial.job import Job

PINNED_BATCHES = 4
"""Pinned batches that a copy alone takes in turn; a device reads memory past the host's cache."""

Samples = StampedDataset | StampedStream | IndexedDataset


@dataclass(frozen=True, slots=True)
class EpochSampler:
    """Batches of indices for one epoch at every iteration: a ``batch_sampler``."""

    batches: Iterator[list[int]]
    steps: int

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self.batches, self.steps)


@dataclass(slots=True)
class Epochs:
    """The batches of one epoch after the other, without end."""

    loader: Iterable[Batch]
    begun: int = 0
    """Epochs whose first batch was asked for."""

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self.begun += 1
            yield from self.loader


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
    cached_share: float | None = None
    """Of what the window reads, in the page cache before it was opened; None where no loader runs."""
    most_steps: int | None = None
    """Steps that a window may have where a sample may be read once only."""
    settled_ns: int = 0
    """Settling the page cache, filling a cache on disk and building an index; no part of any measured time."""
    epochs: Epochs | None = None
    """Counts the epochs that begin; None where batches come without end."""


def open_feed(job: Job, device: torch.device) -> Feed:
    """Open the packed samples of a trial and start what delivers them."""
    settling = time.perf_counter_ns()
    with_loader = job.value("mode") not in ("compute", "copy")
    if with_loader:
        fill_bytes = job.value("memory_limit_mib") << 20
        cached_share = page_cache.settle(job.packed_root, job.value("page_cache"), fill_bytes)
    manifest, dataset, collation = open_samples(job)
    if not with_loader:
        resident = _resident_batches(job, device, dataset, collation)
        return Feed(cycle(resident), None, manifest, _bytes(resident[0]))
    if job.value("cache") != "none":
        cached_share = page_cache.settle(window_folder(job), job.value("page_cache"))
    settled_ns = time.perf_counter_ns() - settling
    most_steps = _most_steps(job, manifest.count, dataset) if job.single_pass else None
    loader = build_loader(job, dataset, collation, _sampler(job, dataset, manifest.count))
    epochs = Epochs(loader) if job.value("epoch_steps") else None
    begun = time.perf_counter_ns()
    batches: Iterator[Batch] = iter(epochs or loader)
    if normalizer := collate.normalizer(job, "host"):
        batches = (batch._replace(fields=normalizer(batch.fields)) for batch in batches)
    first = next(batches)
    startup_ns = time.perf_counter_ns() - begun
    delivered = chain([first], batches)
    return Feed(delivered, startup_ns, manifest, _bytes(first), cached_share, most_steps, settled_ns, epochs)


def open_samples(job: Job) -> tuple[Manifest, Samples, StampedCollate]:
    """Open the packed samples of a trial or its cache, planted costs around them, and what makes batches of them."""
    reader = visits.wrap(job, open_packed(job))
    transform, collation = collate.build(job)
    transform, collation = plants.transform(job, transform), plants.collate(job, collation)
    if isinstance(reader, Stream):
        shards, workers = reader.shards, job.value("num_workers")
        if shards < workers:
            raise InputError(f"{job.packed_root}: {shards} shards for {workers} workers; expected one for each")
        buffer = job.value("shuffle_buffer")
        stream = StampedStream(reader, transform, seed=job.seed, buffer=buffer, endless=not job.single_pass)
        return reader.manifest, stream, StampedCollate(stream, collation)
    items, transform, collation = cache.replace_with_cache(job, plants.reader(job, reader), transform, collation)
    stamped = StampedDataset(items, transform)
    dataset: Samples = stamped
    if job.value("index_kind") != "none":
        dataset = IndexedDataset(stamped, build_index(job.value("index_kind"), job.value("index_entries")))
    return reader.manifest, dataset, StampedCollate(stamped, collation)


def open_packed(job: Job) -> Reader | Stream:
    """Open the packed samples of a trial as its cell says, without anything planted."""
    options = ReadOptions(job.value("decoder"), job.value("readahead"), job.value("swmr"))
    storage = plugins.load("feedrate.formats", job.value("storage_format"))
    packed: Reader | Stream = storage.open(job.packed_root, options)
    return packed


def window_folder(job: Job) -> Path:
    """Folder that a trial reads in its window: the packed samples, or its cache."""
    return job.packed_root if job.value("cache") == "none" else cache.folder(job)


def build_loader(
    job: Job, dataset: Samples, collation: StampedCollate, batches: Iterable[list[int]] | None
) -> Iterable[Batch]:
    """Assemble the loader that a cell names, over batches of indices or, without them, over a stream."""
    options = LoadOptions(**{field.name: job.value(field.name) for field in fields(LoadOptions)})
    plugin = plugins.load("feedrate.loaders", job.value("loader"))
    loader: Iterable[Batch] = plugin.build(dataset, collation, batches, options)
    return loader


def _sampler(job: Job, dataset: Samples, count: int) -> Iterable[list[int]] | None:
    """The order of a trial's samples, an epoch at a time or without end; a stream has its own."""
    if isinstance(dataset, StampedStream):
        return None
    endless, steps = batch_order(job, count), job.value("epoch_steps")
    return EpochSampler(iter(endless), steps) if steps else endless


def batch_order(job: Job, count: int) -> Batches:
    """The order of a trial's samples, in batches of this process."""
    if job.value("index_kind") != "none":
        count = job.value("index_entries")
    rank, ranks = distributed.rank_and_world()
    size = job.value("batch_size") * job.value("world_size")
    if job.value("cache") == "batch":  # what is ordered are the whole batches, one for every replica
        count, size = cache.batch_count(job, count), job.value("world_size")
    return Batches(
        count,
        size,
        job.seed,
        shuffled=job.value("access") == "random",
        endless=not job.single_pass,
        rank=rank,
        ranks=ranks,
        visits=visits.of_files(job) is not None,
    )


def _most_steps(job: Job, count: int, dataset: Samples) -> int:
    """Steps of a window in which no sample is read twice."""
    shards = dataset.shards if isinstance(dataset, StampedStream) else None
    size, workers, ahead = job.value("batch_size"), job.value("num_workers"), job.value("prefetch_factor")
    access = job.value("access")
    steps = window.steps_once(window.batches_once(count, size, workers, access, shards), workers, ahead)
    if steps < window.whole(job.min_steps, workers):
        raise InputError(
            f"{job.packed_root}: {count} samples are too few to read each once only (page_cache = cold); expected "
            f"{window.samples_once(size, workers, ahead, job.min_steps, access)} or more. Raise n_samples, or lower "
            "batch_size"
        )
    return steps


def planted_read_ns(job: Job, before: int, batches: int) -> int | None:
    """Sum up what the reads of a stretch of batches were planted to wait, as their order follows from the seed."""
    if not job.value("read_us") or job.value("cache") != "none":
        return None
    count: int = job.value("n_samples")
    waits = plants.read_waits_ns(job, count)
    stretch = islice(batch_order(job, count), before, before + batches)
    return sum(waits[index % count] for batch in stretch for index in batch)


def _bytes(batch: Batch) -> int:
    return sum(field.nbytes for field in batch.fields)


def _resident_batches(job: Job, device: torch.device, dataset: Samples, collation: StampedCollate) -> list[Batch]:
    """What comes in turn for ever: one batch on the device (compute), or batches on the host (copy)."""
    size = job.value("batch_size")
    if isinstance(dataset, StampedStream):
        batch = collation(list(islice(dataset, size)))
    else:
        batch = collation([dataset[i % len(dataset)] for i in range(size)])
    if job.value("mode") == "compute":
        return [batch._replace(fields=tuple(field.to(device) for field in batch.fields))]
    count = max(2, linux.last_level_cache_bytes() // _bytes(batch) + 1)
    if pinned := job.value("pin_memory"):
        count = min(count, PINNED_BATCHES)
    copies = zip(*(_copies(field, count, pinned) for field in batch.fields), strict=True)
    return [batch._replace(fields=tensors) for tensors in copies]


def _copies(field: torch.Tensor, count: int, pinned: bool) -> tuple[torch.Tensor, ...]:
    """Copies of a tensor in memory as a loader hands it over, pinned or shared, so that the host's cache has none."""
    if pinned:
        memory = torch.empty(count * field.numel(), dtype=field.dtype, pin_memory=True)
    else:
        # Not share_memory_(): /dev/shm may be smaller than the cache.
        memory = torch.frombuffer(mmap.mmap(-1, count * field.nbytes), dtype=field.dtype)
    copies = memory.as_strided((count, *field.shape), (field.numel(), *field.stride()))
    return copies.copy_(field).unbind()
