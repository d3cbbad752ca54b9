"""Image files of any size, and where each visit crops them: what training on ImageNet does in its workers.

A sample is a file as it is, and 12 bytes beside it: class, height and width (uint32, little-endian). Sizes are known
before a file is decoded, so that a decoder that can may decode it smaller where the crop allows.

Crops are Inception's (Szegedy et al., "Going deeper with convolutions", CVPR 2015), with torchvision's figures: 8 % to
all of the area, 3:4 to 4:3, ten tries, then the middle. PyTorch's bilinear filter with antialiasing resizes them,
as torchvision's transforms do to tensors, whatever decoded the file: on bytes within a level of Pillow's, and in
a quarter of the time. Every visit's crop follows from the trial's seed, the epoch and the sample alone: two settings
crop alike, whichever worker does it and when.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from feedrate.formats import Image, Sample
from feedrate.formats.decoders import DecodeFile, kind

AREA = (0.08, 1.0)
"""Least and largest share of the area."""
RATIO = (3 / 4, 4 / 3)
"""Least and largest width ÷ height."""
_LOG_RATIO = (math.log(RATIO[0]), math.log(RATIO[1]))
TRIES = 10


class Crop(NamedTuple):
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int
    flipped: bool
    """Whether it is turned left to right."""


class Decoded(NamedTuple):
    """A decoded file, and what is to be made of it."""

    pixels: Image
    """The whole image, uint8, height × width × 3, perhaps reduced by ``scale``."""
    scale: int
    crop: Crop
    """In pixels of the image that is not reduced."""
    label: Image
    """Class, uint8, 1 × 1 × 2, little-endian."""


def pack(file: bytes, label: int, height: int, width: int) -> Sample:
    """Make the sample of a file."""
    about = np.array([label, height, width], "<u4").view(np.uint8)
    return np.frombuffer(file, np.uint8), about.reshape(1, 1, -1)


def unpack(sample: Sample) -> tuple[bytes, int, int, int]:
    """Give the file of a sample, its class, height and width."""
    file, about = sample
    label, height, width = about.reshape(-1).view("<u4").tolist()
    return file.tobytes(), label, height, width


def draw(random: Random, height: int, width: int) -> Crop:
    """Choose where a visit crops an image."""
    flipped = random.random() < 0.5
    for _ in range(TRIES):
        area = height * width * random.uniform(*AREA)
        ratio = math.exp(random.uniform(*_LOG_RATIO))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            return Crop(random.randint(0, height - down), random.randint(0, width - across), down, across, flipped)
    across = min(width, round(height * RATIO[1]))
    down = min(height, round(width / RATIO[0]))
    return Crop((height - down) // 2, (width - across) // 2, down, across, flipped)


def visit(sample: Sample, random: Random, decode: DecodeFile, scales: Sequence[int], size: int) -> Decoded:
    """Choose the crop of a visit, which becomes ``size`` × ``size``, and decode as much of a file as it needs.

    A JPEG file may be reduced by one of ``scales`` while it is decoded, as far as the crop keeps ``size`` pixels.
    """
    file, label, height, width = unpack(sample)
    crop = draw(random, height, width)
    able = scales if kind(file) == "jpeg" else ()
    scale = max((scale for scale in able if min(crop.height, crop.width) >= scale * size), default=1)
    two_bytes = np.array([label], "<u2").view(np.uint8).reshape(1, 1, 2)
    return Decoded(decode(file, height, width, scale), scale, crop, two_bytes)


def augment(decoded: Decoded, size: int) -> Sample:
    """Crop an image, resize and perhaps flip it: (image, label), uint8, size × size × 3 and 1 × 1 × 2."""
    pixels, by, crop, label = decoded
    top, left, bottom, right = crop.top, crop.left, crop.top + crop.height, crop.left + crop.width
    cut = pixels[top // by : -(-bottom // by), left // by : -(-right // by)]
    return resized(torch.from_numpy(cut).permute(2, 0, 1), size, crop.flipped).permute(1, 2, 0).numpy(), label


def resized(image: torch.Tensor, size: int, flipped: bool) -> torch.Tensor:
    """Resize an image, uint8, 3 × height × width, to 3 × size × size, and perhaps turn it left to right."""
    resize = partial(functional.interpolate, size=(size, size), mode="bilinear", antialias=True)
    if image.device.type == "cpu":
        square = resize(image[None])[0]
    else:  # CUDA's kernel for antialiased resizing takes floating point alone (UpSampleBilinear2d.cu)
        square = resize(image[None].float())[0].round().clamp(0, 255).to(torch.uint8)
    return square.flip(-1) if flipped else square
