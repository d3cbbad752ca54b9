"""Pairs of patches for super-resolution, cut from images; the transform and loss that go with them.

Every image is cropped to a multiple of the factor, reduced by it and enlarged by it again (Pillow's bicubic, with its
antialiasing, as in the usual preparation of DIV2K for SRCNN), and only then cut: a patch has no border effects of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image as PILImage
from torchvision.transforms.functional import to_tensor

from feedrate.formats import Image, Sample
from feedrate.schema.errors import InputError
from feedrate.workloads import DataSpec, Source
from feedrate.workloads._photos import Notes, Unusable, open_rgb

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that is decoded, or made, when its turn comes; its name in notes is no absolute path."""

    name: str
    load: Callable[[], Image]
    """Gives uint8, height × width × 3, or raises ``Unusable`` with the reason."""


def transform(sample: Sample) -> tuple[torch.Tensor, ...]:
    """Turn the fields of a sample into float tensors, channels × height × width, in 0..1, by torchvision."""
    return tuple(to_tensor(field) for field in sample)


def normalize(
    fields: Sequence[torch.Tensor], empty: Callable[..., torch.Tensor] = torch.empty_like
) -> tuple[torch.Tensor, ...]:
    """Do to the pixels of a batch (uint8, batch × channels × height × width) what ``transform`` does to a sample's."""
    return tuple(empty(field, dtype=torch.float32).copy_(field).div_(255) for field in fields)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Give the mean squared error of two equal-shaped tensors, as a scalar tensor."""
    return torch.nn.functional.mse_loss(output, target)


def mix(number: int) -> int:
    """Scramble an integer to 64 bits, alike on every machine and version (splitmix64: Steele, Lea and Flood 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & _WORD
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _WORD
    return number ^ (number >> 31)


def _degraded(pixels: Image, scale: int) -> tuple[Image, Image]:
    """The (input, target) images of super-resolution."""
    height, width = (size // scale * scale for size in pixels.shape[:2])
    target = pixels[:height, :width]
    small = PILImage.fromarray(target).resize((width // scale, height // scale), PILImage.Resampling.BICUBIC)
    return np.asarray(small.resize((width, height), PILImage.Resampling.BICUBIC)), target


def pictures(folder: Path, names: Iterable[Path]) -> list[Picture]:
    """Make pictures of the files of a folder."""
    return [Picture(name.as_posix(), partial(open_rgb, folder / name)) for name in names]


def pairs(pictures: Sequence[Picture], spec: DataSpec) -> Source:
    """Cut ``spec.n_samples`` (input, target) pairs, each field uint8, patch_size × patch_size × 3.

    Any number can be had: positions are seeded by the picture's place and the patch's number, and counts differ by at
    most one between pictures. Every picture is loaded once. One that cannot be used is skipped with a note, and its
    share falls to those after it, or to the last; an InputError, while drawing, where none can be.
    """
    notes = Notes()
    return Source(_draw(pictures, spec, notes), notes.lines)


def _draw(pictures: Sequence[Picture], spec: DataSpec, notes: Notes) -> Iterator[Sample]:
    left, last = spec.n_samples, None
    least = -(-spec.patch_size // spec.scale) * spec.scale
    for number, picture in enumerate(pictures):
        if left == 0:
            break
        try:
            pixels = picture.load()
            height, width = pixels.shape[:2]
            if min(height, width) < least:
                raise Unusable(f"{width} x {height} pixels, needs {least} x {least}")
            pair = _degraded(pixels, spec.scale)
        except Unusable as reason:
            notes.skip(picture.name, str(reason))
            continue
        share = -(-left // (len(pictures) - number))
        yield from _cut(pair, number, range(share), spec.patch_size)
        left, last = left - share, (pair, number, share)
    notes.close()
    if last is None:
        where = spec.source or spec.workload
        raise InputError(f"{where}: none of {len(pictures)} images can be used ({notes.lines[0]})")
    pair, number, taken = last
    yield from _cut(pair, number, range(taken, taken + left), spec.patch_size)


def _cut(pair: tuple[Image, Image], number: int, patches: range, size: int) -> Iterator[Sample]:
    height, width = pair[0].shape[:2]
    for patch in patches:
        draw = mix((number << 32) + patch)
        top, left = (draw >> 32) % (height - size + 1), (draw & 0xFFFFFFFF) % (width - size + 1)
        yield tuple(image[top : top + size, left : left + size].copy() for image in pair)
