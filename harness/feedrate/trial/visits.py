"""Files of any size, decoded and cropped at random, each visit of a sample in its own way.

A visit is an epoch and a sample: the order of a trial counts on from epoch to epoch, so that a number in it tells both.
What is drawn for a visit follows from it and from the trial's seed: two settings see the same crops, whichever worker
prepares them and when. Workers decode (stage ``decode``), crop and resize (part of ``transform``).

Where the device decodes, a worker reads files and draws their crops. The batch is all its files, one after the other,
and a table: where each ends, its crop, and its class. Decoding, cropping and resizing follow in the place of the copy,
on its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import torch

from feedrate.formats import Image, Packed, Reader, Sample, Stream, decoders
from feedrate.formats.decoders import DecodeFile, Undecodable
from feedrate.loaders import Fields
from feedrate.schema import plugins
from feedrate.trial.job import Job
from feedrate.workloads._crops import resized

Visit = tuple[int, int, Any]
"""Epoch, sample, and what was read of it."""
COLUMNS = ("end", "top", "left", "height", "width", "flipped", "label_low", "label_high")
"""Of the table, int64."""


def of_files(job: Job) -> ModuleType | None:
    """The workload of a trial, where its samples are files of any size."""
    name = job.value("workload")
    return plugins.load("feedrate.workloads", name) if plugins.samples_of(name) == "files" else None


def wrap(job: Job, packed: Reader | Stream) -> Reader | Stream:
    """Have files decoded, and their crops drawn; samples of other workloads stay as they are."""
    workload = of_files(job)
    if workload is None:
        return packed
    scales = decoders.scales(job.value("decoder")) if job.value("scaled_decode") else ()
    drawing = _Drawing(workload.visit, job.value("decoder"), scales, job.value("patch_size"), job.seed)
    return _StreamedVisits(packed, drawing) if isinstance(packed, Stream) else _Visits(packed, drawing)


@dataclass(frozen=True, slots=True)
class _Drawing:
    """How the crops of visits are drawn, and files decoded."""

    visit: Callable[..., Any]
    """The workload's."""
    decoder: str
    scales: tuple[int, ...]
    size: int
    seed: int

    def __post_init__(self) -> None:
        self._decode()  # imported before workers are forked

    def _decode(self) -> DecodeFile:
        return ship if plugins.on_device(self.decoder) else decoders.load_for_files(self.decoder)

    def __call__(self, packed: Packed, visit: Visit) -> Sample:
        epoch, index, raw = visit
        sample = packed.decode(raw)
        random = Random((self.seed << 64) + (epoch << 32) + index)
        try:
            drawn: Sample = self.visit(sample, random, self._decode(), self.scales, self.size)
        except Undecodable as problem:
            raise packed.damage(str(problem), index, packed.root) from problem
        return drawn


class _Visits(Reader):
    """Files in any order."""

    def __init__(self, packed: Reader, drawing: _Drawing) -> None:
        super().__init__(packed.root)
        self._packed, self._drawing = packed, drawing

    def read(self, visit: int) -> Visit:
        epoch, index = divmod(visit, len(self))
        return epoch, index, self._packed.read(index)

    def decode(self, raw: Visit) -> Sample:
        return self._drawing(self._packed, raw)


class _StreamedVisits(Stream):
    """Files in the order of their shards."""

    def __init__(self, packed: Stream, drawing: _Drawing) -> None:
        super().__init__(packed.root)
        self._packed, self._drawing = packed, drawing
        self._epoch = 0

    @property
    def shards(self) -> int:
        return self._packed.shards

    def begin(self, epoch: int) -> None:
        self._epoch = epoch

    def records(self, shard: int) -> Iterator[Any]:
        return self._packed.records(shard)

    def decode(self, raw: Any) -> Sample:
        return self._drawing(self._packed, (self._epoch, raw[0], raw))


def ship(file: bytes, _height: int, _width: int, _scale: int) -> Image:
    """Hand on the bytes of a file in the place of its pixels."""
    return np.frombuffer(file, np.uint8)


def collate_files(samples: Sequence[Any], empty: Callable[..., torch.Tensor]) -> Fields:
    """Make a batch of visits that were not decoded: bytes of all files, and the table, batch × ``COLUMNS``."""
    ends = np.cumsum([len(sample.pixels) for sample in samples])
    files = empty((int(ends[-1]),), dtype=torch.uint8)
    np.concatenate([sample.pixels for sample in samples], out=files.numpy())
    rows = [(end, *map(int, s.crop), *s.label.reshape(-1).tolist()) for end, s in zip(ends, samples, strict=True)]
    return files, torch.tensor(np.array(rows, np.int64))


@dataclass(frozen=True, slots=True)
class DeviceDecoder:
    """Makes of such a batch, on the host, what ``transform`` gives for its samples, on a device."""

    decoder: str
    size: int
    """Height and width of the images."""
    normalize: Callable[..., Fields]
    """The workload's."""

    def __call__(self, fields: Fields, device: torch.device) -> Fields:
        """Decode, crop, resize and normalise: float32, batch × 3 × size × size, and int64 classes."""
        files, table = fields
        rows = table.tolist()
        ends = [row[0] for row in rows]
        encoded = [files[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        decoded = plugins.load(decoders.__name__, self.decoder).decode_all(encoded, device)
        crops = [
            resized(image[:, top : top + height, left : left + width], self.size, bool(flipped))
            for image, (_, top, left, height, width, flipped, *_) in zip(decoded, rows, strict=True)
        ]
        labels = table[:, -2:].to(torch.uint8).to(device)
        return self.normalize((torch.stack(crops), labels[..., None, None]))
