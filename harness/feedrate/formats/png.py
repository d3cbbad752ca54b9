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

from feedrate.formats import Reader, ReadOptions, Sample
from feedrate.formats._encoded import FolderReader, write_files
from feedrate.formats._encoding import PNG

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "files", "stores": "png", "knobs": ("decoder",)}


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write every field of every sample as a PNG file.

    Args:
        samples: tuples of uint8 arrays, height × width × channels (1, 3 or 4), all with the same number of fields.
        root: an empty folder.

    Raises:
        InputError: a field has another number of channels.
        OSError: a file cannot be written.
    """
    write_files(samples, root, PNG)


def open(root: Path, options: ReadOptions) -> Reader:  # the name is the plug-in contract's
    """Give random access to what ``pack`` wrote into ``root``.

    Raises:
        DataError: there is no readable manifest.
        InputError: the decoder is unknown, not installed, or decodes no PNG.
    """
    return _PngReader(root, options)


class _PngReader(FolderReader):
    codec = PNG
