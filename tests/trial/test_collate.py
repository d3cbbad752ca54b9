"""Two ways to make a batch: the same tensors, made in other places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.loaders import Batch, Fields, Transform
from feedrate.schema import plugins
from feedrate.trial import collate as collation
from feedrate.trial import stages
from feedrate.trial.job import Job
from feedrate.workloads._crops import Crop, Decoded

WORKLOADS = plugins.names("feedrate.workloads")
COUNT, SIZE = 24, 9
PLACES = ["worker", "device"]


def job(root: str = "", **cell: object) -> Job:
    """A trial that drains its loader on a CPU."""
    defaults = {"workload": "synthetic", "mode": "load", "batch_size": 4, "n_samples": COUNT, "patch_size": SIZE}
    return Job("trial", cell=defaults | cell, packed=root, seed=3)


def fast(workload: str, place: str, **cell: object) -> tuple[Transform, Any, Any]:
    """What is done to a sample, to a batch, and to a batch that was fetched."""
    asked = job(workload=workload, collate="fast", normalize_on=place, **cell)
    return *collation.build(asked), collation.normalizer(asked, "host")


def drawn(workload: str, seed: int, count: int, height: int, width: int) -> list[Any]:
    """Samples as they are decoded: two images, an image and a label, or an image and its crop."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (2, count, height, width, 3), np.uint8)
    if workload == "tokens":
        return [(window,) for window in random.integers(0, 256, (count, 1, 1, 2050), np.uint8)]
    if plugins.samples_of(workload) == "files":
        labels = random.integers(0, 256, (count, 1, 1, 2), np.uint8)
        crop = Crop(0, 0, height, width, bool(seed % 2))
        return [Decoded(image, 1, crop, label) for image, label in zip(images[0], labels, strict=True)]
    if plugins.load("feedrate.workloads", workload).TASK == "classification":
        return [(image, random.integers(0, 37, (1, 1, 1), np.uint8)) for image in images[0]]
    return list(zip(images[0], images[1], strict=True))


def same(found: Fields, expected: Fields) -> None:
    """Compare batches: the same form, and values to 1e-6 an element."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert one.is_contiguous()
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("workload", WORKLOADS)
@given(seed=st.integers(0, 2**31 - 1), count=st.integers(1, 5), height=st.integers(1, 33), width=st.integers(1, 33))
@settings(max_examples=12)
def test_fast_equals_totensor(workload: str, seed: int, count: int, height: int, width: int) -> None:
    """Every workload's batches are the same to 1e-6 an element, and of one form, wherever they are normalised."""
    samples = drawn(workload, seed, count, height, width)
    transform, collate = collation.build(job(workload=workload))
    expected = tuple(collate([transform(sample) for sample in samples]))
    for place in PLACES:
        each, together, finish = fast(workload, place)
        fields = together([each(sample) for sample in samples])
        same(finish(fields) if finish else fields, expected)
    for way in collation.CONVERSIONS if workload == "div2k" else ():
        convert, stack = collation.build(job(collate=way))
        same(tuple(stack([convert(sample) for sample in samples])), expected)


def test_pixels_stay_bytes_until_they_are_normalised() -> None:
    """For the device a quarter of the bytes leaves the worker: uint8, channels first, the samples' own pixels."""
    samples, payload = drawn("synthetic", 0, 3, 5, 7), torch.arange(10, dtype=torch.uint8)
    prepare, together, finish = fast("synthetic", "device", payload_bytes=10)
    *images, carried = fields = together([(*prepare(sample), payload) for sample in samples])
    for index, field in enumerate(images):
        assert (field.dtype, tuple(field.shape)) == (torch.uint8, (3, 3, 5, 7))
        assert np.array_equal(field.permute(0, 2, 3, 1).numpy(), np.stack([sample[index] for sample in samples]))
    assert [field.dtype for field in finish(fields)] == [torch.float32, torch.float32, torch.uint8]
    assert finish(fields)[2].tolist() == carried.tolist() == [list(range(10))] * 3


@pytest.mark.parametrize(
    ("device", "mode", "on_host", "on_device"),
    [
        ("cpu", "train", True, False),
        ("cpu", "load", True, False),
        ("cuda", "train", False, True),
        ("cuda", "load", False, False),
        ("cuda", "copy", False, True),
    ],
)
def test_a_batch_is_finished_once(device: str, mode: str, on_host: bool, on_device: bool) -> None:
    """On CUDA behind the copy, if there is one, elsewhere at the fetch, and nowhere where the worker did it."""
    for place in (*PLACES, "none"):
        asked = Job("trial", device, {"mode": mode, "collate": "fast", "normalize_on": place})
        assert place == "worker" or collation.normalizer(asked, "worker") is None
        found = collation.normalizer(asked, "host") is not None, collation.normalizer(asked, "cuda") is not None
        assert found == ((on_host, on_device) if place == "device" else (False, False))


def test_cuda_finishes_behind_the_copy() -> None:
    """The phase h2d copies bytes and hands floats to the step; where the worker normalised, it is the copy alone."""
    samples = drawn("synthetic", 0, 2, 5, 7)
    _, together, finish = fast("synthetic", "device")
    batch = Batch(together(samples), b"")
    asked = Job("trial", "cuda", {"collate": "fast", "normalize_on": "device"})
    copied = stages.copy_stage(torch.device("cpu"), False, collation.normalizer(asked, "cuda")).run(batch)
    same(copied, finish(batch.fields))
    plain = stages.copy_stage(torch.device("cpu"), False, collation.normalizer(job(), "cuda")).run(batch)
    assert [field.dtype for field in plain] == [torch.uint8] * 2


@pytest.mark.parametrize(("storage_format", "workers"), [("png", 0), ("png", 2), ("tfrecord", 1)])
def test_a_loader_delivers_the_same_either_way(
    pack: Callable[..., str], fetch: Callable[[Job, int], list[Batch]], storage_format: str, workers: int
) -> None:
    """The same seed gives the same samples in the same order, read one by one or streamed; two passes over the set."""
    root = pack(storage_format, COUNT, SIZE)
    cell = {"storage_format": storage_format, "num_workers": workers}
    expected = fetch(job(root, **cell), 2 * COUNT // 4)
    for place in PLACES:
        batches = fetch(job(root, collate="fast", normalize_on=place, **cell), 2 * COUNT // 4)
        for one, other in zip(batches, expected, strict=True):
            same(one.fields, other.fields)
