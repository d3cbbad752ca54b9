"""NVIDIA DALI: a graph of operators that reads, decodes, crops and resizes whole batches, in threads of its own.

Nothing of a sample runs in Python. It decodes with nvImageCodec, on a CPU with libjpeg-turbo, and draws its own crops
from the same distribution as the workload. Where there is a GPU, it decodes and resizes there (never tried yet). So its
numbers are of another decoder and of another resizing, beside another loader; and it cannot say how long a stage took.
https://docs.nvidia.com/deeplearning/dali/user-guide/docs/examples/use_cases/pytorch/resnet50/pytorch-resnet50.html
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from nvidia.dali import Pipeline, fn, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from feedrate.loaders import Batch, Loader, untimed

REQUIRES: dict[str, str] = {"torch": "torch", "nvidia.dali": "nvidia-dali-cuda130"}
TRAITS: dict[str, object] = {
    "title": "DALI",
    "workers": "threads",
    "streams": ("webdataset",),
    "decodes": True,
    "order": "samples at random within a buffer",
    "resumes": True,
    "lacks": "Python code within its graph; stages that are timed",
}


class DaliLoader(Loader):
    """Batches of the graph."""

    def __iter__(self) -> Iterator[Batch]:
        end = {"size": -1} if self.dataset.endless else {"reader_name": "samples"}
        names, drop = ["images", "about"], LastBatchPolicy.DROP
        for (batch,) in DALIGenericIterator([self._graph()], names, last_batch_policy=drop, **end):
            classes = batch["about"][:, :2, None, None]
            yield Batch((batch["images"], classes), untimed())

    def _graph(self) -> Pipeline:
        options, buffer, cuda = self.options, self.dataset.buffer, torch.cuda.is_available()
        device, ahead = torch.cuda.current_device() if cuda else None, options.prefetch_factor
        graph = Pipeline(options.batch_size, options.num_workers, device, prefetch_queue_depth=ahead)
        with graph:
            files, about = fn.readers.webdataset(  # type: ignore[misc]  # of two components
                paths=sorted(map(str, self.dataset.root.glob("*.tar"))),
                ext=["0.file", "1.raw"],
                random_shuffle=buffer > 0,
                initial_fill=max(1, buffer),
                name="samples",
            )
            # Its crops are Inception's unless told otherwise, with torchvision's figures.
            images = fn.decoders.image_random_crop(files, device="mixed" if cuda else "cpu")
            images = fn.resize(images, size=options.patch_size, interp_type=types.INTERP_TRIANGULAR)
            images = fn.flip(images, horizontal=fn.random.coin_flip())
            graph.set_outputs(fn.transpose(images, perm=(2, 0, 1)), about)
        return graph


build = DaliLoader
