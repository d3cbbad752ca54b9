"""An index: what a dataset keeps in memory of every sample.

Paths, labels and sizes that are Python objects in a list are copied, page by page, into every forked worker that looks
at them: reading an object counts a reference, which is a write. As arrays, or pickled one after the other into one
buffer (as detectron2's ``NumpySerializedList`` does), they are a few objects, and workers share their pages.

What an index takes is read from outside (``workers_uss_start_bytes``, ``workers_uss_end_bytes``); a lookup is part of
reading. The packed samples stand for all entries in turn: an index can be larger than what a disk has to hold.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Protocol, TypedDict

import numpy as np
from torch.utils.data import Dataset

from feedrate.loaders import Fields, StampedDataset

LABELS = 1000
"""Classes among which the entries are dealt; their folders."""


class Entry(TypedDict):
    """What is kept of one sample; ``size`` of its file, in bytes."""

    path: str
    label: int
    size: int


def entries(count: int) -> Iterator[Entry]:
    """Make up entries as an image set has them, each of objects of its own."""
    for number in range(count):
        label, size = number * 7919 % LABELS, 50_000 + number * 104_729 % 90_001
        yield {"path": f"train/n{label:08d}/{number:08d}.png", "label": label, "size": size}


class Index(Protocol):
    """The entries of a dataset, in order; never changed."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Entry: ...


class NumpyIndex:
    """One array a field: paths as fixed-width bytes, labels and sizes as int64."""

    def __init__(self, count: int) -> None:
        longest = len(f"train/n{0:08d}/{max(count - 1, 0):08d}.png")
        kinds = {"path": f"S{longest}", "label": "i8", "size": "i8"}
        rows = np.fromiter((tuple(entry.values()) for entry in entries(count)), np.dtype([*kinds.items()]), count)
        self._paths, self._labels, self._sizes = (rows[name].copy() for name in kinds)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, number: int) -> Entry:
        path, label, size = self._paths[number], self._labels[number], self._sizes[number]
        return {"path": path.decode(), "label": int(label), "size": int(size)}


class SerializedIndex:
    """All entries pickled into one buffer, and where each ends."""

    def __init__(self, count: int) -> None:
        buffer = bytearray()
        self._ends = np.zeros(count + 1, np.int64)
        for number, entry in enumerate(entries(count), start=1):
            buffer += pickle.dumps(entry, pickle.HIGHEST_PROTOCOL)
            self._ends[number] = len(buffer)
        self._buffer = bytes(buffer)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> Entry:
        begin, end = self._ends[number : number + 2].tolist()
        entry: Entry = pickle.loads(self._buffer[begin:end])  # noqa: S301 - pickled above
        return entry


def build_index(kind: str, count: int) -> Index:
    """Make an index in this process; ``list`` is a list of dictionaries."""
    if kind == "list":
        return list(entries(count))
    return NumpyIndex(count) if kind == "numpy" else SerializedIndex(count)


class IndexedDataset(Dataset[Fields]):
    """As many samples as an index has entries: each is looked up first, and is then one of those packed, in turn."""

    def __init__(self, dataset: StampedDataset, index: Index) -> None:
        self.dataset, self.index = dataset, index

    def __deepcopy__(self, memo: dict[int, Any]) -> IndexedDataset:
        """Threads have datasets of their own and share one index."""
        return IndexedDataset(deepcopy(self.dataset, memo), self.index)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, number: int) -> Fields:
        begun = time.perf_counter_ns()
        self.dataset.begun = self.dataset.begun or begun
        tuple(self.index[number].values())  # as whoever opens the file and sets the label looks at them
        self.dataset.spent[0] += time.perf_counter_ns() - begun
        return self.dataset[number % len(self.dataset)]
