"""Packed data are whole or absent, and described truly."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PILImage

from feedrate.formats import Manifest, Reader, ReadOptions, Sample, Stream
from feedrate.schema.errors import DataError, EnvironmentFault, InputError
from feedrate.schema.plugins import load, names, traits
from feedrate.trial import prepare as module
from feedrate.trial.prepare import dataset_root, prepare
from feedrate.workloads import DataSpec, Source

SPEC = DataSpec("synthetic", 20, 8, 1)
SYNTHETIC = load("feedrate.workloads", "synthetic")
PNG = load("feedrate.formats", "png")


def silent(done: int, total: int) -> None:
    """Show no progress."""


def never(done: int, total: int) -> None:
    """Fail when something is packed."""
    pytest.fail("packed again")


def everything(folder: Path) -> list[str]:
    """All files and folders below the one that holds a set's formats, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) if folder.exists() else []


def stored(packed: Reader | Stream) -> Iterator[Sample]:
    """All samples of a set in their order."""
    if isinstance(packed, Stream):
        raws = sorted((raw for shard in range(packed.shards) for raw in packed.records(shard)), key=lambda raw: raw[0])
        return map(packed.decode, raws)
    return iter(packed)


def replace_samples(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Iterable[Sample]]) -> None:
    """Let the synthetic workload give other samples."""
    monkeypatch.setattr(SYNTHETIC, "samples", lambda spec: Source(make()))


def flat(size: int) -> Sample:
    """A sample of one black field."""
    return (np.zeros((size, size, 3), np.uint8),)


@pytest.mark.parametrize("storage_format", names("feedrate.formats"))
def test_manifest_tells_the_truth(tmp_path: Path, storage_format: str) -> None:
    """Count, shapes, bytes, versions and hash are those of what can be read back; all formats give one hash."""
    manifest = prepare(SPEC, storage_format, tmp_path, silent)
    root = dataset_root(tmp_path, SPEC, storage_format)
    assert Manifest.load(root) == manifest
    storage = load("feedrate.formats", storage_format)
    digest = hashlib.sha256()
    for sample in stored(storage.open(root, ReadOptions())):
        for field in sample:
            digest.update(field.tobytes())
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert manifest.data_hash == prepare(SPEC, "memmap", tmp_path, silent).data_hash
    assert (manifest.data_hash == digest.hexdigest()[:16]) is not traits(storage_format).lossy
    assert manifest.bytes == sum(path.stat().st_size for path in files)
    assert (manifest.count, manifest.shapes) == (20, ((8, 8, 3), (8, 8, 3)))
    assert (manifest.workload_version, manifest.format_version) == (SYNTHETIC.VERSION, storage.VERSION)
    assert manifest.pack_s > 0


def test_packs_once(tmp_path: Path) -> None:
    """A whole folder is used as it is."""
    first = prepare(SPEC, "png", tmp_path, silent)
    assert prepare(SPEC, "png", tmp_path, never) == first


@pytest.mark.parametrize("damage", ["workload", "format", "file", "manifest", "truncated"])
def test_packs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """A folder of another version, or with a file missing or cut short, is replaced as a whole."""
    first = prepare(SPEC, "png", tmp_path, silent)
    root = dataset_root(tmp_path, SPEC, "png")
    if damage in {"workload", "format"}:
        monkeypatch.setattr(SYNTHETIC if damage == "workload" else PNG, "VERSION", 77)
    elif damage == "manifest":
        (root / "manifest.json").write_text("{")
    elif damage == "file":
        next(root.rglob("*.png")).unlink()
    else:
        os.truncate(next(root.rglob("*.png")), 10)
    (root / "stray").write_text("")
    again = prepare(SPEC, "png", tmp_path, silent)
    assert again.data_hash == first.data_hash
    assert not (root / "stray").exists()
    assert [path.name for path in root.parent.iterdir()] == ["png"]
    assert prepare(SPEC, "png", tmp_path, never) == again


def test_a_byte_that_changed_is_found(tmp_path: Path) -> None:
    """Raw pixels carry no checksum: a set is read whole before it is used, and packed anew where that tells damage."""
    first = prepare(SPEC, "memmap", tmp_path, silent)
    path = dataset_root(tmp_path, SPEC, "memmap") / "pixels.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = prepare(SPEC, "memmap", tmp_path, silent)
    assert again.notes == ("memmap: the packed samples were damaged and are packed anew",)
    assert (again.data_hash, again.checksum) == (first.data_hash, first.checksum)
    assert prepare(SPEC, "memmap", tmp_path, never) == again


