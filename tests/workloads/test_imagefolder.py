"""Image files of any size: which are taken, how they are cropped, and what a stand-in of ImageNet is like."""

from __future__ import annotations

import io
import statistics
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest
from beside import tried
from PIL import Image as PILImage
from skimage import data as photographs

from feedrate.formats import Sample
from feedrate.formats.decoders import load_for_files, scales
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import declared, names, on_device
from feedrate.workloads import DataSpec, imagefolder, imagefolder_standin
from feedrate.workloads._crops import AREA, RATIO, Crop, Decoded, augment, draw, pack, unpack, visit

pytestmark = pytest.mark.usefixtures("one_thread")

PACKAGE = "feedrate.formats.decoders"
DECODERS = [name for name in names(PACKAGE) if "jpeg" in declared(PACKAGE, name, "CODECS") and not on_device(name)]
SIZE = 224


def encoded(pixels: np.ndarray, kind: str = "JPEG", **options: object) -> bytes:
    """An image file."""
    file = io.BytesIO()
    PILImage.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def save(path: Path, pixels: np.ndarray) -> None:
    """Put a file into a tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    PILImage.fromarray(pixels).save(path)


def tree(folder: Path) -> Path:
    """Six files in two classes: JPEG, PNG and WebP, grey and in colour, of different sizes."""
    random = np.random.default_rng(1)
    for place, kind in enumerate(("jpg", "png", "webp") * 2):
        shape = (30 + place, 40 - place) if place == 3 else (30 + place, 40 - place, 3)
        save(folder / ("cats" if place < 3 else "dogs") / f"{place}.{kind}", random.integers(0, 256, shape, np.uint8))
    return folder


def drawn(folder: Path | None, count: int) -> tuple[list[Sample], list[str]]:
    """Samples of a tree, and its notes."""
    source = imagefolder.samples(DataSpec("imagefolder", count, SIZE, 1, folder))
    return list(source.samples), source.notes


def test_files_are_taken_as_they_are(tmp_path: Path) -> None:
    """Every byte of every file, its size, and the place of its folder among all, sorted, as its class."""
    samples, notes = drawn(tree(tmp_path), 6)
    assert not notes
    files = sorted(tmp_path.rglob("*.*"))
    for path, sample in zip(files, samples, strict=True):
        with PILImage.open(path) as picture:
            label = int(path.parent.name == "dogs")
            assert unpack(sample) == (path.read_bytes(), label, picture.height, picture.width)


def test_what_decoders_understand_differently_is_left_out(tmp_path: Path) -> None:
    """Transparency and damage are named, other files stand in; where too few are left, some come twice, with a note."""
    tree(tmp_path)
    save(tmp_path / "cats" / "a.png", np.zeros((9, 9, 4), np.uint8))
    (tmp_path / "dogs" / "b.jpg").write_bytes(encoded(np.zeros((99, 99, 3), np.uint8))[:300])
    samples, notes = drawn(tmp_path, 8)
    assert len({unpack(sample)[0] for sample in samples}) == 6
    assert notes[0] == "skipped cats/a.png: its pixels are RGBA; expected RGB or L"
    assert notes[1].startswith("skipped dogs/b.jpg: ")
    assert notes[2] == "6 files for 8 samples: some are packed more than once"


def test_no_usable_image_is_an_error(tmp_path: Path) -> None:
    """No folder, an empty one, one whose files are all left out, more classes than a network has."""
    with pytest.raises(InputError, match="--data"):
        drawn(None, 1)
    with pytest.raises(InputError, match="no image here"):
        drawn(tmp_path, 1)
    save(tmp_path / "a" / "a.png", np.zeros((9, 9, 4), np.uint8))
    with pytest.raises(InputError, match=r"no image can be used \(skipped a/a.png"):
        drawn(tmp_path, 1)
    for place in range(imagefolder.CLASSES):
        (tmp_path / f"c{place}").mkdir()
        (tmp_path / f"c{place}" / "a.png").touch()
    with pytest.raises(InputError, match="1001 folders with images; expected one for each of 1000"):
        drawn(tmp_path, 1)


def test_crops_are_spread_as_published() -> None:
    """Areas are uniform from 8 % to all where the image allows, ratios lie within 3:4 and 4:3, half are flipped."""
    random = Random(1)
    crops = [draw(random, 1000, 1000) for _ in range(4000)]
    areas = np.array([crop.height * crop.width / 1e6 for crop in crops])
    ratios = np.array([crop.width / crop.height for crop in crops])
    assert AREA[0] * 0.99 < areas.min() < 0.1
    assert RATIO[0] * 0.98 < ratios.min() < 0.8 < 1.2 < ratios.max() < RATIO[1] * 1.02
    assert abs(np.log(ratios).mean()) < 0.02
    # Below three quarters every crop of any ratio fits into a square, and is equally likely.
    small = areas[areas < 0.75]
    assert statistics.fmean(small) == pytest.approx((AREA[0] + 0.75) / 2, abs=0.02)
    assert 0.47 < statistics.fmean(crop.flipped for crop in crops) < 0.53


def test_a_crop_is_what_pillow_makes_of_it() -> None:
    """Cut, resized with antialiasing and turned as torchvision does it to an image of Pillow's, within a level."""
    pixels = photographs.coffee()
    label = np.zeros((1, 1, 2), np.uint8)
    image, same = augment(Decoded(pixels, 1, Crop(30, 40, 300, 400, True), label), SIZE)
    cut = PILImage.fromarray(pixels).crop((40, 30, 440, 330)).resize((SIZE, SIZE), PILImage.Resampling.BILINEAR)
    assert np.abs(image.astype(int) - np.array(cut)[:, ::-1]).max() <= 1
    assert same is label


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_agree(name: str) -> None:
    """Of a photograph with half the colours' resolution: the median pixel alike, on average within a level."""
    pixels = photographs.coffee()
    file = encoded(pixels, quality=85, subsampling="4:2:0")
    sample = pack(file, 7, *pixels.shape[:2])
    by_pillow, by_name = (
        augment(visit(sample, Random(3), load_for_files(each), (), SIZE), SIZE)[0].astype(int) for each in ("pil", name)
    )
    whole = load_for_files(name)(file, *pixels.shape[:2], 1).astype(int)
    difference = np.abs(whole - load_for_files("pil")(file, *pixels.shape[:2], 1))
    assert np.median(difference) == 0
    assert difference.mean() < 1
    assert np.abs(by_name - by_pillow).mean() < 1


