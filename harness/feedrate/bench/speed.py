"""How fast feedrate is itself, and what the storage formats promise.

Speed: a trial's start, a plan, what the parent of a sweep takes, whether phases close.

Starts from a template and from fresh interpreters take turns, and the ratio is what counts: times on a shared machine
vary by some per cent between minutes.

Storage: reading at the pace of the kernel, packing on all cores. Readers are held against
``os.preadv`` of the same bytes in the same order into a reused buffer, in turns, in one process. Every byte lands in
the caller's memory on both sides: a view into a map is no read.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from feedrate.bench.session import Figure, Session, judge, seconds
from feedrate.formats import Image, Manifest, ReadOptions, Sample
from feedrate.formats._images import encode_jpeg, encode_png
from feedrate.plan import request
from feedrate.schema import plugins
from feedrate.schema.columns import PHASES
from feedrate.sweep import screen, sweep
from feedrate.sweep.launcher import Template

_CELL = {
    "workload": "synthetic",
    "mode": "train",
    "step": "real",
    "model": "srcnn",
    "storage_format": "png",
    "n_samples": 1024,
    "patch_size": 16,
    "batch_size": 32,
    "num_workers": 0,
}
_PAIRS = 5
_FORKS_A_PAIR = 5
READERS = {480: {"memmap": 0.9, "lmdb": 0.9, "hdf5": 0.7}, 96: {"memmap": 0.8, "lmdb": 0.65, "hdf5": 0.3}}
"""Height and width in pixels → format → least share of preadv's throughput."""
_READ_BYTES = 1 << 28
"""Of samples that one round reads."""
_ROUNDS = 11
_PACKED, _PACK_ROUNDS, _PACK_SHARE = 100, 3, 0.8


def measure(session: Session) -> Iterator[Figure]:
    """Take the figures of speed; about two and a half minutes, one of which is a sweep."""
    session.console.print("Starting trials from a template and from fresh interpreters, in turns ...")
    yield from _starts(session.folder / "data")
    session.console.print("Planning ...")
    command = [sys.executable, "-P", "-m", "feedrate", "plan"]
    took_s = [seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(5)]
    yield judge("make plan", "≤ 0.7 s", took_s, digits=2, unit=" s")
    session.console.print("One minute of the quick profile ...")
    results = session.folder / "results"
    with screen.TerminalScreen(session.console) as terminal:
        options = request.Options(results=results, data_root=session.folder / "data", budget="60s")
        run = sweep.run(request.make(options), terminal)
    if run is None:
        raise KeyboardInterrupt
    trials, parent = run.table("trials"), run.manifest.parent_cpu_pct
    measured = f"{parent:.1f} % (one sweep, {len(trials)} trials)"
    yield Figure("parent's CPU during a sweep, probes included", "≤ 3 % of a core", measured, parent <= 3)
    ended = trials[trials["outcome"] == "ok"]
    phases = ended[[f"host_{phase}_ns" for phase in PHASES]].fillna(0).sum(axis=1)
    closure = 100 * (phases / ended["wall_ns"] - 1).abs()
    measured = f"{closure.max():.3f} % (median {closure.median():.4f} %, n = {len(ended)})"
    yield Figure("closure |Σ phases − wall| ÷ wall, worst trial", "≤ 1 %", measured, bool(closure.max() <= 1))


def _starts(data: Path) -> Iterator[Figure]:
    def job(kind: str, packed: str | None = None) -> str:
        return json.dumps({"kind": kind, "cell": _CELL, "data_root": str(data), "packed": packed, "warmup_s": 0.0})

    forked_ms: list[float] = []
    ratios: list[float] = []
    with Template() as template:
        prepared = template.run(job("prepare"), timeout_s=60, watch=lambda *_: None)
        trial = job("trial", prepared.result["packed"])
        for _ in range(_PAIRS):
            fresh_ms = _fresh_start_ms(trial)
            answers = [template.run(trial, timeout_s=60, watch=lambda *_: None) for _ in range(_FORKS_A_PAIR)]
            took_ms = [((answer.first_batch_ns or 0) - answer.ordered_ns) / 1e6 for answer in answers]
            forked_ms += took_ms
            ratios.append(fresh_ms / statistics.median(took_ms))
    first = "order of a trial to its first batch (synthetic, no workers)"
    yield judge(first, "≤ 60 ms", forked_ms, digits=0, unit=" ms")
    yield judge("the same in a fresh interpreter ÷ in a fork", "≥ 30×", ratios, digits=0, unit="×")


def _fresh_start_ms(job: str) -> float:
    """From starting an interpreter to its first batch."""
    reading, writing = os.pipe()
    begun = time.perf_counter_ns()
    command = [sys.executable, "-P", "-m", "feedrate.trial.child", str(writing)]
    with subprocess.Popen(command, pass_fds=[writing], stdin=subprocess.PIPE) as child:
        os.close(writing)
        assert child.stdin is not None  # noqa: S101 - it was asked for
        child.stdin.write(job.encode())
        child.stdin.close()
        with os.fdopen(reading) as answers:
            first: dict[str, int] = json.loads(answers.readline())
        child.kill()
    return (first["t_ns"] - begun) / 1e6


def measure_storage(session: Session) -> Iterator[Figure]:
    """Take the figures of storage; about a minute and a half."""
    for size, least in READERS.items():
        session.console.print(f"Reading samples of {size} x {size} pixels beside preadv ...")
        yield from _readers(session.folder / f"readers-{size}", size, least)
    session.console.print("Packing image files on all cores ...")
    cores = len(os.sched_getaffinity(0))
    for name, encode in (("png", encode_png), ("jpeg", encode_jpeg)):
        shares = [_packing(session.folder / f"{name}-{turn}", name, encode) / cores for turn in range(_PACK_ROUNDS)]
        what = f"packing {name}, 480 × 480 pixels ÷ ({cores} cores × the encoder's own speed)"
        yield judge(what, f"≥ {_PACK_SHARE}", shares, digits=2)


def _noise(count: int, size: int) -> Iterator[Sample]:
    generator = np.random.default_rng(0)
    return ((generator.integers(0, 256, (size, size, 3), np.uint8),) for _ in range(count))


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
            storage = plugins.load("feedrate.formats", name)
            (root / name).mkdir()
            storage.pack(_noise(count, size), root / name)
            manifest = Manifest(count, ((size, size, 3),), 0, "", 1, 1, 0.0)
            (root / name / "manifest.json").write_text(json.dumps(asdict(manifest)), encoding="utf-8")
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


def _packing(root: Path, name: str, encode: Callable[[Image], bytes]) -> float:
    """How many times as fast pictures of the stand-in are packed as one core encodes them into memory."""
    whole = plugins.load("feedrate.workloads", "div2k_standin").image(0)
    corners = product((0, 480), range(0, 1920, 480))
    pictures = [np.ascontiguousarray(whole[top : top + 480, left : left + 480]) for top, left in corners]
    storage = plugins.load("feedrate.formats", name)
    root.mkdir()

    def encoded_s() -> float:
        return seconds(lambda: [encode(pixels) for pixels in islice(cycle(pictures), _PACKED // 2)])

    before_s = encoded_s()
    packed_s = seconds(lambda: storage.pack(((pixels,) for pixels in islice(cycle(pictures), _PACKED)), root))
    return (before_s + encoded_s()) / packed_s
