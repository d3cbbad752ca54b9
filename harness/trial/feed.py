"""Where a trial's batches come from: the DataLoader, or one resident batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path

import torch
from torch.utils.data import default_collate

from harness import registry
from harness.formats import Manifest, Reader
from harness.trial import loader
from harness.trial.job import Job
from harness.trial.loader import Batch
from harness.trial.planted import Plants


@dataclass(frozen=True, slots=True)
class Feed:
    """Endless batches, and what it took to get the first."""

    batches: Iterator[Batch]
    startup_ns: int | None
    """From creating the iterator to holding the first batch; None where no loader runs."""
    manifest: Manifest
    batch_bytes: int
    """Of the tensors of a batch."""


def open_feed(job: Job, device: torch.device) -> Feed:
    """Open the packed samples of a trial and start what delivers them."""
    manifest, dataset, collate = samples(job)
    if job.value("mode") in ("compute", "copy"):
        resident = _resident(job, device, dataset, collate)
        return Feed(repeat(resident), None, manifest, _bytes(resident))
    source = loader.build(
        dataset,
        collate,
        batch_size=job.value("batch_size"),
        num_workers=job.value("num_workers"),
        prefetch_factor=job.value("prefetch_factor") if job.value("num_workers") else None,
        pin_memory=job.value("pin_memory"),
        seed=job.seed,
    )
    begun = time.perf_counter_ns()
    batches: Iterator[Batch] = iter(source)
    first = next(batches)
    startup_ns = time.perf_counter_ns() - begun
    return Feed(chain([first], batches), startup_ns, manifest, _bytes(first))


def _bytes(batch: Batch) -> int:
    return sum(field.nbytes for field in batch.fields)


def samples(job: Job) -> tuple[Manifest, loader.StampedDataset, loader.StampedCollate]:
    """Open the packed samples of a trial, its planted costs around them, and what makes batches of them."""
    plants = Plants.of(job)
    reader = _reader(job)
    transform = registry.load("harness.workloads", job.value("workload")).transform
    dataset = loader.StampedDataset(reader, plants.transform(transform))
    return reader.manifest, dataset, loader.StampedCollate(dataset, plants.collate(default_collate))


def planted_read_ns(job: Job, before: int, batches: int) -> int | None:
    """Sum up what the reads of a stretch of batches were planted to wait.

    Where waits vary, a stretch seldom has their mean. As the order of samples follows from the seed, its truth can be
    told exactly.

    Args:
        job: the trial.
        before: batches that were delivered before the stretch.
        batches: in the stretch.

    Returns:
        Nanoseconds of all samples; None where no wait is planted.
    """
    if not job.value("read_us"):
        return None
    count = job.value("n_samples")
    waits = Plants.of(job).waits_ns(count)
    order = loader.EndlessBatches(count, job.value("batch_size"), job.seed)
    return sum(waits[index] for batch in islice(order, before, before + batches) for index in batch)


def _reader(job: Job) -> Reader:
    reader: Reader = registry.load("harness.formats", job.value("storage_format")).open(Path(job.packed or ""))
    return Plants.of(job).reader(reader)


def _resident(job: Job, device: torch.device, dataset: loader.StampedDataset, collate: loader.StampedCollate) -> Batch:
    """One batch for ever: on the device (compute), or on the host, pinned or not (copy)."""
    indices = [i % len(dataset) for i in range(job.value("batch_size"))]
    batch = collate([dataset[i] for i in indices])
    if job.value("mode") == "compute":
        fields = tuple(field.to(device) for field in batch.fields)
    else:
        fields = tuple(field.pin_memory() if job.value("pin_memory") else field for field in batch.fields)
    return batch._replace(fields=fields)
