"""A process that cuts photographs: ``python -m feedrate.downloads.crop_worker SOURCE TARGET PARENT``.

It reads one photograph's name a line and answers each with a line of JSON. What it makes of a photograph is a folder,
written under another name, forced to disk and renamed, so that it is whole or absent. It ends with its parent.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from PIL import Image, UnidentifiedImageError

from feedrate.downloads import crop_set
from feedrate.machine import linux

DAMAGE = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    Image.DecompressionBombError,
)
"""What Pillow and zipfile raise on files that are damaged."""


class Damaged(Exception):
    """A photograph that cannot be used; the message says why."""


def reader(source: Path) -> Callable[[str], bytes]:
    """Give access to photographs by name: the members of a zip archive, or the files of a folder."""
    if source.is_dir():
        return lambda name: (source / name).read_bytes()
    return zipfile.ZipFile(source).read


def cut(data: bytes, folder: Path) -> int:
    """Cut a photograph into the files of a folder, which is there afterwards, whole.

    Raises:
        Damaged: it is no such file.
        OSError: the disk does not take it.
    """
    picture = _decoded(data)
    temp = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temp.mkdir()
    try:
        corners = crop_set.corners(picture.height, picture.width)
        paths = [temp / f"{folder.name}_s{number:03d}.png" for number in range(1, len(corners) + 1)]
        for path, (top, left) in zip(paths, corners, strict=True):
            box = (left, top, left + crop_set.SIZE, top + crop_set.SIZE)
            picture.crop(box).save(path, format="PNG", compress_level=crop_set.COMPRESS_LEVEL)
        for path in (*paths, temp):  # after all are written: the first takes the others along
            linux.sync(path)
        temp.rename(folder)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    linux.sync(folder.parent)
    return len(corners)


def _decoded(data: bytes) -> Image.Image:
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
            picture.load()
    except UnidentifiedImageError:
        raise Damaged("not a PNG file") from None
    except DAMAGE as error:
        raise Damaged(str(error)) from error
    if picture.mode != "RGB":
        raise Damaged(f"pixels are {picture.mode}; expected 8-bit RGB")
    return picture


def _answer(read: Callable[[str], bytes], name: str, target: Path) -> dict[str, int | str]:
    try:
        data = read(name)
    except (*DAMAGE, KeyError) as error:
        return {"damaged": str(error)}
    try:
        return {"crops": cut(data, target / PurePosixPath(name).stem)}
    except Damaged as error:
        return {"damaged": str(error)}
    except OSError as error:
        return {"errno": error.errno or 0, "fault": error.strerror or str(error)}


def main(source: Path, target: Path, parent: int) -> None:
    """Cut what the parent names until it has no more."""
    linux.die_with_parent(parent)
    read = reader(source)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(read, json.loads(line), target)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
