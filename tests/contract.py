"""What tests of storage formats share: samples that tell their index, and ways to pack and read them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from feedrate.formats import LEAST_IMAGE, Manifest, Reader, ReadOptions, Sample, Stream
from feedrate.loaders import Batches, LoadOptions, StampedCollate, StampedDataset, StampedStream
from feedrate.schema.plugins import Traits, load, names, traits

SHAPES = ((16, 14, 3), (9, 11, 1), (5, 7, 3), (1, 2, 1))
"""Two images and two fields that are too small to be one; the last holds the sample's index."""
FORMATS = names("feedrate.formats")
SYNTHETIC = load("feedrate.workloads", "synthetic")
FEW = ("lmdb", "memmap", "webdataset")
"""A database, one file of pixels, a stream of image files."""
ALIKE = {"folder", "hdf5_chunks", "hdf5_plain", "jpeg", "lmdb_lz4", "lmdb_png", "tfrecord"}
"""Those that pack and read as png, hdf5, lmdb and webdataset do, with another codec, chunk or shard."""
UNLIKE = [name for name in FORMATS if name not in ALIKE]
ALL_BUT_FEW_SLOWLY = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in UNLIKE]
"""Where most would take long."""


def format_(name: str) -> ModuleType:
    """A format by its name."""
    return load("feedrate.formats", name)


def of(storage: ModuleType) -> Traits:
    """Traits of a format's module."""
    return traits(storage.__name__.rpartition(".")[2])


def photograph(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A smooth picture with a little noise, as lenses and sensors make them."""
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    planes = [
        128 + 50 * np.sin(rows / a + b) + 50 * np.cos(columns / c + b) + random.normal(0, 2, shape[:2])
        for a, b, c in random.uniform(4, 12, (shape[2], 3))
    ]
    return np.clip(np.stack(planes, axis=2), 0, 255).astype(np.uint8)


def make(count: int, shapes: tuple[tuple[int, ...], ...] = SHAPES, *, lossy: bool = False) -> list[Sample]:
    """Samples whose last two bytes tell their index: noise, which nothing compresses, or pictures."""
    random = np.random.default_rng(count)
    samples = [
        tuple(photograph(random, shape) if lossy else random.integers(0, 256, shape, np.uint8) for shape in shapes)
        for _ in range(count)
    ]
    for index, sample in enumerate(samples):
        sample[-1].reshape(-1)[-2:] = divmod(index, 256)
    return samples


def describe(root: Path, samples: list[Sample], count: int | None = None) -> None:
    """Write a manifest, as ``prepare`` does."""
    shapes = tuple(field.shape for field in samples[0])
    manifest = Manifest(len(samples) if count is None else count, shapes, 0, "", 1, 1, 0.0)
    (root / "manifest.json").write_text(json.dumps(asdict(manifest)))


def pack(storage: ModuleType | str, root: Path, samples: list[Sample], **options: Any) -> Any:
    """Pack samples, describe them and open them."""
    storage = format_(storage) if isinstance(storage, str) else storage
    root.mkdir(exist_ok=True)
    storage.pack(iter(samples), root)
    describe(root, samples)
    return again(storage, root, **options)


def again(storage: ModuleType, root: Path, **options: Any) -> Reader | Stream:
    """Open what was packed."""
    opened = storage.open(root, ReadOptions(**options))
    assert isinstance(opened, Stream if of(storage).streamed else Reader)
    return opened


def raws(opened: Reader | Stream) -> Iterator[Any]:
    """All samples as they come, not decoded."""
    if isinstance(opened, Stream):
        for shard in range(opened.shards):
            yield from opened.records(shard)
    else:
        yield from map(opened.read, range(len(opened)))


def unsorted(opened: Reader | Stream) -> Iterator[Sample]:
    """All samples as they come."""
    return map(opened.decode, raws(opened))


def everything(opened: Reader | Stream) -> list[Sample]:
    """All samples, in the order of a reader or of their indices."""
    return sorted(unsorted(opened), key=index_of) if isinstance(opened, Stream) else list(opened)


def index_of(sample: Sample) -> int:
    """Read the index out of a sample of ``make``."""
    high, low = sample[-1].reshape(-1)[-2:].tolist()
    return int(high) * 256 + int(low)


def equal(left: Sample, right: Sample) -> bool:
    """Whether two samples agree in every pixel."""
    return len(left) == len(right) and all(map(np.array_equal, left, right))


def _came_back(got: np.ndarray, packed: np.ndarray, bound: float) -> bool:
    if got.dtype != packed.dtype or got.shape != packed.shape:
        return False
    if bound and min(packed.shape[:2]) >= LEAST_IMAGE:
        return float(np.abs(got.astype(int) - packed.astype(int)).mean()) <= bound
    return bool(np.array_equal(got, packed))


def same(storage: ModuleType, got: list[Sample], packed: list[Sample]) -> bool:
    """Whether samples came back, as many, each field in its shape, type and, with the bound of the format, pixels."""
    bound = storage.MEAN_ERROR if of(storage).lossy else 0.0
    return len(got) == len(packed) and all(
        len(left) == len(right) and all(_came_back(a, b, bound) for a, b in zip(left, right, strict=True))
        for left, right in zip(got, packed, strict=True)
    )


def one_pass(opened: Reader | Stream, workers: int) -> list[int]:
    """Indices of one epoch as a trial's loader delivers them; fields stay as they are."""
    data: StampedDataset | StampedStream
    if isinstance(opened, Stream):
        data, batches = StampedStream(opened, tuple, seed=1, buffer=0, endless=False), None  # type: ignore[arg-type]
    else:
        data, batches = StampedDataset(opened, tuple), Batches(len(opened), 1, 1, endless=False)  # type: ignore[arg-type]
    options = LoadOptions(batch_size=1, num_workers=workers)
    loader = load("feedrate.loaders", "torch").build(data, StampedCollate(data), batches, options)
    return [index_of((label.numpy(),)) for batch in loader for label in batch.fields[-1]]


def packed_files(root: Path) -> list[Path]:
    """All packed files, the largest first."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "manifest.json")
    return sorted(files, key=lambda path: (-path.stat().st_size, path))


def flipped(data: bytes, place: int, bits: int = 0xFF) -> bytes:
    """Data with one byte changed."""
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]


def in_child(work: Callable[[], object]) -> tuple[int, str]:
    """Do something in a process that may die of it: its exit code, negative for a signal, and what came of it."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                answer = str(work())
            except BaseException as error:
                answer = f"{type(error).__name__} {getattr(error, 'errno', None)}: {error}"
            os.write(sender, answer.encode()[:4000])
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as answers:
        said = answers.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said
