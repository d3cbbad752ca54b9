"""What formats do with damaged files, with packers that are killed, and with disks that are full: over all formats."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from contract import (
    FEW,
    SHAPES,
    SYNTHETIC,
    again,
    describe,
    everything,
    in_child,
    make,
    of,
    pack,
    packed_files,
    same,
    unsorted,
)

from feedrate.formats import ReadOptions, Sample
from feedrate.schema.errors import DataError
from feedrate.trial import prepare as preparing
from feedrate.trial.prepare import dataset_root, prepare
from feedrate.workloads import DataSpec


@pytest.mark.parametrize("kept", [None, 0.0, 0.5])
def test_truncated_or_missing_file(storage: ModuleType, tmp_path: Path, kept: float | None) -> None:
    """A file that lost its end, or is gone, gives a DataError that names it and what to do; the process lives."""
    opened = pack(storage, tmp_path, make(10, ((32, 32, 3), (32, 32, 3))))
    path = packed_files(tmp_path)[0]
    if kept is None:
        path.unlink()
    else:
        os.truncate(path, int(path.stat().st_size * kept))
    with pytest.raises(DataError, match=f"{path.name}.*run again"):
        everything(opened)


def test_truncated_anywhere(few: ModuleType, tmp_path: Path) -> None:
    """Wherever a file of a set is cut, what can be read is what was packed, or a DataError; no process dies of it."""
    samples = make(40, lossy=of(few).lossy)
    pack(few, tmp_path / "set", samples)
    random, last = np.random.default_rng(0), tmp_path / "last"

    def cut_and_read() -> None:
        for number in range(4):
            root = tmp_path / f"cut{number}"  # a library may remember what it read under a name
            shutil.copytree(tmp_path / "set", root)
            files = packed_files(root)
            path = files[int(random.integers(len(files)))]
            kept = int(random.integers(path.stat().st_size))
            last.write_text(f"{path.name} cut to {kept} bytes")
            os.truncate(path, kept)
            with suppress(DataError):
                assert same(few, everything(again(few, root)), samples)
            shutil.rmtree(root)

    assert in_child(cut_and_read) == (0, "None"), last.read_text()


@pytest.mark.parametrize("longer", [False, True])
def test_overwritten_file(storage: ModuleType, tmp_path: Path, longer: bool) -> None:
    """Files with other content give a DataError that names one; other bytes of a raw file are other pixels."""
    samples = make(3)
    opened = pack(storage, tmp_path, samples)
    files = packed_files(tmp_path)
    for path in files:
        size = path.stat().st_size * (3 if longer else 1)
        path.write_bytes((b"not what was packed" * math.ceil(size / 19))[:size])
    if of(storage).container == "raw file" and not longer:
        assert not same(storage, everything(opened), samples)
        return
    with pytest.raises(DataError, match="run again") as caught:
        everything(opened)
    assert any(path.name in str(caught.value) for path in files)


def test_manifest_disagrees(storage: ModuleType, tmp_path: Path) -> None:
    """Samples of another size or number than the manifest says are refused, never reshaped into something else."""
    label = SHAPES[-1]
    pack(storage, tmp_path, make(3, ((8, 8, 3), label)))
    for count, width in ((3, 9), (4, 8)):
        describe(tmp_path, make(count, ((8, width, 3), label)))
        with pytest.raises(DataError, match="run again"):
            everything(again(storage, tmp_path))


@pytest.mark.parametrize("broken", [RuntimeError, KeyboardInterrupt])
def test_source_breaks(storage: ModuleType, tmp_path: Path, broken: type[BaseException]) -> None:
    """An error of the source, and Ctrl-C, come through, leave no thread, and what was written cannot be opened."""
    pack(storage, tmp_path / "whole", make(1, ((64, 64, 3),)))

    def breaking() -> Iterator[Sample]:
        yield from make(40, ((64, 64, 3),))
        raise broken("source broke")

    (tmp_path / "broken").mkdir()
    before = set(threading.enumerate())
    with pytest.raises(broken, match="source broke"):
        storage.pack(breaking(), tmp_path / "broken")
    assert set(threading.enumerate()) <= before
    with pytest.raises(DataError, match="manifest"):
        storage.open(tmp_path / "broken", ReadOptions())


def test_killed_half_way(few: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packing process that is killed leaves nothing that looks whole, and the next one packs everything."""
    monkeypatch.setattr(preparing, "_PROGRESS_S", 0.0)
    name, spec = few.__name__.rpartition(".")[2], DataSpec("synthetic", 60, 16, 1)
    root = dataset_root(tmp_path, spec, name)
    for count in (30, 60) if name in FEW else (30,):

        def progress(done: int, _total: int, count: int = count) -> None:
            if done >= count:
                os.kill(os.getpid(), signal.SIGKILL)

        assert in_child(lambda progress=progress: prepare(spec, name, tmp_path, progress)) == (-signal.SIGKILL, "")
        assert list(tmp_path.rglob("manifest.json")) == []
        assert not root.exists()
    manifest = prepare(spec, name, tmp_path, lambda _done, _total: None)
    assert (manifest.count, len(list(root.parent.iterdir()))) == (60, 1)
    packed = list(SYNTHETIC.samples(spec).samples)
    for got in unsorted(again(few, root)):
        (place,) = (place for place, sample in enumerate(packed) if same(few, [got], [sample]))
        del packed[place]
    assert packed == []


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB in memory, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system takes root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_full_disk(few: ModuleType, full_disk: Path) -> None:
    """On a disk that is full, packing ends in an OSError that says so; the process lives."""
    random = np.random.default_rng(0)
    endless = ((random.integers(0, 256, (64, 64, 3), np.uint8),) for _ in range(2048))
    status, text = in_child(lambda: few.pack(endless, full_disk))
    assert status == 0
    assert text.startswith("OSError 28:"), text
