"""A folder of image files, one a field of a sample: what ``png`` and ``jpeg`` share."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from harness.formats import Sample
from harness.formats._access import damaged
from harness.formats._encoded import EncodedRaw, EncodedReader
from harness.formats._encoding import Codec, files_of, on_all_cores

FILES_PER_FOLDER = 1000


def _path(root: Path, index: int, field: int, fields: int, kind: str) -> Path:
    folder = index // max(1, FILES_PER_FOLDER // fields)
    return root / f"{folder:05d}" / f"{index:08d}-{field}.{kind}"


def write_files(samples: Iterable[Sample], root: Path, codec: Codec) -> None:
    """Write every field of every sample as a file.

    Args:
        samples: tuples of uint8 arrays, height × width × channels, all with the same number of fields.
        root: an empty folder.
        codec: what to make of the fields.

    Raises:
        InputError: a field has a number of channels that image files cannot hold.
        OSError: a file cannot be written.
    """
    for _ in on_all_cores(partial(_write, root, codec), samples):
        pass


def _write(root: Path, codec: Codec, index: int, sample: Sample) -> None:
    """Encode a sample and write its files where it was encoded: on one thread, that holds up a fast encoder."""
    files = files_of(sample, codec)
    for field, (kind, data) in enumerate(files):
        path = _path(root, index, field, len(files), kind)
        try:
            path.write_bytes(data)
        except FileNotFoundError:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)


class FolderReader(EncodedReader):
    """Holds no handle at all: every read opens and closes its files."""

    def path(self, index: int, field: int) -> Path:
        """Name the file of a field of a sample."""
        shapes = self.manifest.shapes
        return _path(self.root, index, field, len(shapes), self.codec.kind(shapes[field]))

    def read(self, index: int) -> EncodedRaw:
        """Read the files of sample ``index``.

        Returns:
            The index and each field's file, as bytes.

        Raises:
            DataError: a file is missing or cannot be read.
        """
        try:
            return index, [self.path(index, field).read_bytes() for field in range(len(self.manifest.shapes))]
        except OSError as error:
            raise damaged(Path(error.filename), f"{error.strerror}", self.root, index) from error
