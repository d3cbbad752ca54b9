"""Classification of image files of any size, as they are: any tree of a folder for each class (``--data``).

A file that lies in no folder of its own is of the class of all such files.

What people train on ImageNet with: decode, crop at random, resize to ``patch_size``, perhaps flip, normalise; the class
of a file is the place of its top folder among all, sorted, as torchvision's ``ImageFolder`` has it. Files are JPEG, PNG
or WebP, grey or in three channels of 8 bits; others (palettes, transparency, CMYK), which decoders understand
differently, are left out with a note. ``n_samples`` of them are packed, spread evenly over the tree, byte for byte;
where there are fewer, some are packed more than once, which a note says.

What it does *not* show: accuracy, as the network begins with random weights; nor what a listing of a million files
costs at the start. Results compare with others only where the same files were packed (``data_hash``).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from PIL import Image as PILImage

from feedrate.formats import Sample
from feedrate.schema.errors import InputError
from feedrate.workloads import DataSpec, Source
from feedrate.workloads._classification import loss, normalize, transform
from feedrate.workloads._crops import augment, pack, visit
from feedrate.workloads._photos import Notes, list_images, usable

__all__ = ["CLASSES", "REQUIRES", "SAMPLES", "TASK", "VERSION", "augment", "loss", "normalize", "samples"]
__all__ += ["transform", "visit"]

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy", "torch": "torch", "torchvision": "torchvision"}
TASK: str = "classification"
SAMPLES: str = "files"
CLASSES: int = 1000
"""Most classes that a tree may have."""
VERSION: int = 1
KINDS = ("JPEG", "PNG", "WEBP")
MODES = ("RGB", "L")
"""Pillow's names for three channels and for grey, of 8 bits."""


def samples(spec: DataSpec) -> Source:
    """Give files and their classes; an InputError where there are none, or too many classes, or none can be used."""
    if spec.source is None:
        raise InputError(f"{spec.workload}: no folder of images was given; name one with --data DIR")
    files = list_images(spec.source)
    classes = sorted({file.parent.parts[:1] for file in files})
    if len(classes) > CLASSES:
        expected = f"expected one for each of {CLASSES} classes"
        raise InputError(f"{spec.source}: {len(classes)} folders with images; {expected}")
    labels = {name: label for label, name in enumerate(classes)}
    notes = Notes()
    labelled = [(file, labels[file.parent.parts[:1]]) for file in files]
    return Source(_draw(spec, spec.source, labelled, notes), notes.lines)


def _draw(spec: DataSpec, source: Path, files: list[tuple[Path, int]], notes: Notes) -> Iterator[Sample]:
    """Files that can be used, and then all of those again."""

    def read(number: int) -> Sample:
        return _sample(source / files[number][0], files[number][1])

    numbers: list[int] = []
    for number, sample in usable([file.as_posix() for file, _ in files], spec.n_samples, read, notes):
        numbers.append(number)
        yield sample
    if not numbers:
        raise InputError(f"{source}: no image can be used ({notes.lines[0]})")
    if missing := spec.n_samples - len(numbers):
        notes.lines.append(f"{len(numbers)} files for {spec.n_samples} samples: some are packed more than once")
        yield from map(read, islice(cycle(numbers), missing))


def _sample(path: Path, label: int) -> Sample:
    """Read a file, which must decode; a ValueError where decoders would understand it differently."""
    file = path.read_bytes()
    with PILImage.open(io.BytesIO(file), formats=KINDS) as picture:
        picture.load()
        if picture.mode not in MODES:
            raise ValueError(f"its pixels are {picture.mode}; expected {' or '.join(MODES)}")
        return pack(file, label, picture.height, picture.width)
