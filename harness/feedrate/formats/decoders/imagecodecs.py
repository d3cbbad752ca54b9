"""imagecodecs: the codecs of many libraries in one wheel; here libjpeg-turbo's, libpng's and libwebp's.

Behind one's back: a JPEG file that is cut short comes back whole, its end grey, without a word (files are looked at
before); the wheel brings libraries of its own, whose versions are not those of others.
"""

from __future__ import annotations

from typing import Any

import imagecodecs

REQUIRES: dict[str, str] = {"imagecodecs": "imagecodecs", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("png", "jpeg", "webp")
FAILURES = (imagecodecs.JpegError, imagecodecs.PngError, imagecodecs.WebpError, ValueError)


def decode(data: bytes, _shape: tuple[int, ...]) -> Any:
    """Decode a PNG, JPEG or WebP file."""
    if data.startswith(b"\xff\xd8"):
        return imagecodecs.jpeg_decode(data)
    return imagecodecs.webp_decode(data) if data.startswith(b"RIFF") else imagecodecs.png_decode(data)
