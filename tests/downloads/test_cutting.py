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
def test_pixels(archives: dict[str, Any], tmp_path: Path, screen: Any, folder: bool) -> None:
    """From an archive or a folder, every sub-image is that part of the photograph, bit for bit, row by row."""
    made = archives["train"]
    source = made.unpack(tmp_path / "photos") if folder else made.write(tmp_path / "a.zip")
    names = made.part.files if folder else made.part.members
    (tmp_path / "sub").mkdir()
    wanted = crops.photographs(source, names)
    assert crops.cut(source, tmp_path / "sub", wanted, screen) == 12
    for name, data in made.photographs.items():
        pixels = np.asarray(PILImage.open(io.BytesIO(data)))
        stem = Path(name).stem
        for number, (top, left) in enumerate(((0, 0), (0, 220), (80, 0), (80, 220)), 1):
            got = np.asarray(PILImage.open(tmp_path / "sub" / stem / f"{stem}_s{number:03d}.png"))
            assert np.array_equal(got, pixels[top : top + SIZE, left : left + SIZE])
    assert len(list((tmp_path / "sub").rglob("*"))) == 3 + 12


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


def test_goes_on(archives: dict[str, Any], tmp_path: Path, screen: Any, files: Callable[..., Any]) -> None:
    """What is cut stays; what is missing, has too few files, or was left half-written is cut; bytes are the same."""
    made = archives["train"]
    source, target = made.write(tmp_path / "a.zip"), tmp_path / "sub"
    target.mkdir()
    wanted = crops.photographs(source, made.part.members)
    crops.cut(source, target, wanted, screen)
    whole = files(target)
    kept = (target / "0002").stat()
    for name in ("0001_s001.png", "0001_s003.png"):
        (target / "0001" / name).unlink()
    (target / "0003").rename(target / ".0003.77.tmp")
    assert [photograph.folder for photograph in crops.missing(wanted, target)] == ["0001", "0003"]
    crops.cut(source, target, wanted, screen)
    assert files(target) == whole
    assert (target / "0002").stat().st_mtime_ns == kept.st_mtime_ns
    assert "1 of 3 photographs are cut already" in screen.text


def test_damaged_among_good_ones(damaged: Any, tmp_path: Path, screen: Any) -> None:
    """A damaged photograph is named with its reason; all others are cut all the same."""
    target = tmp_path / "sub"
    target.mkdir()
    for source, names in (
        (damaged.write(tmp_path / "a.zip"), damaged.part.members),
        (damaged.unpack(tmp_path / "photos"), damaged.part.files),
    ):
        wanted = crops.photographs(source, names)
        with pytest.raises(DataError, match=r"1 of 3 photographs cannot be used \(.*0002.png: .*truncated"):
            crops.cut(source, target, wanted, screen)
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
def test_unusable(archives: dict[str, Any], tmp_path: Path, screen: Any, content: Any, said: str) -> None:
    """What is no photograph of DIV2K's kind is said to be none."""
    photos, target = archives["train"].unpack(tmp_path / "photos"), tmp_path / "sub"
    target.mkdir()
    bad = photos / "0001.png"
    if isinstance(content, bytes):
        bad.write_bytes(content)
    elif content is not None:
        size = (479, 900) if content == "small" else (900, 900)
        PILImage.new("RGB" if content == "small" else content, size).save(bad)
    wanted = crops.photographs(photos, archives["train"].part.files)
    if content is None:
        bad.unlink()
    with pytest.raises(DataError, match=said):
        crops.cut(photos, target, wanted, screen)


def test_flipped_bit_in_an_archive(archives: dict[str, Any], tmp_path: Path, screen: Any) -> None:
    """The archive's own check sums find what changed on the disk, even where the image would still decode."""
    made, target = archives["train"], tmp_path / "sub"
    target.mkdir()
    content = bytearray(made.archive)
    content[len(content) // 2] ^= 1
    source = tmp_path / "a.zip"
    source.write_bytes(content)
    wanted = crops.photographs(source, made.part.members)
    with pytest.raises(DataError, match=r"0002.png: Bad CRC-32"):
        crops.cut(source, target, wanted, screen)


def test_killed_worker(archives: dict[str, Any], tmp_path: Path, screen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed, as for want of memory, ends the cutting with an error, and no process is left."""
    made, target = archives["train"], tmp_path / "sub"
    target.mkdir()
    source = made.write(tmp_path / "a.zip")
    started = []

    class Killed(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            started.append(self)
            self.kill()

    monkeypatch.setattr(crops.subprocess, "Popen", Killed)
    with pytest.raises(EnvironmentFault, match=r"ended with status -9; .*the same command continues"):
        crops.cut(source, target, crops.photographs(source, made.part.members), screen)
    assert started
    assert all(process.returncode is not None for process in started)
