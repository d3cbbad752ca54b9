"""Packed data are whole or absent, and described truly."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from contract import unsorted
from PIL import Image as PILImage

from feedrate.formats import Manifest, ReadOptions, Sample
from feedrate.schema.errors import DataError, EnvironmentFault, InputError
from feedrate.schema.plugins import load, names, traits
from feedrate.trial import prepare as module
from feedrate.trial.prepare import dataset_root, prepare
from feedrate.workloads import DataSpec, Source

SPEC = DataSpec("synthetic", 20, 8, 1)
REFUSED = "refused while packing 20 samples of synthetic as memmap;"
SYNTHETIC = load("feedrate.workloads", "synthetic")
MEMMAP = load("feedrate.formats", "memmap")


def pack(root: Path, storage_format: str = "memmap", spec: DataSpec = SPEC) -> Manifest:
    return prepare(spec, storage_format, root, lambda _done, _total: None)


def find(root: Path, storage_format: str = "memmap") -> Manifest:
    """Fail when something is packed."""
    return prepare(SPEC, storage_format, root, lambda _done, _total: pytest.fail("packed again"))


def everything(root: Path) -> list[str]:
    """All files and folders below the one that holds the set's formats, hidden ones too."""
    folder = dataset_root(root, SPEC, "png").parent
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) if folder.exists() else []


def replace_samples(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Iterable[Sample]]) -> None:
    """Let the synthetic workload give other samples."""
    monkeypatch.setattr(SYNTHETIC, "samples", lambda spec: Source(make()))


def flat(size: int) -> Sample:
    """A sample of one black field."""
    return (np.zeros((size, size, 3), np.uint8),)


def in_bytes(sample: Sample) -> bytes:
    return b"".join(field.tobytes() for field in sample)


@pytest.mark.parametrize("storage_format", names("feedrate.formats"))
def test_the_manifest_is_true(tmp_path: Path, storage_format: str) -> None:
    """Count, shapes, bytes, versions and hash are those of what can be read back; all formats give one hash."""
    manifest = pack(tmp_path, storage_format)
    root = dataset_root(tmp_path, SPEC, storage_format)
    assert Manifest.load(root) == manifest
    storage = load("feedrate.formats", storage_format)
    made, back = list(SYNTHETIC.samples(SPEC).samples), unsorted(storage.open(root, ReadOptions()))
    assert manifest.data_hash == hashlib.sha256(b"".join(map(in_bytes, made))).hexdigest()[:16]
    assert (sorted(map(in_bytes, back)) == sorted(map(in_bytes, made))) is not traits(storage_format).lossy
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert manifest.bytes == sum(path.stat().st_size for path in files)
    assert (manifest.count, manifest.shapes) == (20, ((8, 8, 3), (8, 8, 3)))
    assert (manifest.workload_version, manifest.format_version) == (SYNTHETIC.VERSION, storage.VERSION)
    assert manifest.pack_s > 0
    assert find(tmp_path, storage_format) == manifest, "a whole folder is used as it is"


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "workload": lambda _: None,
    "format": lambda _: None,
    "manifest": lambda data: (data.parent / "manifest.json").write_text("{"),
    "file": Path.unlink,
    "truncated": lambda data: os.truncate(data, 10),
    "flipped": _flip,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_packs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """A folder of another version, or with a file missing, cut short or changed in a byte, is replaced as a whole."""
    first = pack(tmp_path)
    root = dataset_root(tmp_path, SPEC, "memmap")
    DAMAGE[damage](root / "pixels.bin")
    if damage in {"workload", "format"}:
        monkeypatch.setattr(SYNTHETIC if damage == "workload" else MEMMAP, "VERSION", 77)
    (root / "stray").write_text("")
    again = pack(tmp_path)
    assert (again.data_hash, again.checksum) == (first.data_hash, first.checksum)
    noted = ("memmap: the packed samples were damaged and are packed anew",)
    assert again.notes == (noted if damage in {"file", "truncated", "flipped"} else ())
    assert everything(tmp_path) == ["memmap", "memmap/manifest.json", "memmap/pixels.bin"]
    assert find(tmp_path) == again