def test_a_lossy_format_is_held_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back may differ by as much as the format says and no more; a label must come back as it was."""
    jpeg = load("feedrate.formats", "jpeg")
    monkeypatch.setattr(jpeg, "MEAN_ERROR", 0.0)
    with pytest.raises(DataError, match="does not come back the same"):
        prepare(DataSpec("div2k_standin", 4, 16, 2), "jpeg", tmp_path, silent)
    image, label = np.zeros((9, 9, 3), np.uint8), np.zeros((1, 1, 1), np.uint8)
    assert module.same_image(1.0, image + 1, image)
    assert not module.same_image(0.9, image + 1, image)
    assert not module.same_image(1.0, label + 1, label)


@pytest.mark.parametrize("error", [RuntimeError("broke"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_broken_packing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Whatever ends the packing, nothing that looks whole is left, nor anything else; the next one begins afresh."""

    def breaking() -> Iterator[Sample]:
        yield from [flat(8)] * 5
        raise error

    with monkeypatch.context() as patch:
        replace_samples(patch, breaking)
        with pytest.raises((RuntimeError, KeyboardInterrupt, EnvironmentFault)):
            prepare(SPEC, "png", tmp_path, silent)
    assert everything(dataset_root(tmp_path, SPEC, "png").parent) == []
    assert prepare(SPEC, "png", tmp_path, silent).count == 20


def test_failed_replacement_keeps_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a set of another version cannot be replaced, the old folder stays as it was."""
    prepare(SPEC, "png", tmp_path, silent)
    root = dataset_root(tmp_path, SPEC, "png")
    before = everything(root.parent)
    monkeypatch.setattr(PNG, "VERSION", 77)
    replace_samples(monkeypatch, lambda: [flat(8)])
    with pytest.raises(InputError):
        prepare(SPEC, "png", tmp_path, silent)
    assert everything(root.parent) == before


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "writable"), (errno.EIO, "DATA_ROOT=")]
)
def test_disk_faults_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str) -> None:
    """A disk that fails gives where, what, and what to do."""

    def fail(samples: Iterable[Sample], root: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(PNG, "pack", fail)
    with pytest.raises(EnvironmentFault, match=advice) as caught:
        prepare(SPEC, "png", tmp_path, silent)
    message = str(caught.value)
    assert message.startswith(str(tmp_path))
    assert os.strerror(number) in message
    assert "20 samples of synthetic as png" in message


@pytest.mark.parametrize("storage_format", names("feedrate.formats"))
def test_full_disk(tmp_path: Path, storage_format: str) -> None:
    """A real limit on writing, met in the middle of packing, leaves nothing (RLIMIT_FSIZE stands for a full disk)."""
    spec = DataSpec("synthetic", 50, 32, 1)
    prepare(spec, storage_format, tmp_path / "free", silent)
    largest = max(path.stat().st_size for path in (tmp_path / "free").rglob("*") if path.is_file())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest // 2, hard))
    try:
        with pytest.raises(EnvironmentFault, match=f"{tmp_path}/full/synthetic.*DATA_ROOT="):
            prepare(spec, storage_format, tmp_path / "full", silent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert everything(tmp_path / "full") == ["synthetic-p32-n50"]


def test_unwritable_folder(tmp_path: Path) -> None:
    """A data root that cannot be a folder is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="Not a directory"):
        prepare(SPEC, "png", tmp_path / "file", silent)


def test_stale_leftovers(tmp_path: Path) -> None:
    """What a dead process of this machine left is removed; a living one's is not, nor another machine's."""
    prepare(SPEC, "png", tmp_path, silent)
    root = dataset_root(tmp_path, SPEC, "png")
    mark = f".png.{hashlib.sha256(platform.node().encode()).hexdigest()[:6]}."
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = [f"{mark}{dead.pid}.tmp", f"{mark}{dead.pid}.old.tmp", f"{mark}{os.getpid()}.tmp"]
    kept = [f"{mark}{os.getppid()}.tmp", f".png.000000.{dead.pid}.tmp", f".lmdb{mark[4:]}{dead.pid}.tmp"]
    for name in (*gone, *kept):
        (root.parent / name / "00000").mkdir(parents=True)
    (root / "manifest.json").unlink()
    prepare(SPEC, "png", tmp_path, silent)
    assert sorted(path.name for path in root.parent.iterdir()) == sorted([*kept, "png"])


