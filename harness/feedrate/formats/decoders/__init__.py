"""Decoders: image files → pixels. One file a library, found by its name, imported only when used.

A decoder module has a docstring (what it is, what it does behind one's back), ``REQUIRES``, and

- ``CODECS: tuple[str, ...]``: which of ``png``, ``jpeg`` and ``webp`` it decodes;
- ``SCALES: tuple[int, ...]``: by which it can reduce a JPEG file while it decodes (DCT scaling), if at all;
- ``DEVICE: str``, where a device decodes whole batches by ``decode_all(files, device)`` and there is nothing else;
- ``FAILURES``: a tuple of what its library raises on damaged files;
- ``decode(data, shape)``: the pixels of one file: uint8, height × width × channels (1, 3 or 4: grey, RGB, RGBA),
  writable and owning their memory. Grey pixels may lack their channel;
- ``reduced(data, shape, scale)``, where there are ``SCALES``: those of a JPEG file, reduced so many times; RGB or grey.

No decoder may return pixels of a damaged PNG file, and none but OpenCV is safe on its own. Of all ways to flip one
byte, Pillow turns one in a hundred into other pixels without a word; libspng, as pyspng's wheels build it, one in five;
torchvision 0.29 *kills the process* (SIGSEGV) at nearly all. So ``load`` puts the same checks around all decoders: a
file's CRCs cost 2 to 4 % of decoding it. A JPEG file carries no checksum: flipped bits *cannot be noticed*.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType

import numpy as np

from feedrate.formats import Image
from feedrate.schema import plugins
from feedrate.schema.errors import InputError

WEBP_SIGNATURE = (b"RIFF", b"WEBP")
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
JPEG_BEGIN, JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"

_HEADER = struct.Struct(">8sI4sIIBBBBB")
"""Signature, the first chunk's length and name, and what IHDR holds."""
_COLOUR_TYPE = {1: 0, 3: 2, 4: 6}
"""PNG's number for grey, RGB and RGBA, by channels."""

_TRAILER = 4096
"""Bytes at the end of a file of others in which a JPEG's end is looked for: cameras and editors append to it."""

Decode = Callable[[bytes, tuple[int, ...]], Image]
DecodeFile = Callable[[bytes, int, int, int], Image]
"""(file, height, width, scale) → RGB pixels."""


class Undecodable(Exception):
    """A file that is no image of the shape that is expected; its message is the problem, without the file's name."""


@cache
def load(name: str, codec: str) -> Decode:
    """Import a decoder, once a process; an InputError where it cannot be used for ``codec``."""
    module = plugins.load(__name__, name)
    if codec not in module.CODECS:
        raise _unable(name, codec, module.CODECS)

    def decode(data: bytes, shape: tuple[int, ...]) -> Image:
        check(data, shape)
        pixels = _decoded(module, data, shape)
        if pixels.shape != shape or pixels.dtype != np.uint8:
            raise Undecodable(f"an image of shape {pixels.shape} and type {pixels.dtype}")
        return pixels

    return decode


def scales(name: str) -> tuple[int, ...]:
    """By which a decoder can reduce a JPEG file while it decodes, read without importing it."""
    return plugins.declared(__name__, name, "SCALES") or ()


@cache
def load_for_files(name: str) -> DecodeFile:
    """Import a decoder for files of others; an InputError for a kind that it does not decode."""
    module = plugins.load(__name__, name)

    def decode(data: bytes, height: int, width: int, scale: int) -> Image:
        codec = kind(data)
        if codec not in module.CODECS:
            raise _unable(name, codec or "such files", module.CODECS)
        if codec == "png":
            _check_chunks(data)
        if codec == "jpeg" and JPEG_END not in data[-_TRAILER:]:
            raise Undecodable("damaged (truncated: no end marker)")
        pixels = _decoded(module, data, (height, width, 3), scale)
        if pixels.shape[2] == 1:
            pixels = np.repeat(pixels, 3, axis=2)
        if pixels.shape != (-(-height // scale), -(-width // scale), 3):
            raise Undecodable(f"an image of shape {pixels.shape}")
        return pixels

    return decode


def _decoded(module: ModuleType, data: bytes, shape: tuple[int, ...], scale: int = 1) -> Image:
    """Have a library decode a file: height × width × channels, or ``Undecodable`` where it fails."""
    try:
        pixels: Image = module.decode(data, shape) if scale == 1 else module.reduced(data, shape, scale)
    except module.FAILURES as error:
        reason, *_ = str(error).split("\n", 1)
        raise Undecodable(f"damaged ({reason})") from error
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


def _unable(name: str, codec: str, able: Sequence[str]) -> InputError:
    return InputError(f"decoder: '{name}' does not decode {codec}, only {', '.join(able)}; choose another")


def kind(data: bytes) -> str:
    """Name the codec of an image file, as ``CODECS`` does, by its first bytes; empty where they are none's."""
    if data.startswith(JPEG_BEGIN):
        return "jpeg"
    if data.startswith(PNG_SIGNATURE):
        return "png"
    return "webp" if (data[:4], data[8:12]) == WEBP_SIGNATURE else ""


def check(data: bytes, shape: tuple[int, ...]) -> None:
    """Check that a file is whole and, where it is a PNG file, undamaged and of the expected shape and depth."""
    if data.startswith(JPEG_BEGIN):
        if not data.endswith(JPEG_END):
            raise Undecodable("damaged (truncated: no end marker)")
        return
    if not data.startswith(PNG_SIGNATURE) or len(data) < _HEADER.size:
        raise Undecodable("neither a PNG nor a JPEG file")
    _check_chunks(data)
    _, length, name, width, height, depth, colour_type, *_ = _HEADER.unpack_from(data)
    if (length, name) != (13, b"IHDR"):
        raise Undecodable("damaged (no IHDR chunk)")
    if (height, width, colour_type, depth) != (*shape[:2], _COLOUR_TYPE.get(shape[2]), 8):
        raise Undecodable(f"a PNG file of {height} × {width} pixels, colour type {colour_type}, {depth} bits a channel")


def _check_chunks(data: bytes) -> None:
    """Check that a PNG file is whole, and the CRC of every chunk (ISO/IEC 15948, 5.3)."""
    if not data.endswith(PNG_END):
        raise Undecodable("damaged (truncated: no IEND chunk)")
    view, begin = memoryview(data), len(PNG_SIGNATURE)
    while begin < len(data):
        end = begin + 8 + int.from_bytes(view[begin : begin + 4], "big")
        if zlib.crc32(view[begin + 4 : end]) != int.from_bytes(view[end : end + 4], "big"):
            raise Undecodable(f"damaged (wrong CRC of the chunk at byte {begin})")
        begin = end + 4
