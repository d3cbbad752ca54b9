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
from itertools import chain, count, repeat
from typing import Any

import torch
from turboloader import DataLoader, ImageNetNormalize

from feedrate.formats.turboloader import NAME, Archive
from feedrate.loaders import Batch, LoadOptions, StampedCollate, StampedStream, untimed
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
    "lacks": "a number of workers; bytes; classes; stages that are timed",
}


class TurboLoader:
    """Batches of its fused pass over the archive; each iteration builds one."""

    def __init__(self, stream: StampedStream, options: LoadOptions) -> None:
        self._stream = stream
        self._options = options

    def __iter__(self) -> Iterator[Batch]:
        stream, options, path = self._stream, self._options, self._stream.root / NAME
        classes = _classes(Archive(path))
        with _cores(options.num_workers):
            loader = DataLoader(
                str(path),
                options.batch_size,
                image_size=options.patch_size,
                output_format="pytorch",
                transform=ImageNetNormalize(),
                shuffle=stream.buffer > 0,
                seed=stream.seed,
                drop_last=True,
                train_aug=True,
                antialias=True,
                prefetch_batches=options.num_workers * options.prefetch_factor,
            )
        for epoch in count() if stream.endless else (0,):
            loader.set_epoch(epoch)
            batches = iter(loader)
            with _cores(options.num_workers):  # each pass begins a thread that asks for batches
                first = next(batches, None)
            yield from map(self._batch, chain([first] if first else [], batches), repeat(classes))

    def _batch(self, delivered: tuple[Any, dict[str, Any]], classes: torch.Tensor) -> Batch:
        images, about = delivered
        if about["decode_failures"]:
            where = self._stream.root / NAME
            raise DataError(f"{where}: TurboLoader could not decode an image; expected JPEG files that are whole")
        batch = Batch((torch.as_tensor(images), classes[about["indices"]]), untimed())
        # Its own pinned memory is written anew while a copy that nobody waits for still reads it.
        return batch.pinned() if self._options.pin_memory else batch


def _classes(archive: Archive) -> torch.Tensor:
    return torch.tensor([int.from_bytes(archive.read(at)[:2], "little") for at in range(1, len(archive), 2)])


@contextmanager
def _cores(most: int) -> Iterator[None]:
    """Begin threads on so many of the cores that this process may use; they stay there."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:most])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def build(dataset: StampedStream, _collate: StampedCollate, _batches: None, options: LoadOptions) -> TurboLoader:
    """Take the archive, the size of the crops and the seed; what decodes and collates is TurboLoader's own."""
    return TurboLoader(dataset, options)
