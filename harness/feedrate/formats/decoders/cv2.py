"""OpenCV: libpng and libjpeg-turbo in its own wrapping; channels in the order blue, green, red unless told otherwise.

Here it decodes into RGB at once, as ``IMREAD_COLOR_RGB`` (OpenCV 4.11) does without a pass over the pixels.
``IMREAD_UNCHANGED`` and ``cvtColor``, which people write, is one more pass, and one that OpenCV spreads over threads
that it starts in every worker (unless ``setNumThreads(0)``). ``imdecode`` itself starts none, so nothing is set here.
Behind one's back: a damaged file is no exception but None, a grey file becomes colour and 16 bits become 8 (PNG files
of another kind are refused here), a JPEG file is turned as its EXIF says (not here), and messages go to stderr.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from feedrate.formats.decoders import Undecodable

REQUIRES: dict[str, str] = {"cv2": "opencv-python-headless", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("png", "jpeg", "webp")
SCALES: tuple[int, ...] = (2, 4, 8)
FAILURES = (cv2.error,)

_FLAGS = {1: cv2.IMREAD_GRAYSCALE, 3: cv2.IMREAD_COLOR_RGB, 4: cv2.IMREAD_UNCHANGED}
"""By channels."""
_REDUCED = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}
"""By scale; they give blue, green, red."""


def decode(data: bytes, shape: tuple[int, ...]) -> Any:
    """Decode a PNG, JPEG or WebP file."""
    pixels = _decoded(data, _FLAGS.get(shape[2], cv2.IMREAD_UNCHANGED))
    return pixels[..., [2, 1, 0, 3]] if pixels.shape == shape and shape[2] == 4 else pixels


def reduced(data: bytes, _shape: tuple[int, ...], scale: int) -> Any:
    """Decode a JPEG file at a part of its size."""
    return np.ascontiguousarray(_decoded(data, _REDUCED[scale])[..., ::-1])


def _decoded(data: bytes, flags: int) -> Any:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        raise Undecodable("damaged (OpenCV cannot decode it)")
    return pixels
