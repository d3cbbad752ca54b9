"""What the storage formats promise: reading at the pace of the kernel, packing on all cores, opening at once.

Readers are held against ``os.preadv`` of the same bytes in the same order into a reused buffer, in turns, in one
process. Every byte lands in the caller's memory on both sides: a view into a map is no read.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from harness import registry
from harness.bench import packing
from harness.bench.place import Place
from harness.bench_record import Promise
from harness.formats import Manifest, ReadOptions, Sample
from harness.registry import ROOT
from harness.traits import traits

SECTION = "storage"
READERS = {480: {"memmap": 0.9, "lmdb": 0.9, "hdf5": 0.7}, 96: {"memmap": 0.8, "lmdb": 0.65, "hdf5": 0.3}}
"""Height and width in pixels → format → least share of preadv's throughput."""
_READ_BYTES = 1 << 28
"""Of samples that one round reads."""
_ROUNDS = 11
_PICTURES = "pictures.npy"
_PACKED = 100
_PACK_ROUNDS = 3
_PACK_SHARE, _PEAK_RATIO = 0.8, 1.2
_SMALL, _OPEN_MS = 100_000, 50
OPENED = ("png", "lmdb", "memmap", "hdf5", "arrow", "recordio")
"""Formats whose opening does not depend on how many samples they hold."""


def measure(place: Place) -> list[Promise]:
    """Take the figures of storage; about two minutes."""
    found = []
    for size, least in READERS.items():
        place.say(f"Reading samples of {size} x {size} pixels beside preadv ...")
        found += _readers(place.folder / f"readers-{size}", size, least)
    place.say("Packing image files on all cores ...")
    packing.save_pictures(place.folder / _PICTURES)
    found += [_packing(place.folder, name) for name in registry.names("harness.formats") if traits(name).encoded]
    found.append(_memory(place.folder, "png"))
    place.say(f"Opening {_SMALL:,} small samples ...")
    found += [_opening(place.folder / "small", name) for name in OPENED]
    return found


def _promise(what: str, target: str, measured: str, *, met: bool) -> Promise:
    return Promise(section=SECTION, what=what, target=target, measured=measured, met=met)


def _described(root: Path, count: int, shape: tuple[int, int, int]) -> None:
    manifest = Manifest(count, (shape,), 0, "", 1, 1, 0.0)
    (root / "manifest.json").write_text(json.dumps(asdict(manifest)), encoding="utf-8")


def _noise(count: int, shape: tuple[int, int, int]) -> Iterator[Sample]:
    generator = np.random.default_rng(0)
    return ((generator.integers(0, 256, shape, np.uint8),) for _ in range(count))


def _readers(root: Path, size: int, least: dict[str, float]) -> list[Promise]:
    shape, length = (size, size, 3), size * size * 3
    count = _READ_BYTES // length
    order = list(range(count))
    random.Random(0).shuffle(order)
    root.mkdir()
    with (root / "raw").open("wb") as file:
        for (pixels,) in _noise(count, shape):
            file.write(pixels.data)
    descriptor = os.open(root / "raw", os.O_RDONLY)
    buffer = np.empty(length, np.uint8)
    target = buffer.data

    def preadv() -> None:
        for index in order:
            os.preadv(descriptor, [target], index * length)

    try:
        return [_reader(root / name, name, share, order, shape, buffer, preadv) for name, share in least.items()]
    finally:
        os.close(descriptor)


def _reader(
    root: Path,
    name: str,
    least: float,
    order: list[int],
    shape: tuple[int, int, int],
    buffer: np.ndarray[tuple[int], np.dtype[np.uint8]],
    preadv: Callable[[], None],
) -> Promise:
    storage = registry.load("harness.formats", name)
    root.mkdir()
    storage.pack(_noise(len(order), shape), root)
    _described(root, len(order), shape)
    reader = storage.open(root, ReadOptions())

    def read() -> None:
        read_into = reader.read_into
        for index in order:
            read_into(index, buffer)

    for run in (preadv, read):  # fills the page cache, and opens what a first read opens
        run()
    ratios = [_seconds(preadv) / _seconds(read) for _ in range(_ROUNDS)]
    middle = statistics.median(ratios)
    return _promise(
        f"{name} ÷ os.preadv, {shape[0]} × {shape[1]} pixels, warm, random order",
        f"≥ {least:g}",
        f"{middle:.2f} ({min(ratios):.2f}–{max(ratios):.2f}, n = {len(ratios)})",
        met=middle >= least,
    )


def _seconds(run: Callable[[], None]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _packed(folder: Path, name: str, count: int) -> dict[str, float]:
    """Pack in a fresh interpreter."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        command = [sys.executable, "-m", "harness.bench.packing", name, str(count), str(folder / _PICTURES), root]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _packing(folder: Path, name: str) -> Promise:
    cores = len(os.sched_getaffinity(0))
    rounds = [_packed(folder, name, _PACKED) for _ in range(_PACK_ROUNDS)]
    shares = [seen["encoded_s"] / seen["packed_s"] / cores for seen in rounds]
    middle = statistics.median(shares)
    return _promise(
        f"packing {name}, 480 × 480 pixels ÷ ({cores} cores × the encoder's own speed)",
        f"≥ {_PACK_SHARE}",
        f"{middle:.2f} ({min(shares):.2f}–{max(shares):.2f}, n = {len(shares)})",
        met=middle >= _PACK_SHARE,
    )


def _memory(folder: Path, name: str) -> Promise:
    few, many = (_packed(folder, name, count)["peak_bytes"] for count in (_PACKED, 10 * _PACKED))
    return _promise(
        f"peak memory of packing {name}, {10 * _PACKED:,} ÷ {_PACKED} samples",
        f"≤ {_PEAK_RATIO}",
        f"{many / few:.2f} (n = 1)",
        met=many / few <= _PEAK_RATIO,
    )


def _opening(folder: Path, name: str) -> Promise:
    shape = (8, 8, 1)
    storage = registry.load("harness.formats", name)
    root = folder / name
    root.mkdir(parents=True)
    blank = np.zeros(shape, np.uint8)
    storage.pack(((blank,) for _ in range(_SMALL)), root)
    _described(root, _SMALL, shape)

    def opened() -> None:
        reader = storage.open(root, ReadOptions())
        reader[_SMALL - 1]

    opened()  # what a first use imports
    took = [1000 * _seconds(opened) for _ in range(_ROUNDS)]
    middle = statistics.median(took)
    return _promise(
        f"{name}: opening {_SMALL:,} small samples and reading the last",
        f"≤ {_OPEN_MS} ms",
        f"{middle:.1f} ms ({min(took):.1f}–{max(took):.1f}, n = {len(took)})",
        met=middle <= _OPEN_MS,
    )
