"""Procedural JPEG files of ImageNet's geometry, for machines without it: about 500 × 375 pixels and 110 kB, RGB.

ImageNet's images measure 469 × 387 pixels on average (image-net.org, LSVRC) and its files 114,660 bytes (MLPerf
Storage's workload for ResNet-50); by far the most frequent size is Flickr's, whose longer side has 500 pixels. Which
share each size of ``SIZES`` has is ours, so that their means are 472 × 390. Quality is 75 to 90, colours have half the
resolution (4:2:0), as most photographs on the web have. ImageNet's own are larger because most were saved at 96 without
that; here the detail makes up for it: luma noise of amplitude 1/f^0.8 (mean 110, standard deviation 66) and two chroma
fields of amplitude 1/f^2. What decides the time that decoding takes are pixels and bits: a photograph of as many of
both decodes within 15 % of the time (tests/workloads).

What it does *not* show: photographs differ more in detail, and so in decoding time, than these do; nothing about
accuracy can be learnt from noise.

The fields are computed in float64 (FFT) and rounded, as those of ``div2k_standin``; what the encoder makes of them
depends on its version, too. Results match where ``data_hash`` does.
"""

from __future__ import annotations

import io
from functools import cache

import numpy as np
from PIL import Image as PILImage

from feedrate.formats import Image, Sample, map_on_all_cores
from feedrate.workloads import DataSpec, Source
from feedrate.workloads._classification import loss, normalize, transform
from feedrate.workloads._crops import augment, pack, visit
from feedrate.workloads.div2k_standin import pixels_of, planes

__all__ = ["CLASSES", "REQUIRES", "SAMPLES", "TASK", "VERSION", "augment", "loss", "normalize", "samples"]
__all__ += ["transform", "visit"]

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy", "torch": "torch", "torchvision": "torchvision"}
TASK: str = "classification"
SAMPLES: str = "files"
CLASSES: int = 1000
VERSION: int = 1
SIZES = {(500, 375): 55, (375, 500): 13, (500, 333): 12, (333, 500): 4, (500, 500): 2}
SIZES |= {(400, 300): 5, (320, 240): 5, (640, 480): 3, (1024, 768): 1}
"""Width and height in pixels, and how many of a hundred files have them."""
QUALITY = (75, 90)
TEXTURES = 8
"""Images out of which all files are cut."""

_SEED = 0x1A6E
_GRID = (1024, 2048)


def samples(spec: DataSpec) -> Source:
    """Give files and classes, 0 to 999, all different."""
    return Source(map_on_all_cores(_sample, range(spec.n_samples)))


def _sample(number: int) -> Sample:
    """Cut file ``number`` of the endless set out of a texture, and encode it."""
    random = np.random.Generator(np.random.PCG64([_SEED, number]))
    sizes = [size for size, share in SIZES.items() for _ in range(share)]
    width, height = sizes[random.integers(len(sizes))]
    top, left = random.integers(_GRID[0] - height), random.integers(_GRID[1] - width)
    pixels = texture(int(random.integers(TEXTURES)))[top : top + height, left : left + width]
    file = io.BytesIO()
    quality = int(random.integers(QUALITY[0], QUALITY[1] + 1))
    PILImage.fromarray(pixels).save(file, format="JPEG", quality=quality, subsampling="4:2:0")
    return pack(file.getvalue(), int(random.integers(CLASSES)), height, width)


@cache
def texture(number: int) -> Image:
    """Make an image that files are cut out of: uint8, 1024 × 2048 × 3."""
    random = np.random.Generator(np.random.PCG64([_SEED, TEXTURES, number]))
    return pixels_of(planes(random, _GRID, 66, 0.8))
