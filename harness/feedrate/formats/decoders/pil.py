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
CODECS: tuple[str, ...] = ("png", "jpeg")
FAILURES = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, PILImage.DecompressionBombError)


def decode(data: bytes, _shape: tuple[int, ...]) -> Image:
    """Decode a PNG or JPEG file."""
    try:
        with PILImage.open(io.BytesIO(data), formats=("PNG", "JPEG")) as picture:
            return np.array(picture)
    except UnidentifiedImageError as error:
        raise Undecodable("damaged (Pillow cannot identify it)") from error
