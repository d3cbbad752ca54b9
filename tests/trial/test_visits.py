"""Files of any size as a trial loads them: which crops are seen does not depend on how they are loaded."""

from __future__ import annotations

import dataclasses
import os
import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from beside import tried
from PIL import Image as PILImage
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.v2 import functional

from feedrate.formats.decoders import nvjpeg
from feedrate.loaders import Batch, Fields
from feedrate.schema import plugins
from feedrate.schema.errors import DataError, InputError
from feedrate.trial import feed, prepare, stages
from feedrate.trial.job import Job
from feedrate.workloads import DataSpec
from feedrate.workloads._crops import Crop, draw

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT, SIZE = 12, 4
OF_FILES = [name for name in plugins.names("feedrate.formats") if "files" in plugins.traits(name).holds]
CELL = {"workload": "imagefolder_standin", "mode": "load", "patch_size": 32, "n_samples": COUNT, "batch_size": SIZE}
TWO = {"num_workers": 2}
Load = Callable[..., list[Fields]]


def packed(root: Path, name: str = "folder", count: int = COUNT, size: int = 32) -> Path:
    """Pack files."""
    spec = DataSpec("imagefolder_standin", count, size, 1)
    prepare.prepare(spec, name, root, lambda _done, _total: None)
    return prepare.dataset_root(root, spec, name)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where sets are packed."""
    return tmp_path_factory.mktemp("files")


def job(root: Path, **cell: object) -> Job:
    name = str(cell.setdefault("storage_format", "folder"))
    return Job("trial", cell=CELL | cell, packed=os.fspath(packed(root, name)), seed=7)


@pytest.fixture
def batches(root: Path, fetch: Callable[[Job, int], list[Batch]]) -> Load:
    """Gives the first batches of a trial."""
    return lambda steps, **cell: [batch.fields for batch in fetch(job(root, **cell), steps)]


@pytest.mark.parametrize(
    "cell",
    [
        TWO,
        {**TWO, "loader": "threads"},
        {**TWO, "epoch_steps": 3, "persistent_workers": True},
        *({"storage_format": name} for name in OF_FILES if not plugins.traits(name).streamed and name != "folder"),
        {"storage_format": "arrow", **TWO},
    ],
    ids=str,
)
def test_crops_are_the_same_however_they_are_loaded(batches: Load, cell: dict[str, object]) -> None:
    """Over two epochs, with workers or threads, from any format."""
    torch.testing.assert_close(batches(6, **cell), batches(6), rtol=0, atol=0)


def test_spawned_workers_draw_the_same_crops(root: Path, batches: Load) -> None:
    """What they get is a pickle of samples that are to be cropped."""
    _, *pair = feed.open_samples(job(root))
    dataset, collation = pickle.loads(pickle.dumps(pair))
    order = next(iter(feed.batch_order(job(root), COUNT)))
    torch.testing.assert_close(collation([dataset[visit] for visit in order]).fields, batches(1)[0], rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in OF_FILES if plugins.traits(name).streamed])
def test_streams_crop_alike_too(batches: Load, name: str) -> None:
    """Each worker has shards of its own, and so the order differs: the images do not."""
    alone, shared = (
        sorted(
            (int(label), float(image.sum()))
            for fields in batches(6, storage_format=name, access="sequential", num_workers=workers)
            for image, label in zip(*fields, strict=True)
        )
        for workers in (0, 2)
    )
    assert alone == shared


@pytest.mark.parametrize("place", ["worker", "device"])
def test_bytes_are_normalised_where_asked(batches: Load, place: str) -> None:
    """Collated at once, in the worker or where the batch is fetched, images are those of each sample by itself."""
    fast = batches(3, collate="fast", normalize_on=place, num_workers=1)
    torch.testing.assert_close(fast, batches(3), rtol=0, atol=1e-6)


def test_what_cannot_be_decoded_is_said(tmp_path: Path, root: Path, fetch: Callable[[Job, int], list[Batch]]) -> None:
    """A decoder of another kind of file is an error that names it, a damaged file one that names the sample."""
    with pytest.raises(InputError, match="'pyspng' does not decode jpeg"):
        fetch(job(root, decoder="pyspng"), 1)
    trial = job(tmp_path)
    path = next(tmp_path.glob("*/folder/00000/00000003-0.file"))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match="sample 3: damaged"):
        fetch(trial, 3)


@pytest.mark.filterwarnings("ignore:.*deprecat")
def test_a_device_decodes_what_workers_ship(
    root: Path, batches: Load, fetch: Callable[[Job, int], list[Batch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files travel as bytes, with the crop that was drawn for each; the device makes the images of Pillow's crops."""
    decode = partial(decode_image, mode=ImageReadMode.RGB)
    monkeypatch.setattr(nvjpeg, "decode_all", lambda files, _: list(map(decode, files)))
    asked = {"collate": "fast", "normalize_on": "device", "num_workers": 1}
    expected = batches(3, **asked)
    trial = dataclasses.replace(job(root, **asked, decoder="nvjpeg"), device="cuda")
    shipped = fetch(trial, 3)
    assert sum(batch.fields[0].numel() for batch in shipped) == sum(
        path.stat().st_size for path in root.glob("*/folder/*/*.file")
    )
    copying = dataclasses.replace(trial, cell={**(trial.cell or {}), "mode": "copy"})
    (copy,), _ = stages.assemble(copying, torch.device("cpu"))
    for batch, (images, labels) in zip(shipped, expected, strict=True):
        decoded, classes = copy.run(batch)
        assert torch.equal(classes, labels)
        assert (decoded.shape, decoded.dtype) == (images.shape, images.dtype)
        assert (decoded - images).abs().mean() < 0.02  # a level of 256 is 0.017


