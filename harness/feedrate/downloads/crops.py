"""Cutting photographs into sub-images on all cores, straight from the archive, and going on where it stopped."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path, PurePosixPath
from typing import IO, Any

from rich.console import Console

from feedrate.downloads import crop_set, disk
from feedrate.downloads.crop_worker import DAMAGE
from feedrate.downloads.meter import Meter
from feedrate.schema.errors import DataError, EnvironmentFault

GROWTH = 4.0
"""Bytes of the sub-images for a byte of photographs, with some to spare. They overlap: 32,592 squares hold 3.36 times
the pixels of the 800 photographs (2.79 million each on average), and level 3 takes 5 to 12 % more than level 6."""
DAMAGED_NAMED = 5
"""Damaged photographs that are named one by one; the rest is counted."""
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class Photograph:
    """A photograph in its archive or folder."""

    name: str
    """Of the member or file."""
    size: int
    """Bytes."""
    crops: int
    """Sub-images that it gives; 0 if its header says that it gives none."""

    @property
    def folder(self) -> str:
        """Name of the folder of its sub-images."""
        return PurePosixPath(self.name).stem


def photographs(source: Path, names: Sequence[str]) -> list[Photograph]:
    """Look at the headers of photographs."""
    if source.is_dir():
        files = {name: source / name for name in names}
        return [_photograph(name, path.stat().st_size, partial(io.FileIO, path)) for name, path in files.items()]
    with zipfile.ZipFile(source) as archive:
        return [_photograph(name, archive.getinfo(name).file_size, partial(archive.open, name)) for name in names]


def _photograph(name: str, size: int, opened: Callable[[], IO[bytes]]) -> Photograph:
    head = b""
    with contextlib.suppress(*DAMAGE), opened() as file:  # it is called damaged when its turn comes to be cut
        head = file.read(24)
    if len(head) < 24 or not head.startswith(_PNG):
        return Photograph(name, size, 0)
    width, height = struct.unpack(">II", head[16:])
    return Photograph(name, size, len(crop_set.corners(height, width)))


def missing(wanted: Sequence[Photograph], target: Path) -> list[Photograph]:
    """Which photographs are not cut yet, or have fewer or more files than they should."""

    def files(photograph: Photograph) -> int:
        folder = target / photograph.folder
        return len(os.listdir(folder)) if folder.exists() else 0  # noqa: PTH208 - the number alone is wanted

    return [photograph for photograph in wanted if not photograph.crops or files(photograph) != photograph.crops]


def cut(source: Path, target: Path, wanted: Sequence[Photograph], console: Console) -> int:
    """Cut all photographs that are not cut yet.

    Returns:
        How many sub-images there are.

    Raises:
        DataError: photographs are damaged; all others are cut.
        EnvironmentFault: the disk is full or cannot be written, or a process was killed.
    """
    disk.remove_stale(target)
    left = missing(wanted, target)
    for photograph in left:
        shutil.rmtree(target / photograph.folder, ignore_errors=True)
    damaged: list[str] = []
    done = len(wanted) - len(left)
    with Meter(console, f"cutting {source.name}", len(wanted), done, "photographs") as meter:
        if done and left:
            meter.say(f"{target}: {done} of {len(wanted)} photographs are cut already")
        for photograph, answer in _cut_on_all_cores(source, target, left):
            if "errno" in answer:
                with disk.writing(target, f"cutting {photograph.name}"):
                    raise OSError(answer["errno"], answer["fault"])
            if answer.get("crops") != photograph.crops or not photograph.crops:
                problem = f"smaller than a sub-image, {crop_set.SIZE} x {crop_set.SIZE} pixels"
                if photograph.crops:
                    problem = "its header and its pixels disagree"
                damaged.append(f"{photograph.name}: {answer.get('damaged', problem)}")
            done += 1
            meter.at(done)
    if damaged:
        named = "; ".join(sorted(damaged)[:DAMAGED_NAMED]) + ("; …" if len(damaged) > DAMAGED_NAMED else "")
        raise DataError(
            f"{source}: {len(damaged)} of {len(wanted)} photographs cannot be used ({named}). The others are cut and "
            "kept: get the file anew (delete it, or name another with ARCHIVE=) and type the same command again"
        )
    return sum(photograph.crops for photograph in wanted)


def _cut_on_all_cores(
    source: Path, target: Path, left: Sequence[Photograph]
) -> Iterator[tuple[Photograph, dict[str, Any]]]:
    """Have photographs cut by a process a core, and give the answers as they come.

    Each process has a session of its own, which keeps the terminal's Ctrl-C from it: this one ends it. What it had
    half-written then is removed by the next command.
    """
    module, pipe = "feedrate.downloads.crop_worker", subprocess.PIPE
    command = [sys.executable, "-P", "-m", module, *map(str, (source.resolve(), target.resolve(), os.getpid()))]
    waiting = list(reversed(left))
    busy: dict[Any, tuple[subprocess.Popen[bytes], Photograph]] = {}  # by the pipe from which the answer comes

    def give(worker: subprocess.Popen[bytes]) -> None:
        if waiting and worker.stdin:
            photograph = waiting.pop()
            busy[worker.stdout] = worker, photograph
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(json.dumps(photograph.name).encode() + b"\n")

    with contextlib.ExitStack() as workers:
        for _ in range(min(len(left), len(os.sched_getaffinity(0)))):
            process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True)
            worker = workers.enter_context(process)
            workers.callback(worker.kill)
            give(worker)
        while busy:
            answers: Any
            for answers in wait(busy):
                worker, photograph = busy.pop(answers)
                line = answers.readline()
                if not line.endswith(b"\n"):
                    raise EnvironmentFault(
                        f"{photograph.name}: the process that cut it ended with status {worker.wait()}; a lack of "
                        "memory is the usual reason. What is cut is kept: the same command continues"
                    )
                give(worker)
                yield photograph, json.loads(line)
