"""Photographs → sub-images, on all cores, and going on where it stopped."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PILImage

from feedrate.downloads import crop_set, crop_worker, crops
from feedrate.machine import linux
from feedrate.schema.errors import DataError, EnvironmentFault

SIZE = crop_set.SIZE
Cut = Callable[..., int]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where sub-images go."""
    folder = tmp_path / "sub"
    folder.mkdir()
    return folder


@pytest.fixture
def cut(target: Path, screen: Any) -> Cut:
    """Cut photographs of a source, by name; ``then`` is called when their headers were read."""

    def call(source: Path, names: list[str], then: Callable[[], None] = lambda: None) -> int:
        wanted = crops.photographs(source, names)
        then()
        return crops.cut(source, target, wanted, screen)

    return call


@given(length=st.integers(1, 3000))
def test_geometry(length: int) -> None:
    """Sub-images lie every 240 pixels, cover a side without a gap, end at its end, and begin at different places."""
    found = crop_set.starts(length)
    if length < SIZE:
        assert found == []
        return
    assert found[0] == 0
    assert found[-1] == length - SIZE
    steps = np.diff(found)
    assert (steps[:-1] == 240).all()
    assert not len(steps) or 0 < steps[-1] <= 240


def test_geometry_of_div2k() -> None:
    """A photograph of the usual size gives 8 × 5: 800 such would give 32,000, and DIV2K's own give 32,592."""
    corners = crop_set.corners(1356, 2040)
    assert len(corners) == 40
    assert corners[:2] == [(0, 0), (0, 240)]
    assert corners[-1] == (876, 1560)


@pytest.mark.parametrize("folder", [False, True])
def test_pixels(archives: dict[str, Any], tmp_path: Path, cut: Cut, target: Path, folder: bool) -> None:
    """From an archive or a folder, every sub-image is that part of the photograph, bit for bit, row by row."""
    made = archives["train"]
    source = made.unpack(tmp_path / "photos") if folder else made.write(tmp_path / "a.zip")
    assert cut(source, made.part.files if folder else made.part.members) == 12
    for name, data in made.photographs.items():
        pixels = np.asarray(PILImage.open(io.BytesIO(data)))
        stem = Path(name).stem
        for number, (top, left) in enumerate(((0, 0), (0, 220), (80, 0), (80, 220)), 1):
            got = np.asarray(PILImage.open(target / stem / f"{stem}_s{number:03d}.png"))
            assert np.array_equal(got, pixels[top : top + SIZE, left : left + SIZE])
    assert len(list(target.rglob("*"))) == 3 + 12


def test_on_disk_before_it_has_its_name(
    archives: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A photograph's folder is renamed, not filled, and only after every file and the folder were forced to disk."""
    synced: dict[str, int] = {}
    sync = linux.sync

    def seen(path: Path) -> None:
        synced[path.name] = path.stat().st_ino
        assert (tmp_path / "0001").exists() == (path == tmp_path)
        sync(path)

    monkeypatch.setattr(linux, "sync", seen)
    assert crop_worker.cut(archives["train"].photographs["0001.png"], tmp_path / "0001") == {"crops": 4}
    inodes = {path.stat().st_ino for path in (tmp_path, tmp_path / "0001", *(tmp_path / "0001").iterdir())}
    assert set(synced.values()) == inodes


def test_goes_on(
    archives: dict[str, Any], tmp_path: Path, cut: Cut, target: Path, screen: Any, files: Callable[..., Any]
) -> None:
    """What is cut stays; what is missing, has too few files, or was left half-written is cut; bytes are the same."""
    made = archives["train"]
    source = made.write(tmp_path / "a.zip")
    cut(source, made.part.members)
    whole = files(target)
    kept = (target / "0002").stat()
    for name in ("0001_s001.png", "0001_s003.png"):
        (target / "0001" / name).unlink()
    (target / "0003").rename(target / ".0003.77.tmp")
    missing = crops.missing(crops.photographs(source, made.part.members), target)
    assert [photograph.folder for photograph in missing] == ["0001", "0003"]
    cut(source, made.part.members)
    assert files(target) == whole
    assert (target / "0002").stat().st_mtime_ns == kept.st_mtime_ns
    assert "1 of 3 photographs are cut already" in screen.text


def test_damaged_among_good_ones(damaged: Any, tmp_path: Path, cut: Cut, target: Path) -> None:
    """A damaged photograph is named with its reason; all others are cut all the same."""
    archive, photos = damaged.write(tmp_path / "a.zip"), damaged.unpack(tmp_path / "photos")
    for source, names in ((archive, damaged.part.members), (photos, damaged.part.files)):
        with pytest.raises(DataError, match=r"1 of 3 photographs cannot be used \(.*0002.png: .*truncated"):
            cut(source, names)
        assert sorted(path.name for path in target.iterdir()) == ["0001", "0003"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"GIF89a", "not a PNG file"),
        ("L", "pixels are L; expected 8-bit RGB"),
        pytest.param(b"", "not a PNG file", marks=pytest.mark.slow),
        pytest.param("RGBA", "pixels are RGBA", marks=pytest.mark.slow),
        ("small", "smaller than a sub-image, 480 x 480 pixels"),
        (None, "No such file"),
    ],
)
def test_unusable(archives: dict[str, Any], tmp_path: Path, cut: Cut, content: Any, said: str) -> None:
    """What is no photograph of DIV2K's kind is said to be none."""
    photos = archives["train"].unpack(tmp_path / "photos")
    bad = photos / "0001.png"
    if isinstance(content, bytes):
        bad.write_bytes(content)
    elif content is not None:
        size = (479, 900) if content == "small" else (900, 900)
        PILImage.new("RGB" if content == "small" else content, size).save(bad)
    with pytest.raises(DataError, match=said):
        cut(photos, archives["train"].part.files, bad.unlink if content is None else lambda: None)


def test_flipped_bit_in_an_archive(archives: dict[str, Any], tmp_path: Path, cut: Cut) -> None:
    """The archive's own check sums find what changed on the disk, even where the image would still decode."""
    content = bytearray(archives["train"].archive)
    content[len(content) // 2] ^= 1
    source = tmp_path / "a.zip"
    source.write_bytes(content)
    with pytest.raises(DataError, match=r"0002.png: Bad CRC-32"):
        cut(source, archives["train"].part.members)


def test_killed_worker(archives: dict[str, Any], tmp_path: Path, cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed, as for want of memory, ends the cutting with an error, and no process is left."""
    started = []

    class Killed(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            started.append(self)
            self.kill()

    monkeypatch.setattr(crops.subprocess, "Popen", Killed)
    with pytest.raises(EnvironmentFault, match=r"ended with status -9; .*the same command continues"):
        cut(archives["train"].write(tmp_path / "a.zip"), archives["train"].part.members)
    assert started
    assert all(process.returncode is not None for process in started)
