"""A folder of NumPy's own files, one a sample, each with the pixels of all fields: pixels without a database.

Every sample is opened, by name, which is most of what a small sample costs, and on a network disk of what any costs.

Pitfalls: ``np.load`` parses the header, a Python dictionary as text, for every sample, and stops once for the header
and once for the pixels: here one ``os.readv`` takes both, and the header, which all have alike, is compared as bytes.
A ``.npy`` file holds one array: an ``.npz`` of several is a ZIP archive that is parsed at each read, so fields of
different shapes lie flat, one after the other, as in the other formats of pixels.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from feedrate.formats import Buffer, PixelReader, Sample, flat

REQUIRES: dict[str, str] = {"numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "files", "stores": "pixels"}
FILES_PER_FOLDER = 1000


def _name(index: int) -> str:
    return f"{index // FILES_PER_FOLDER:05d}/{index:08d}.npy"


def _header(size: int) -> bytes:
    """What NumPy writes before ``size`` bytes of pixels."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
    return file.getvalue()


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write every sample as a ``.npy`` file, a one-dimensional array of uint8."""
    for index, sample in enumerate(samples):
        path = root / _name(index)
        path.parent.mkdir(exist_ok=True)
        pixels = flat(sample)
        with path.open("wb") as file:
            file.write(_header(len(pixels)))
            file.write(pixels)


class NpyReader(PixelReader):
    """Every read opens and closes its file."""

    def path(self, index: int, field: int) -> Path:  # noqa: ARG002 - all fields lie in one
        """Name the file of a sample."""
        return self.root / _name(index)

    def open_files(self) -> bytes:
        """Make the header that every file has."""
        return _header(self.size)

    def copy(self, index: int, buffer: Buffer) -> None:
        """Read the file of sample ``index``."""
        expected = self.opened()
        pixels = buffer.data if isinstance(buffer, np.ndarray) else buffer
        header, beyond = bytearray(len(expected)), bytearray(1)
        descriptor = os.open(f"{self.root}/{_name(index)}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.readv(descriptor, [header, pixels, beyond])
        finally:
            os.close(descriptor)
        if size != len(header) + self.size or header != expected:
            raise ValueError(f"not a .npy file of {self.size} bytes of pixels")


open = NpyReader