@pytest.mark.parametrize("name", [name for name in DECODERS if scales(name)])
@pytest.mark.parametrize("grey", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_scaled_decoding_gives_nearly_the_same_crop(name: str, grey: bool) -> None:
    """A crop of a large photograph comes from a smaller image, never one with fewer pixels than the crop becomes."""
    pixels = np.ascontiguousarray(photographs.retina()[..., 0] if grey else photographs.retina())
    sample = pack(encoded(pixels, quality=90), 7, *pixels.shape[:2])
    used = set()
    for seed in range(12):
        whole = visit(sample, Random(seed), load_for_files(name), (), 200)
        smaller = visit(sample, Random(seed), load_for_files(name), scales(name), 200)
        used.add(smaller.scale)
        assert whole.crop == smaller.crop
        assert min(smaller.crop.height, smaller.crop.width) >= 200 * smaller.scale or smaller.scale == 1
        left, right = (augment(each, 200)[0].astype(int) for each in (whole, smaller))
        assert np.abs(left - right).mean() < 3
    assert used >= {2, 4}


@pytest.fixture(scope="module")
def standin() -> list[tuple[bytes, int, int, int]]:
    """Files of the stand-in."""
    source = imagefolder_standin.samples(DataSpec("imagefolder_standin", 128, SIZE, 1))
    return [unpack(sample) for sample in source.samples]


@pytest.mark.slow
def test_the_stand_in_has_imagenets_geometry(standin: list[tuple[bytes, int, int, int]]) -> None:
    """Means of about 469 × 387 pixels and 110 kB, half the colours' resolution; all differ, and are the same again."""
    files, labels, heights, widths = zip(*standin, strict=True)
    assert statistics.fmean(widths) == pytest.approx(469, rel=0.04)
    assert statistics.fmean(heights) == pytest.approx(387, rel=0.04)
    assert statistics.fmean(map(len, files)) == pytest.approx(110_000, rel=0.08)
    assert len(set(files)) == len(files)
    assert len(set(labels)) > 100
    again = imagefolder_standin.samples(DataSpec("imagefolder_standin", 2, SIZE, 1))
    assert [unpack(sample) for sample in again.samples] == standin[:2]
    for file in files[:20]:
        with PILImage.open(io.BytesIO(file)) as picture:
            assert [layer[1:3] for layer in picture.layer] == [(2, 2), (1, 1), (1, 1)]


@tried
def test_the_stand_in_decodes_like_photographs(standin: list[tuple[bytes, int, int, int]]) -> None:
    """A file takes 0.85 to 1.15 times what a photograph of as many pixels and bytes takes, decoded in turns with it."""
    ours = [file for file, _, height, width in standin if (width, height) == (500, 375)][:6]
    wanted = statistics.fmean(map(len, ours))
    theirs = []
    for name in ("coffee", "astronaut", "chelsea", "rocket"):
        pixels = getattr(photographs, name)()
        picture = PILImage.fromarray(pixels).resize((500, 375), PILImage.Resampling.LANCZOS)
        files = [encoded(np.array(picture), quality=quality, subsampling="4:2:0") for quality in range(80, 101)]
        theirs.append(min(files, key=lambda file: abs(len(file) - wanted)))
    ratios = []
    for _ in range(15):
        took = [_took(files) / sum(map(len, files)) for files in (ours, theirs)]
        ratios.append(took[0] / took[1])
    assert 0.85 < statistics.median(ratios) < 1.15


def _took(files: list[bytes]) -> float:
    begun = time.perf_counter()
    for file in files:
        with PILImage.open(io.BytesIO(file)) as picture:
            picture.load()
    return time.perf_counter() - begun
