"""What was prepared once: the same samples, whole or filled anew, and paid for where it was filled."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from feedrate.loaders import Batch
from feedrate.schema.errors import InputError
from feedrate.schema.window import WARM
from feedrate.trial import cache, feed
from feedrate.trial.job import Job

COUNT, BATCH = 24, 4
EPOCH = COUNT // BATCH
SIZE = 9
"""An odd one: images of 972 bytes as floats, and of 243 as pixels, begin at no multiple of 8 by themselves."""
WAYS = [{}, {"collate": "fast", "normalize_on": "device"}, {"payload_bytes": 5}]
ORDERS = [{"access": "sequential"}, {"epoch_steps": 3}, {"index_kind": "numpy", "index_entries": 2 * COUNT}]
WORKERS = [{"num_workers": 2}, {"num_workers": 2, "loader": "threads"}]
by_kind = pytest.mark.parametrize("kind", ["sample", "batch"])


class PackedSet:
    """Packed samples, all of which differ, and trials that drain a loader of them."""

    def __init__(self, root: Path, fetch: Callable[[Job, int], list[Batch]]) -> None:
        self.root = root
        self._fetch = fetch

    def job(self, seed: int = 3, **cell: object) -> Job:
        whole = {"mode": "load", "batch_size": BATCH, "n_samples": COUNT, "patch_size": SIZE} | cell
        return Job("trial", cell=whole, packed=str(self.root), seed=seed, warmup_s=0.02, window_s=0.02, min_steps=4)

    def batches(self, count: int = EPOCH, **cell: Any) -> list[Batch]:
        return self._fetch(self.job(**cell), count)

    def prints(self, count: int = EPOCH, **cell: Any) -> list[tuple[str, ...]]:
        """What tells the samples of the first batches apart: a hash of all bytes of each."""
        return [
            tuple(
                hashlib.sha256(b"".join(field[place].numpy().tobytes() for field in batch.fields)).hexdigest()[:8]
                for place in range(len(batch.fields[0]))
            )
            for batch in self.batches(count, **cell)
        ]


def forms(batch: Batch) -> list[tuple[Any, ...]]:
    return [(field.dtype, field.shape, field.stride()) for field in batch.fields]


@pytest.fixture
def packed(pack: Callable[..., str], tmp_path: Path, fetch: Callable[[Job, int], list[Batch]]) -> PackedSet:
    return PackedSet(Path(pack("png", COUNT, SIZE, tmp_path)), fetch)


@pytest.mark.parametrize("way", [*WAYS, *ORDERS])
def test_cached_samples_make_the_same_batches(packed: PackedSet, way: dict[str, Any]) -> None:
    """With the same seed they are bit for bit those of the uncached loader, over two epochs, in every way."""
    plain, cached = (packed.batches(2 * EPOCH, cache=kind, **way) for kind in ("none", "sample"))
    for one, other in zip(plain, cached, strict=True):
        assert forms(one) == forms(other)
        assert all(map(torch.equal, one.fields, other.fields))


@pytest.mark.parametrize("workers", WORKERS)
@by_kind
def test_every_kind_of_worker_reads_the_cache(packed: PackedSet, kind: str, workers: dict[str, Any]) -> None:
    """Processes, forked or not, and threads open it by themselves and deliver what the training process reads."""
    assert packed.prints(cache=kind, **workers) == packed.prints(cache=kind)


@pytest.mark.parametrize("access", ["random", "sequential"])
@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_of_cached_batches_has_the_same_samples(packed: PackedSet, way: dict[str, Any], access: str) -> None:
    """Each of the set once, as without a cache, and of the same form; in order where they come as they are stored."""
    plain, cached = (packed.prints(cache=kind, access=access, **way) for kind in ("none", "batch"))
    samples = [Counter(name for batch in prints for name in batch) for prints in (plain, cached)]
    assert samples[0] == samples[1]
    assert sum(samples[0].values()) == COUNT == len(samples[0])
    first, second = (packed.batches(1, cache=kind, access=access, **way)[0] for kind in ("none", "batch"))
    assert forms(first) == forms(second)
    assert access == "random" or plain == cached


def test_cached_batches_stay_together_in_new_orders(packed: PackedSet) -> None:
    """Epochs and seeds shuffle batches and never what is in them, which is drawn once; without a cache, both."""
    cached, others = packed.prints(3 * EPOCH, cache="batch"), packed.prints(seed=4, cache="batch")
    epochs = [cached[start : start + EPOCH] for start in range(0, len(cached), EPOCH)]
    assert all(set(epoch) == set(others) for epoch in epochs)
    assert len({tuple(epoch) for epoch in (*epochs, others)}) == 4
    assert len(set(map(frozenset, packed.prints(2 * EPOCH)))) == 2 * EPOCH
    assert not set(map(frozenset, packed.prints(access="sequential"))) & set(map(frozenset, others))
    joined = packed.prints(EPOCH // 2, cache="batch", parallel="dp", world_size=2)
    assert {names[start : start + BATCH] for names in joined for start in (0, BATCH)} == set(others)
    shutil.rmtree(cache.folder(packed.job(cache="batch")))
    assert set(packed.prints(seed=4, cache="batch")) == set(others)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "sample", "batch"])
def test_filled_once(
    packed: PackedSet, kind: str, result: Callable[[Job], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trial fills; every one records how long that took, what it takes on disk, and the samples' identity."""
    trial = packed.job(cache=kind)
    row = result(trial)["row"]
    assert row["data_hash"] == feed.open_packed(trial).manifest.data_hash
    assert min(row["cached_before_pct"], row["cached_after_pct"]) >= 100 * WARM
    assert row["samples"] == row["steps"] * BATCH
    columns = {name: row[name] for name in ("cache_fill_ns", "cache_bytes") if name in row}
    assert columns == cache.columns(trial)
    assert bool(columns) is (kind != "none")
    if columns:
        folder = cache.folder(trial)
        assert folder.parent == packed.root.parent / "cache"
        size = sum(path.stat().st_size for path in folder.iterdir() if path.name != "manifest.json")
        assert columns["cache_bytes"] == size >= COUNT * 2 * 4 * 3 * SIZE**2
        assert columns["cache_fill_ns"] > 0
    monkeypatch.setattr(cache, "_fill", lambda *_: pytest.fail("filled again"))
    assert packed.batches(seed=9, num_workers=1, cache=kind)
    assert cache.columns(trial) == columns


