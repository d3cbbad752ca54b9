"""What was prepared once and is read from disk afterwards (``cache``): samples as the transform made them, or batches.

- ``sample``: what a worker hands to its collation, in the order of the set. The same seed gives the same batches as
  without the cache, bit for bit.
- ``batch``: what a worker hands to the training process. Which samples make a batch is drawn once, with a seed of its
  own: **shuffling is given up within batches**, which come in a new order every epoch.

A cache lies beside the packed sets it was made from, in a folder ``cache``, one for every way of making it: the axes
that change what is in it, or how long filling it takes. The first trial that wants it fills it before anything is
timed, at the price of everything that is planted. It is one file of raw records, in the storage format ``memmap``, and
appears as a whole. One that was made from other samples, by another version, or has a changed byte is filled anew.

It does *not* save memory or disk: floats take four times the bytes of the pixels that they were made from.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch

from feedrate.formats import Manifest, PixelReader, Reader, ReadOptions, Sample, memmap
from feedrate.loaders import Batches, Collate, Fields, Transform
from feedrate.machine import linux
from feedrate.schema.errors import DataError, InputError
from feedrate.trial import collate, prepare
from feedrate.trial.job import Job

VERSION = 1
"""Raised when the bytes on disk change."""
_ALIGNED = 64
"""Fields begin at multiples of so many bytes in a record: of any number, and of a cache line."""
_SEED = 0
"""Of the draw that makes batches: one for all trials, which share them."""
_SAMPLE = ("storage_format", "decoder", "readahead", "swmr", "read_us", "read_shape", "decode_us", "payload_bytes")
_MADE_BY = {
    "sample": (*_SAMPLE, "collate"),
    "batch": (*_SAMPLE, "collate", "collate_us", "normalize_on", "batch_size", "access"),
}
"""Axes that change what is cached or how long filling takes; those of the samples themselves name the folder above."""
_CONTENTS = "cache.json"


@dataclass(frozen=True, slots=True)
class Field:
    """Where one tensor lies in a record: its bytes from ``start`` to ``end``, and how PyTorch calls its type."""

    start: int
    end: int
    dtype: str
    shape: tuple[int, ...]

    def view(self, record: torch.Tensor) -> torch.Tensor:
        """View the tensor in a record: uint8, from the beginning of its memory on."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        where = record.untyped_storage(), self.start // dtype.itemsize, self.shape
        # One operation, in half the time of a slice and two views: a cached sample has little else to wait for.
        return cast(torch.Tensor, torch.empty(0, dtype=dtype).set_(*where))  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a cache holds and was made from; beside the manifest that the format needs."""

    made_from: dict[str, str | int]
    """Versions of what made it, and checksum of the packed samples."""
    fields: tuple[Field, ...]
    fill_ns: int
    """Preparing all items, writing them and forcing them to disk."""

    @classmethod
    def load(cls, root: Path) -> Contents:
        """Read a cache's description; a DataError where there is none, or it cannot be understood."""
        path = root / _CONTENTS
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            fields = tuple(Field(**{**field, "shape": tuple(field["shape"])}) for field in raw["fields"])
            return cls(raw["made_from"], fields, raw["fill_ns"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}: not a readable cache ({error}); delete {root} and run again") from error


class CachedItems(Reader):
    """Random access to what a cache holds: samples, or whole batches."""

    def __init__(self, root: Path, *, batches: bool) -> None:
        """Open a cache, without touching its records."""
        super().__init__(root)
        self._records = cast(PixelReader, memmap.open(root, ReadOptions()))
        self._fields = Contents.load(root).fields
        self._size = _align(self._fields[-1].end)
        self._batches = batches

    def read(self, index: int) -> torch.Tensor:
        """Copy record ``index`` into new memory: uint8, one dimension."""
        size = (self._size,)
        record = collate.buffer(size, torch.uint8) if self._batches else torch.empty(size, dtype=torch.uint8)
        self._records.read_into(index, record.numpy())
        return record

    def decode(self, raw: torch.Tensor) -> Any:
        """View the tensors of a record; nothing is left to compute."""
        return tuple(field.view(raw) for field in self._fields)


def folder(job: Job) -> Path:
    """Name the folder of a trial's cache, such as ``…/cache/png-sample-3f1c08d2a9b4``."""
    kind = job.value("cache")
    axes = json.dumps({axis: job.value(axis) for axis in _MADE_BY[kind]}, sort_keys=True)
    name = f"{job.value('storage_format')}-{kind}-{hashlib.sha256(axes.encode()).hexdigest()[:12]}"
    return job.packed_root.parent / "cache" / name


def columns(job: Job) -> dict[str, int]:
    """Give the record's columns about a trial's cache; none where nothing is cached."""
    if job.value("cache") == "none":
        return {}
    root = folder(job)
    return {"cache_fill_ns": Contents.load(root).fill_ns, "cache_bytes": Manifest.load(root).bytes}


def replace_with_cache(
    job: Job, reader: Reader, transform: Transform, collation: Collate
) -> tuple[Reader, Transform, Collate]:
    """Put a trial's cache, if its cell asks for one, in the place of what it spares; fill it where it is not there."""
    kind = job.value("cache")
    if kind == "none":
        return reader, transform, collation
    packed, root = reader.manifest, folder(job)
    made_from: dict[str, str | int] = {
        "version": VERSION,
        "torch": str(torch.__version__),
        "workload_version": packed.workload_version,
        "format_version": packed.format_version,
        "data_hash": packed.data_hash,
        "checksum": packed.checksum,
    }
    count = batch_count(job, len(reader)) if kind == "batch" else len(reader)

    def described() -> Manifest | None:
        """The manifest of a cache of the right versions, samples and count."""
        manifest = Manifest.load(root)
        return manifest if (Contents.load(root).made_from, manifest.count) == (made_from, count) else None

    def fill(temp: Path, _damaged: bool) -> Manifest:
        items = _batches(job, reader, transform, collation) if kind == "batch" else map(transform, reader)
        return _fill(temp, items, made_from, packed, count)

    prepare.make_once(root, f"while caching {count} {kind} items of {job.value('workload')}", described, fill)
    return CachedItems(root, batches=kind == "batch"), collate.identity, _join if kind == "batch" else collation


def batch_count(job: Job, count: int) -> int:
    """Count the whole batches of a set."""
    size, replicas = job.value("batch_size"), job.value("world_size")
    if count < size * replicas:
        raise InputError(
            f"{job.packed}: {count} samples make no {replicas} × {size} for a step; expected {size * replicas} or more "
            "for cache = batch. Raise n_samples, or lower batch_size"
        )
    return int(count // size)


def _join(batches: list[Fields]) -> Fields:
    """Hand on the batch that was read; where this process feeds several replicas, join theirs."""
    return batches[0] if len(batches) == 1 else tuple(map(torch.cat, zip(*batches, strict=True)))


def _batches(job: Job, reader: Sequence[Sample], transform: Transform, collation: Collate) -> Iterator[Fields]:
    shuffled = job.value("access") == "random"
    for indices in Batches(len(reader), job.value("batch_size"), _SEED, shuffled=shuffled, endless=False):
        yield tuple(collation([transform(reader[index]) for index in indices]))


def _fill(temp: Path, items: Iterator[Any], made_from: dict[str, str | int], packed: Manifest, count: int) -> Manifest:
    """Write all items into an empty folder, force them to disk and describe them."""
    begun = time.perf_counter_ns()
    first = next(items)
    fields = layout(first)
    memmap.pack((record(item, fields) for item in chain([first], items)), temp)
    linux.sync_tree(temp)
    contents = Contents(made_from, fields, time.perf_counter_ns() - begun)
    (temp / _CONTENTS).write_text(json.dumps(asdict(contents), indent=1), encoding="utf-8")
    linux.sync(temp / _CONTENTS)
    return prepare.write_manifest(
        temp,
        count=count,
        shapes=((_align(fields[-1].end),),),
        data_hash=packed.data_hash,
        workload_version=packed.workload_version,
        format_version=memmap.VERSION,
        pack_s=round(contents.fill_ns / 1e9, 3),
    )


def _align(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def layout(item: Sequence[Any]) -> tuple[Field, ...]:
    """Lay the tensors or arrays of an item out in a record."""
    fields, start = [], 0
    for tensor in map(torch.as_tensor, item):
        end, dtype = start + tensor.nbytes, str(tensor.dtype).removeprefix("torch.")
        fields.append(Field(start, end, dtype, tuple(tensor.shape)))
        start = _align(end)
    return tuple(fields)


def record(item: Sequence[Any], fields: tuple[Field, ...]) -> Sample:
    """Write the tensors or arrays of an item into a record."""
    if layout(item) != fields:
        raise DataError(f"an item has fields {layout(item)}, the first {fields}; report this workload")
    target = torch.zeros(_align(fields[-1].end), dtype=torch.uint8)
    for field, tensor in zip(fields, item, strict=True):
        field.view(target).copy_(torch.as_tensor(tensor))
    return (target.numpy(),)
