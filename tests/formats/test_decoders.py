"""Decoders: the same pixels from all, and never other pixels than were packed without a word."""

from __future__ import annotations

import io

import numpy as np
import pytest
from contract import flipped
from PIL import Image as PILImage
from skimage import data as photographs

from feedrate.formats import Image
from feedrate.formats._images import encode_jpeg, encode_png
from feedrate.formats.decoders import Undecodable, load
from feedrate.schema.plugins import declared, names, on_device

PACKAGE = "feedrate.formats.decoders"
CODECS = {name: declared(PACKAGE, name, "CODECS") for name in names(PACKAGE) if not on_device(name)}
OF_PNG, OF_JPEG = ([name for name, codecs in CODECS.items() if codec in codecs] for codec in ("png", "jpeg"))
SHAPES = [(1, 1, 1), (4, 4, 1), (31, 17, 1), (1, 1, 3), (31, 17, 3), (2, 9, 4), (31, 17, 4)]


def photograph(height: int, width: int, channels: int = 3) -> Image:
    """Part of a photograph of a cat; the fourth channel is the first one again."""
    pixels = photographs.chelsea()[:height, :width]
    return np.ascontiguousarray(np.dstack([pixels, pixels[..., :1]])[..., :channels])


def saved(picture: PILImage.Image) -> bytes:
    """A PNG file of some other kind than ours."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return file.getvalue()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OF_PNG)
def test_png_gives_what_was_encoded(name: str, shape: tuple[int, ...]) -> None:
    """Grey, RGB and RGBA come back pixel by pixel, in this order of channels, writable, and not over the file."""
    pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    data, decode = encode_png(pixels), load(name, "png")
    first, second = decode(data, shape), decode(data, shape)
    assert first.dtype == np.uint8
    assert np.array_equal(first, pixels)
    first[:] = 0
    assert np.array_equal(second, pixels)
    assert np.array_equal(decode(data, shape), pixels)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_decoders_agree(channels: int) -> None:
    """All decoders give the same photograph within two levels, close to what was encoded."""
    pixels = photograph(120, 90, channels)
    data = encode_jpeg(pixels)
    images = [load(name, "jpeg")(data, pixels.shape).astype(int) for name in OF_JPEG]
    assert len(images) == 6
    for image in images:
        assert np.abs(image - images[0]).max() <= 2
        assert np.abs(image - pixels).mean() < 2


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OF_PNG)
def test_damaged_png(name: str, step: int) -> None:
    """A PNG file with a changed byte, cut before it, or no PNG file is an error: no other pixels, no crash."""
    pixels = photograph(24, 20)
    data = encode_png(pixels)
    cut = [damaged for place in range(0, len(data), step) for damaged in (flipped(data, place), data[:place])]
    for damaged in (*cut, b"not an image", b"GIF89a" + bytes(100), b"\xff\xd8\xff"):
        with pytest.raises(Undecodable):
            load(name, "png")(damaged, pixels.shape)


@pytest.mark.parametrize("name", OF_JPEG)
def test_damaged_jpeg(name: str) -> None:
    """A JPEG file that lost its end, or has another size, is an error; so are tables that make no sense."""
    pixels = photograph(40, 40)
    data, decode = encode_jpeg(pixels), load(name, "jpeg")
    for kept in [*range(0, len(data), 97), len(data) - 3, len(data) - 2, len(data) - 1]:
        with pytest.raises(Undecodable, match="no end marker" if kept else "neither"):
            decode(data[:kept], pixels.shape)
    with pytest.raises(Undecodable, match="shape"):
        decode(data, (40, 48, 3))
    noticed = 0
    for place in range(0, 700, 5):
        try:
            assert decode(flipped(data, place), pixels.shape).shape == pixels.shape
        except Undecodable:
            noticed += 1
    assert noticed > 10


@pytest.mark.parametrize("name", OF_PNG)
def test_other_png(name: str) -> None:
    """Another size, depth, palette or number of channels is refused with what came, never converted."""
    pixels = photograph(16, 16)
    rgb = PILImage.fromarray(pixels)
    others = {
        "16 × 12 pixels": encode_png(pixels[:, :12]),
        "colour type 0, 8 bits": saved(rgb.convert("L")),
        "colour type 3": saved(rgb.convert("P")),
        "colour type 6": saved(rgb.convert("RGBA")),
        "16 bits": saved(PILImage.fromarray(pixels[..., 0].astype(np.uint16) * 256)),
    }
    for what, data in others.items():
        with pytest.raises(Undecodable, match=what):
            load(name, "png")(data, (16, 16, 3))