def bare(paths: list[Path], crops: list[Crop]) -> torch.Tensor:
    """What a data set of somebody's own does: decode, crop, resize, turn; then one tensor of bytes of all."""
    batch = torch.empty((len(paths), 3, 224, 224), dtype=torch.uint8)
    for slot, path, (top, left, height, width, flipped) in zip(batch, paths, crops, strict=True):
        with path.open("rb") as file, PILImage.open(file) as picture:
            pixels = torch.as_tensor(np.array(picture.convert("RGB"))).permute(2, 0, 1)
        image = functional.resize(functional.crop(pixels, top, left, height, width), [224, 224], antialias=True)
        slot[:] = functional.hflip(image) if flipped else image
    return batch


@pytest.mark.slow
@tried
def test_the_loader_is_as_fast_as_a_bare_loop(tmp_path: Path) -> None:
    """Reading, decoding and cropping takes at most 3 % longer than a loop that does nothing else."""
    count = 16
    folder = packed(tmp_path, count=count, size=224)
    cell = CELL | {"storage_format": "folder", "patch_size": 224, "n_samples": count, "batch_size": count}
    trial = Job("trial", cell=cell | {"collate": "fast", "normalize_on": "device"}, packed=os.fspath(folder), seed=7)
    _, dataset, collation = feed.open_samples(trial)
    paths = sorted(folder.glob("*/*.file"))
    crops = []
    for index, path in enumerate(paths):
        with PILImage.open(path) as picture:
            crops.append(draw(Random((7 << 64) + index), picture.height, picture.width))
    loaded = collation([dataset[index] for index in range(count)]).fields[0]
    assert (bare(paths, crops).int() - loaded).abs().max() <= 1
    bare_s, loader_s = [], []
    for few in (slice(first, first + 4) for first in range(0, count, 4)):
        turns = []
        for _ in range(12):
            begun = time.thread_time()
            bare(paths[few], crops[few])
            between = time.thread_time()
            collation([dataset[index] for index in range(count)[few]])
            turns.append((between - begun, time.thread_time() - between))
        bare_s.append(min(bare for bare, _ in turns))
        loader_s.append(min(loader for _, loader in turns))
    assert sum(bare_s) / sum(loader_s) >= 0.97
