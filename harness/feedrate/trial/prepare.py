"""Packing a workload's samples in a storage format, once, so that what lies under ``data/`` is either whole or absent.

Samples are packed into a folder beside the final one; shapes, count and hash are taken as the samples pass by; what
was written is forced to disk, described in ``manifest.json``, read back in part, and only then renamed.

A set that is there already is read once, whole, before anything is measured on it: a byte that changed since it was
packed is found by its checksum, and the set is packed anew. Formats without checksums of their own rely on that.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np

from feedrate.downloads.crop_set import RECORD
from feedrate.formats import LEAST_IMAGE, Image, Manifest, ReadOptions, Sample, Stream
from feedrate.machine import linux
from feedrate.schema import plugins
from feedrate.schema.errors import DataError, InputError
from feedrate.trial import folders
from feedrate.workloads import DataSpec
from feedrate.workloads._photos import list_images

Progress = Callable[[int, int], None]
"""Called with (samples packed, samples in all), at most 20 times a second and once at the end."""

_PROGRESS_S = 0.05


def dataset_root(data_root: Path, spec: DataSpec, storage_format: str) -> Path:
    """Name the folder of a packed data set, such as ``div2k_standin-p64-x2-n1024/png``.

    Where photographs come from a folder, the name ends in a hash of its path and of the names, sizes and times of
    change of its images, so that a folder that changed is packed anew.

    Raises:
        InputError: the folder of photographs is missing or empty.
    """
    scale = f"-x{spec.scale}" if spec.scale != 1 else ""
    source = f"-{_fingerprint(spec.source)}" if spec.source is not None else ""
    return data_root / f"{spec.workload}-p{spec.patch_size}{scale}-n{spec.n_samples}{source}" / storage_format


def _fingerprint(folder: Path) -> str:
    record = folder / RECORD
    if record.is_file():  # says what its thousands of files are
        listing: object = record.read_text(encoding="utf-8")
    else:
        stats = [(name.as_posix(), (folder / name).stat()) for name in list_images(folder)]
        listing = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return hashlib.sha256(json.dumps([os.fspath(folder.resolve()), listing]).encode()).hexdigest()[:8]


def prepare(spec: DataSpec, storage_format: str, data_root: Path, progress: Progress) -> Manifest:
    """Make sure that the samples of a spec are packed in a format.

    Raises:
        InputError: an unknown or uninstalled workload or format, or photographs that cannot be used.
        EnvironmentFault: the disk is full, or the folder cannot be written.
        DataError: reading back did not give what was packed.
    """
    workload = plugins.load("feedrate.workloads", spec.workload)
    storage = plugins.load("feedrate.formats", storage_format)
    root = dataset_root(data_root, spec, storage_format)
    task = f"while packing {spec.n_samples} samples of {spec.workload} as {storage_format}"
    try:
        found, damage = _whole(root, spec, workload, storage)
    except OSError as error:
        raise folders.fault(error, root, task) from error
    if found:
        return found
    with folders.building(root, task) as temp:
        found, _ = _whole(root, spec, workload, storage)
        if found:  # another process was faster
            return found
        manifest = _fill(temp, spec, workload, storage, progress, damage)
        folders.install(temp, root)
    return manifest


def _whole(
    root: Path, spec: DataSpec, workload: ModuleType, storage: ModuleType
) -> tuple[Manifest | None, tuple[str, ...]]:
    """Look for a folder that needs no packing: right versions and count, and not a byte changed."""
    try:
        manifest = Manifest.load(root)
    except DataError:
        return None, ()
    found = (manifest.count, manifest.workload_version, manifest.format_version)
    if found != (spec.n_samples, workload.VERSION, storage.VERSION):
        return None, ()
    if manifest.checksum and (manifest.bytes, manifest.checksum) != folders.summed(root):
        return None, (f"{storage.__name__.rpartition('.')[2]}: the packed samples were damaged and are packed anew",)
    return (manifest, ()) if manifest.checksum else (None, ())


class _Observed:
    """Passes samples on, once, and keeps what the manifest and the check need to know about them."""

    def __init__(self, samples: Iterable[Sample], total: int, progress: Progress) -> None:
        self.samples, self.total, self.progress = samples, total, progress
        self.count = 0
        self.hash = hashlib.sha256()
        self.first: Sample = ()
        self.last: Sample = ()

    def __iter__(self) -> Iterator[Sample]:
        self.progress(0, self.total)
        told = time.perf_counter()
        for sample in self.samples:
            if self.count == 0:
                self.first = sample
            if _shapes(sample) != _shapes(self.first):
                raise DataError(f"sample {self.count} has shapes {_shapes(sample)}, the first {_shapes(self.first)}")
            for field in sample:
                self.hash.update(field.tobytes())
            yield sample
            self.last = sample
            self.count += 1
            if time.perf_counter() - told >= _PROGRESS_S and self.count < self.total:
                self.progress(self.count, self.total)
                told = time.perf_counter()
        self.progress(self.count, self.total)


def _shapes(sample: Sample) -> tuple[tuple[int, ...], ...]:
    return tuple(field.shape for field in sample)


def _fill(
    temp: Path, spec: DataSpec, workload: ModuleType, storage: ModuleType, progress: Progress, notes: Sequence[str]
) -> Manifest:
    """Pack into an empty folder, force it to disk, describe it, and read the first and last sample back."""
    started = time.perf_counter()
    source = workload.samples(spec)
    seen = _Observed(source.samples, spec.n_samples, progress)
    storage.pack(seen, temp)
    if seen.count != spec.n_samples:
        raise InputError(f"{spec.workload}: has {seen.count} samples, n_samples asks for {spec.n_samples}")
    linux.sync_tree(temp)
    took = time.perf_counter() - started
    size, checksum = folders.summed(temp)
    manifest = Manifest(
        count=seen.count,
        shapes=_shapes(seen.first),
        bytes=size,
        data_hash=seen.hash.hexdigest()[:16],
        workload_version=workload.VERSION,
        format_version=storage.VERSION,
        pack_s=round(took, 3),
        notes=(*notes, *source.notes),
        checksum=checksum,
    )
    (temp / "manifest.json").write_text(json.dumps(asdict(manifest), indent=1), encoding="utf-8")
    linux.sync(temp / "manifest.json")
    linux.sync(temp)
    _compare(storage, temp, seen)
    return manifest


def _compare(storage: ModuleType, root: Path, seen: _Observed) -> None:
    """Read the first and last sample back: a format that gives back something else is not measured."""
    reader = storage.open(root, ReadOptions())
    if isinstance(reader, Stream):
        pairs = [(0, reader.decode(next(reader.records(0))), seen.first)]
    else:
        pairs = [(0, reader[0], seen.first), (seen.count - 1, reader[seen.count - 1], seen.last)]
    bound = getattr(storage, "MEAN_ERROR", 0.0)
    for index, back, packed in pairs:
        if _shapes(back) != _shapes(packed) or not all(map(partial(_alike, bound), back, packed)):
            raise DataError(f"{root}: sample {index} was packed but does not come back the same; report this format")


def _alike(bound: float, back: Image, packed: Image) -> bool:
    """Whether a field came back, an image on average within ``bound`` levels."""
    image = min(packed.shape[:2]) >= LEAST_IMAGE
    return bool(np.abs(back.astype(np.int16) - packed).mean() <= (bound if image else 0))
