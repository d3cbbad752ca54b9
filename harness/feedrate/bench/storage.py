"""What the storage formats promise: reading at the pace of the kernel, packing on all cores, opening at once.

Readers are held against ``os.preadv`` of the same bytes in the same order into a reused buffer, in turns, in one
process. Every byte lands in the caller's memory on both sides: a view into a map is no read.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from feedrate.bench import packing
from feedrate.bench.session import Figure, Session, judge, seconds
from feedrate.formats import Manifest, ReadOptions, Sample
from feedrate.schema import plugins
from feedrate.schema.plugins import traits

READERS = {480: {"memmap": 0.9, "lmdb": 0.9, "hdf5": 0.7}, 96: {"memmap": 0.8, "lmdb": 0.65, "hdf5": 0.3}}
"""Height and width in pixels → format → least share of preadv's throughput."""
_READ_BYTES = 1 << 28
"""Of samples that one round reads."""
_ROUNDS = 11
_PACKED, _PACK_ROUNDS = 100, 3
_PACK_SHARE, _PEAK_RATIO = 0.8, 1.2
_SMALL, _OPEN_MS = 100_000, 50
OPENED = ("png", "lmdb", "memmap", "hdf5", "arrow", "recordio")
"""Formats whose opening does not depend on how many samples they hold."""


def measure(session: Session) -> Iterator[Figure]:
    """Take the figures of storage; about two minutes."""
    for size, least in READERS.items():
        session.console.print(f"Reading samples of {size} x {size} pixels beside preadv ...")
        yield from _readers(session.folder / f"readers-{size}", size, least)
    session.console.print("Packing image files on all cores ...")
    pictures, cores = session.folder / "pictures.npy", len(os.sched_getaffinity(0))
    packing.save_pictures(pictures)
    for name in filter(lambda name: traits(name).encoded, plugins.names("feedrate.formats")):
        rounds = [_packed(pictures, name, _PACKED) for _ in range(_PACK_ROUNDS)]
        shares = [seen["encoded_s"] / seen["packed_s"] / cores for seen in rounds]
        what = f"packing {name}, 480 × 480 pixels ÷ ({cores} cores × the encoder's own speed)"
        yield judge(what, f"≥ {_PACK_SHARE}", shares, digits=2)
    few, many = (_packed(pictures, "png", count)["peak_bytes"] for count in (_PACKED, 10 * _PACKED))
    what = f"peak memory of packing png, {10 * _PACKED:,} ÷ {_PACKED} samples"
    yield Figure(what, f"≤ {_PEAK_RATIO}", f"{many / few:.2f} (n = 1)", many / few <= _PEAK_RATIO)
    session.console.print(f"Opening {_SMALL:,} small samples ...")
    for name in OPENED:
        yield _opening(session.folder / "small" / name, name)


def _noise(count: int, size: int) -> Iterator[Sample]:
    generator = np.random.default_rng(0)
    return ((generator.integers(0, 256, (size, size, 3), np.uint8),) for _ in range(count))


def _pack(root: Path, name: str, samples: Iterator[Sample], count: int, shape: tuple[int, int, int]) -> Any:
    """Pack samples with a manifest, as a sweep does; return the format."""
    storage = plugins.load("feedrate.formats", name)
    root.mkdir(parents=True)
    storage.pack(samples, root)
    manifest = Manifest(count, (shape,), 0, "", 1, 1, 0.0)
    (root / "manifest.json").write_text(json.dumps(asdict(manifest)), encoding="utf-8")
    return storage


def _readers(root: Path, size: int, least: dict[str, float]) -> Iterator[Figure]:
    """Seconds that the kernel takes for all samples ÷ those that a format takes, of each round."""
    length = size * size * 3
    count = _READ_BYTES // length
    order = list(range(count))
    random.Random(0).shuffle(order)
    root.mkdir()
    with (root / "raw").open("wb") as file:
        for (pixels,) in _noise(count, size):
            file.write(pixels.data)
    descriptor = os.open(root / "raw", os.O_RDONLY)
    buffer = np.empty(length, np.uint8)
    target = buffer.data

    def preadv() -> None:
        for index in order:
            os.preadv(descriptor, [target], index * length)

    try:
        for name, share in least.items():
            storage = _pack(root / name, name, _noise(count, size), count, (size, size, 3))
            reader = storage.open(root / name, ReadOptions())

            def read(read_into: Any = reader.read_into) -> None:
                for index in order:
                    read_into(index, buffer)

            preadv()  # fills the page cache
            read()  # opens what a first read opens
            ratios = [seconds(preadv) / seconds(read) for _ in range(_ROUNDS)]
            what = f"{name} ÷ os.preadv, {size} × {size} pixels, warm, random order"
            yield judge(what, f"≥ {share:g}", ratios, digits=2)
    finally:
        os.close(descriptor)


def _packed(pictures: Path, name: str, count: int) -> dict[str, float]:
    """Pack in a fresh interpreter."""
    with tempfile.TemporaryDirectory(dir=pictures.parent) as root:
        command = [sys.executable, "-P", "-m", "feedrate.bench.packing", name, str(count), str(pictures), root]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _opening(root: Path, name: str) -> Figure:
    blank = np.zeros((8, 8, 1), np.uint8)
    storage = _pack(root, name, ((blank,) for _ in range(_SMALL)), _SMALL, (8, 8, 1))

    def read_last() -> None:
        storage.open(root, ReadOptions())[_SMALL - 1]

    read_last()  # what a first use imports
    took_ms = [1000 * seconds(read_last) for _ in range(_ROUNDS)]
    what = f"{name}: opening {_SMALL:,} small samples and reading the last"
    return judge(what, f"≤ {_OPEN_MS} ms", took_ms, digits=1, unit=" ms")
