"""Files of any size as a trial loads them: which crops are seen does not depend on how they are loaded."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest
import torch

from feedrate.schema.errors import DataError, InputError
from feedrate.trial import feed, prepare
from feedrate.trial.job import Job
from feedrate.trial.loader import Fields
from feedrate.workloads import DataSpec

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT, SIZE = 12, 4
CELL = {"workload": "imagefolder_standin", "mode": "load", "patch_size": 32, "n_samples": COUNT, "batch_size": SIZE}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where sets are packed."""
    return tmp_path_factory.mktemp("files")


def batches(root: Path, steps: int, **cell: object) -> list[Fields]:
    """The first batches of a trial."""
    spec = DataSpec("imagefolder_standin", COUNT, 32, 1)
    name = str(cell.setdefault("storage_format", "folder"))
    prepare.prepare(spec, name, root, lambda _done, _total: None)
    job = Job("trial", cell=CELL | cell, packed=os.fspath(prepare.dataset_root(root, spec, name)), seed=7)
    return [batch.fields for batch in islice(feed.open_feed(job, torch.device("cpu")).batches, steps)]


def same(left: list[Fields], right: list[Fields]) -> bool:
    """Whether batches agree in every number."""
    return all(map(torch.equal, (f for fields in left for f in fields), (f for fields in right for f in fields)))


@pytest.mark.parametrize(
    "cell",
    [
        {"num_workers": 2},
        {"num_workers": 1, "prefetch_factor": 4},
        {"num_workers": 2, "worker_kind": "thread"},
        {"num_workers": 2, "epoch_steps": 3, "persistent_workers": True},
        {"num_workers": 1, "start_method": "spawn"},
        {"storage_format": "lmdb"},
        {"storage_format": "arrow", "num_workers": 2},
        {"storage_format": "recordio"},
    ],
    ids=str,
)
def test_crops_are_the_same_however_they_are_loaded(root: Path, cell: dict[str, object]) -> None:
    """Over two epochs, with workers or threads, from any format."""
    assert same(batches(root, 6), batches(root, 6, **cell))


def test_every_epoch_has_other_crops(root: Path) -> None:
    """The classes of the second epoch are those of the first in another order; no image comes again."""
    seen = batches(root, 6)
    first, second = ([image for fields in part for image in fields[0]] for part in (seen[:3], seen[3:]))
    labels = [sorted(int(label) for fields in part for label in fields[1]) for part in (seen[:3], seen[3:])]
    assert labels[0] == labels[1]
    assert not any(torch.equal(left, right) for left in first for right in second)


def test_streams_crop_alike_too(root: Path) -> None:
    """Each worker has shards of its own, and so the order differs: the images do not."""
    alone, shared = (
        sorted(
            (int(label), float(image.sum()))
            for fields in batches(root, 6, storage_format="webdataset", access="sequential", num_workers=workers)
            for image, label in zip(*fields, strict=True)
        )
        for workers in (0, 2)
    )
    assert alone == shared


def test_bytes_are_normalised_where_asked(root: Path) -> None:
    """Collated at once, in the worker or where the batch is fetched, images are those of each sample by itself."""
    plain = batches(root, 3)
    for place in ("worker", "device"):
        fast = batches(root, 3, collate="fast", normalize_on=place, num_workers=1)
        for (image, label), (other, number) in zip(plain, fast, strict=True):
            assert torch.allclose(image, other, atol=1e-6)
            assert torch.equal(label, number)


def test_scaled_decoding_is_the_same_crop_of_a_smaller_image(root: Path) -> None:
    """Images look alike, and not one is the same: fewer pixels were decoded."""
    whole, scaled = batches(root, 3), batches(root, 3, scaled_decode=True)
    for (image, label), (other, number) in zip(whole, scaled, strict=True):
        assert torch.equal(label, number)
        assert 0 < (image - other).abs().mean() < 0.5


def test_what_cannot_be_decoded_is_said(root: Path) -> None:
    """A decoder of another kind of file is an error that names it, a damaged file one that names the sample."""
    with pytest.raises(InputError, match="'pyspng' does not decode jpeg"):
        batches(root, 1, decoder="pyspng")
    prepare.prepare(DataSpec("imagefolder_standin", COUNT, 32, 1), "folder", root, lambda _done, _total: None)
    path = next(root.glob("*/folder/00000/00000003-0.file"))
    kept = path.read_bytes()
    path.write_bytes(kept[:2000])
    job = Job("trial", cell=CELL | {"storage_format": "folder"}, packed=os.fspath(path.parents[1]), seed=7)
    try:
        with pytest.raises(DataError, match="sample 3: damaged"):
            list(islice(feed.open_feed(job, torch.device("cpu")).batches, 3))
    finally:
        path.write_bytes(kept)
