"""Workloads: dataset, transform and model step. One file a workload, found by its name, imported only when used.

A workload module has a docstring (what it is, where it comes from, what it does *not* show), ``REQUIRES``, and

- ``TASK: str``: a literal, ``"super-resolution"``, ``"classification"`` or ``"language"``: a model runs on workloads of
  its own task only. For classification ``CLASSES: int``, how many there are;
- ``SAMPLES: str``: a literal, ``"images"``, which all formats hold, if it is not there; ``"files"`` of any size, as
  they are, or ``"tokens"``;
- ``VERSION: int``: raised when samples, transform or loss change;
- ``samples(spec)``: a ``Source`` of raw samples to be packed, in a fixed order;
- ``transform(sample)``: one raw sample → a tuple of tensors, (input, target): float images, C × H × W, in 0..1 for
  super-resolution; a normalised image and an int64 scalar, the class, for classification;
- ``normalize(fields, empty=torch.empty_like)``: the fields of a whole batch as they were packed, uint8 tensors,
  batch × channels × height × width, on any device → there, contiguous, what ``transform`` gives for its samples,
  collated. Every tensor of the result is one that ``empty(tensor, dtype=…)`` made: uninitialised, of another's shape;
- ``loss(output, target)``: a scalar tensor;
- where samples are files, which are decoded and cropped anew at each visit, before ``transform``:
  ``visit(sample, random, decode, scales, size)`` and ``augment(decoded, size)`` (``_crops``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from feedrate.formats import Sample

__all__ = ["DataSpec", "_crops", "_photos"]  # the underscore says that a file is no plug-in


@dataclass(frozen=True, slots=True)
class DataSpec:
    """Which samples: the axes that change the data, and where photographs lie."""

    workload: str
    n_samples: int
    """How many samples are wanted; a source with fewer gives an InputError."""
    patch_size: int
    """Height and width of a sample, in pixels."""
    scale: int
    """Super-resolution factor; 1 where the axis does not apply."""
    source: Path | None = None
    """Folder of photographs (``folder``), of sub-images (``div2k``) or of the data set (``pets``)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Samples to be packed, and what was noticed on the way."""

    samples: Iterable[Sample]
    """Lazily produced, in a fixed order, exactly ``n_samples`` of them."""
    notes: list[str] = field(default_factory=list)
    """Filled while samples are drawn: skipped files and the like."""
