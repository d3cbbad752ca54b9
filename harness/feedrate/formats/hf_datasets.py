"""Hugging Face datasets: an Arrow stream of PNG files, written and memory-mapped by the ``datasets`` library.

A row has a column of bytes a field. Its own image feature would decode with Pillow; here the axis ``decoder`` says what
decodes, as with other formats. Samples are read one by one, so that a loader can shuffle them as it likes.

Pitfalls: a row comes as Python objects, copied out of the map; ``with_format("torch")`` would turn bytes into lists of
numbers; there is no checksum. https://huggingface.co/docs/datasets/use_with_pytorch
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value
from datasets.arrow_writer import ArrowWriter

from feedrate.formats import PerProcess, Reader, ReadOptions, Sample, damaged, peeked
from feedrate.formats._images import PNG, Encoded, RawFiles, encode_all

REQUIRES: dict[str, str] = {"datasets": "datasets", "PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {
    "container": "arrow",
    "stores": "png",
    "holds": ("images", "files"),
    "knobs": ("decoder",),
    "mapped": True,
}
ROWS = 64
"""In a record batch: the fewer, the less has to be found for one row."""
_NAME = "samples.arrow"


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into ``root/samples.arrow``."""
    first, samples = peeked(samples)
    names = [f"field_{at}" for at in range(len(first))]
    features = Features(dict.fromkeys(names, Value("binary")))
    with ArrowWriter(path=str(root / _NAME), features=features, writer_batch_size=ROWS) as writer:
        for files in encode_all(samples, PNG):
            writer.write(dict(zip(names, files, strict=True)))
        writer.finalize()


def _opened(root: Path, count: int) -> Dataset:
    path = root / _NAME
    try:
        rows = Dataset.from_file(str(path))
    except (OSError, ValueError) as error:
        raise damaged(path, error, root) from error
    if len(rows) != count:
        raise damaged(path, f"{len(rows)} rows, expected {count}", root)
    return rows


class DatasetReader(Encoded, Reader):
    """Holds a mapped data set in each process."""

    file = _NAME

    def __init__(self, root: Path, options: ReadOptions) -> None:
        super().__init__(root, options)
        self._rows = PerProcess(_opened, root, len(self))

    def read(self, index: int) -> RawFiles:
        """Copy the files of sample ``index`` out of the map."""
        try:
            row: dict[str, Any] = self._rows()[index]
        except (OSError, ValueError) as error:
            raise damaged(self.root / _NAME, error, self.root, index) from error
        return index, list(row.values())


open = DatasetReader
