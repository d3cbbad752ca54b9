"""Super-resolution on DIV2K: 800 photographs of 2040 pixels on their long side, the usual training set.

Agustsson and Timofte, "NTIRE 2017 Challenge on Single Image Super-Resolution", CVPRW 2017. For academic research only:
the photographs are never shipped with this project nor with results. ``spec.source`` is the unpacked DIV2K_train_HR.
"""

from __future__ import annotations

from harness.workloads import DataSpec, Source
from harness.workloads._patches import loss, photographs, transform

__all__ = ["REQUIRES", "VERSION", "loss", "samples", "transform"]

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy", "torch": "torch", "torchvision": "torchvision"}
VERSION: int = 1


def samples(spec: DataSpec) -> Source:
    """Cut (input, target) pairs from the photographs of DIV2K_train_HR.

    Raises:
        InputError: the folder is missing or empty; while drawing: no photograph in it can be used.
    """
    return photographs(spec, "run: make div2k")
