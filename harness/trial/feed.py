"""Where a trial's batches come from: the DataLoader, or one resident batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

import torch

from harness import registry
from harness.formats import Manifest, Reader
from harness.trial import loader
from harness.trial.job import Job
from harness.trial.loader import Batch


@dataclass(frozen=True, slots=True)
class Feed:
    """Endless batches, and what it took to get the first."""

    batches: Iterator[Batch]
    startup_ns: int | None
    """From creating the iterator to holding the first batch; None where no loader runs."""
    manifest: Manifest


def open_feed(job: Job, device: torch.device) -> Feed:
    """Open the packed samples of a trial and start what delivers them."""
    reader = _reader(job)
    transform = registry.load("harness.workloads", job.value("workload")).transform
    dataset = loader.StampedDataset(reader, transform)
    if job.value("mode") in ("compute", "copy"):
        return Feed(repeat(_resident(job, device, dataset)), None, reader.manifest)
    source = loader.build(
        dataset,
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
    return Feed(chain([first], batches), startup_ns, reader.manifest)


def _reader(job: Job) -> Reader:
    reader: Reader = registry.load("harness.formats", job.value("storage_format")).open(Path(job.packed or ""))
    if job.value("read_us") or job.value("decode_us"):
        reader = loader.PlantedReader(reader, job.value("read_us"), job.value("decode_us"))
    return reader


def _resident(job: Job, device: torch.device, dataset: loader.StampedDataset) -> Batch:
    """One batch for ever: on the device (compute), or on the host, pinned or not (copy)."""
    indices = [i % len(dataset) for i in range(job.value("batch_size"))]
    batch = loader.StampedCollate(dataset)([dataset[i] for i in indices])
    if job.value("mode") == "compute":
        fields = tuple(field.to(device) for field in batch.fields)
    else:
        fields = tuple(field.pin_memory() if job.value("pin_memory") else field for field in batch.fields)
    return batch._replace(fields=fields)
