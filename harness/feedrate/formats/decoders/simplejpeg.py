"""simplejpeg: libjpeg-turbo's own interface (TurboJPEG), built into the wheel; JPEG only.

Behind one's back: what libjpeg only warns of is an error here (``strict``), so that few damaged files pass; grey
becomes colour unless asked for; sizes below those asked for are rounded up to what DCT scaling can give.
"""

from __future__ import annotations

from typing import Any

import simplejpeg

REQUIRES: dict[str, str] = {"simplejpeg": "simplejpeg", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("jpeg",)
SCALES: tuple[int, ...] = (2, 4, 8)
FAILURES = (ValueError,)


def decode(data: bytes, shape: tuple[int, ...]) -> Any:
    """Decode a JPEG file."""
    return simplejpeg.decode_jpeg(data, colorspace="GRAY" if shape[2] == 1 else "RGB")


def reduced(data: bytes, shape: tuple[int, ...], scale: int) -> Any:
    """Decode a JPEG file at a part of its size."""
    height, width = (-(-size // scale) for size in shape[:2])
    return simplejpeg.decode_jpeg(data, min_height=height, min_width=width, min_factor=scale)
