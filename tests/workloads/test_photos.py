"""Opening a user's photographs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PILImage

from feedrate.workloads._photos import Unusable, open_rgb


def write(path: Path, pixels: object, mode: str | None = None, **options: object) -> Path:
    """Store an array as an image file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = PILImage.fromarray(np.asarray(pixels))
    (picture.convert(mode) if mode else picture).save(path, **options)  # type: ignore[arg-type]
    return path


@pytest.fixture
def rgb() -> np.ndarray:
    """Twelve by nine pixels of noise."""
    return np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)


def palette() -> PILImage.Image:
    """Half-transparent entries, of which Pillow warns where they are converted to RGB at once."""
    picture = PILImage.new("P", (12, 9), 1)
    picture.putpalette([0, 0, 0, 10, 20, 30])
    return picture


def rotated() -> PILImage.Exif:
    """What has a JPEG shown rotated."""
    exif = PILImage.Exif()
    exif[0x0112] = 6
    return exif


def test_pixels_are_taken_as_they_are_stored(tmp_path: Path, rgb: np.ndarray) -> None:
    """RGB bit for bit and writable; without alpha; grey three times; a palette's colours; 16 bits' high byte."""
    grey, deep = rgb[..., 0], np.arange(0, 65536, 512, dtype=np.uint16).reshape(8, 16)
    palette().save(tmp_path / "palette.png", transparency=b"\xff\x80")
    colours = np.broadcast_to(np.array([10, 20, 30], np.uint8), (9, 12, 3))
    cases = [
        (write(tmp_path / "rgb.png", rgb), rgb),
        (write(tmp_path / "alpha.png", np.dstack([rgb, np.zeros((9, 12), np.uint8)])), rgb),
        (write(tmp_path / "grey.png", grey), np.repeat(grey[..., None], 3, axis=2)),
        (write(tmp_path / "grey alpha.png", grey, "LA"), np.repeat(grey[..., None], 3, axis=2)),
        (write(tmp_path / "deep.png", deep), np.repeat((deep >> 8).astype(np.uint8)[..., None], 3, axis=2)),
        (tmp_path / "palette.png", colours),
    ]
    for path, expected in cases:
        assert np.array_equal(open_rgb(path), expected), path
    assert open_rgb(tmp_path / "rgb.png").flags.writeable
    assert open_rgb(write(tmp_path / "rotated.jpg", rgb, exif=rotated())).shape == (9, 12, 3), "orientation is ignored"


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "neither PNG, JPEG nor WebP"), (b"GIF89a....", "neither"), (b"half", "truncated"), (None, "No such file")],
)
def test_unreadable(tmp_path: Path, rgb: np.ndarray, content: bytes | None, said: str) -> None:
    """A file that cannot be decoded, or vanished after it was listed, says why, without its path."""
    path = write(tmp_path / "a.png", rgb)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-60] if content == b"half" else content)
    with pytest.raises(Unusable, match=said) as caught:
        open_rgb(path)
    assert str(tmp_path) not in str(caught.value)
