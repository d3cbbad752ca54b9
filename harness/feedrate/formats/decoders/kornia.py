"""kornia-rs: kornia's library in Rust; its JPEG decoder is libjpeg-turbo, built into the wheel. JPEG only.

Behind one's back: its other decoder, in Rust (``decode_image_jpeg``), differs in how it fills up colours and is slower;
PNG files need their depth and shape named.
"""

from __future__ import annotations

from typing import Any

from kornia_rs import io

REQUIRES: dict[str, str] = {"kornia_rs": "kornia-rs", "numpy": "numpy"}
CODECS: tuple[str, ...] = ("jpeg",)
FAILURES = (Exception,)
"""It raises nothing narrower."""


def decode(data: bytes, shape: tuple[int, ...]) -> Any:
    """Decode a JPEG file."""
    return io.decode_image_jpegturbo(data, "mono" if shape[2] == 1 else "rgb")
