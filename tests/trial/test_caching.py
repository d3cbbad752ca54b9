"""What was prepared once: the same samples, whole or filled anew, and paid for where it was filled."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.formats import Reader, memmap
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.window import WARM
from feedrate.trial import cache, feed
from feedrate.trial.job import Job, Reporter
from feedrate.trial.loader import STAMPS, Batch
from feedrate.trial.prepare import dataset_root, prepare
from feedrate.trial.run import run_trial
from feedrate.workloads import DataSpec

COUNT, BATCH = 24, 4
KINDS = ["sample", "batch"]
SPEC = DataSpec("synthetic", COUNT, 9, 1)
"""An odd size: images of 972 bytes as floats, and of 243 as pixels, begin at no multiple of 8 by themselves."""
WAYS = [{}, {"collate": "fast"}, {"collate": "fast", "normalize_on": "device"}, {"payload_bytes": 5}]
ORDERS = [{"access": "sequential"}, {"epoch_steps": 3}, {"index_kind": "numpy", "index_entries": 2 * COUNT}]
WORKERS = [
    {},
    {"num_workers": 2},
    {"num_workers": 2, "worker_kind": "thread"},
    pytest.param({"num_workers": 1, "start_method": "spawn"}, marks=pytest.mark.slow),
    pytest.param({"num_workers": 1, "start_method": "forkserver"}, marks=pytest.mark.slow),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Packed samples, all of which differ."""
    prepare(SPEC, "png", tmp_path, lambda _done, _total: None)
    return dataset_root(tmp_path, SPEC, "png")


def job(root: Path, seed: int = 3, **cell: object) -> Job:
    """A trial that drains its loader."""
    given = {"mode": "load", "batch_size": BATCH, "n_samples": COUNT, "patch_size": SPEC.patch_size}
    return Job("trial", cell=given | cell, packed=str(root), seed=seed, warmup_s=0.02, window_s=0.02, min_steps=4)


