"""Sub-images of a set of photographs: where each lies, and the record that says that all of them are there.

The geometry is the usual one for DIV2K: squares of 480 pixels every 240, and one more at the right and lower border
where the last would leave a rest (``extract_subimages`` of BasicSR with ``thresh_size`` 0: 32,592 of the 800
photographs).
"""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from feedrate.downloads import disk
from feedrate.schema.errors import DataError

SIZE, STEP = 480, 240
"""Pixels."""
COMPRESS_LEVEL = 3
"""zlib's, 0 to 9."""
RECORD = "cut.json"


@dataclass(frozen=True, slots=True)
class CutSet:
    """A folder of sub-images that is whole: written last."""

    photographs: int
    count: int
    """Sub-images."""
    size: int
    """Height and width of a sub-image, in pixels."""
    step: int
    """Pixels between two of them."""
    compress_level: int
    source_sha256: str | None
    """Of the archive; None where the photographs came from a folder."""

    @classmethod
    def load(cls, folder: Path) -> CutSet:
        """Read a folder's record.

        Raises:
            DataError: there is none, so that the folder is not whole, or it cannot be understood.
        """
        try:
            return cls(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DataError(f"{folder / RECORD}: not the record of a whole set of sub-images ({reason})") from error

    def save(self, folder: Path) -> None:
        """Write a folder's record."""
        disk.write_whole(folder / RECORD, json.dumps(asdict(self), indent=1))


def starts(length: int) -> list[int]:
    """Where sub-images begin along a side of so many pixels; none if it is too short for one."""
    regular = list(range(0, length - SIZE + 1, STEP))
    if regular and regular[-1] + SIZE < length:
        regular.append(length - SIZE)
    return regular


def corners(height: int, width: int) -> list[tuple[int, int]]:
    """(top, left) of every sub-image of a photograph, row by row."""
    return list(itertools.product(starts(height), starts(width)))
