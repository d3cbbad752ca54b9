"""How samples become a batch (``collate``), and where its pixels become floating-point numbers (``normalize_on``).

- ``totensor``: every sample by itself through the workload's transform (torchvision's ``ToTensor``: transpose, copy,
  convert, divide), then PyTorch's ``default_collate`` stacks the floats.
- ``fast``: samples stay the uint8 arrays that were decoded. The worker copies each into its place of one uint8 batch,
  and this copy transposes; nothing else is done sample by sample. The idea is ``fast_collate`` of NVIDIA's apex
  (examples/imagenet/main_amp.py). The workload's ``normalize`` then turns the whole batch into what ``totensor`` makes,
  in the worker, or once it has reached the device: a quarter of the bytes is handed over and copied.

On a CPU "on the device" is in the training process, when the batch is fetched. On CUDA it is no part of the loader,
which hands over bytes, also where it is drained alone. In workers both ways write the batch
into shared memory at once, as handing it over would copy it there else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info

from feedrate.formats import Image, Sample
from feedrate.schema import plugins
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch, Collate, Fields

Transform = Callable[[Sample], Fields]
"""Makes of one sample what a collation takes: tensors, or for ``fast`` the arrays themselves."""


def buffer(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Make room for what is handed to the training process: in shared memory, where this is a worker."""
    if get_worker_info() is None:
        return torch.empty(tuple(shape), dtype=dtype)
    # As default_collate does. A storage's share_memory_() would copy what is not there yet.
    storage = torch.UntypedStorage._new_shared(math.prod(shape) * dtype.itemsize)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape))  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True, slots=True)
class Finish:
    """Turns a batch of uint8 into the tensors that the workload's transform would have given."""

    normalize: Callable[..., Fields]
    """The workload's."""
    riders: int = 0
    """Fields that come behind the workload's own and stay what they are."""

    def __call__(self, fields: Fields, empty: Callable[..., torch.Tensor] = torch.empty_like) -> Fields:
        """Normalise the tensors of a batch, on their device."""
        own = len(fields) - self.riders
        return (*self.normalize(fields[:own], empty), *fields[own:])


class FastCollate:
    """Makes one uint8 tensor a field out of decoded samples, and normalises it where that is the worker's part."""

    def __init__(self, riders: int, finish: Finish | None) -> None:
        """Describe the batches."""
        self._riders = riders
        self._finish = finish

    def __call__(self, samples: Sequence[Any]) -> Fields:
        """Collate samples: tuples of uint8 arrays, height × width × channels, and riders."""
        own = len(samples[0]) - self._riders
        # What will be normalised here never leaves this process.
        room = torch.empty if self._finish else buffer
        pixels = tuple(_transposed([sample[place] for sample in samples], room) for place in range(own))
        riders = default_collate([sample[own:] for sample in samples]) if self._riders else ()
        fields = (*pixels, *riders)
        return self._finish(fields, _buffer_like) if self._finish else fields


def _transposed(images: Sequence[Image], room: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Stack images channels first; NumPy copies small ones transposed in less time than PyTorch does."""
    height, width, channels = images[0].shape
    batch = room((len(images), channels, height, width), dtype=torch.uint8)
    places = batch.numpy()
    for place, image in enumerate(images):
        places[place] = np.asarray(image).transpose(2, 0, 1)
    return batch


def _buffer_like(tensor: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
    return buffer(tensor.shape, dtype)


def as_is(sample: Any) -> Any:
    """Leave a sample what it is."""
    return sample


def ways(job: Job) -> tuple[Transform, Collate]:
    """Choose what is done to every sample, and what makes a batch of them."""
    if job.value("collate") == "fast":
        return as_is, FastCollate(_riders(job), _finish(job) if job.value("normalize_on") == "worker" else None)
    transform: Transform = plugins.load("feedrate.workloads", job.value("workload")).transform
    return transform, default_collate


def on_host(job: Job) -> Finish | None:
    """Give what the training process does to a batch when it is fetched: the part of a device that is a CPU.

    The same without a step (``mode: load``). On CUDA there is no such part, whatever the mode: a loader that did it
    when it is drained alone would do more than it does in training, of which it is the ceiling.
    """
    return _finish(job) if _deferred(job) and job.device != "cuda" else None


def on_device(job: Job) -> Finish | None:
    """Give what CUDA does to a batch that has been copied there, on the stream and in the phase of its copy."""
    return _finish(job) if _deferred(job) and job.device == "cuda" and job.value("mode") != "load" else None


def finished(batches: Iterator[Batch], finish: Finish) -> Iterator[Batch]:
    """Finish batches as they are fetched."""
    return (batch._replace(fields=finish(batch.fields)) for batch in batches)


def _deferred(job: Job) -> bool:
    return bool(job.value("collate") == "fast" and job.value("normalize_on") == "device")


def _finish(job: Job) -> Finish:
    return Finish(plugins.load("feedrate.workloads", job.value("workload")).normalize, _riders(job))


def _riders(job: Job) -> int:
    """A planted payload is one field behind the workload's own."""
    return int(job.value("payload_bytes") > 0)
