"""Whether several processes can read an HDF5 file at once: through one inherited handle, or each through its own.

Four processes are forked, and all five read random samples of noise at the same time, each compared with what was
written. ``guarded = False``: the file is opened before the fork, and a thread goes on reading while processes are
forked. What may go wrong then:

- the thread holds a lock at that moment: the child's copy is never released, and its first read never returns (h5py
  takes its own lock before a fork for that reason, which helps as long as all go through h5py);
- the cache of chunks, or of metadata, is being changed at that moment: the child has half of the change;
- where HDF5 reads with ``lseek`` and ``read``, and not with ``pread``, all share the position of one descriptor.

``guarded = True``: nothing is open at the fork, and every process opens the file for itself, as HDF5 asks for.

The value is the share of reads that failed, gave other bytes or did not return; the fact, that there was one. A run in
which none went wrong is no proof that none can.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any

import h5py
import numpy as np

from feedrate.trial.checks import Finding, listen, scratch
from feedrate.trial.job import Job

REQUIRES: dict[str, str] = {"h5py": "h5py"}
PROCESSES, READS, ROUNDS = 4, 60, 5
"""Forked processes, reads of each, and times that they are forked, perhaps in the middle of a read."""
SAMPLES = 128
"""About 25 MB."""
HANG_S = 5.0
"""When nothing was read for so long, the reads that are missing do not return."""


def check(job: Job) -> Finding:
    """Write the file, read it in five processes at once, and count what went wrong."""
    guarded, outcomes = job.value("guarded"), Counter[str]()
    with scratch(job) as folder:
        path = folder / "noise.h5"
        sums = write(path, job.seed)
        for turn in range(ROUNDS):
            outcomes += read_at_once(path, sums, job.seed + turn * (PROCESSES + 1), guarded=guarded)
    bad, total = outcomes.total() - outcomes["right"], outcomes.total()
    way = "each through a handle of its own" if guarded else "through one inherited handle"
    return Finding(
        bad > 0,
        bad / total,
        f"Of {total} reads of {PROCESSES} forked processes and their parent at once, {way}, {outcomes['failed']} "
        f"failed, {outcomes['wrong']} gave other bytes than were written, and {outcomes['lost']} did not return.",
    )


def write(path: Path, seed: int) -> list[int]:
    """Write samples of noise in chunks of HDF5's choice; gives the sum of each."""
    noise = np.random.default_rng(seed).integers(0, 256, (SAMPLES, 3, 256, 256), np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("samples", data=noise, chunks=True)
    return [int(sample.sum(dtype=np.int64)) for sample in noise]


def read_at_once(path: Path, sums: Sequence[int], seed: int, *, guarded: bool) -> Counter[str]:
    """Fork processes that read while a thread of this one does; says how many reads were right, wrong, failed, lost."""
    shared = None if guarded else h5py.File(path, "r")
    outcomes, ended, (reading, writing) = Counter[str](), Event(), os.pipe()

    def read_on() -> None:
        outcomes.update(takewhile(lambda _: not ended.is_set(), _reads(path, shared, sums, seed)))

    def report(number: int) -> None:
        for outcome in islice(_reads(path, shared, sums, seed + number), READS):
            os.write(writing, f"{outcome} ".encode())

    thread = Thread(target=read_on, daemon=True)
    fork = get_context("fork").Process
    processes = [fork(target=report, args=(number,), daemon=True) for number in range(1, PROCESSES + 1)]
    readers: list[Any] = [thread, *processes] if shared else [*processes, thread]
    for reader in readers:
        reader.start()
    os.close(writing)
    reported = listen(reading, HANG_S).decode().split()
    os.close(reading)
    ended.set()
    thread.join(HANG_S)
    for process in processes:
        process.kill()
        process.join()
    outcomes.update(reported)
    outcomes["lost"] = PROCESSES * READS - len(reported) + thread.is_alive()
    return outcomes


def _reads(path: Path, shared: h5py.File | None, sums: Sequence[int], seed: int) -> Iterator[str]:
    """Read random samples without end and compare their sums; how each read ended."""
    stored = (shared or h5py.File(path, "r"))["samples"]
    random = np.random.default_rng(seed)
    while True:
        index = int(random.integers(len(sums)))
        try:
            yield "right" if int(stored[index].sum(dtype=np.int64)) == sums[index] else "wrong"
        except (OSError, RuntimeError, KeyError, ValueError):
            yield "failed"
