"""Cutting photographs into sub-images, on all cores and straight from their archive.

The geometry is the usual one for DIV2K: squares of 480 pixels every 240, and one more at the right and lower border
where the last would leave a rest (``extract_subimages`` of BasicSR with ``thresh_size`` 0: 32,592 of the 800
photographs). What is made of a photograph is a folder that is whole or absent; a record is written when all are there.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import struct
import zipfile
import zlib
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path, PurePosixPath

from PIL import Image

from feedrate.downloads import disk
from feedrate.machine import linux
from feedrate.schema.errors import DataError, EnvironmentFault

SIZE, STEP = 480, 240
"""Pixels."""
COMPRESS_LEVEL = 3
"""zlib's, 0 to 9."""
GROWTH = 4.0
"""Bytes of the sub-images for a byte of photographs, with some to spare. They overlap: 32,592 squares hold 3.36 times
the pixels of the 800 photographs (2.79 million each on average), and level 3 takes 5 to 12 % more than level 6."""
RECORD = "cut.json"
"""A file beside the sub-images that says that all of them are there."""
_DAMAGE = (
    OSError,
    KeyError,
    ValueError,
    SyntaxError,
    EOFError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    Image.DecompressionBombError,
)
"""What Pillow and zipfile raise on files that are damaged."""


def recorded(folder: Path) -> int:
    """Read how many sub-images a whole set has.

    Raises:
        DataError: there is no record, so that the folder is not whole, or it cannot be understood.
    """
    try:
        return int(json.loads((folder / RECORD).read_text(encoding="utf-8"))["count"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{folder / RECORD}: not the record of a whole set of sub-images ({reason})") from error


def record(folder: Path, photographs: int, source_sha256: str | None) -> int:
    """Write the record of a set that is whole, and give the number of its sub-images."""
    count = sum(1 for _ in folder.glob("*/*.png"))
    geometry = {"size": SIZE, "step": STEP, "compress_level": COMPRESS_LEVEL}
    facts = {"photographs": photographs, "count": count, **geometry, "source_sha256": source_sha256}
    (folder / RECORD).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return count


def corners(height: int, width: int) -> list[tuple[int, int]]:
    """(top, left) of every sub-image of a photograph, row by row; none where it is too small for one."""

    def starts(length: int) -> list[int]:
        regular = list(range(0, length - SIZE + 1, STEP))
        return [*regular, length - SIZE] if regular and regular[-1] + SIZE < length else regular

    return list(itertools.product(starts(height), starts(width)))


def folder_of(name: str, target: Path) -> Path:
    """Name the folder of the sub-images of one photograph."""
    return target / PurePosixPath(name).stem


def cut_all(source: Path, names: Sequence[str], target: Path) -> Generator[str | None, None, None]:
    """Cut photographs, members of a zip archive or files of a folder, by a process a core. Close it when done.

    What comes, in any order, is None for each that is cut, and what is wrong for each that is damaged.
    """
    cores = len(os.sched_getaffinity(0))
    pool = ProcessPoolExecutor(cores, get_context("spawn"), linux.die_with_parent, (os.getpid(),))
    try:
        # A terminal sends Ctrl-C to all processes; this one ends the others.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            jobs = [pool.submit(cut, source, name, folder_of(name, target)) for name in names]
        finally:
            signal.signal(signal.SIGINT, interrupt)
        for job in as_completed(jobs):
            yield job.result()
    except BrokenProcessPool as error:
        raise EnvironmentFault(
            f"{source}: a process that cut photographs was killed; a lack of memory is the usual reason. What is cut "
            "is kept: the same command continues"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def cut(source: Path, name: str, folder: Path) -> str | None:
    """Cut one photograph into the files of a folder; says what is wrong with one that is damaged."""
    try:
        data = (source / name).read_bytes() if source.is_dir() else _member(source, name)
        with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
            picture.load()
    except _DAMAGE as error:
        return f"{name}: {error}"
    places = corners(picture.height, picture.width)
    if picture.mode != "RGB" or not places:
        found = f"{picture.width} x {picture.height} pixels, {picture.mode}"
        return f"{name}: {found}; expected RGB, and {SIZE} x {SIZE} at least"
    with disk.whole(folder) as temp:
        for number, (top, left) in enumerate(places, 1):
            path = temp / f"{folder.name}_s{number:03d}.png"
            picture.crop((left, top, left + SIZE, top + SIZE)).save(path, compress_level=COMPRESS_LEVEL)
    return None


def _member(archive: Path, name: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        return opened.read(name)
