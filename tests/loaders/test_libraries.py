"""Libraries used as their documentation shows it: feedrate adds no time, and what the page says of them is true."""

from __future__ import annotations

import io
import multiprocessing
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beside import times, tried
from numbered import COUNT, Numbers
from PIL import Image
from torch.utils.data import DataLoader, default_collate

from feedrate.formats import Manifest, Reader, Sample
from feedrate.loaders import Batches, LoadOptions, StampedCollate, StampedDataset
from feedrate.schema import plugins

SIZE, WORKERS = 4, 2
BATCHES = [list(range(start, start + SIZE)) for start in range(0, COUNT, SIZE)]
BROKEN, BEFORE = 9, 5
"""The sample that fails, and how many batches are taken before an epoch is left."""


def of_torch(numbers: Any, _folder: Path) -> Any:
    return DataLoader(numbers, SIZE, num_workers=WORKERS)


def of_stateful(numbers: Numbers, _folder: Path) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(numbers, SIZE, num_workers=WORKERS)


def of_nodes(samples: Numbers | Pictures, _folder: Path, order: Iterable[list[int]] = BATCHES) -> Any:
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper, Prefetcher

    return Loader(Prefetcher(ParallelMapper(IterableWrapper(order), samples.batch, WORKERS, method="thread"), 2))


def of_spdl(samples: Numbers | Pictures, _folder: Path, order: Iterable[list[int]] = BATCHES) -> Any:
    from spdl.pipeline import PipelineBuilder

    def batches() -> Iterable[Any]:
        builder = PipelineBuilder().add_source(order).pipe(samples.batch, concurrency=WORKERS, output_order="input")
        pipeline = builder.add_sink(2).build(num_threads=WORKERS)
        with pipeline.auto_stop():
            yield from pipeline

    return batches()


def of_grain(numbers: Numbers, _folder: Path) -> Any:
    from grain import MapDataset, MultiprocessingOptions

    return iter(MapDataset.source(BATCHES).map(numbers.batch).to_iter_dataset().mp_prefetch(MultiprocessingOptions(1)))


def of_webdataset(numbers: Numbers, folder: Path) -> Any:
    from webdataset import WebDataset, WebLoader
    from webdataset.writer import TarWriter

    shards = [str(folder / f"{shard}.tar") for shard in range(WORKERS)]
    for first, shard in enumerate(shards):
        with TarWriter(shard) as tar:
            for number in range(first, COUNT, WORKERS):
                tar.write({"__key__": f"{number:04d}", "txt": str(number)})
    samples = WebDataset(shards, shardshuffle=False).map(lambda files: numbers[int(files["__key__"])])
    return WebLoader(samples.batched(SIZE, collation_fn=list), batch_size=None, num_workers=WORKERS)


def of_litdata(numbers: Numbers, folder: Path) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.writer import BinaryWriter

    if not (folder / "index.json").exists():
        writer = BinaryWriter(str(folder), chunk_size=8)
        for number in range(COUNT):
            writer[number] = (number,)
        writer.done()
        writer.merge()
    samples = StreamingDataset(str(folder), shuffle=True, transform=lambda row: numbers[row[0]])
    return StreamingDataLoader(samples, batch_size=SIZE, num_workers=WORKERS, collate_fn=list)


class OfDali:
    """A pipeline over a callback; a checkpoint is given to a new one."""

    def __init__(self, numbers: Numbers, _folder: Path) -> None:
        self.numbers, self.checkpoint = numbers, None

    def __iter__(self) -> Iterator[Any]:
        from nvidia.dali import fn, pipeline_def
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        def sample(info: Any) -> Any:
            if info.idx_in_epoch >= COUNT:
                raise StopIteration
            return np.array([self.numbers[info.idx_in_epoch]])

        @pipeline_def(batch_size=SIZE, num_threads=WORKERS, device_id=None, enable_checkpointing=True)
        def pipeline() -> Any:
            return fn.external_source(source=sample, batch=False)

        self.iterator = DALIGenericIterator([pipeline(checkpoint=self.checkpoint)], ["numbers"])
        return (batch[0]["numbers"].flatten() for batch in self.iterator)

    def state_dict(self) -> Any:
        return self.iterator.checkpoints()[0]

    def load_state_dict(self, state: Any) -> None:
        self.checkpoint = state


class OfTurboLoader:
    """Pictures whose places are the numbers; one that is served black is lost."""

    def __init__(self, numbers: Numbers, folder: Path) -> None:
        from turboloader import DataLoader as Archived

        archive, picture = folder / "numbers.tar", io.BytesIO()
        Image.fromarray(np.full((16, 16, 3), 100, np.uint8)).save(picture, "jpeg")
        with tarfile.open(archive, "w") as tar:
            for number in range(COUNT):
                content = picture.getvalue()[: 20 if number == numbers.broken else None]
                member = tarfile.TarInfo(f"{number:04d}.jpg")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        self.batches = Archived(str(archive), SIZE, image_size=16, output_format="pytorch")
        self.state_dict, self.load_state_dict = self.batches.state_dict, self.batches.load_state_dict

    def __iter__(self) -> Iterator[Any]:
        for images, about in self.batches:
            yield [number for number, image in zip(about["indices"], images, strict=True) if image.any()]


