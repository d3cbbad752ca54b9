"""Procedural images of DIV2K's geometry, for machines without its photographs: 2040 × 1356 pixels, RGB.

An image is luma noise of amplitude 1/f^1.5 (mean 110, standard deviation 48), two chroma fields of amplitude 1/f^2 and
a quarter of that deviation, and white noise of deviation 1: with these numbers Pillow's PNG encoder, at compress level
3 (that of ``feedrate.formats.png``), gives what DIV2K's own files have, 12.6 bits a pixel, *and* picks the row filter
that it picks for photographs (Paeth), which decides what decoding costs. Other recipes of the same bits a pixel decode
nearly twice as fast, because the filters "average" and "up" win there.

What it does *not* show: photographs have edges, sky and foliage, so their patches differ far more in size and in
decoding time than these do; nothing about the quality of super-resolution can be learnt from noise.

Images are computed in float64 (FFT) and rounded: machines whose libraries differ in the last bit almost always round
alike; where they do not, a note says so, the recorded ``data_hash`` differs, and results are not matched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from feedrate.formats import Image
from feedrate.workloads import DataSpec, Source
from feedrate.workloads._patches import Picture, loss, normalize, pairs, transform

__all__ = ["GOLDEN", "REQUIRES", "TASK", "VERSION", "fingerprint", "image", "loss", "normalize", "samples", "transform"]

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy", "torch": "torch", "torchvision": "torchvision"}
TASK: str = "super-resolution"
VERSION: int = 1
HEIGHT, WIDTH = 1356, 2040
SAMPLES_PER_IMAGE = 256
"""As many images as that takes, and at least two."""
GOLDEN = "c757cde3d2cd9eca"
"""First 16 hex digits of sha256 over the top left 64 × 64 pixels of image 0."""

_SEED = 0xD1512
_GRID = (1360, 2048)
"""What is computed and then cropped: sizes with small prime factors, for the FFT."""


def samples(spec: DataSpec) -> Source:
    """Cut (input, target) pairs from procedural images; an InputError where a patch is larger than they are."""
    count = max(2, -(-spec.n_samples // SAMPLES_PER_IMAGE))
    notes: list[str] = []

    def first_image() -> Image:
        pixels = image(0)
        if fingerprint(pixels) != GOLDEN:
            notes.append("div2k_standin: computed other pixels than the published ones; results match nobody's")
        return pixels

    rest = (Picture(f"image {number}", partial(image, number)) for number in range(1, count))
    return Source(pairs([Picture("image 0", first_image), *rest], spec).samples, notes)


def image(number: int) -> Image:
    """Make image ``number`` of the endless set: uint8, 1356 × 2040 × 3."""
    random = np.random.Generator(np.random.PCG64([_SEED, number]))
    whole = (plane[:HEIGHT, :WIDTH] for plane in planes(random, _GRID, 48, 1.5))
    return pixels_of(plane + random.standard_normal((HEIGHT, WIDTH)) for plane in whole)


def planes(
    random: np.random.Generator, shape: tuple[int, int], deviation: float, power: float
) -> Iterator[NDArray[np.float64]]:
    """Make red, green and blue: luma of mean 110 and amplitude 1/f^power, and two chroma fields.

    Chroma is made at half resolution: it is so smooth that its steps vanish under white noise.
    """
    luma = 110 + deviation * noise(random, shape, power)
    red, blue = (12 * noise(random, (shape[0] // 2, shape[1] // 2), 2.0) for _ in range(2))
    for chroma in (red, -(red + blue) / 2, blue):
        yield luma + chroma.repeat(2, axis=0).repeat(2, axis=1)


def pixels_of(planes: Iterable[NDArray[np.float64]]) -> Image:
    """Round planes to an image."""
    return np.stack([np.clip(np.rint(plane), 0, 255).astype(np.uint8) for plane in planes], axis=2)


def fingerprint(pixels: Image) -> str:
    """Hash the top left 64 × 64 pixels of an image, for comparison with ``GOLDEN``."""
    return hashlib.sha256(pixels[:64, :64].tobytes()).hexdigest()[:16]


def noise(random: np.random.Generator, shape: tuple[int, int], power: float) -> NDArray[np.float64]:
    """Noise of amplitude 1/f^power, mean 0 and standard deviation 1."""
    rows, columns = shape
    squared = np.fft.fftfreq(rows)[:, None] ** 2 + np.fft.rfftfreq(columns)[None, :] ** 2
    squared[0, 0] = np.inf
    spectrum = random.standard_normal((rows, columns // 2 + 1, 2)).view(np.complex128)[..., 0]
    spectrum *= squared ** (-power / 2)
    field: NDArray[np.float64] = np.fft.irfft2(spectrum, s=shape)
    field /= field.std()
    return field
