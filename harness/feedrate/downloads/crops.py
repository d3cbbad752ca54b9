"""Cutting photographs into sub-images, on all cores and straight from their archive.

The geometry is the usual one for DIV2K: squares of 480 pixels every 240, and one more at the right and lower border
where the last would leave a rest (``extract_subimages`` of BasicSR with ``thresh_size`` 0: 32,592 of 800 photographs).
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import struct
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.progress import track

from feedrate.machine import linux
from feedrate.schema.errors import DataError, EnvironmentFault

SIZE, STEP, COMPRESS_LEVEL = 480, 240, 3
"""Pixels, pixels, and zlib's level."""
RECORD = "cut.json"
"""A file beside the sub-images that says that all of them are there."""


def recorded(folder: Path) -> int:
    """Read how many sub-images a whole set has; a DataError where it is not whole."""
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
    tops, lefts = (sorted({*range(0, side - SIZE + 1, STEP), max(side - SIZE, 0)}) for side in (height, width))
    return list(itertools.product(tops, lefts)) if min(height, width) >= SIZE else []


def cut_all(source: Path, names: Sequence[str], target: Path, console: Console) -> None:
    """Cut photographs, members of a zip archive or files of a folder, into a folder each; one that exists is whole."""
    left = [name for name in names if not (target / Path(name).stem).exists()]
    pool = ProcessPoolExecutor(
        len(os.sched_getaffinity(0)), get_context("spawn"), linux.die_with_parent, (os.getpid(),)
    )
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; this process ends others
    try:
        answers = pool.map(cut, itertools.repeat(source), left, itertools.repeat(target))
        signal.signal(signal.SIGINT, interrupt)
        for _ in track(answers, f"cutting {len(left)} of {len(names)} photographs", len(left), console=console):
            pass
    except BrokenProcessPool as error:
        advice = "a lack of memory is the usual reason. What is cut is kept: the same command continues"
        raise EnvironmentFault(f"{source}: a process that cut photographs was killed; {advice}") from error
    finally:
        pool.shutdown(cancel_futures=True)


def cut(source: Path, name: str, target: Path) -> None:
    """Cut one photograph into a folder of its name; a DataError where it is damaged."""
    try:
        photograph = source / name if source.is_dir() else zipfile.Path(source, name)
        with photograph.open("rb") as file, Image.open(file, formats=("PNG",)) as picture:
            picture.load()
        squares = corners(picture.height, picture.width)
        if picture.mode != "RGB" or not squares:
            raise ValueError(f"{picture.width} x {picture.height} pixels, {picture.mode}")
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as error:
        expected = f"expected {SIZE} x {SIZE} at least, RGB, PNG"
        advice = "Get it anew; what is cut is kept: the same command continues"
        raise DataError(f"{source}: {name}: {error}; {expected}. {advice}") from error
    folder = target / Path(name).stem
    temp = target / f".{folder.name}.tmp"
    shutil.rmtree(temp, ignore_errors=True)  # an interrupted process may have left it
    temp.mkdir()
    for number, (top, left) in enumerate(squares, 1):
        square = picture.crop((left, top, left + SIZE, top + SIZE))
        square.save(temp / f"{folder.name}_s{number:03d}.png", compress_level=COMPRESS_LEVEL)
    linux.sync_tree(temp)
    temp.rename(folder)
