"""Procedural images: the published pixels, with a photograph's cost of decoding."""

from __future__ import annotations

import io
import statistics
import time

import numpy as np
import pytest
from beside import tried
from PIL import Image as PILImage

from feedrate.formats import Image
from feedrate.formats._images import encode_png
from feedrate.workloads import DataSpec, div2k_standin


@pytest.fixture(scope="module")
def image() -> Image:
    """Image 0."""
    return div2k_standin.image(0)


def test_golden(image: Image) -> None:
    """The pixels are the published ones on this machine; if they are not, its results match nobody's."""
    assert image.shape == (1356, 2040, 3)
    assert image.dtype == np.uint8
    assert div2k_standin.fingerprint(image) == div2k_standin.GOLDEN


@tried
def test_decodes_like_a_photograph(image: Image) -> None:
    """Decoding a crop takes 0.8 to 1.25 times what a photograph of the same size takes, decoded in turns with it."""
    photo = pytest.importorskip("skimage.data").chelsea()  # 451 × 300, 13.7 bits a pixel, CC0
    height, width = photo.shape[:2]
    files = [encode_png(image[:height, :width]), encode_png(np.ascontiguousarray(photo))]
    ratios = []
    for _ in range(31):
        marks = [time.perf_counter_ns()]
        for file in files:
            np.array(PILImage.open(io.BytesIO(file)))
            marks.append(time.perf_counter_ns())
        ratios.append((marks[1] - marks[0]) / (marks[2] - marks[1]))
    assert 0.8 < statistics.median(ratios) < 1.25


def test_samples(monkeypatch: pytest.MonkeyPatch, image: Image) -> None:
    """Two images serve up to 512 samples, and a machine that computes other pixels says so in a note."""
    made = []
    monkeypatch.setattr(div2k_standin, "image", lambda place: made.append(place) or image)
    source = div2k_standin.samples(DataSpec("div2k_standin", 4, 64, 2))
    assert [field.shape for sample in source.samples for field in sample] == [(64, 64, 3)] * 8
    assert (made, source.notes) == ([0, 1], [])
    monkeypatch.setattr(div2k_standin, "GOLDEN", "another")
    source = div2k_standin.samples(DataSpec("div2k_standin", 1025, 16, 2))
    assert len(list(source.samples)) == 1025
    assert made == [0, 1, 0, 1, 2, 3, 4]
    assert len(source.notes) == 1
    assert "other pixels" in source.notes[0]