def _flip(data: Path) -> None:
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)


def _of_other_samples(data: Path) -> None:
    manifest = next(data.parents[2].glob("png/manifest.json"))
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"checksum": "00000000"}))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped": _flip,
    "short": lambda data: os.truncate(data, 1000),
    "lost": Path.unlink,
    "description": lambda data: (data.parent / "cache.json").write_text("{"),
    "samples": _of_other_samples,
    "version": lambda _: None,
}


@pytest.mark.parametrize(("damage", "kind"), list(zip(DAMAGE, ["sample", "batch"] * 3, strict=True)))
def test_damage_is_never_used(packed: PackedSet, kind: str, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with a changed byte, cut short, half there, of another version or of other samples is filled anew."""
    expected = packed.prints(cache=kind)
    folder = cache.folder(packed.job(cache=kind))
    DAMAGE[damage](folder / "pixels.bin")
    if damage == "version":
        monkeypatch.setattr(cache, "VERSION", 77)
    filled: list[Path] = []
    fill = cache._fill
    monkeypatch.setattr(cache, "_fill", lambda temp, *rest: (filled.append(temp), fill(temp, *rest)))
    assert packed.prints(cache=kind) == packed.prints(cache=kind) == expected
    assert len(filled) == 1
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_one_cache_for_each_way_of_making_it(packed: PackedSet) -> None:
    """Axes that change what is in it, or what filling it costs, name it; the loader's others share it."""

    def folders(kind: str, *cells: dict[str, Any]) -> set[Path]:
        return {cache.folder(packed.job(cache=kind, **cell)) for cell in cells}

    shared = [{"num_workers": 2}, {"batch_size": 8}, {"access": "sequential"}, {"collate_us": 5}, {"epoch_steps": 3}]
    apart = [{"decode_us": 5}, {"read_us": 5}, {"collate": "fast"}, {"decoder": "cv2"}, {"payload_bytes": 1}]
    assert len(folders("sample", {}, *shared)) == 1
    assert len(folders("sample", {}, *apart)) == 1 + len(apart)
    of_batches = [{}, {"batch_size": 8}, {"access": "sequential"}, {"collate_us": 5}, {"collate": "fast"}]
    assert len(folders("batch", *of_batches)) == len(of_batches)


def test_too_few_samples_for_a_batch(packed: PackedSet) -> None:
    """Refused, with what to do; the samples behind the last whole batch are left out."""
    with pytest.raises(InputError, match=r"make no 1 × 25 for a step; expected 25 or more .* Raise n_samples"):
        packed.batches(cache="batch", batch_size=25)
    assert cache.batch_count(packed.job(batch_size=7), COUNT) == 3
