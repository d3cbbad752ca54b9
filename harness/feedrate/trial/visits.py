"""Files of any size, decoded and cropped at random in the workers, each visit of a sample in its own way.

A visit is an epoch and a sample: the order of a trial counts on from epoch to epoch, so that a place in it tells both.
What is drawn for a visit follows from it and from the trial's seed: two settings see the same crops, whichever worker
prepares them and when. Decoding is the stage ``decode``; the crop and its resizing are part of ``transform``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any

from feedrate.formats import Packed, Reader, Sample, Stream, damaged, decoders
from feedrate.formats.decoders import DecodeFile, Undecodable
from feedrate.schema import plugins
from feedrate.trial import device_decode
from feedrate.trial.job import Job

Visit = tuple[int, int, Any]
"""Epoch, sample, and what was read of it."""


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
    drawn = _Drawn(workload.visit, job.value("decoder"), scales, job.value("patch_size"), job.seed)
    return _StreamedVisits(packed, drawn) if isinstance(packed, Stream) else _Visits(packed, drawn)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """How visits are decoded."""

    visit: Callable[..., Any]
    """The workload's."""
    decoder: str
    scales: tuple[int, ...]
    size: int
    seed: int

    def __post_init__(self) -> None:
        self._decode()  # imported before workers are forked

    def _decode(self) -> DecodeFile:
        return device_decode.ship if plugins.on_device(self.decoder) else decoders.load_for_files(self.decoder)

    def __call__(self, packed: Packed, visit: Visit) -> Any:
        epoch, index, raw = visit
        sample = packed.decode(raw)
        random = Random((self.seed << 64) + (epoch << 32) + index)
        try:
            return self.visit(sample, random, self._decode(), self.scales, self.size)
        except Undecodable as problem:
            raise damaged(packed.root, problem, packed.root, index) from problem


class _Visits(Reader):
    """Files in any order."""

    def __init__(self, packed: Reader, drawn: _Drawn) -> None:
        super().__init__(packed.root)
        self._packed, self._drawn = packed, drawn

    def read(self, place: int) -> Visit:
        """Read the file of a place in the order."""
        epoch, index = divmod(place, len(self))
        return epoch, index, self._packed.read(index)

    def decode(self, raw: Visit) -> Sample:
        """Decode what the visit needs."""
        sample: Sample = self._drawn(self._packed, raw)
        return sample


class _StreamedVisits(Stream):
    """Files in the order of their shards."""

    def __init__(self, packed: Stream, drawn: _Drawn) -> None:
        super().__init__(packed.root)
        self._packed, self._drawn = packed, drawn
        self._epoch = 0

    @property
    def shards(self) -> int:
        """Files that can be read independently of each other."""
        return self._packed.shards

    def begin(self, epoch: int) -> None:
        """Note that another pass begins."""
        self._epoch = epoch

    def records(self, shard: int) -> Iterator[Visit]:
        """Read one shard."""
        epoch = self._epoch
        for record in self._packed.records(shard):
            yield epoch, record[0], record

    def decode(self, raw: Visit) -> Sample:
        """Decode what the visit needs."""
        sample: Sample = self._drawn(self._packed, raw)
        return sample
