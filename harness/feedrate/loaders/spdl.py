"""SPDL: an asynchronous event loop that hands batches to threads of the training process.

Decoding releases Python's lock where its library does; the rest of a sample's work does not. A sample that fails is
logged and skipped by SPDL; here it is raised, as every loader must.
https://facebookresearch.github.io/spdl/0.8.0/getting_started/intro.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from spdl.pipeline import PipelineBuilder
from torch._utils import ExceptionWrapper
from torch.utils.data import Dataset

from feedrate.loaders import Batch, Fields, LoadOptions, Pool, StampedCollate, copies

REQUIRES: dict[str, str] = {"torch": "torch", "spdl": "spdl-core"}
TRAITS: dict[str, object] = {
    "title": "SPDL",
    "workers": "threads",
    "lacks": "Python code that runs in parallel; resuming in the middle of an epoch",
}


def build(
    dataset: Dataset[Fields], collate: StampedCollate, batches: Iterable[list[int]], options: LoadOptions
) -> SpdlLoader:
    """Assemble a pipeline with one stage, which makes whole batches; each iteration has one, as it runs once."""
    return SpdlLoader(Pool(copies(dataset, collate, options)), batches, options)


class SpdlLoader:
    """Batches of a pipeline, in order."""

    def __init__(self, pool: Pool, batches: Iterable[list[int]], options: LoadOptions) -> None:
        self._pool = pool
        self._batches = batches
        self._options = options

    def __iter__(self) -> Iterator[Batch]:
        workers, threads = self._options.num_workers, torch.get_num_threads()
        ahead = max(1, workers * (self._options.prefetch_factor - 1))  # 0 would be without limit
        builder: PipelineBuilder[Any, Any] = PipelineBuilder()
        pipeline = (
            builder.add_source(self._batches)
            .pipe(self._prepare, concurrency=workers, output_order="input")
            .add_sink(ahead)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            for result in pipeline:
                torch.set_num_threads(threads)  # a worker's first batch lowers it for all of MKL
                if isinstance(result, ExceptionWrapper):
                    result.reraise()  # type: ignore[no-untyped-call]
                yield result

    def _prepare(self, indices: list[int]) -> Batch | ExceptionWrapper:
        try:
            return self._pool.prepare(indices)
        except Exception:  # noqa: BLE001 - whatever it is, it is raised again where the batch is waited for
            return ExceptionWrapper(where="in a thread of SPDL")  # type: ignore[no-untyped-call]
