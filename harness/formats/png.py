"""A folder of PNG files, one a field of a sample: what most people have.

Reading is one file a field, decoding is zlib plus Pillow's unfiltering. Both are measured as people meet them: no
archive, no cache of our own, names derived from the index (listing a folder of many files costs seconds on a network
disk). At most 1000 files lie in one sub-folder, because some file systems slow down beyond that.

Pitfall: decoding costs 30 to 100 times what copying raw pixels costs, and depends on the row filter that the encoder
chose more than on the size of the file: pixels without spatial structure decode twice to five times as fast as a
photograph, and give a wrong answer.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image as PILImage
from PIL import UnidentifiedImageError

from harness.errors import DataError
from harness.formats import Image, Reader, Sample

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
COMPRESS_LEVEL = 3
"""zlib level (0 to 9) of Pillow's encoder: the level at which DIV2K's crops are usually stored."""
FILES_PER_FOLDER = 1000

_Raw = tuple[int, tuple[bytes, ...]]
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, PILImage.DecompressionBombError)
"""What Pillow raises on files that are truncated or damaged."""


def _path(root: Path, index: int, field: int, fields: int) -> Path:
    folder = index // max(1, FILES_PER_FOLDER // fields)
    return root / f"{folder:05d}" / f"{index:08d}-{field}.png"


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write every field of every sample as a PNG file.

    Args:
        samples: tuples of uint8 arrays, height × width × channels (1, 3 or 4), all with the same number of fields.
        root: an empty folder.

    Raises:
        OSError: a file cannot be written.
    """
    for index, sample in enumerate(samples):
        for field, pixels in enumerate(sample):
            path = _path(root, index, field, len(sample))
            if field == 0:
                path.parent.mkdir(exist_ok=True)
            plane = pixels[..., 0] if pixels.shape[2] == 1 else pixels
            PILImage.fromarray(plane).save(path, format="PNG", compress_level=COMPRESS_LEVEL)


def open(root: Path) -> Reader:  # the name is the plug-in contract's
    """Give random access to what ``pack`` wrote into ``root``.

    Raises:
        DataError: there is no readable manifest.
    """
    return _PngReader(root)


class _PngReader(Reader):
    """Holds no handle at all: every read opens and closes its files."""

    def read(self, index: int) -> _Raw:
        """Read the files of sample ``index``.

        Returns:
            The index and each field's file, as bytes.

        Raises:
            DataError: a file is missing or cannot be read.
        """
        fields = len(self.manifest.shapes)
        try:
            return index, tuple(_path(self.root, index, field, fields).read_bytes() for field in range(fields))
        except OSError as error:
            raise DataError(f"{error.filename}: {error.strerror}; delete {self.root} and run again") from error

    def decode(self, raw: _Raw) -> Sample:
        """Decode the files of one sample.

        Args:
            raw: what ``read`` gave.

        Returns:
            uint8 arrays, height × width × channels, writable and owning their memory.

        Raises:
            DataError: a file is truncated, damaged, or of another shape than the manifest says.
        """
        index, files = raw
        return tuple(self._pixels(index, field, data) for field, data in enumerate(files))

    def _pixels(self, index: int, field: int, data: bytes) -> Image:
        shape = self.manifest.shapes[field]
        try:
            with PILImage.open(io.BytesIO(data), formats=("PNG",)) as picture:
                pixels = np.array(picture, dtype=np.uint8)
            if pixels.shape != shape:
                pixels = pixels.reshape(shape)
            return pixels
        except UnidentifiedImageError:
            problem = "not a PNG file"
        except _DAMAGE as error:
            problem = f"damaged ({error})"
        path = _path(self.root, index, field, len(self.manifest.shapes))
        raise DataError(f"{path}: {problem}; expected a PNG of shape {shape}; delete {self.root} and run again")
