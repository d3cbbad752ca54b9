"""pyspng: libspng, a small PNG decoder that is faster than libpng for small images.

Behind one's back: its wheels are built so that neither CRCs nor zlib's checksum are looked at, and a flipped byte in
five becomes other pixels. A grey image comes without its channel.
"""

from __future__ import annotations

from typing import Any

import pyspng

REQUIRES: dict[str, str] = {"pyspng": "pyspng", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("png",)
FAILURES = (RuntimeError,)


def decode(data: bytes, _shape: tuple[int, ...]) -> Any:
    """Decode a PNG file."""
    return pyspng.load(data)
