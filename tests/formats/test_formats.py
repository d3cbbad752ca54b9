"""The contract that every storage format keeps, over all formats that are found."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from harness.errors import DataError
from harness.formats import Manifest, Reader, Sample
from harness.registry import load, names

SHAPES = ((12, 10, 3), (5, 7, 3), (4, 4, 1))


@pytest.fixture(params=names("harness.formats"))
def storage(request: pytest.FixtureRequest) -> ModuleType:
    """Each format in turn."""
    return load("harness.formats", request.param)


def make(count: int, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[Sample]:
    """Random samples whose first two bytes tell their index."""
    random = np.random.default_rng(count)
    samples = [tuple(random.integers(0, 256, shape, np.uint8) for shape in shapes) for _ in range(count)]
    for index, sample in enumerate(samples):
        sample[0].reshape(-1)[:2] = divmod(index, 256)
    return samples


def describe(root: Path, samples: list[Sample]) -> None:
    """Write a manifest, as ``prepare`` does."""
    manifest = Manifest(len(samples), tuple(field.shape for field in samples[0]), 0, "", 1, 1, 0.0)
    (root / "manifest.json").write_text(json.dumps(asdict(manifest)))


def pack(storage: ModuleType, root: Path, samples: list[Sample]) -> Reader:
    """Pack samples and open them."""
    root.mkdir(exist_ok=True)
    storage.pack(iter(samples), root)
    describe(root, samples)
    reader = storage.open(root)
    assert isinstance(reader, Reader)
    return reader


def index_of(sample: Sample) -> int:
    """Read the index out of a sample of ``make``."""
    high, low = sample[0].reshape(-1)[:2].tolist()
    return int(high) * 256 + int(low)


def same(left: Sample, right: Sample) -> bool:
    """Whether two samples agree in every field, shape and type."""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(left, right, strict=True)
    )


def largest(root: Path) -> Path:
    """The largest packed file."""
    return max((path for path in root.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def test_gives_back_what_was_packed(storage: ModuleType, tmp_path: Path) -> None:
    """Order, count, shapes, dtype and every pixel survive, for fields of different shapes and one to three channels."""
    samples = make(40)
    reader = pack(storage, tmp_path, samples)
    assert len(reader) == 40
    assert all(same(reader[index], sample) for index, sample in enumerate(samples))
    assert all(same(got, sample) for got, sample in zip(reader[10:20:3], samples[10:20:3], strict=True))


def test_index_out_of_range(storage: ModuleType, tmp_path: Path) -> None:
    """A reader is a sequence: it ends with IndexError, so that iterating over it ends too."""
    reader = pack(storage, tmp_path, make(3))
    for index in (3, -1):
        with pytest.raises(IndexError):
            reader[index]
    assert [index_of(sample) for sample in reader] == [0, 1, 2]


def test_caller_owns_memory(storage: ModuleType, tmp_path: Path) -> None:
    """Arrays are writable, torch takes them without a warning, and writing into one changes nothing that is stored."""
    samples = make(2)
    reader = pack(storage, tmp_path, samples)
    got = reader[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for field in got:
            torch.from_numpy(field).zero_()
    assert same(reader[1], samples[1])


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_sample_once(storage: ModuleType, tmp_path: Path, workers: int) -> None:
    """However many workers load, an epoch holds every sample exactly once."""
    reader = pack(storage, tmp_path, make(50))
    loader = DataLoader(reader, batch_size=4, num_workers=workers, shuffle=True, collate_fn=list)  # type: ignore[arg-type]
    assert sorted(index_of(sample) for batch in loader for sample in batch) == list(range(50))


def test_pickles(storage: ModuleType, tmp_path: Path) -> None:
    """A reader that was used can be sent to a process that was not forked, and carries no pixels."""
    samples = make(20)
    reader = pack(storage, tmp_path, samples)
    assert same(reader[7], samples[7])
    sent = pickle.dumps(reader)
    assert len(sent) < 2000
    assert same(pickle.loads(sent)[7], samples[7])


def test_survives_fork_after_use(storage: ModuleType, tmp_path: Path) -> None:
    """Readers that the parent used work in forked workers and, after those ended, in the parent again."""
    samples = make(30)
    first, second = pack(storage, tmp_path, samples), storage.open(tmp_path)
    assert same(first[3], second[3])
    for reader in (first, second):
        loader = DataLoader(reader, batch_size=1, num_workers=2, collate_fn=lambda batch: batch[0])
        assert [index_of(sample) for sample in loader] == list(range(30))
    assert same(first[29], samples[29])
    assert same(second[0], samples[0])


def test_two_readers(storage: ModuleType, tmp_path: Path) -> None:
    """Two readers of one folder work side by side, and each outlives the other."""
    samples = make(5)
    first, second = pack(storage, tmp_path, samples), storage.open(tmp_path)
    assert same(first[4], second[4])
    del first
    assert same(second[2], samples[2])


def test_folder_packed_anew(storage: ModuleType, tmp_path: Path) -> None:
    """A new reader sees what was packed last, also while a reader of the folder's earlier life is alive."""
    old = pack(storage, tmp_path / "set", make(5))
    assert index_of(old[1]) == 1
    (tmp_path / "set").rename(tmp_path / "aside")
    samples = make(6)
    new = pack(storage, tmp_path / "set", samples)
    assert same(new[5], samples[5])
    assert same(new[1], samples[1])


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.95])
def test_truncated_file(storage: ModuleType, tmp_path: Path, kept: float) -> None:
    """A file that lost its end gives a DataError that names it and says what to do; the process lives."""
    reader = pack(storage, tmp_path, make(10, ((32, 32, 3), (32, 32, 3))))
    path = largest(tmp_path)
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * kept))
    with pytest.raises(DataError, match="run again") as caught:
        list(reader)
    assert path.name in str(caught.value)