BARE: dict[str, Callable[..., Any]] = {
    "torch": of_torch,
    "torchdata_stateful": of_stateful,
    "torchdata_nodes": of_nodes,
    "spdl": of_spdl,
    "grain": of_grain,
    "webdataset": of_webdataset,
    "litdata": of_litdata,
    "dali": OfDali,
    "turboloader": OfTurboLoader,
}
FORKING = "This process .* is multi-threaded"  # pytest's own process has threads of loaders before
EXPECTED = ("'set_vital'", "turboloader: ")
pytestmark = [pytest.mark.slow, *(pytest.mark.filterwarnings(f"ignore:{text}") for text in (FORKING, *EXPECTED))]


def test_all_libraries_are_asked() -> None:
    """Each but feedrate's own threads, which the contract test holds."""
    assert {*BARE, "threads"} == set(plugins.names("feedrate.loaders"))


def numbers_of(batches: Iterable[Any]) -> list[int]:
    return [int(number) for number in chain.from_iterable(batches)]


@pytest.mark.parametrize("loader", BARE)
def test_a_broken_sample_is_raised_or_lost(loader: str, tmp_path: Path) -> None:
    """As the page says: raised, skipped with the batch that it is in, or black."""
    source, errors = BARE[loader](Numbers(BROKEN), tmp_path), plugins.loader_traits(loader).errors
    if errors.startswith("raised"):
        with pytest.raises(ValueError, match="broken"):
            numbers_of(source)
    else:
        lost = {BROKEN} if errors.startswith("black") else {*BATCHES[BROKEN // SIZE]}
        assert set(range(COUNT)) - {*numbers_of(source)} == lost
    multiprocessing.active_children()


@pytest.mark.parametrize("loader", BARE)
def test_an_epoch_goes_on_where_it_was_left(loader: str, tmp_path: Path) -> None:
    """Where the page says so: no sample comes twice, and none never. Else there is no state to save."""
    first = BARE[loader](Numbers(None), tmp_path)
    save = getattr(first, "state_dict", None) or getattr(first, "get_state", None)
    assert bool(save) == plugins.loader_traits(loader).resumes
    if save:
        begun = numbers_of(islice(first, BEFORE))
        second = BARE[loader](Numbers(None), tmp_path)
        restore = getattr(second, "load_state_dict", None) or second.set_state
        restore(save())
        assert sorted(begun + numbers_of(second)) == list(range(COUNT))


def picture() -> bytes:
    """A PNG file of 64 × 64 pixels."""
    pixels = np.random.default_rng(0).integers(0, 64, (64, 64, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


PICTURE = picture()
WARM, STEPS, SLOWER = 12, 30, 1.1
"""Batches before the clock starts, batches that are timed, and what a loader may take beside its bare loop."""


class Pictures(Reader):
    """What feedrate reads; ``batch`` is what a script does with it."""

    def __init__(self) -> None:
        self.root = Path("pictures")
        self.manifest = Manifest(4096, ((64, 64, 3),), 0, "", 1, 1, 0.0)

    def read(self, index: int) -> bytes:
        return PICTURE

    def decode(self, raw: bytes) -> Sample:
        return (np.array(Image.open(io.BytesIO(raw))),)

    def batch(self, indices: list[int]) -> Any:
        return default_collate([tensors(self.decode(PICTURE)) for _ in indices])


def tensors(sample: Sample) -> tuple[torch.Tensor, ...]:
    return (torch.from_numpy(sample[0]).permute(2, 0, 1).float().div_(255),)


def taken(loader: Iterable[Any]) -> float:
    """Processor time of all threads for a loader's batches, once what it prepared beforehand is gone."""
    batches = iter(loader)
    for _ in islice(batches, WARM):
        pass
    begun = time.process_time()
    for _ in islice(batches, STEPS):
        pass
    return time.process_time() - begun


@pytest.mark.parametrize("loader", ["torchdata_nodes", "spdl"])
@tried
def test_a_loader_takes_no_longer_than_its_bare_loop(loader: str, tmp_path: Path) -> None:
    """Of loaders whose workers are threads: stamps, and the seam that all loaders share, cost next to nothing."""
    pictures, order = Pictures(), Batches(4096, 16, seed=1)
    dataset = StampedDataset(pictures, tensors)
    options = LoadOptions(batch_size=16, num_workers=WORKERS, prefetch_factor=2)
    build = plugins.load("feedrate.loaders", loader).build

    def through() -> float:
        return taken(build(dataset, StampedCollate(dataset), order, options))

    assert times(through, lambda: taken(BARE[loader](pictures, tmp_path, order)), SLOWER) <= SLOWER
