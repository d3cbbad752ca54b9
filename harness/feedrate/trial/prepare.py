"""Packing a workload's samples in a storage format, once, so that what lies under ``data/`` is either whole or absent.

What belongs into a folder is written beside it, under a name that holds this machine and process; it is forced to disk,
described in ``manifest.json``, read back in part, and only then renamed. What a killed process left is removed by the
next one. A set that is there already is read once, whole, before anything is measured on it: a byte that changed since
it was packed is found by its checksum, and the set is packed anew. Formats without checksums of their own rely on that.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from feedrate.downloads.crops import RECORD
from feedrate.formats import LEAST_IMAGE, Image, Manifest, ReadOptions, Sample, Stream, shapes_of
from feedrate.machine import linux
from feedrate.schema import plugins
from feedrate.schema.errors import DataError, EnvironmentFault, InputError
from feedrate.workloads import DataSpec
from feedrate.workloads._photos import list_images

Progress = Callable[[int, int], None]
"""Called with (samples packed, samples in all), at most 20 times a second and once at the end."""
_PROGRESS_S = 0.05
_CHUNK = 1 << 20


def dataset_root(data_root: Path, spec: DataSpec, storage_format: str) -> Path:
    """Name the folder of a packed data set, such as ``div2k_standin-p64-x2-n1024/png``.

    Where photographs come from a folder, the name ends in a hash of its path and of the names, sizes and times of
    change of its images, so that a folder that changed is packed anew.
    """
    scale = f"-x{spec.scale}" if spec.scale != 1 else ""
    source = f"-{_fingerprint(spec.source)}" if spec.source is not None else ""
    return data_root / f"{spec.workload}-p{spec.patch_size}{scale}-n{spec.n_samples}{source}" / storage_format


def _fingerprint(folder: Path) -> str:
    record = folder / RECORD
    if record.is_file():  # describes its thousands of files
        listing: object = record.read_text(encoding="utf-8")
    else:
        stats = [(name.as_posix(), (folder / name).stat()) for name in list_images(folder)]
        listing = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return hashlib.sha256(json.dumps([os.fspath(folder.resolve()), listing]).encode()).hexdigest()[:8]


def prepare(spec: DataSpec, storage_format: str, data_root: Path, progress: Progress) -> Manifest:
    """Make sure that the samples of a spec are packed in a format, and that they come back as they were packed."""
    workload = plugins.load("feedrate.workloads", spec.workload)
    storage = plugins.load("feedrate.formats", storage_format)
    root = dataset_root(data_root, spec, storage_format)

    def described() -> Manifest | None:
        """The manifest of a set of the right versions and count."""
        manifest = Manifest.load(root)
        versions = (manifest.count, manifest.workload_version, manifest.format_version)
        return manifest if versions == (spec.n_samples, workload.VERSION, storage.VERSION) else None

    def fill(temp: Path, damaged: bool) -> Manifest:
        note = f"{storage_format}: the packed samples were damaged and are packed anew"
        return _fill(temp, spec, workload, storage, progress, (note,) if damaged else ())

    return make_once(
        root, f"while packing {spec.n_samples} samples of {spec.workload} as {storage_format}", described, fill
    )


class _Observer:
    """Passes samples on, once, and keeps what the manifest and the check need to know about them."""

    def __init__(self, samples: Iterable[Sample], total: int, progress: Progress) -> None:
        self.samples, self.total, self.progress = samples, total, progress
        self.count, self.hash = 0, hashlib.sha256()
        self.first: Sample = ()
        self.last: Sample = ()

    def __iter__(self) -> Iterator[Sample]:
        self.progress(0, self.total)
        reported = time.perf_counter()
        for sample in self.samples:
            if self.count == 0:
                self.first = sample
            if shapes_of(sample) != shapes_of(self.first):
                raise DataError(f"sample {self.count} has shapes {shapes_of(sample)}, not {shapes_of(self.first)}")
            for field in sample:
                self.hash.update(field.tobytes())
            yield sample
            self.last = sample
            self.count += 1
            if time.perf_counter() - reported >= _PROGRESS_S and self.count < self.total:
                self.progress(self.count, self.total)
                reported = time.perf_counter()
        self.progress(self.count, self.total)


def _fill(
    temp: Path, spec: DataSpec, workload: ModuleType, storage: ModuleType, progress: Progress, notes: tuple[str, ...]
) -> Manifest:
    """Pack into an empty folder, force it to disk, describe it, and read the first and last sample back."""
    started = time.perf_counter()
    source = workload.samples(spec)
    observer = _Observer(source.samples, spec.n_samples, progress)
    storage.pack(observer, temp)
    if observer.count != spec.n_samples:
        raise InputError(f"{spec.workload}: has {observer.count} samples, n_samples asks for {spec.n_samples}")
    linux.sync_tree(temp)
    manifest = write_manifest(
        temp,
        count=observer.count,
        shapes=shapes_of(observer.first),
        data_hash=observer.hash.hexdigest()[:16],
        workload_version=workload.VERSION,
        format_version=storage.VERSION,
        pack_s=round(time.perf_counter() - started, 3),
        notes=(*notes, *source.notes),
    )
    _read_back(storage, temp, observer)
    return manifest


def _read_back(storage: ModuleType, root: Path, observer: _Observer) -> None:
    """Compare the first and last sample with what was packed: a format that changes them is not measured."""
    reader, last = storage.open(root, ReadOptions()), observer.count - 1
    if isinstance(reader, Stream):
        pairs = [(0, reader.decode(next(reader.records(0))), observer.first)]
    else:
        pairs = [(0, reader[0], observer.first), (last, reader[last], observer.last)]
    bound = getattr(storage, "MEAN_ERROR", 0.0)
    for index, back, packed in pairs:
        if not all(same_image(bound, *fields) for fields in zip(back, packed, strict=True)):
            raise DataError(f"{root}: sample {index} was packed but does not come back the same; report this format")


def same_image(bound: float, back: Image, packed: Image) -> bool:
    """Whether a field came back: an image on average within ``bound`` levels, anything smaller exactly."""
    if back.shape != packed.shape:
        return False
    is_image = packed.ndim > 1 and min(packed.shape[:2]) >= LEAST_IMAGE
    return bool(np.abs(back.astype(np.int16) - packed).mean() <= (bound if is_image else 0))


def make_once(
    root: Path, task: str, described: Callable[[], Manifest | None], fill: Callable[[Path, bool], Manifest]
) -> Manifest:
    """Fill a folder unless it is ``described`` as wanted and whole; processes that want it wait for each other.

    ``fill`` gets an empty folder, and whether the one that is described as wanted is damaged.
    """
    prefix = f".{root.name}.{hashlib.sha256(platform.node().encode()).hexdigest()[:6]}."
    temp = root.parent / f"{prefix}{os.getpid()}.tmp"
    with _disk_faults(root, task), ExitStack() as stack:
        if manifest := _whole(root, described)[0]:
            return manifest
        stack.callback(shutil.rmtree, temp, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(root.parent, os.O_RDONLY)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)  # it ends with this process, however that ends
        manifest, damaged = _whole(root, described)
        if not manifest:  # else another process was faster
            _remove_stale(root.parent, prefix)
            temp.mkdir()
            manifest = fill(temp, damaged)
            aside = temp.with_suffix(".old.tmp")
            if root.exists():
                root.rename(aside)
            temp.rename(root)
            linux.sync(root.parent)
            shutil.rmtree(aside, ignore_errors=True)
    return manifest


def _whole(root: Path, described: Callable[[], Manifest | None]) -> tuple[Manifest | None, bool]:
    """The manifest of a folder in which no byte has changed; else whether one has."""
    manifest = None
    with suppress(DataError):  # there is none, or it cannot be read
        manifest = described()
    if not manifest or not manifest.checksum:
        return None, False
    damaged = (manifest.bytes, manifest.checksum) != _size_and_checksum(root)
    return None if damaged else manifest, damaged


def _remove_stale(folder: Path, prefix: str) -> None:
    """Remove what processes of this machine left that are gone (or had our own number in an earlier life)."""
    for path in folder.glob(f"{prefix}*.tmp"):
        pid = path.name.removeprefix(prefix).split(".")[0]
        if pid == str(os.getpid()) or not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _disk_faults(root: Path, task: str) -> Iterator[None]:
    """Say what a disk refuses, and what to do about it."""
    try:
        yield
    except OSError as error:
        locked = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        advice = "make it writable" if locked else "free some space there"
        raise EnvironmentFault(
            f"{root.parent}: {error.strerror or error} {task}; {advice}, or choose another folder with --data-root"
        ) from error


def write_manifest(folder: Path, **fields: Any) -> Manifest:
    """Describe a filled folder in ``manifest.json`` and force that to disk; bytes and checksum are the files' own."""
    size, checksum = _size_and_checksum(folder)
    manifest = Manifest(bytes=size, checksum=checksum, **fields)
    (folder / "manifest.json").write_text(json.dumps(asdict(manifest), indent=1), encoding="utf-8")
    linux.sync(folder / "manifest.json")
    linux.sync(folder)
    return manifest


def _size_and_checksum(root: Path) -> tuple[int, str]:
    """Add up the bytes of all files but the manifest, and their checksum."""
    size = checksum = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path == root / "manifest.json":
                continue
            checksum = zlib.crc32(path.relative_to(root).as_posix().encode(), checksum)
            with path.open("rb", buffering=0) as file:
                while chunk := file.read(_CHUNK):
                    size += len(chunk)
                    checksum = zlib.crc32(chunk, checksum)
    return size, f"{checksum:08x}"
