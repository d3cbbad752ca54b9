"""Finding and opening a user's photographs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PILImage

from feedrate.schema.errors import InputError
from feedrate.workloads._photos import Unusable, list_images, open_rgb


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


def test_lists_nested_in_any_case(tmp_path: Path, rgb: np.ndarray) -> None:
    """PNG and JPEG files are found in sub-folders, whatever the case of the suffix, sorted, and nothing else is."""
    for name in ("b.PNG", "a.jpg", "sub/deep/c.JPEG", "sub/a.png"):
        write(tmp_path / name, rgb, format="PNG" if name.lower().endswith("png") else "JPEG")
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "folder.png").mkdir()
    assert [path.as_posix() for path in list_images(tmp_path)] == ["a.jpg", "b.PNG", "sub/a.png", "sub/deep/c.JPEG"]


def test_unusable_folders(tmp_path: Path) -> None:
    """A folder that is missing, empty or a file is the user's to fix, and the message says what was expected."""
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, said in (("missing", "no such folder"), ("file", "not a folder"), ("empty", "no image here")):
        with pytest.raises(InputError, match=said):
            list_images(tmp_path / name)


def test_rgb_as_stored(tmp_path: Path, rgb: np.ndarray) -> None:
    """RGB comes back bit for bit, writable."""
    got = open_rgb(write(tmp_path / "a.png", rgb))
    assert np.array_equal(got, rgb)
    assert got.flags.writeable


def test_alpha_is_dropped(tmp_path: Path, rgb: np.ndarray) -> None:
    """Transparent pixels keep the colour that is stored under them."""
    alpha = np.dstack([rgb, np.zeros((9, 12), np.uint8)])
    assert np.array_equal(open_rgb(write(tmp_path / "a.png", alpha)), rgb)


def test_grey_is_repeated(tmp_path: Path, rgb: np.ndarray) -> None:
    """Grey becomes three equal channels, with or without alpha."""
    grey = rgb[..., 0]
    for path in (write(tmp_path / "a.png", grey), write(tmp_path / "b.png", grey, "LA")):
        assert np.array_equal(open_rgb(path), np.repeat(grey[..., None], 3, axis=2))


def test_sixteen_bits_keep_the_high_byte(tmp_path: Path) -> None:
    """16-bit grey is scaled down, not clipped to white."""
    deep = np.arange(0, 65536, 257 * 2, dtype=np.uint16).reshape(8, 16)
    got = open_rgb(write(tmp_path / "a.png", deep))
    assert np.array_equal(got[..., 0], (deep >> 8).astype(np.uint8))
    assert got.shape == (8, 16, 3)


def test_transparent_palette(tmp_path: Path) -> None:
    """A palette with half-transparent entries gives the palette's colours, without a warning of Pillow's."""
    picture = PILImage.new("P", (4, 4), 1)
    picture.putpalette([0, 0, 0, 10, 20, 30])
    picture.save(tmp_path / "a.png", transparency=b"\xff\x80")
    assert open_rgb(tmp_path / "a.png")[0, 0].tolist() == [10, 20, 30]


def test_orientation_is_ignored(tmp_path: Path, rgb: np.ndarray) -> None:
    """A JPEG that is to be shown rotated keeps the shape in which it is stored."""
    exif = PILImage.Exif()
    exif[0x0112] = 6
    assert open_rgb(write(tmp_path / "a.jpg", rgb, exif=exif)).shape == (9, 12, 3)


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "neither PNG nor JPEG"), (b"GIF89a....", "neither"), (b"half", "truncated")]
)
def test_unreadable(tmp_path: Path, rgb: np.ndarray, content: bytes, said: str) -> None:
    """A file that cannot be decoded says why, without its path."""
    path = write(tmp_path / "a.png", rgb)
    path.write_bytes(path.read_bytes()[:-60] if content == b"half" else content)
    with pytest.raises(Unusable, match=said) as caught:
        open_rgb(path)
    assert str(tmp_path) not in str(caught.value)


def test_dangling(tmp_path: Path) -> None:
    """A file that vanished after it was listed is unusable, without its path."""
    with pytest.raises(Unusable, match="No such file") as caught:
        open_rgb(tmp_path / "gone.png")
    assert str(tmp_path) not in str(caught.value)