def test_missing_file(storage: ModuleType, tmp_path: Path) -> None:
    """A file that is gone gives a DataError that names it."""
    reader = pack(storage, tmp_path, make(3))
    path = largest(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=path.name):
        list(reader)


def test_overwritten_file(storage: ModuleType, tmp_path: Path) -> None:
    """A file with other content gives a DataError."""
    reader = pack(storage, tmp_path, make(3))
    path = largest(tmp_path)
    path.write_bytes(b"not what was packed" * 1000)
    with pytest.raises(DataError, match=path.name):
        list(reader)


def test_manifest_disagrees(storage: ModuleType, tmp_path: Path) -> None:
    """Samples of another size or number than the manifest says are refused, never reshaped into something else."""
    pack(storage, tmp_path, make(3, ((8, 8, 3),)))
    describe(tmp_path, make(3, ((8, 9, 3),)))
    with pytest.raises(DataError, match="run again"):
        storage.open(tmp_path)[0]
    describe(tmp_path, make(4, ((8, 8, 3),)))
    with pytest.raises(DataError, match="run again"):
        storage.open(tmp_path)[3]


def test_half_packed(storage: ModuleType, tmp_path: Path) -> None:
    """When the source of samples breaks, its error comes through and what was written cannot be opened."""

    def breaking() -> Iterator[Sample]:
        yield from make(5)
        raise RuntimeError("source broke")

    with pytest.raises(RuntimeError, match="source broke"):
        storage.pack(breaking(), tmp_path)
    with pytest.raises(DataError, match="manifest"):
        storage.open(tmp_path)


def test_lmdb_map_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set larger than LMDB's first map, and a value larger than it, are packed whole, as are 300 samples."""
    lmdb = importlib.import_module("harness.formats.lmdb")
    monkeypatch.setattr(lmdb, "MAP_BYTES", 1 << 16)
    monkeypatch.setattr(lmdb, "BATCH_BYTES", 1 << 14)
    for name, samples in (("many", make(300, ((40, 40, 3),))), ("large", make(2, ((400, 400, 3),)))):
        reader = pack(lmdb, tmp_path / name, samples)
        assert all(same(reader[index], sample) for index, sample in enumerate(samples))


def test_lmdb_opens_in_each_process(tmp_path: Path) -> None:
    """A forked worker opens an environment of its own instead of using the one that it inherited."""
    reader = pack(importlib.import_module("harness.formats.lmdb"), tmp_path, make(2))
    assert index_of(reader[1]) == 1

    def opener(batch: list[Sample]) -> tuple[int, int]:
        return reader._held.pid, os.getpid()  # type: ignore[attr-defined]

    for opened_by, worker in DataLoader(reader, batch_size=1, num_workers=2, collate_fn=opener):
        assert opened_by == worker != os.getpid()
    assert reader._held.pid == os.getpid()  # type: ignore[attr-defined]


def test_png_folders_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder holds more files than the limit, whatever the number of fields."""
    png = importlib.import_module("harness.formats.png")
    assert png.FILES_PER_FOLDER == 1000
    monkeypatch.setattr(png, "FILES_PER_FOLDER", 10)
    reader = pack(png, tmp_path, make(20))
    counts = [len(list(folder.iterdir())) for folder in tmp_path.iterdir() if folder.is_dir()]
    assert sum(counts) == 60
    assert max(counts) <= 10
    assert [index_of(sample) for sample in reader] == list(range(20))


def test_png_damage_inside(tmp_path: Path) -> None:
    """Flipped bits in the compressed pixels are noticed, not shown as other pixels."""
    png = importlib.import_module("harness.formats.png")
    reader = pack(png, tmp_path, make(1, ((64, 64, 3),)))
    path = largest(tmp_path)
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 8):
        data[place] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        reader[0]
