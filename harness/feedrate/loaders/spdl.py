"""SPDL: an asynchronous event loop that hands batches to threads of the training process.

Decoding releases Python's lock where its library does; the rest of a sample's work does not. A sample that fails is
logged and skipped by SPDL; here it is raised, as every loader must.
https://facebookresearch.github.io/spdl/0.8.0/getting_started/intro.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from spdl.pipeline import PipelineBuilder
from torch._utils import ExceptionWrapper

from feedrate.loaders import Batch, Pooled

REQUIRES: dict[str, str] = {"torch": "torch", "spdl": "spdl-core"}
TRAITS: dict[str, object] = {
    "title": "SPDL",
    "workers": "threads",
    "errors": "skipped with its batch, and logged (raised here)",
    "lacks": "Python code that runs in parallel",
}


class SpdlLoader(Pooled):
    """Batches of a pipeline with one stage, which makes whole batches, in order."""

    def __iter__(self) -> Iterator[Batch]:
        workers, threads = self.options.num_workers, torch.get_num_threads()
        builder: PipelineBuilder[Any, Any] = PipelineBuilder()
        builder.add_source(self.batches).pipe(self._caught, concurrency=workers, output_order="input")
        builder.add_sink(self.ahead)
        pipeline = builder.build(num_threads=workers)
        with pipeline.auto_stop():
            for result in pipeline:
                torch.set_num_threads(threads)  # a worker's first batch lowers it for all of MKL
                if isinstance(result, ExceptionWrapper):
                    result.reraise()  # type: ignore[no-untyped-call]
                yield result

    def _caught(self, indices: list[int]) -> Batch | ExceptionWrapper:
        try:
            return self.prepare(indices)
        except Exception:  # noqa: BLE001 - whatever it is, it is raised again where the batch is waited for
            return ExceptionWrapper(where="in a thread of SPDL")  # type: ignore[no-untyped-call]


build = SpdlLoader
