"""Cats and dogs: a small copy of the data set's layout, through torchvision's own loader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as PILImage

from feedrate.formats import Sample
from feedrate.schema.errors import InputError
from feedrate.sweep.preparation import without_names
from feedrate.workloads import DataSpec, Source, pets

pytestmark = pytest.mark.usefixtures("one_thread")

BREEDS, EACH = 6, 5


def add(folder: Path, lines: list[str], name: str, breed: int, pixels: np.ndarray) -> None:
    """Put a photograph into the layout."""
    PILImage.fromarray(pixels).save(folder / "images" / f"{name}.jpg", quality=95)
    lines.append(f"{name} {breed + 1} {breed % 2 + 1} {breed // 2 + 1}\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirty photographs of six breeds, sorted by breed, whose level is 40 times the breed's number."""
    base, lines = tmp_path / "oxford-iiit-pet", list[str]()
    (base / "images").mkdir(parents=True)
    (base / "annotations").mkdir()
    for place in range(BREEDS * EACH):
        size = (30 + place, 60 - place, 3)
        add(base, lines, f"Breed_{place}", place // EACH, np.full(size, 40 * (place // EACH), np.uint8))
    (base / "annotations" / "trainval.txt").write_text("".join(lines))
    return base


def source(folder: Path | None, count: int, size: int = 24) -> Source:
    """Ask for samples."""
    return pets.samples(DataSpec("pets", count, size, 1, folder))


def labels(samples: list[Sample]) -> list[int]:
    """The breed of every sample."""
    return [int(label[0, 0, 0]) for _, label in samples]


def test_samples(folder: Path) -> None:
    """Each is a square of uint8 and the breed that torchvision gives, which is that of its photograph."""
    got = list(source(folder, 30).samples)
    assert labels(got) == [place // EACH for place in range(30)]
    for image, label in got:
        assert (image.shape, image.dtype) == ((24, 24, 3), np.uint8)
        assert (label.shape, label.dtype) == ((1, 1, 1), np.uint8)
        assert image.flags.owndata
        assert abs(int(image.mean()) - 40 * int(label[0, 0, 0])) <= 1


def test_broken_photographs(folder: Path) -> None:
    """Those that cannot be read are skipped with a note that can be published without a name; others stand in."""
    (folder / "images" / "Breed_0.jpg").write_bytes(b"")
    whole = (folder / "images" / "Breed_5.jpg").read_bytes()
    (folder / "images" / "Breed_5.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "images" / "Breed_10.jpg").unlink()
    got = source(folder, 6)
    assert sorted(labels(list(got.samples))) == [0, 0, 0, 3, 4, 5]
    assert len(got.notes) == 3
    assert got.notes[0] == "skipped photograph 0: no image that Pillow knows"
    assert not any(str(folder) in note for note in got.notes)
    assert all(note.startswith("skipped a file: ") for note in without_names(got.notes))


def test_not_there(folder: Path, tmp_path: Path) -> None:
    """Without the data set, or with lists that are not its own, the message says what to run."""
    for given in (None, tmp_path / "nothing" / "oxford-iiit-pet"):
        with pytest.raises(InputError, match="run: feedrate data pets"):
            source(given, 1)
    (folder / "annotations" / "trainval.txt").write_text("one two\n")
    with pytest.raises(InputError, match="run: feedrate data pets"):
        source(folder, 1)


def test_transform_and_loss(folder: Path) -> None:
    """Images are normalised as ImageNet's are, labels are int64 without dimensions; the loss is the cross entropy."""
    image, label = pets.transform((np.full((8, 8, 3), 255, np.uint8), np.full((1, 1, 1), 36, np.uint8)))
    assert (image.shape, image.dtype) == (torch.Size((3, 8, 8)), torch.float32)
    assert image[:, 0, 0].tolist() == pytest.approx([(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225])
    assert (label.shape, label.dtype, label.item()) == (torch.Size(()), torch.int64, 36)
    assert pets.loss(torch.zeros(2, 37), torch.tensor([0, 36])).item() == pytest.approx(np.log(37))
