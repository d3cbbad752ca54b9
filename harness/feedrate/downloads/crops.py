"""Cutting photographs into sub-images on all cores, straight from the archive, and going on where it stopped."""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from rich.console import Console

from feedrate.downloads import crop_set
from feedrate.downloads import files as downloads_files
from feedrate.downloads.crop_worker import DAMAGE
from feedrate.downloads.files import Meter
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
    return [
        photograph for photograph in wanted if not photograph.crops or _files(target, photograph) != photograph.crops
    ]


def _files(target: Path, photograph: Photograph) -> int:
    try:
        return sum(1 for _ in (target / photograph.folder).iterdir())
    except FileNotFoundError:
        return 0


def cut(source: Path, target: Path, wanted: Sequence[Photograph], console: Console) -> int:
    """Cut all photographs that are not cut yet.

    Raises:
        DataError: photographs are damaged; all others are cut.
        EnvironmentFault: the disk is full or cannot be written, or a process was killed.
    """
    downloads_files.remove_stale(target)
    left = missing(wanted, target)
    for photograph in left:
        shutil.rmtree(target / photograph.folder, ignore_errors=True)
    damaged: list[str] = []
    done = len(wanted) - len(left)
    with Meter(console, f"cutting {source.name}", len(wanted), done, "photographs") as meter:
        if done and left:
            meter.say(f"{target}: {done} of {len(wanted)} photographs are cut already")
        for photograph, answer in _answers(source, target, left):
            if "errno" in answer:
                raise downloads_files.fault(
                    OSError(answer["errno"], answer["fault"]), target, f"cutting {photograph.name}"
                )
            if answer.get("crops") != photograph.crops or not photograph.crops:
                damaged.append(f"{photograph.name}: {answer.get('damaged', _size_problem(photograph))}")
            done += 1
            meter.at(done)
    if damaged:
        shown = "; ".join(sorted(damaged)[:DAMAGED_NAMED]) + ("; …" if len(damaged) > DAMAGED_NAMED else "")
        raise DataError(
            f"{source}: {len(damaged)} of {len(wanted)} photographs cannot be used ({shown}). The others are cut and "
            "kept: get the file anew (delete it, or name another with ARCHIVE=) and type the same command again"
        )
    return sum(photograph.crops for photograph in wanted)


def _size_problem(photograph: Photograph) -> str:
    if photograph.crops:
        return "its header and its pixels disagree"
    return f"smaller than a sub-image, {crop_set.SIZE} x {crop_set.SIZE} pixels"


def _answers(source: Path, target: Path, left: Sequence[Photograph]) -> Iterator[tuple[Photograph, dict[str, Any]]]:
    """Have photographs cut by as many processes as there are cores; in the order in which they are done."""
    workers = [_Worker(source, target) for _ in range(min(len(left), len(os.sched_getaffinity(0))))]
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def ask(photograph: Photograph) -> tuple[Photograph, dict[str, Any]]:
        worker = idle.get()
        try:
            return photograph, worker.ask(photograph)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(max(1, len(workers)))
    try:
        for future in as_completed([pool.submit(ask, photograph) for photograph in left]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.stop()
        pool.shutdown()


class _Worker:
    """A process of ``cutter``. A session of its own keeps the terminal's Ctrl-C from it: the parent ends it."""

    def __init__(self, source: Path, target: Path) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "feedrate.downloads.crop_worker",
                source.resolve(),
                target.resolve(),
                str(os.getpid()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def ask(self, photograph: Photograph) -> dict[str, Any]:
        """Have one photograph cut, and wait for it."""
        line = b""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(photograph.name).encode() + b"\n")
            self._stdin.flush()
            line = self._stdout.readline()
        if not line.endswith(b"\n"):
            raise EnvironmentFault(
                f"{photograph.name}: the process that cut it ended with status {self._process.wait()}; a lack of "
                "memory is the usual reason. What is cut is kept: the same command continues"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        return self._process.stdout

    def stop(self) -> None:
        """End the process now; what it had half-written is removed by the next one."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
