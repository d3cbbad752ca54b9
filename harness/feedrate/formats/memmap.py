"""One raw file of pixels, sample after sample, read through a memory map: the least that a container can be.

There is no index and no header: sample i begins at byte i × size. Pitfalls:

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

from feedrate.formats import MappedReader, Sample, flat

REQUIRES: dict[str, str] = {"numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "raw file", "stores": "pixels", "mapped": True}
_NAME = "pixels.bin"


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as raw pixels into ``root/pixels.bin``."""
    with (root / _NAME).open("wb") as file:
        for sample in samples:
            file.write(flat(sample))


class MemmapReader(MappedReader):
    """Holds a map in each process, and no open file."""

    file = _NAME

    def open_files(self) -> memoryview:
        """Map the file; the view keeps the map alive."""
        expected = self.size * len(self)
        with (self.root / _NAME).open("rb") as file:
            if (size := file.seek(0, 2)) != expected:
                raise ValueError(f"{size} bytes, expected {expected}")
            return memoryview(mmap.mmap(file.fileno(), expected, access=mmap.ACCESS_READ))

    def view(self, index: int) -> memoryview:
        """Find sample ``index``."""
        pixels: memoryview = self.opened()[index * self.size : (index + 1) * self.size]
        return pixels


open = MemmapReader
