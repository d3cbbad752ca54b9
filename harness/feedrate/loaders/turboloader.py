"""TurboLoader: threads of C++ decode, crop and normalise whole batches; nothing of a sample runs in Python.

One pool serves the process, and takes every core that it may use: here it is begun on as many cores as there are
workers. Batches are floats, never bytes. It knows no classes; they are told by the place of an image, as its
documentation advises. What it cannot decode it serves black, with a warning; here that is raised, as every loader must.
It draws its own crops from the same distribution as the workload, and cannot say how long a stage took.
https://github.com/ALJainProjects/TurboLoader#quick-start
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from typing import Any

import torch
from turboloader import DataLoader, ImageNetNormalize

from feedrate.formats.turboloader import NAME, Archive
from feedrate.loaders import Batch, Loader, untimed
from feedrate.schema.errors import DataError

REQUIRES: dict[str, str] = {"torch": "torch", "turboloader": "turboloader"}
TRAITS: dict[str, object] = {
    "title": "TurboLoader",
    "workers": "threads",
    "streams": ("turboloader",),
    "decodes": True,
    "delivers": "floats",
    "order": "any, its own",
    "errors": "black pixels, with a warning (raised here)",
    "resumes": True,
    "lacks": "an option for workers; bytes; classes; stages that are timed",
}


class TurboLoader(Loader):
    """Batches of its fused pass over the archive."""

    def __iter__(self) -> Iterator[Batch]:
        path, workers = self.dataset.root / NAME, self.options.num_workers
        archive = Archive(path)
        classes = torch.tensor([int.from_bytes(archive.read(at)[:2], "little") for at in range(1, len(archive), 2)])
        order = {"shuffle": self.dataset.buffer > 0, "seed": self.dataset.seed, "drop_last": True}
        crops = {"image_size": self.options.patch_size, "train_aug": True, "antialias": True}
        delivered = {"output_format": "pytorch", "prefetch_batches": workers * self.options.prefetch_factor}
        with _cores(workers):
            size, transform = self.options.batch_size, ImageNetNormalize()
            loader = DataLoader(str(path), size, transform=transform, **order, **crops, **delivered)
        for epoch in count() if self.dataset.endless else (0,):
            loader.set_epoch(epoch)
            batches = iter(loader)
            with _cores(workers):  # each pass begins a thread that asks for batches
                first = next(batches, None)
            for images, about in chain([first] if first else [], batches):
                yield self._batch(images, about, classes)

    def _batch(self, images: Any, about: dict[str, Any], classes: torch.Tensor) -> Batch:
        if about["decode_failures"]:
            where = self.dataset.root / NAME
            raise DataError(f"{where}: TurboLoader could not decode an image; expected JPEG files that are whole")
        batch = Batch((torch.as_tensor(images), classes[about["indices"]]), untimed())
        # Its own pinned memory is written anew while a copy that nobody waits for still reads it.
        return batch.pinned() if self.options.pin_memory else batch


@contextmanager
def _cores(most: int) -> Iterator[None]:
    """Begin threads on so many of the cores that this process may use; they stay there."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:most])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


build = TurboLoader
