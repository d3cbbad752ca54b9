"""Pillow: what most datasets are read with, and what torchvision's own datasets use.

PNG is zlib and Pillow's unfiltering, JPEG is libjpeg-turbo. Behind one's back: it opens lazily (nothing is decoded
before the pixels are asked for); it tries every plug-in that it knows unless told which; it holds the GIL but while
decoding; it skips the CRC of PNG's pixels; and the array is one more copy of the pixels.
"""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image as PILImage
from PIL import UnidentifiedImageError

from feedrate.formats import Image
from feedrate.formats.decoders import Undecodable

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("png", "jpeg", "webp")
SCALES: tuple[int, ...] = (2, 4, 8)
FAILURES = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, PILImage.DecompressionBombError)


def decode(data: bytes, _shape: tuple[int, ...]) -> Image:
    """Decode a PNG, JPEG or WebP file."""
    with _opened(data) as picture:
        return np.array(picture)


def reduced(data: bytes, shape: tuple[int, ...], scale: int) -> Image:
    """Decode a JPEG file at a part of its size, which Pillow calls a draft."""
    with _opened(data) as picture:
        picture.draft(None, (shape[1] // scale, shape[0] // scale))
        return np.array(picture)


def _opened(data: bytes) -> PILImage.Image:
    try:
        return PILImage.open(io.BytesIO(data), formats=("PNG", "JPEG", "WEBP"))
    except UnidentifiedImageError as error:
        raise Undecodable("damaged (Pillow cannot identify it)") from error
