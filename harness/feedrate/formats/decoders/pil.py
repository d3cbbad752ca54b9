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
from feedrate.formats.decoders import Undecodable, check, shaped

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("png", "jpeg")

_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, PILImage.DecompressionBombError)
"""What Pillow raises on files that are truncated or damaged."""


def decode(data: bytes, shape: tuple[int, ...]) -> Image:
    """Decode one file.

    Args:
        data: a PNG or JPEG file.
        shape: height, width, channels that are expected.

    Returns:
        uint8, height × width × channels, writable and owning its memory.

    Raises:
        Undecodable: it is damaged, or of another shape.
    """
    check(data, shape)
    try:
        with PILImage.open(io.BytesIO(data), formats=("PNG", "JPEG")) as picture:
            return shaped(np.array(picture), shape)
    except UnidentifiedImageError as error:
        raise Undecodable("damaged (Pillow cannot identify it)") from error
    except _DAMAGE as error:
        raise Undecodable(f"damaged ({error})") from error
