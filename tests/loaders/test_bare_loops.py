"""A loader behind feedrate's seam is as fast as a bare loop, written as that loader's documentation shows it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beside import seconds, times
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate

from feedrate.formats import Manifest, Reader, Sample
from feedrate.loaders import Batches, LoadOptions, StampedCollate, StampedDataset
from feedrate.schema import plugins

COUNT, SIZE, WORKERS, AHEAD = 4096, 16, 2, 2
WARM, STEPS = 12, 240
SLOWER = 1.1
"""What a loader may take, beside its bare loop: a few turns of half a second cannot tell less on a busy machine."""


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


def of_torch(order: Batches, kind: type[DataLoader[Any]] = DataLoader) -> Iterable[Any]:
    """See https://docs.pytorch.org/docs/stable/data.html ."""
    return kind(Plain(), batch_sampler=order, num_workers=WORKERS, prefetch_factor=AHEAD)


def of_stateful(order: Batches) -> Iterable[Any]:
    """See https://docs.pytorch.org/data/main/stateful_dataloader_tutorial.html ."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    return of_torch(order, StatefulDataLoader)


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


def of_grain(_: Batches) -> Iterable[Any]:
    """See https://google-grain.readthedocs.io/en/latest/tutorials/dataset_advanced_tutorial.html ."""
    from grain import MapDataset, MultiprocessingOptions, ReadOptions

    samples = MapDataset.source(Plain()).map(torch.Tensor.numpy).shuffle(seed=1).repeat().batch(SIZE)
    one_by_one = ReadOptions(num_threads=0, prefetch_buffer_size=0)
    processes = MultiprocessingOptions(WORKERS, per_worker_buffer_size=AHEAD)
    loader: Iterable[Any] = samples.to_iter_dataset(one_by_one).mp_prefetch(processes)
    return loader


BARE: dict[str, Callable[[Batches], Iterable[Any]]] = {
    "torch": of_torch,
    "torchdata_stateful": of_stateful,
    "torchdata_nodes": of_nodes,
    "spdl": of_spdl,
    "grain": of_grain,
}


def taken(loader: Iterable[Any]) -> float:
    """Seconds that a loader takes for its batches, once what it prepared beforehand is gone."""
    batches = iter(loader)
    for _ in islice(batches, WARM):
        pass
    return seconds(lambda: [None for _ in islice(batches, STEPS)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own call
@pytest.mark.parametrize("loader", BARE)
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
