"""Planted costs: as long as they should be, in the stage that they belong to, and nothing where none is planted."""

from __future__ import annotations

import pickle
import time
from itertools import islice
from statistics import fmean, median
from types import SimpleNamespace

import pytest
import torch
from beside import tried
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from feedrate.formats import Reader, Sample
from feedrate.loaders import STAMPS, Batch, Fields, StampedCollate, StampedDataset
from feedrate.machine import linux
from feedrate.trial import feed, plants
from feedrate.trial.job import Job
from feedrate.trial.plants import SLICES, Burn, Wait, waits_ns
from feedrate.trial.step import PlainStep

US = 1_000
SHAPES = ["constant", "jittered", "heavy_tailed"]


@tried
def test_real_waits_keep_their_mean() -> None:
    """On this machine, however busy, waits are about as long as planted, and none ends before half of it."""
    linux.exact_timers()
    wait, took = Wait(), []
    for _ in range(100):
        begun = time.perf_counter_ns()
        wait(2000 * US)
        took.append(time.perf_counter_ns() - begun)
    assert median(took) == pytest.approx(2000 * US, rel=0.1)
    assert min(took) >= 1000 * US


@tried
def test_burning_uses_cpu_time() -> None:
    """The thread's own CPU clock shows what was planted, on a busy machine too; a sleep would not move it."""
    burn = Burn()
    begun = time.thread_time_ns()
    for _ in range(100):
        burn(200 * US)
    assert time.thread_time_ns() - begun == pytest.approx(100 * 200 * US, rel=0.1)


@given(
    mean_us=st.integers(1, 100_000),
    shape=st.sampled_from(SHAPES),
    count=st.one_of(st.integers(1, 300), st.sampled_from([SLICES, 2 * SLICES])),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60)
def test_a_set_of_waits_has_its_mean(mean_us: int, shape: str, count: int, seed: int) -> None:
    """Whatever the shape and the seed, the waits of a set are as many as its samples, none negative, the mean exact."""
    waits = waits_ns(mean_us, shape, count, seed)
    assert len(waits) == count
    assert min(waits) >= 0
    assert fmean(waits) == pytest.approx(mean_us * US, abs=0.5)
    assert waits == waits_ns(mean_us, shape, count, seed)


def test_the_shapes_are_what_they_are_called() -> None:
    """Constant is; jittered is even up to twice the mean; of the heavy-tailed one per cent makes 9 % of all waiting."""
    constant, jittered, heavy = (sorted(waits_ns(1000, shape, SLICES, 0)) for shape in SHAPES)
    assert set(constant) == {1000 * US}
    assert jittered[-1] <= 2000 * US
    assert [jittered[SLICES * k // 4] for k in (1, 2, 3)] == pytest.approx([500 * US, 1000 * US, 1500 * US], rel=0.01)
    assert median(heavy) == pytest.approx(607 * US, rel=0.01)
    assert heavy[-(SLICES // 100)] == pytest.approx(6210 * US, rel=0.05)
    assert sum(heavy[-(SLICES // 100) :]) / sum(heavy) == pytest.approx(0.09, abs=0.005)
    first, second = (waits_ns(1000, "jittered", SLICES, seed) for seed in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second) == jittered


def transform(sample: Sample) -> Fields:
    return tuple(torch.from_numpy(field).float() for field in sample)


def stamped(numbers: Reader, **cell: object) -> Batch:
    """One batch of all samples as a worker makes it, out of a pickle."""
    job = Job("trial", cell=cell, seed=3)
    dataset = StampedDataset(plants.reader(job, numbers), plants.transform(job, transform))
    collate = StampedCollate(dataset, plants.collate(job, default_collate))
    dataset, collate = pickle.loads(pickle.dumps((dataset, collate)))
    return collate([dataset[index] for index in range(len(dataset))])


@pytest.mark.parametrize(
    ("cell", "stage", "least_us"),
    [
        ({"read_us": 2000}, 0, 8 * 2000),
        ({"read_us": 2000, "read_shape": "heavy_tailed"}, 0, 8 * 2000),
        ({"decode_us": 1000}, 1, 8 * 1000),
        ({"collate_us": 10_000}, 3, 10_000),
    ],
)
@tried
def test_a_plant_is_stamped_where_it_belongs(numbers: Reader, cell: dict, stage: int, least_us: int) -> None:
    """A wait is reading, a computation decoding or collating; the samples stay what they were."""
    batch = stamped(numbers, **cell)
    spent = STAMPS.unpack(batch.stamps)
    assert spent[stage] >= least_us * US
    assert spent[stage] == max(spent[:4])
    assert batch.fields[0].flatten().tolist() == list(range(8))


def test_a_payload_comes_along_and_is_ignored(numbers: Reader) -> None:
    """Every sample carries the bytes behind its own fields, and a model's step takes the first two fields alone."""
    batch = stamped(numbers, payload_bytes=1000)
    assert (batch.fields[1].dtype, batch.fields[1].nbytes) == (torch.uint8, 8 * 1000)
    step = PlainStep(torch.nn.Linear(1, 1), torch.nn.functional.mse_loss)
    data = torch.ones(2, 1)
    assert step.forward((data, data, batch.fields[1])).item() == step.forward((data, data)).item()


@pytest.fixture
def waited(numbers: Reader, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The waits of a feed of numbers, none of which is slept."""
    fake, load = SimpleNamespace(open=lambda *_: numbers, transform=transform), feed.plugins.load
    monkeypatch.setattr(
        feed.plugins, "load", lambda package, name: load(package, name) if package == "feedrate.loaders" else fake
    )
    waits: list[int] = []
    monkeypatch.setattr(Wait, "__call__", lambda _, ns: waits.append(ns))
    return waits


def test_a_trials_samples_have_its_plants(numbers: Reader, waited: list[int]) -> None:
    """What a trial loads is planted as its cell says, its waits dealt by its seed."""
    cell = {"read_us": 500, "read_shape": "heavy_tailed", "collate_us": 500, "payload_bytes": 10}
    job = Job("trial", cell={**cell, "batch_size": 4, "n_samples": 8}, packed=str(numbers.root), seed=3)
    opened = feed.open_feed(job, torch.device("cpu"))
    batches = list(islice(opened.batches, 8))
    assert opened.batch_bytes == sum(field.nbytes for field in batches[0].fields) == 4 * (4 + 10)
    assert sorted(waited[:8]) == sorted(waits_ns(500, "heavy_tailed", 8, 3))
    assert STAMPS.unpack(batches[0].stamps)[3] >= 500 * US
    for before, count in ((0, 1), (1, 4), (2, 5)):
        assert feed.planted_read_ns(job, before, count) == sum(waited[4 * before : 4 * (before + count)])
    assert feed.planted_read_ns(Job("trial", cell={"read_us": 0}), 0, 5) is None
