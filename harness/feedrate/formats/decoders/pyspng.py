"""pyspng: libspng, a small PNG decoder that is faster than libpng for small images.

Behind one's back: its wheels are built so that neither CRCs nor zlib's checksum are looked at, and a flipped byte in
five becomes other pixels. A grey image comes without its channel.
"""

from __future__ import annotations

import numpy as np
import pyspng
from numpy.typing import NDArray

from feedrate.formats import Image
from feedrate.formats.decoders import Undecodable, check, shaped

REQUIRES: dict[str, str] = {"pyspng": "pyspng", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("png",)


def decode(data: bytes, shape: tuple[int, ...]) -> Image:
    """Decode one file.

    Args:
        data: a PNG file.
        shape: height, width, channels that are expected.

    Returns:
        uint8, height × width × channels, writable and owning its memory.

    Raises:
        Undecodable: it is damaged, or of another shape.
    """
    check(data, shape)
    try:
        pixels: NDArray[np.uint8] = pyspng.load(data)
    except RuntimeError as error:
        raise Undecodable(f"damaged ({error})") from error
    return shaped(pixels, shape)
