"""Classification of cats and dogs: the Oxford-IIIT Pet Dataset, 37 breeds, read by torchvision's own loader.

Parkhi, Vedaldi, Zisserman and Jawahar, "Cats and Dogs", CVPR 2012. ``spec.source`` is the folder ``oxford-iiit-pet``
that ``feedrate data pets`` makes. Of the split ``trainval`` (3,680 photographs, sorted by breed) samples are spread
evenly, so that few of them show all breeds. A photograph is made RGB, resized so that its shorter side is
``patch_size`` (Pillow's bicubic, with its antialiasing) and cut to the square in its middle, before it is packed.

What it does *not* show: decoding JPEG files of 500 pixels and cropping at random, as training on the original files
does in its workers; nor accuracy: the network begins with random weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torchvision.datasets import OxfordIIITPet
from torchvision.transforms import InterpolationMode, functional

from feedrate.formats import Sample
from feedrate.schema.errors import InputError
from feedrate.workloads import DataSpec, Source
from feedrate.workloads._classification import loss, normalize, transform
from feedrate.workloads._photos import Notes, usable

__all__ = ["CLASSES", "REQUIRES", "TASK", "VERSION", "loss", "normalize", "samples", "transform"]

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy", "torch": "torch", "torchvision": "torchvision"}
TASK: str = "classification"
CLASSES: int = 37
VERSION: int = 1
_ADVICE = "run: feedrate data pets"


def samples(spec: DataSpec) -> Source:
    """Give (image, label) of photographs: uint8, patch_size × patch_size × 3, and the breed, 0 to 36, as 1 × 1 × 1."""
    if spec.source is None:
        raise InputError(f"{spec.workload}: no folder of the data set was given; {_ADVICE}")
    try:
        photographs = OxfordIIITPet(spec.source.parent, split="trainval", target_types="category", download=False)
    except (RuntimeError, OSError, ValueError) as error:
        raise InputError(f"{spec.source}: not the Oxford-IIIT Pet Dataset ({error}); {_ADVICE}") from error
    if spec.n_samples > len(photographs):
        raise InputError(f"{spec.workload}: n_samples is {spec.n_samples}; expected at most {len(photographs)}")
    notes = Notes()
    return Source(_draw(photographs, spec, notes), notes.lines)


def _draw(photographs: OxfordIIITPet, spec: DataSpec, notes: Notes) -> Iterator[Sample]:
    def read(number: int) -> Sample:
        image, label = photographs[number]
        resized = functional.resize(image, spec.patch_size, InterpolationMode.BICUBIC)
        square = np.array(functional.center_crop(resized, [spec.patch_size, spec.patch_size]))
        return square, np.full((1, 1, 1), label, np.uint8)

    names, drawn = [f"photograph {number}" for number in range(len(photographs))], 0
    for _, sample in usable(names, spec.n_samples, read, notes):
        drawn += 1
        yield sample
    if drawn < spec.n_samples:
        can = f"{drawn} photographs can be used ({notes.lines[0]})"
        raise InputError(f"{spec.source}: {can}; n_samples is {spec.n_samples}")
