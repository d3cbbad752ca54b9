"""simplejpeg: libjpeg-turbo's own interface (TurboJPEG), built into the wheel; JPEG only.

Behind one's back: what libjpeg only warns of is an error here (``strict``), so that few damaged files pass; grey
becomes colour unless asked for; sizes below those asked for are rounded up to what DCT scaling can give.
"""

from __future__ import annotations

import simplejpeg

from feedrate.formats import Image

REQUIRES: dict[str, str] = {"simplejpeg": "simplejpeg", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("jpeg",)
SCALES: tuple[int, ...] = (2, 4, 8)
FAILURES = (ValueError,)


def decode(data: bytes, shape: tuple[int, ...]) -> Image:
    """Decode a JPEG file."""
    pixels: Image = simplejpeg.decode_jpeg(data, colorspace="GRAY" if shape[2] == 1 else "RGB")
    return pixels


def reduced(data: bytes, shape: tuple[int, ...], scale: int) -> Image:
    """Decode a JPEG file at a part of its size."""
    height, width = (-(-size // scale) for size in shape[:2])
    pixels: Image = simplejpeg.decode_jpeg(data, min_height=height, min_width=width, min_factor=scale)
    return pixels
