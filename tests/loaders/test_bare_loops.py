"""A loader behind feedrate's seam computes no more than a bare loop, written as that loader's documentation shows it."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beside import times, tried
from PIL import Image
from torch.utils.data import Dataset, default_collate

from feedrate.formats import Manifest, Reader, Sample
from feedrate.loaders import Batches, LoadOptions, StampedCollate, StampedDataset
from feedrate.schema import plugins

COUNT, SIZE, WORKERS, AHEAD = 4096, 16, 2, 2
WARM, STEPS = 12, 240
SLOWER = 1.1
"""What a loader may take, beside its bare loop: turns of half a second cannot tell less on a busy machine."""


def picture() -> bytes:
    """A PNG file of 64 × 64 pixels."""
    pixels = np.random.default_rng(0).integers(0, 64, (64, 64, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


PICTURE = picture()


def decoded(file: bytes) -> np.ndarray[Any, Any]:
    return np.array(Image.open(io.BytesIO(file)))


def tensor(pixels: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1).float().div_(255)


class Plain(Dataset[torch.Tensor]):
    """What a script has."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return tensor(decoded(PICTURE))

    def batch(self, indices: list[int]) -> Any:
        return default_collate([self[index] for index in indices])


class Packed(Reader):
    """The same for feedrate."""

    def __init__(self) -> None:
        self.root = Path("pictures")
        self.manifest = Manifest(COUNT, ((64, 64, 3),), 0, "", 1, 1, 0.0)

    def read(self, index: int) -> bytes:
        return PICTURE

    def decode(self, raw: bytes) -> Sample:
        return (decoded(raw),)


def fields(sample: Sample) -> tuple[torch.Tensor, ...]:
    return (tensor(sample[0]),)


def of_nodes(order: Batches) -> Iterable[Any]:
    """See https://docs.pytorch.org/data/main/migrate_to_nodes_from_utils.html ."""
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper, Prefetcher

    mapper = ParallelMapper(IterableWrapper(order), Plain().batch, WORKERS, method="thread")
    loader: Iterable[Any] = Loader(Prefetcher(mapper, WORKERS))
    return loader


def of_spdl(order: Batches) -> Iterable[Any]:
    """See https://facebookresearch.github.io/spdl/0.8.0/getting_started/intro.html ."""
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(order).pipe(Plain().batch, concurrency=WORKERS, output_order="input")
    pipeline: Iterable[Any] = builder.add_sink(WORKERS).build(num_threads=WORKERS)
    return pipeline


BARE: dict[str, Callable[[Batches], Iterable[Any]]] = {"torchdata_nodes": of_nodes, "spdl": of_spdl}


def taken(loader: Iterable[Any]) -> float:
    """Processor time of all threads for a loader's batches, once what it prepared beforehand is gone."""
    batches = iter(loader)
    for _ in islice(batches, WARM):
        pass
    begun = time.process_time()
    for _ in islice(batches, STEPS):
        pass
    return time.process_time() - begun


@pytest.mark.slow
@pytest.mark.parametrize("loader", BARE)
@tried
def test_a_loader_takes_no_longer_than_its_bare_loop(loader: str) -> None:
    """In turns: stamps, and the seam that all loaders share, cost next to nothing."""
    order = Batches(COUNT, SIZE, seed=1)
    dataset = StampedDataset(Packed(), fields)
    options = LoadOptions(batch_size=SIZE, num_workers=WORKERS, prefetch_factor=AHEAD)

    def through() -> Iterable[Any]:
        build = plugins.load("feedrate.loaders", loader).build
        batches: Iterable[Any] = build(dataset, StampedCollate(dataset), order, options)
        return batches

    assert times(lambda: taken(through()), lambda: taken(BARE[loader](order)), SLOWER) <= SLOWER
