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


def cut(data: bytes, folder: Path) -> dict[str, int | str]:
    """Cut a photograph into the files of a folder, which is whole where it is there afterwards.

    Returns:
        ``crops``, how many; or ``damaged``, what is wrong with the photograph; or ``errno`` and ``fault``, why the disk
        did not take it.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
            picture.load()
    except UnidentifiedImageError:
        return {"damaged": "not a PNG file"}
    except DAMAGE as error:
        return {"damaged": str(error)}
    if picture.mode != "RGB":
        return {"damaged": f"pixels are {picture.mode}; expected 8-bit RGB"}
    temp = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    corners = crop_set.corners(picture.height, picture.width)
    paths = [temp / f"{folder.name}_s{number:03d}.png" for number in range(1, len(corners) + 1)]
    try:
        temp.mkdir()
        for path, (top, left) in zip(paths, corners, strict=True):
            box = (left, top, left + crop_set.SIZE, top + crop_set.SIZE)
            picture.crop(box).save(path, format="PNG", compress_level=crop_set.COMPRESS_LEVEL)
        for path in (*paths, temp):  # after all are written: the first takes the others along
            linux.sync(path)
        temp.rename(folder)
        linux.sync(folder.parent)
    except OSError as error:
        return {"errno": error.errno or 0, "fault": error.strerror or str(error)}
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return {"crops": len(corners)}


def main(source: Path, target: Path, parent: int) -> None:
    """Cut what the parent names until it has no more: members of a zip archive, or files of a folder."""
    linux.die_with_parent(parent)
    read: Callable[[str], bytes]
    read = (lambda name: (source / name).read_bytes()) if source.is_dir() else zipfile.ZipFile(source).read
    for line in sys.stdin:
        name = json.loads(line)
        try:
            data = read(name)
        except (*DAMAGE, KeyError) as error:
            answer: dict[str, int | str] = {"damaged": str(error)}
        else:
            answer = cut(data, target / PurePosixPath(name).stem)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
