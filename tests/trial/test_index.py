"""What a dataset keeps of every entry: the same for all kinds, shared or copied as its kind has it."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from beside import tried
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.formats import Manifest, Reader, Sample
from feedrate.machine.probes.procfs import workers_uss
from feedrate.trial import feed
from feedrate.trial.job import Job
from feedrate.trial.loader import STAMPS, StampedCollate, StampedDataset

KINDS = ("list", "numpy", "serialized")
COUNT = 10


@given(count=st.integers(1, 300), places=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=9))
@settings(max_examples=30)
def test_all_kinds_give_equal_entries(count: int, places: list[float]) -> None:
    """Whatever is looked up, in whatever order, and out of a pickle as spawned workers get it."""
    expected = list(feed.entries(count))
    for kind in KINDS:
        found = pickle.loads(pickle.dumps(feed.build_index(kind, count)))
        assert len(found) == count
        for place in (int(share * count) for share in places):
            assert found[place] == expected[place]
            assert [type(value) for value in found[place].values()] == [str, int, int]
        assert [found[place] for place in range(count)] == expected


def test_entries_are_told_apart() -> None:
    """Every path comes once; labels and sizes vary, as those of files do."""
    found = list(feed.entries(2000))
    assert len({entry["path"] for entry in found}) == 2000
    assert len({entry["label"] for entry in found}) == feed.LABELS
    assert len({entry["size"] for entry in found}) > 1000


class Numbers(Reader):
    """Sample i is one pixel of value i."""

    def read(self, index: int) -> int:
        return index

    def decode(self, raw: int) -> Sample:
        return (torch.full((1, 1, 1), raw).numpy(),)


@pytest.fixture
def dataset(tmp_path: Path) -> StampedDataset:
    (tmp_path / "manifest.json").write_text(json.dumps(asdict(Manifest(COUNT, ((1, 1, 1),), 0, "", 1, 1, 0.0))))
    return StampedDataset(Numbers(tmp_path), lambda sample: (torch.from_numpy(sample[0]),))


def test_packed_samples_stand_for_all_entries_in_turn(dataset: StampedDataset) -> None:
    """Entry i is read from packed sample i mod count, and every one of them is looked up."""
    looked: list[int] = []

    class Noted(list):
        def __getitem__(self, place: int) -> feed.Entry:
            looked.append(place)
            return super().__getitem__(place)

    found = feed.IndexedDataset(dataset, Noted(feed.entries(3 * COUNT)))
    assert len(found) == 3 * COUNT
    assert [int(found[place][0]) for place in range(3 * COUNT)] == list(range(COUNT)) * 3
    assert looked == list(range(3 * COUNT))


def test_a_lookup_is_part_of_reading(dataset: StampedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time goes into the account of the batch that it is for."""
    now = iter(range(0, 10**9, 1000))
    for module in (feed, __import__("feedrate.trial.loader", fromlist=["time"])):
        monkeypatch.setattr(module.time, "perf_counter_ns", lambda: next(now))
    plain, found = StampedCollate(dataset), feed.IndexedDataset(dataset, feed.build_index("numpy", COUNT))
    alone = STAMPS.unpack(plain([dataset[1], dataset[2]]).stamps)
    looked_up = STAMPS.unpack(plain([found[1], found[2]]).stamps)
    assert looked_up[0] == alone[0] + 2 * 1000
    assert looked_up[1:4] == alone[1:4]
    begun, ended = looked_up[4:6]
    assert sum(looked_up[:4]) <= ended - begun


@pytest.fixture(scope="module")
def packed(pack: Callable[..., str]) -> str:
    """A small set on disk."""
    return pack(count=COUNT)


def job(packed: str, **cell: object) -> Job:
    own = {"workload": "synthetic", "mode": "load", "storage_format": "memmap", "patch_size": 8, "n_samples": COUNT}
    return Job("trial", cell=own | {"batch_size": 5} | cell, packed=packed, seed=3)


def batches(packed: str, count: int, **cell: object) -> list[bytes]:
    opened = feed.open_feed(job(packed, **cell), torch.device("cpu"))
    return [batch.fields[0].numpy().tobytes() for batch in islice(opened.batches, count)]


@pytest.mark.parametrize("cell", [{}, {"num_workers": 2}, {"num_workers": 2, "worker_kind": "thread"}], ids=str)
def test_all_kinds_read_the_same_samples(packed: str, cell: dict[str, object]) -> None:
    """Batch by batch, in one order over all entries; each packed sample as often as it stands for one."""
    found = [batches(packed, 20, index_kind=kind, index_entries=100, **cell) for kind in KINDS]
    assert found[0] == found[1] == found[2]
    assert batches(packed, 20, index_kind="list", index_entries=100) == found[0]
    places = [
        place
        for batch in islice(feed.order(job(packed, index_kind="list", index_entries=100), COUNT), 20)
        for place in batch
    ]
    assert sorted(places) == list(range(100))


def test_an_index_as_long_as_the_set_changes_nothing(packed: str) -> None:
    """Then its samples are those without an index, in the same order."""
    assert batches(packed, 8, index_kind="numpy", index_entries=COUNT) == batches(packed, 8)


@tried
def test_building_it_is_no_part_of_a_measured_time(packed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done before start-up begins, and is taken off the time to the first batch."""
    build = feed.build_index

    def slow(kind: str, count: int) -> feed.Index:
        until = feed.time.perf_counter() + 0.5
        while feed.time.perf_counter() < until:
            pass
        return build(kind, count)

    monkeypatch.setattr(feed, "build_index", slow)
    opened = feed.open_feed(job(packed, index_kind="list", index_entries=20), torch.device("cpu"))
    assert opened.settled_ns >= 0.5e9
    assert opened.startup_ns is not None
    assert opened.startup_ns < 0.5e9


def test_the_planted_truth_follows_the_entries(packed: str) -> None:
    """An entry waits as the packed sample does that stands for it."""
    planted: dict[str, Any] = {"read_us": 100, "read_shape": "heavy_tailed"}
    plain = job(packed, **planted)
    entries = job(packed, **planted, index_kind="numpy", index_entries=10 * COUNT)
    assert feed.planted_read_ns(entries, 0, 20) == 10 * (feed.planted_read_ns(plain, 0, 2) or 0)
    assert feed.planted_read_ns(entries, 3, 4) != feed.planted_read_ns(plain, 3, 4)


def _look_at_all(found: feed.Index, inbox: Any, outbox: Any) -> None:
    outbox.put(None)
    inbox.get()
    for place in range(len(found)):
        tuple(found[place].values())
    outbox.put(None)
    inbox.get()


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("list", 20, 400), *(pytest.param(kind, -5, 5, marks=pytest.mark.slow) for kind in ("numpy", "serialized"))],
)
def test_only_objects_are_copied_into_a_fork_that_looks_at_them(kind: str, least: float, most: float) -> None:
    """A forked process that looks all entries up comes to own those of a list, and nothing of arrays (MiB)."""
    context = multiprocessing.get_context("fork")
    inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
    held = feed.build_index(kind, 200_000)
    worker = context.Process(target=_look_at_all, args=(held, inbox, outbox))
    gc.disable()  # what it moves is no growth
    worker.start()
    try:
        outbox.get()
        before = workers_uss(os.getpid()) or 0
        inbox.put(None)
        outbox.get()
        grown = (workers_uss(os.getpid()) or 0) - before
        inbox.put(None)
    finally:
        worker.join()
        gc.enable()
    assert len(held) == 200_000
    assert least < grown / 2**20 < most
