"""Super-resolution on a folder of the user's own photographs (PNG or JPEG, sub-folders included).

It answers "how fast is it with my data": results compare with others only where the same patches were cut from the same
photographs (``data_hash``).
"""

from __future__ import annotations

from feedrate.schema.errors import InputError
from feedrate.workloads import DataSpec, Source
from feedrate.workloads._patches import loss, normalize, pairs, pictures, transform
from feedrate.workloads._photos import list_images

__all__ = ["REQUIRES", "TASK", "VERSION", "loss", "normalize", "samples", "transform"]

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy", "torch": "torch", "torchvision": "torchvision"}
TASK: str = "super-resolution"
VERSION: int = 1


def samples(spec: DataSpec) -> Source:
    """Cut (input, target) pairs from the photographs under ``spec.source``; an InputError where there are none."""
    if spec.source is None:
        raise InputError(f"{spec.workload}: no folder of photographs was given; name one with --data DIR")
    return pairs(pictures(spec.source, list_images(spec.source)), spec)
