"""Hugging Face datasets: an Arrow stream of PNG files, written and memory-mapped by the ``datasets`` library.

A row has a column of bytes a field. Its own image feature would decode with Pillow; here the axis ``decoder`` says what
decodes, as with other formats. Samples are read one by one, so that a loader can shuffle them as it likes.

Pitfalls: a row comes as Python objects, copied out of the map; ``with_format("torch")`` would turn bytes into lists of
numbers; there is no checksum. https://huggingface.co/docs/datasets/use_with_pytorch
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from datasets import Dataset, Features, Value
from datasets.arrow_writer import ArrowWriter

from feedrate.formats import Sample, peeked
from feedrate.formats._images import EncodedReader, Files, encode_all

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
        for files in encode_all(samples):
            writer.write(dict(zip(names, files, strict=True)))
        writer.finalize()


class DatasetReader(EncodedReader):
    """Holds a mapped data set in each process."""

    file = _NAME

    def open_files(self) -> Dataset:
        """Map the file."""
        rows = Dataset.from_file(str(self.root / _NAME))
        if len(rows) != len(self):
            raise ValueError(f"{len(rows)} rows, expected {len(self)}")
        return rows

    def files(self, index: int) -> Files:
        """Copy the files of sample ``index`` out of the map."""
        return list(self.opened()[index].values())


open = DatasetReader
