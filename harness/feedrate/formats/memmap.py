"""One raw file of pixels, sample after sample, read through a memory map: the least that a container can be.

There is no index, no header and no checksum: sample i begins at byte i × size, and a changed byte is another pixel,
unless ``feedrate.trial.prepare`` finds it.

Pitfalls:

- a view of a map is no read: its pages are fetched in whatever stage first touches them, and a benchmark that stops its
  clock before shows the speed of nothing. Here every byte is copied into memory that the caller owns;
- a file that is shorter than its map kills the process (SIGBUS): its length is checked at open. One that is cut short
  while it is open still does;
- when cold, a map is filled by page faults, and the kernel reads ahead as it sees them come; ``os.preadv`` names the
  whole sample at once. When warm, the map saves a system call and is the faster of the two (1.2 to 2 times here).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path

from feedrate.formats import Buffer, PerProcess, PixelReader, ReadOptions, Sample, damaged, flat

REQUIRES: dict[str, str] = {"numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "raw file", "stores": "pixels", "mapped": True}
_NAME = "pixels.bin"


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as raw pixels into ``root/pixels.bin``."""
    with (root / _NAME).open("wb") as file:
        for sample in samples:
            file.write(flat(sample))


def _map(root: Path, expected: int) -> memoryview:
    """A view that keeps the map alive, which needs no open file."""
    path = root / _NAME
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size != expected:
                raise damaged(path, f"{size} bytes, expected {expected}", root)
            return memoryview(mmap.mmap(file.fileno(), expected, access=mmap.ACCESS_READ))
    except OSError as error:
        raise damaged(path, error, root) from error


class MemmapReader(PixelReader):
    """Holds a map in each process, and no open file."""

    def __init__(self, root: Path, _options: ReadOptions) -> None:
        super().__init__(root)
        self._mapped = PerProcess(_map, root, self.size * len(self))

    def read_into(self, index: int, buffer: Buffer) -> None:
        """Copy sample ``index`` out of the map."""
        size = self.size
        start = index * size
        pixels = self._mapped()[start : start + size]
        if len(pixels) != len(buffer):
            raise damaged(self.root / _NAME, f"{len(pixels)} bytes, expected {len(buffer)}", self.root, index)
        buffer[:] = pixels


open = MemmapReader
