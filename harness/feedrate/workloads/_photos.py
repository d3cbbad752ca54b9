"""Finding and opening photographs in a user's folder, without torch, and notes on those that were left out."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image as PILImage
from PIL import UnidentifiedImageError

from feedrate.formats import Image, Sample, map_on_all_cores
from feedrate.machine.linux import NONE, images
from feedrate.schema.errors import InputError

DAMAGE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, PILImage.DecompressionBombError)
"""What Pillow raises on files that are truncated, damaged or absurdly large."""


class Unusable(Exception):
    """An image that is skipped; the message says why and holds no path."""


def list_images(folder: Path) -> list[Path]:
    """List the PNG, JPEG and WebP files below a folder, relative to it, in one order; an InputError without any."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected a folder of PNG or JPEG photographs")
    names = [path.relative_to(folder) for path in images(folder)]
    if not names:
        raise InputError(f"{folder}: {NONE}")
    return sorted(names, key=lambda path: path.parts)


def open_rgb(path: Path) -> Image:
    """Decode a PNG, JPEG or WebP file to RGB.

    The pixels are taken as they are stored: EXIF orientation and colour profiles are ignored. Grey is repeated in the
    three channels, alpha is dropped, 16-bit channels keep their high byte. ``Unusable`` where it cannot be decoded.
    """
    try:
        with path.open("rb") as file, PILImage.open(file, formats=("PNG", "JPEG", "WEBP")) as picture:
            if picture.mode.startswith("I"):  # 16-bit grey, which Pillow's own conversion would clip to 255
                high = (np.asarray(picture).astype(np.uint32) >> 8).astype(np.uint8)
                return np.repeat(high[..., None], 3, axis=2)
            if picture.mode == "P" and "transparency" in picture.info:
                return np.array(picture.convert("RGBA").convert("RGB"))
            return np.array(picture.convert("RGB"))
    except UnidentifiedImageError:
        raise Unusable("neither PNG, JPEG nor WebP") from None
    except DAMAGE as error:
        raise Unusable(reason(error)) from error


KEPT = 20
"""Skipped images that are named one by one; the rest is counted."""


class Notes:
    """The notes of a ``Source``, filled while samples are drawn, such as ``skipped 0001.png: truncated``."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def skip(self, name: str, reason: str) -> None:
        """Note an image that is not used; neither text may hold an absolute path."""
        self.count += 1
        if self.count <= KEPT:
            self.lines.append(f"skipped {name}: {reason}")

    def close(self) -> None:
        """Count those that were not named."""
        if self.count > KEPT:
            self.lines.append(f"skipped {self.count - KEPT} more")


def evenly(count: int, wanted: int) -> list[int]:
    """Choose numbers out of ``count``, in order, as evenly spread as can be; all of them if more are wanted."""
    wanted = min(count, wanted)
    return [k * count // wanted for k in range(wanted)]


def usable(
    names: Sequence[str], wanted: int, read: Callable[[int], Sample], notes: Notes
) -> Iterator[tuple[int, Sample]]:
    """Read as many images as are wanted, spread evenly; others stand in where ``read`` raises ``DAMAGE``."""
    chosen = evenly(len(names), wanted)
    order = [*chosen, *sorted(set(range(len(names))) - set(chosen))]

    def attempt(number: int) -> Sample | str:
        try:
            return read(number)
        except DAMAGE as error:
            return reason(error)

    left = wanted
    for number, sample in zip(order, map_on_all_cores(attempt, order), strict=False):
        if isinstance(sample, str):
            notes.skip(names[number], sample)
            continue
        left -= 1
        yield number, sample
        if not left:
            break
    notes.close()


def reason(error: BaseException) -> str:
    """What is wrong with an image, without its path; ``error`` is one of ``DAMAGE``."""
    if isinstance(error, UnidentifiedImageError):
        return "no image that Pillow knows"
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
