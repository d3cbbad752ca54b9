"""Super-resolution on DIV2K: sub-images of 480 × 480 pixels of its photographs, the usual training set.

Agustsson and Timofte, "NTIRE 2017 Challenge on Single Image Super-Resolution", CVPRW 2017. For academic research only:
the photographs are never shipped with this project nor with results. ``spec.source`` is what ``make div2k`` made:
``DIV2K_train_HR_sub`` (32,592 sub-images of 800 photographs) or ``DIV2K_valid_HR_sub`` (of 100 others).

Few samples show many photographs too: sub-images are spread evenly over the set. They are reduced and enlarged *within
their own borders*, where they differ from DIV2K's own low-resolution files, which matters to quality and not to speed.
"""

from __future__ import annotations

from feedrate.downloads import crops
from feedrate.schema.errors import DataError, InputError
from feedrate.workloads import DataSpec, Source
from feedrate.workloads._patches import loss, normalize, pairs, pictures, transform
from feedrate.workloads._photos import evenly, list_images

__all__ = ["REQUIRES", "TASK", "VERSION", "loss", "normalize", "samples", "transform"]

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy", "torch": "torch", "torchvision": "torchvision"}
TASK: str = "super-resolution"
VERSION: int = 2
_ADVICE = "run: make div2k"


def samples(spec: DataSpec) -> Source:
    """Cut (input, target) pairs from the sub-images; an InputError where there is no whole set of them."""
    if spec.source is None:
        raise InputError(f"{spec.workload}: no folder of sub-images was given; {_ADVICE}")
    try:
        count = crops.recorded(spec.source)
    except DataError as error:
        raise InputError(f"{error}; {_ADVICE}") from error
    names = list_images(spec.source)
    if len(names) != count:
        raise InputError(f"{spec.source}: has {len(names)} sub-images; expected {count}; {_ADVICE}")
    return pairs(pictures(spec.source, [names[number] for number in evenly(len(names), spec.n_samples)]), spec)
