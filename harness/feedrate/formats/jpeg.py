"""A folder of JPEG files, one a field of a sample: what photographs come as, and the only lossy format here.

Quality 95 with colours at full resolution (4:4:4). Most JPEG files have half the colour resolution (4:2:0): they are a
third smaller and decode faster, but what is lost there is what super-resolution is trained to restore, and decoders
differ in how they fill it up, where at 4:4:4 they agree to a level or two. A label (a field of fewer than 8 × 8 pixels)
and an image with transparency, which JPEG does not know, are stored as they are, byte by byte, in a file that ends in
``.raw``.

It differs from ``png`` in the codec alone. What it does not show: what training on changed pixels costs. And no JPEG
file has a checksum: a flipped bit among its pixels is decoded into other pixels by every decoder.
"""

from __future__ import annotations

from functools import partial

from feedrate.formats._images import JPEG, FolderReader, write_files

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "files", "stores": "jpeg", "knobs": ("decoder",), "lossy": True}
MEAN_ERROR: float = 4.0
"""Largest mean absolute difference, in levels of 256, with which an image may come back.

Photographs come back with 0.6 to 1.8, the stand-in with 1.3, random bytes, the worst, with 3.6.
"""

pack = partial(write_files, codec=JPEG)


class JpegReader(FolderReader):
    """Decodes JPEG files."""

    codec = JPEG


open = JpegReader
