"""How samples become a batch (``collate``), and where its pixels become floating-point numbers (``normalize_on``).

- ``totensor``: every sample by itself through the workload's transform (torchvision's ``ToTensor``: transpose, copy,
  convert, divide), then PyTorch's ``default_collate`` stacks the floats. ``strided``, ``numpy`` and ``loop`` convert
  a pair of images to the same numbers without ToTensor's contiguous copy, with NumPy alone, and value by value.
- ``fast``: samples stay the uint8 arrays that were decoded. The worker copies each, transposed, into its place of one
  uint8 batch, as ``fast_collate`` of NVIDIA's apex does (examples/imagenet/main_amp.py). The workload's ``normalize``
  turns the whole batch into what ``totensor`` makes, in the worker or on the device: a quarter of the bytes is copied.

On a CPU "on the device" is in the training process, when the batch is fetched. On CUDA it is no part of the loader,
also where that is drained alone (``mode: load``): it is the ceiling of what it does in training. In workers both ways
write the batch into shared memory at once, as handing it over would copy it there otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info

from feedrate.formats import Image, Sample
from feedrate.loaders import Collate, Fields, Transform
from feedrate.schema import plugins
from feedrate.trial import visits
from feedrate.trial.job import Job


def buffer(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Make room for what is handed to the training process: in shared memory, where this is a worker."""
    if get_worker_info() is None:
        return torch.empty(tuple(shape), dtype=dtype)
    # As default_collate does. A storage's share_memory_() would copy what is not there yet.
    storage = torch.UntypedStorage._new_shared(math.prod(shape) * dtype.itemsize)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape))  # type: ignore[call-overload, no-any-return]


def _buffer_like(tensor: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
    return buffer(tensor.shape, dtype)


@dataclass(frozen=True, slots=True)
class Normalizer:
    """Turns a batch of uint8 into the tensors that the workload's transform would have given."""

    normalize: Callable[..., Fields]
    """The workload's."""
    extra: int = 0
    """Fields that come behind the workload's own and stay what they are: a planted payload."""

    def __call__(self, fields: Fields, empty: Callable[..., torch.Tensor] = torch.empty_like) -> Fields:
        """Normalise the tensors of a batch, on their device."""
        extra = len(fields) - self.extra
        return (*self.normalize(fields[:extra], empty), *fields[extra:])


@dataclass(frozen=True, slots=True)
class FastCollate:
    """Makes one uint8 tensor a field out of decoded samples, and normalises it where that is the worker's part."""

    extra: int
    normalizer: Normalizer | None

    def __call__(self, samples: Sequence[Any]) -> Fields:
        """Collate samples: tuples of uint8 arrays, height × width × channels, and extra fields."""
        images = len(samples[0]) - self.extra
        # What will be normalised here never leaves this process.
        empty = torch.empty if self.normalizer else buffer
        pixels = tuple(_stack([sample[field] for sample in samples], empty) for field in range(images))
        extra = default_collate([sample[images:] for sample in samples]) if self.extra else ()
        fields = (*pixels, *extra)
        return self.normalizer(fields, _buffer_like) if self.normalizer else fields


def _stack(images: Sequence[Any], empty: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Stack images channels first; NumPy copies small ones transposed in less time than PyTorch does."""
    height, width, channels = images[0].shape
    batch = empty((len(images), channels, height, width), dtype=torch.uint8)
    for slot, image in zip(batch.numpy(), images, strict=True):
        slot[:] = np.asarray(image).transpose(2, 0, 1)
    return batch


def identity(sample: Any) -> Any:
    """The transform where nothing is left to transform."""
    return sample


def _strided(image: Image) -> torch.Tensor:
    return torch.from_numpy(image.transpose(2, 0, 1)).to(torch.float32).div(255)


def _by_numpy(image: Image) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1), np.float32) / np.float32(255))


def _in_a_loop(image: Image) -> torch.Tensor:
    rows = image.tolist()
    channels = range(image.shape[2])
    return torch.tensor([[[pixel[channel] / 255 for pixel in row] for row in rows] for channel in channels])


CONVERSIONS: dict[str, Callable[[Image], torch.Tensor]] = {"strided": _strided, "numpy": _by_numpy, "loop": _in_a_loop}
"""Value of ``collate`` to how it makes floats in 0..1, channels first, of an image: uint8, channels last."""


def _convert(convert: Callable[[Image], torch.Tensor], sample: Sample) -> Fields:
    return tuple(convert(field) for field in sample)


def build(job: Job) -> tuple[Transform, Collate]:
    """Choose what is done to every sample, and what makes a batch of them."""
    if plugins.on_device(job.value("decoder")):
        return identity, partial(visits.collate_files, empty=buffer)
    files = visits.of_files(job)
    crop: Callable[[Any], Any] = partial(files.augment, size=job.value("patch_size")) if files else identity
    if job.value("collate") == "fast":
        return crop, FastCollate(_extra_fields(job), normalizer(job, "worker"))
    transform: Transform = plugins.load("feedrate.workloads", job.value("workload")).transform
    if convert := CONVERSIONS.get(job.value("collate")):
        transform = partial(_convert, convert)
    return partial(_in_turn, crop, transform) if files else transform, default_collate


def _in_turn(first: Callable[[Any], Any], then: Callable[[Any], Any], sample: Any) -> Any:
    return then(first(sample))


def device_decoder(job: Job) -> visits.DeviceDecoder | None:
    """What decodes batches on the device, if a cell has it done there."""
    if job.device != "cuda" or job.value("mode") == "load" or not plugins.on_device(job.value("decoder")):
        return None
    normalize = plugins.load("feedrate.workloads", job.value("workload")).normalize
    return visits.DeviceDecoder(job.value("decoder"), job.value("patch_size"), normalize)


def normalizer(job: Job, where: Literal["worker", "host", "cuda"]) -> Normalizer | None:
    """What normalises batches of bytes in a place, if a cell has it done there.

    ``host`` is the training process where it fetches, the part of a device that is a CPU; ``cuda`` the copy's stream.
    """
    axis = job.value("normalize_on")
    if job.value("collate") != "fast" or axis == "none" or plugins.on_device(job.value("decoder")):
        return None
    there = "host" if job.device != "cuda" else "cuda" if job.value("mode") != "load" else None
    if where != ("worker" if axis == "worker" else there):
        return None
    return Normalizer(plugins.load("feedrate.workloads", job.value("workload")).normalize, _extra_fields(job))


def _extra_fields(job: Job) -> int:
    return int(job.value("payload_bytes") > 0)