def fetched(asked: Job, count: int = COUNT // BATCH) -> list[Batch]:
    """The first batches of a trial: those of an epoch, unless told otherwise."""
    batches: Iterator[Batch] = islice(feed.open_feed(asked, torch.device("cpu")).batches, count)
    return [batch._replace(fields=tuple(field.clone() for field in batch.fields)) for batch in batches]


def prints(batch: Batch) -> tuple[str, ...]:
    """What tells the samples of a batch apart: a hash of all bytes of each."""
    return tuple(
        hashlib.sha256(b"".join(field[place].numpy().tobytes() for field in batch.fields)).hexdigest()[:8]
        for place in range(len(batch.fields[0]))
    )


@pytest.mark.parametrize("way", [*WAYS, *ORDERS])
def test_cached_samples_make_the_same_batches(root: Path, way: dict[str, Any]) -> None:
    """With the same seed they are bit for bit those of the uncached loader, over two epochs, in every way."""
    plain, cached = (fetched(job(root, cache=kind, **way), 2 * COUNT // BATCH) for kind in ("none", "sample"))
    for one, other in zip(plain, cached, strict=True):
        for field, again in zip(one.fields, other.fields, strict=True):
            assert (field.dtype, field.shape, field.stride()) == (again.dtype, again.shape, again.stride())
            assert torch.equal(field, again)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_worker_reads_the_cache(root: Path, kind: str, workers: dict[str, Any]) -> None:
    """Processes, forked or not, and threads open it by themselves and deliver what the training process reads."""
    alone, shared = fetched(job(root, cache=kind)), fetched(job(root, cache=kind, **workers))
    assert [prints(batch) for batch in shared] == [prints(batch) for batch in alone]


@pytest.mark.parametrize("access", ["random", "sequential"])
@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_of_cached_batches_has_the_same_samples(root: Path, way: dict[str, Any], access: str) -> None:
    """Each of the set once, as without a cache, and of the same form; in order where they come as they are stored."""
    plain, cached = (fetched(job(root, cache=kind, access=access, **way)) for kind in ("none", "batch"))
    samples = [Counter(name for batch in found for name in prints(batch)) for found in (plain, cached)]
    assert samples[0] == samples[1]
    assert sum(samples[0].values()) == COUNT == len(samples[0])
    forms = [[(field.dtype, field.shape, field.stride()) for field in found[0].fields] for found in (plain, cached)]
    assert forms[0] == forms[1]
    assert access == "random" or list(map(prints, plain)) == list(map(prints, cached))


def test_cached_batches_stay_together_in_new_orders(root: Path) -> None:
    """Epochs and seeds shuffle batches and never what is in them, which is drawn once; without a cache, both."""
    cached = [prints(batch) for batch in fetched(job(root, cache="batch"), 3 * COUNT // BATCH)]
    others = [prints(batch) for batch in fetched(job(root, seed=4, cache="batch"))]
    epochs = [cached[start : start + COUNT // BATCH] for start in range(0, len(cached), COUNT // BATCH)]
    assert all(set(epoch) == set(others) for epoch in epochs)
    assert len({tuple(epoch) for epoch in (*epochs, others)}) == 4
    plain = [prints(batch) for batch in fetched(job(root), 2 * COUNT // BATCH)]
    assert len(set(map(frozenset, plain))) == 2 * COUNT // BATCH
    stored = [prints(batch) for batch in fetched(job(root, access="sequential"))]
    assert not set(map(frozenset, stored)) & set(map(frozenset, others))
    shutil.rmtree(cache.folder(job(root, cache="batch")))
    assert {prints(batch) for batch in fetched(job(root, seed=4, cache="batch"))} == set(others)


@pytest.mark.parametrize("kind", KINDS)
def test_filled_once(root: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first trial fills; every one tells how long that took and what it takes on disk, and where it lies."""
    asked = job(root, cache=kind)
    fetched(asked)
    folder = cache.folder(asked)
    assert folder.parent == root.parent / "cache"
    told = cache.columns(asked)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.name != "manifest.json")
    assert told["cache_bytes"] == size >= COUNT * 2 * 4 * 3 * 81
    monkeypatch.setattr(cache, "_fill", lambda *_: pytest.fail("filled again"))
    assert fetched(job(root, seed=9, num_workers=1, cache=kind))
    assert cache.columns(asked) == told
    assert told["cache_fill_ns"] > 0
    assert cache.columns(job(root)) == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["flipped", "short", "lost", "description", "version", "samples"])
def test_damage_is_never_used(root: Path, kind: str, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with a changed byte, cut short, half there, of another version or of other samples is filled anew."""
    asked = job(root, cache=kind)
    expected = [prints(batch) for batch in fetched(asked)]
    folder = cache.folder(asked)
    data, manifest = folder / "pixels.bin", root / "manifest.json"
    if damage == "flipped":
        content = bytearray(data.read_bytes())
        content[100] ^= 1
        data.write_bytes(content)
    elif damage == "short":
        os.truncate(data, 1000)
    elif damage == "lost":
        data.unlink()
    elif damage == "description":
        (folder / "cache.json").write_text("{")
    elif damage == "version":
        monkeypatch.setattr(cache, "VERSION", 77)
    else:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"checksum": "00000000"}))
    filled: list[Path] = []
    fill = cache._fill
    monkeypatch.setattr(cache, "_fill", lambda temp, *rest: (filled.append(temp), fill(temp, *rest)))
    assert [prints(batch) for batch in fetched(asked)] == expected
    assert [prints(batch) for batch in fetched(asked)] == expected
    assert len(filled) == 1
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_half_written_is_not_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails on the way, at any item, leaves nothing that a later trial could take for a cache."""
    asked = job(root, cache="sample")
    decode = Reader.__getitem__
    monkeypatch.setattr(Reader, "__getitem__", lambda self, index: 1 / 0 if index == 9 else decode(self, index))
    with pytest.raises(ZeroDivisionError):
        fetched(asked)
    assert list(cache.folder(asked).parent.iterdir()) == []


def test_a_full_disk_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where, what for, and what to do; nothing is left."""

    def full(_samples: object, _root: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(memmap, "pack", full)
    with pytest.raises(EnvironmentFault, match=r"No space left on device while caching 24 sample items.*DATA_ROOT="):
        fetched(job(root, cache="sample"))
    assert list((root.parent / "cache").iterdir()) == []


def test_one_cache_for_each_way_of_making_it(root: Path) -> None:
    """Axes that change what is in it, or what filling it costs, name it; the loader's others share it."""
    plain = job(root, cache="sample")
    shared = [{"num_workers": 2}, {"batch_size": 8}, {"access": "sequential"}, {"collate_us": 5}, {"epoch_steps": 3}]
    own = [{"decode_us": 5}, {"read_us": 5}, {"collate": "fast"}, {"decoder": "cv2"}, {"payload_bytes": 1}]
    assert {cache.folder(job(root, cache="sample", **cell)) for cell in shared} == {cache.folder(plain)}
    folders = {cache.folder(job(root, cache="sample", **cell)) for cell in own}
    assert len(folders - {cache.folder(plain)}) == len(own)
    of_batches = [{}, {"batch_size": 8}, {"access": "sequential"}, {"collate_us": 5}, {"collate": "fast"}]
    assert len({cache.folder(job(root, cache="batch", **cell)) for cell in of_batches}) == len(of_batches)


@pytest.mark.parametrize("kind", KINDS)
def test_planted_costs_are_paid_when_it_is_filled(root: Path, kind: str) -> None:
    """What reading and decoding cost is in the time to fill and in no batch; nor is it told as planted into one."""
    asked = job(root, cache=kind, read_us=2000, decode_us=1000)
    begun = time.perf_counter_ns()
    opened = feed.open_feed(asked, torch.device("cpu"))
    took = time.perf_counter_ns() - begun
    fill_ns = cache.columns(asked)["cache_fill_ns"]
    assert COUNT * 2_900_000 <= fill_ns <= opened.settled_ns <= took
    stamps = [STAMPS.unpack(batch.stamps) for batch in islice(opened.batches, COUNT // BATCH)]
    assert min(read for read, *_ in stamps) < BATCH * 2_000_000 / 2
    assert min(decode for _, decode, *_ in stamps) < BATCH * 1_000_000 / 2
    assert feed.planted_read_ns(asked, 0, 3) is None
    assert feed.planted_read_ns(job(root, read_us=2000), 0, 3) == 3 * BATCH * 2_000_000


def test_collating_is_paid_for_each_batch_that_is_made(root: Path) -> None:
    """Of cached samples each time; of cached batches when they were made."""
    by_sample, by_batch = (
        STAMPS.unpack(fetched(job(root, cache=kind, collate_us=3000))[-1].stamps)[3] for kind in KINDS
    )
    assert by_sample >= 2_900_000
    assert by_batch < 1_500_000
    assert cache.columns(job(root, cache="batch", collate_us=3000))["cache_fill_ns"] >= COUNT / BATCH * 2_900_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_is_owned(root: Path, kind: str) -> None:
    """Reading copies every byte: a batch that is written to, as in-place operations do, changes no later one."""
    asked = job(root, cache=kind)
    _, dataset, _ = feed.samples(asked)
    first = [field.clone() for field in dataset[0]]
    for field in dataset[0]:
        field.zero_()
    assert all(torch.equal(one, other) for one, other in zip(dataset[0], first, strict=True))


def test_too_few_samples_for_a_batch(root: Path) -> None:
    """Refused, with what to do; the samples behind the last whole batch are left out."""
    with pytest.raises(InputError, match=r"make no 1 × 25 for a step; expected 25 or more .* Raise n_samples"):
        fetched(job(root, cache="batch", batch_size=25))
    assert cache.batches_in(job(root, batch_size=7), COUNT) == 3


def test_replicas_get_a_cached_batch_each(root: Path) -> None:
    """A process that feeds two gets two batches joined, and an epoch has every sample once."""
    plain = {prints(batch) for batch in fetched(job(root, cache="batch"))}
    joined = [prints(batch) for batch in fetched(job(root, cache="batch", parallel="dp", world_size=2), 3)]
    assert {names[start : start + BATCH] for names in joined for start in (0, BATCH)} == plain


@given(
    shapes=st.lists(
        st.tuples(
            st.sampled_from([torch.uint8, torch.float32, torch.int64]),
            st.lists(st.integers(1, 5), max_size=4).map(tuple),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=60)
def test_a_record_gives_back_its_tensors(shapes: list[tuple[torch.dtype, tuple[int, ...]]]) -> None:
    """Of any types and shapes, labels without dimensions and odd sizes included, in any order."""
    tensors = tuple(torch.randint(0, 256, shape).to(dtype) for dtype, shape in shapes)
    fields = cache._laid_out(tensors)
    record = torch.from_numpy(cache._record(tensors, fields, cache.Contents({}, fields, 0).size)[0])
    for field, tensor in zip(fields, tensors, strict=True):
        back = field.of(record)
        assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(back, tensor)


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_a_trial_tells_of_its_cache(root: Path, kind: str) -> None:
    """A whole trial's row has the cache's columns, the packed samples' identity, and what lay in the page cache."""
    asked = job(root, cache=kind)
    reading, writing = os.pipe()
    run_trial(asked, Reporter(writing))
    events = [json.loads(line) for line in os.read(reading, 1 << 20).splitlines()]
    os.close(reading)
    os.close(writing)
    row = events[-1]["row"]
    assert row["data_hash"] == feed.opened(asked).manifest.data_hash
    assert min(row["cached_before_pct"], row["cached_after_pct"]) >= 100 * WARM
    assert row["samples"] == row["steps"] * BATCH
    told = {name: row[name] for name in ("cache_fill_ns", "cache_bytes") if name in row}
    assert told == cache.columns(asked)
    assert bool(told) is (kind != "none")
