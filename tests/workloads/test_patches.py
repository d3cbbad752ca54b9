"""Cutting pairs from images, spread evenly, each image once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as PILImage

from feedrate.formats import Image
from feedrate.schema.errors import InputError
from feedrate.workloads import DataSpec, folder
from feedrate.workloads._patches import Picture, loss, mix, pairs, transform
from feedrate.workloads._photos import Unusable


class Gallery:
    """Flat images whose level tells their place; counts how often each is loaded."""

    def __init__(self, count: int, broken: tuple[int, ...] = (), size: tuple[int, int] = (40, 50)) -> None:
        self.loads: list[int] = []
        self.broken, self.size = broken, size
        self.pictures = [Picture(f"{place}.png", lambda place=place: self.load(place)) for place in range(count)]

    def load(self, place: int) -> Image:
        """Give image ``place``."""
        self.loads.append(place)
        if place in self.broken:
            raise Unusable("broken")
        return np.full((*self.size, 3), place, np.uint8)

    def places(self, n_samples: int) -> list[int]:
        """From which image each of so many samples came."""
        source = pairs(self.pictures, DataSpec("folder", n_samples, 16, 2))
        self.notes = source.notes
        return [int(target[0, 0, 0]) for _, target in source.samples]


def noise(height: int, width: int) -> Image:
    """An image without two equal patches."""
    return np.random.default_rng(height * width).integers(0, 256, (height, width, 3), np.uint8)


def test_pair_geometry() -> None:
    """Both fields are patches of one place: the target of the image, the input of its twin through Pillow's bicubic."""
    image = noise(41, 53)
    cropped = PILImage.fromarray(image[:39, :51])
    smaller = cropped.resize((17, 13), PILImage.Resampling.BICUBIC)
    degraded = np.asarray(smaller.resize((51, 39), PILImage.Resampling.BICUBIC))
    for small, large in pairs([Picture("a", lambda: image)], DataSpec("folder", 20, 16, 3)).samples:
        assert small.shape == large.shape == (16, 16, 3)
        assert small.flags.owndata
        assert large.flags.owndata
        top, left = next(
            (y, x) for y in range(24) for x in range(36) if np.array_equal(image[y : y + 16, x : x + 16], large)
        )
        assert np.array_equal(degraded[top : top + 16, left : left + 16], small)


@pytest.mark.parametrize("broken", [(), (0,), (2, 3), (4,), (0, 1, 3, 4), (3, 4)])
def test_spread_evenly(broken: tuple[int, ...]) -> None:
    """Each image gives its share, in order, and is loaded once; the number is the one asked for, whatever is broken."""
    gallery = Gallery(5, broken)
    places = gallery.places(33)
    counts = [places.count(place) for place in range(5)]
    assert places == sorted(places)
    assert len(places) == 33
    assert set(places) == set(range(5)) - set(broken)
    assert broken or max(counts) - min(counts) == 1
    assert gallery.loads == [0, 1, 2, 3, 4]
    assert gallery.notes == [f"skipped {place}.png: broken" for place in broken]


def test_same_everywhere() -> None:
    """Positions come from integers alone: the published ones, and the same in every draw."""
    assert [mix(0), mix(1)] == [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1]  # splitmix64's reference values
    draws = [pairs([Picture("a", lambda: noise(64, 64))], DataSpec("folder", 9, 8, 2)).samples for _ in range(2)]
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(*draws, strict=True))


def test_a_folder_of_photographs(tmp_path: Path) -> None:
    """As many pairs as asked for; a note shows a file's name below the folder, never where the folder lies."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "bad.png").write_bytes(b"")
    PILImage.fromarray(noise(20, 20)).save(tmp_path / "good.png")
    source = folder.samples(DataSpec("folder", 7, 8, 2, tmp_path))
    assert [field.shape for sample in source.samples for field in sample] == [(8, 8, 3)] * 14
    assert source.notes == ["skipped sub/bad.png: neither PNG, JPEG nor WebP"]


def test_without_photographs(tmp_path: Path) -> None:
    """Without a folder, with one that is missing or with an empty one, the message says what to do."""
    with pytest.raises(InputError, match="folder: no folder of photographs was given; name one with --data DIR"):
        folder.samples(DataSpec("folder", 7, 16, 2))
    for name, problem in (("missing", "no such folder"), (".", "no image here")):
        with pytest.raises(InputError, match=problem):
            folder.samples(DataSpec("folder", 7, 16, 2, tmp_path / name))


def test_transform_and_loss() -> None:
    """Tensors are float, channels first, in 0..1; the loss is the mean squared error."""
    tensors = transform((np.full((4, 6, 3), 255, np.uint8), np.zeros((4, 6, 3), np.uint8)))
    assert [(t.shape, t.dtype) for t in tensors] == [(torch.Size((3, 4, 6)), torch.float32)] * 2
    assert loss(tensors[0], tensors[1] + 0.5).item() == pytest.approx(0.25)
