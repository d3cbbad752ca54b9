"""Orders of samples, and streams that workers share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from feedrate.formats import Manifest, Sample, Stream
from feedrate.trial import loader
from feedrate.trial.loader import Batches, StampedCollate, StampedStream

COUNT, SHARDS = 60, 6


class Numbers(Stream):
    """A stream whose samples are their own numbers, ten a shard."""

    def __init__(self) -> None:
        self.root = Path("numbers")
        self.manifest = Manifest(COUNT, ((1, 1, 1),), 0, "", 1, 1, 0.0)

    @property
    def shards(self) -> int:
        return SHARDS

    def records(self, shard: int) -> Iterator[int]:
        yield from range(shard * 10, shard * 10 + 10)

    def decode(self, raw: Any) -> Sample:
        return (np.full((1, 1, 1), raw, np.uint8),)


def tensors(sample: Sample) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(field) for field in sample)


def stream(*, workers: int = 0, endless: bool = False, buffer: int = 0, seed: int = 1) -> Iterator[list[int]]:
    dataset = StampedStream(Numbers(), tensors, seed=seed, buffer=buffer, endless=endless)
    built = loader.build(
        dataset,
        StampedCollate(dataset),
        batches=None,
        batch_size=5,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        pin_memory=False,
    )
    for batch in built:
        yield batch.fields[0].flatten().tolist()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("buffer", [0, 7, 1000])
def test_a_pass_over_a_stream_has_every_sample_once(workers: int, buffer: int) -> None:
    """However many workers share the shards, and however they are shuffled."""
    assert sorted(number for batch in stream(workers=workers, buffer=buffer) for number in batch) == list(range(COUNT))


def test_a_stream_goes_on_for_ever_in_new_orders() -> None:
    """Each pass has every sample once and takes the shards in another order; a shard's own order stays."""
    numbers = [number for batch in islice(stream(endless=True), 3 * COUNT // 5) for number in batch]
    passes = [numbers[start : start + COUNT] for start in range(0, 3 * COUNT, COUNT)]
    assert all(sorted(one) == list(range(COUNT)) for one in passes)
    orders = [tuple(number // 10 for number in one[::10]) for one in passes]
    assert len(set(orders)) == 3
    assert all(one[place] + 1 == one[place + 1] for one in passes for place in range(COUNT - 1) if (place + 1) % 10)


def test_a_shuffle_buffer_mixes_within_its_reach_and_is_seeded() -> None:
    """No sample comes earlier than the buffer allows; the same seed gives the same order, another another."""
    plain = [number for batch in stream() for number in batch]
    mixed = [number for batch in stream(buffer=7) for number in batch]
    assert mixed != plain
    assert any(mixed.index(number) < COUNT // 2 for number in plain[:7])
    assert all(plain.index(number) <= place + 7 for place, number in enumerate(mixed))
    assert mixed == [number for batch in stream(buffer=7) for number in batch]
    assert mixed != [number for batch in stream(buffer=7, seed=2) for number in batch]


def test_random_batches_are_new_permutations_without_end() -> None:
    """Pass after pass, every sample once in each, incomplete batches left out."""
    batches = list(islice(Batches(10, 3, seed=5), 6))
    first, second = [i for b in batches[:3] for i in b], [i for b in batches[3:] for i in b]
    assert first != second
    assert all(len(set(one)) == 9 for one in (first, second))


def test_sequential_batches_come_as_they_lie_on_disk() -> None:
    """In stored order, again and again."""
    assert list(islice(Batches(7, 3, 0, shuffled=False), 4)) == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5]]


def test_one_pass_ends() -> None:
    """For a trial that must not read a sample twice."""
    batches = list(Batches(10, 3, seed=5, endless=False))
    assert len(batches) == 3
    assert len({index for batch in batches for index in batch}) == 9
