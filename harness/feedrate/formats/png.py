"""A folder of PNG files, one a field of a sample: what most people have.

Reading is one file a field, decoding is zlib and unfiltering. Both are measured as people meet them: no archive, no
cache of our own, names derived from the index (listing a folder of many files costs seconds on a network disk). At most
1000 files lie in one sub-folder, because some file systems slow down beyond that.

Pitfall: decoding costs 30 to 100 times what copying raw pixels costs, and depends on the row filter that the encoder
chose more than on the size of the file: pixels without spatial structure decode twice to five times as fast as a
photograph, and give a wrong answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from feedrate.formats import Sample
from feedrate.formats._images import PNG, FolderReader, write_files

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "files", "stores": "png", "knobs": ("decoder",)}


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write every field of every sample as a PNG file."""
    write_files(samples, root, PNG)


class PngReader(FolderReader):
    """Reads a folder of PNG files."""

    codec = PNG


open = PngReader