def test_a_lossy_format_is_held_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back may differ by as much as the format says and no more; a label must come back as it was."""
    monkeypatch.setattr(load("feedrate.formats", "jpeg"), "MEAN_ERROR", 0.0)
    with pytest.raises(DataError, match="does not come back the same"):
        pack(tmp_path, "jpeg", DataSpec("synthetic", 4, 16, 1))
    image, label = np.zeros((9, 9, 3), np.uint8), np.zeros((1, 1, 1), np.uint8)
    assert module.same_image(1.0, image + 1, image)
    assert not module.same_image(0.9, image + 1, image)
    assert not module.same_image(1.0, label + 1, label)


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([flat(8)] * 7, InputError, "has 7 samples, n_samples asks for 20"),
        ([flat(8)] * 19 + [flat(9)], DataError, "sample 19 has shapes"),
    ],
)
def test_wrong_samples_replace_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: list[Sample], error: type[Exception], message: str
) -> None:
    """Too few samples, or of several shapes, are refused; a set of another version then stays as it was."""
    pack(tmp_path)
    before = everything(tmp_path)
    monkeypatch.setattr(MEMMAP, "VERSION", 77)
    replace_samples(monkeypatch, lambda: samples)
    with pytest.raises(error, match=message):
        pack(tmp_path)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("changed", [0, 19])
def test_reads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: int) -> None:
    """A format that gives back other pixels than were packed is found out before anything is measured with it."""
    original = MEMMAP.pack

    def shifty(samples: Iterable[Sample], root: Path) -> None:
        original((flat(8) * 2 if index == changed else sample for index, sample in enumerate(samples)), root)

    monkeypatch.setattr(MEMMAP, "pack", shifty)
    with pytest.raises(DataError, match=f"sample {changed} was packed but"):
        pack(tmp_path)
    assert everything(tmp_path) == []


def test_names_of_sets(tmp_path: Path) -> None:
    """They are readable; of photographs they change with the files of the folder, and with no other file."""
    standin = dataset_root(Path("data"), DataSpec("div2k_standin", 1024, 64, 2), "png")
    assert standin == Path("data/div2k_standin-p64-x2-n1024/png")
    assert dataset_root(Path("data"), SPEC, "lmdb") == Path("data/synthetic-p8-n20/lmdb")
    photos = tmp_path / "photos"
    photos.mkdir()
    picture = PILImage.new("RGB", (16, 16))
    picture.save(photos / "a.png")

    def root(folder: Path = photos) -> Path:
        return dataset_root(tmp_path, DataSpec("folder", 4, 8, 2, folder), "png")

    first = root()
    (photos / "notes.txt").write_text("")
    (tmp_path / "link").symlink_to(photos)
    assert root() == root(tmp_path / "link") == first
    picture.save(photos / "b.png")
    second = root()
    os.utime(photos / "b.png", ns=(1, 1))
    assert len({first, second, root()}) == 3
    assert first.parent.name.startswith("folder-p8-x2-n4-")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "refused"),
            f"{REFUSED} free some space there, or choose another folder with --data-root",
        ),
        (OSError(errno.EACCES, "refused"), f"{REFUSED} make it writable, or choose"),
        (OSError(errno.EROFS, "refused"), f"{REFUSED} make it writable, or choose"),
        (KeyboardInterrupt("broke"), "broke"),
    ],
)
def test_broken_packing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, message: str
) -> None:
    """Whatever ends it, nothing is left, the next one begins afresh, and of a disk is said what to do about it."""

    def breaking() -> Iterator[Sample]:
        yield from [flat(8)] * 5
        raise error

    with monkeypatch.context() as patch:
        replace_samples(patch, breaking)
        with pytest.raises((KeyboardInterrupt, EnvironmentFault), match=message):
            pack(tmp_path)
    assert everything(tmp_path) == []
    assert pack(tmp_path).count == 20