def test_too_few_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload that has fewer samples than asked for is an input error that gives both numbers."""
    replace_samples(monkeypatch, lambda: [flat(8)] * 7)
    with pytest.raises(InputError, match="has 7 samples, n_samples asks for 20"):
        prepare(SPEC, "png", tmp_path, silent)


def test_one_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of different shapes are refused, as the manifest has one."""
    replace_samples(monkeypatch, lambda: [flat(8)] * 19 + [flat(9)])
    with pytest.raises(DataError, match="sample 19"):
        prepare(SPEC, "png", tmp_path, silent)


def test_reads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format that gives back other pixels than were packed is found out before anything is measured with it."""
    original = PNG.pack
    for changed in (0, 19):

        def shifty(samples: Iterable[Sample], root: Path, changed: int = changed) -> None:
            original((flat(8) * 2 if index == changed else sample for index, sample in enumerate(samples)), root)

        monkeypatch.setattr(PNG, "pack", shifty)
        with pytest.raises(DataError, match=f"sample {changed} was packed but"):
            prepare(SPEC, "png", tmp_path, silent)
        assert everything(dataset_root(tmp_path, SPEC, "png").parent) == []


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress begins at 0, ends at the total, only grows, and comes at most some 20 times a second."""

    def slowly() -> Iterator[Sample]:
        for _ in range(20):
            time.sleep(0.015)
            yield flat(8)

    replace_samples(monkeypatch, slowly)
    calls: list[tuple[int, int]] = []
    started = time.perf_counter()
    prepare(SPEC, "lmdb", tmp_path, lambda done, total: calls.append((done, total)))
    elapsed = time.perf_counter() - started
    assert (calls[0], calls[-1]) == ((0, 20), (20, 20))
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert 3 < len(calls) <= elapsed / 0.05 + 2


def test_another_process_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When two processes (here threads) pack the same set, the second waits and uses what the first installed."""
    original = PNG.pack
    waiting: list[Future[Manifest]] = []
    with ThreadPoolExecutor(1) as pool:

        def overlapping(samples: Iterable[Sample], root: Path) -> None:
            waiting.append(pool.submit(prepare, SPEC, "png", tmp_path, never))
            original(samples, root)

        monkeypatch.setattr(PNG, "pack", overlapping)
        manifest = prepare(SPEC, "png", tmp_path, silent)
        assert [other.result(30) for other in waiting] == [manifest]
    assert [path.name for path in dataset_root(tmp_path, SPEC, "png").parent.iterdir()] == ["png"]


def test_names_of_sets(tmp_path: Path) -> None:
    """Names are readable, and every axis that changes the data changes them."""
    assert dataset_root(Path("data"), DataSpec("div2k_standin", 1024, 64, 2), "png") == Path(
        "data/div2k_standin-p64-x2-n1024/png"
    )
    assert dataset_root(Path("data"), SPEC, "lmdb") == Path("data/synthetic-p8-n20/lmdb")


def test_changed_folder_is_another_set(tmp_path: Path) -> None:
    """A folder of photographs that gained, lost or changed a file is packed anew; any other file does not matter."""
    photos = tmp_path / "photos"
    photos.mkdir()
    picture = PILImage.new("RGB", (16, 16))
    picture.save(photos / "a.png")
    spec = DataSpec("folder", 4, 8, 2, photos)
    roots = [dataset_root(tmp_path, spec, "png")]
    (photos / "notes.txt").write_text("")
    assert dataset_root(tmp_path, spec, "png") == roots[0]
    (tmp_path / "link").symlink_to(photos)
    assert dataset_root(tmp_path, DataSpec("folder", 4, 8, 2, tmp_path / "link"), "png") == roots[0]
    picture.save(photos / "b.png")
    roots.append(dataset_root(tmp_path, spec, "png"))
    os.utime(photos / "b.png", ns=(1, 1))
    roots.append(dataset_root(tmp_path, spec, "png"))
    assert len(set(roots)) == 3
    assert roots[0].parent.name.startswith("folder-p8-x2-n4-")


def test_notes_reach_the_manifest(tmp_path: Path) -> None:
    """What was skipped while drawing is in the manifest."""
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "bad.png").write_bytes(b"")
    PILImage.new("RGB", (16, 16)).save(photos / "good.png")
    manifest = prepare(DataSpec("folder", 4, 8, 2, photos), "png", tmp_path, silent)
    assert manifest.notes == ("skipped bad.png: neither PNG nor JPEG",)


def test_imports_no_torch() -> None:
    """Naming a data set does not load torch."""
    code = "import sys, feedrate.trial.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
