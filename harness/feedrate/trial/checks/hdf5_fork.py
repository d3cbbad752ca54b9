"""Whether several processes can read an HDF5 file at once: through one inherited handle, or each through its own.

A file of noise is written in HDF5's own chunks, uncompressed. Four processes are forked, and all five read random
samples at the same time, each compared with what was written. ``guarded = False``: the file is opened and read before
the fork, with the library's own chunk cache and locks, and a thread goes on reading while processes are forked. What
may go wrong then:

- the thread holds a lock at that moment: the child's copy is never released, and its first read never returns (h5py
  takes its own lock before a fork for that reason, which helps as long as all go through h5py);
- the cache of chunks, or of metadata, is being changed at that moment: the child has half of the change;
- where HDF5 reads with ``lseek`` and ``read``, and not with ``pread``, all share the position of one descriptor.

``guarded = True``: nothing is open at the fork, and every process opens the file for itself, as HDF5 asks for.

The value is the share of reads that failed, gave other bytes or did not return; the fact, that there was one. A run in
which none went wrong is no proof that none can.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import h5py
import numpy as np

from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

REQUIRES: dict[str, str] = {"h5py": "h5py"}
PROCESSES = 4
READS = 60
"""Of each forked process; the thread reads until they are done."""
ROUNDS = 5
"""Times that processes are forked: each is a chance to fork in the middle of a read."""
SAMPLES = 128
"""About 25 MB."""
HANG_S = 5.0
"""A read that takes longer does not return, nor do those that should have followed."""
_SHAPE = (3, 256, 256)


def check(job: Job) -> Finding:
    """Write the file, read it in five processes at once, and count what went wrong."""
    root, guarded = Path(job.data_root), job.value("guarded")
    root.mkdir(parents=True, exist_ok=True)
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="check-hdf5-", dir=root) as folder:
        path = Path(folder) / "noise.h5"
        sums = write(path, job.seed)
        for turn in range(ROUNDS):
            seen += read_at_once(path, sums, job.seed + turn * (PROCESSES + 1), guarded)
    bad, total = seen.total() - seen["right"], seen.total()
    way = "each through a handle of its own" if guarded else "through one inherited handle"
    return Finding(
        bad > 0,
        bad / total,
        f"Of {total} reads of {PROCESSES} forked processes and their parent at once, {way}, {seen['failed']} failed, "
        f"{seen['wrong']} gave other bytes than were written, and {seen['lost']} did not return.",
    )


def write(path: Path, seed: int) -> list[int]:
    """Write samples of noise in chunks of HDF5's choice; gives the sum of each."""
    noise = np.random.default_rng(seed).integers(0, 256, (SAMPLES, *_SHAPE), np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("samples", data=noise, chunks=True)
    return [int(sample.sum(dtype=np.int64)) for sample in noise]


def read_at_once(path: Path, sums: Sequence[int], seed: int, guarded: bool) -> Counter[str]:
    """Fork processes that read while this one does; says how many reads were right, wrong, failed and lost."""
    shared = None if guarded else h5py.File(path, "r")
    seen: Counter[str] = Counter()
    over = threading.Event()

    def read_on() -> None:
        for outcome in _reads(path, shared, sums, seed):
            seen[outcome] += 1
            if over.is_set():
                return

    thread = threading.Thread(target=read_on, daemon=True)
    context = multiprocessing.get_context("fork")
    ends, processes = [], []
    if shared:
        thread.start()
    for number in range(PROCESSES):
        mine, theirs = context.Pipe(duplex=False)
        work = (path, shared, sums, seed + 1 + number, theirs)
        processes.append(context.Process(target=_report, args=work, daemon=True))
        processes[-1].start()
        theirs.close()
        ends.append(mine)
    if not shared:
        thread.start()
    try:
        found = sum(map(_outcomes, ends), Counter[str]())
        over.set()
        thread.join(HANG_S)
    finally:
        for process in processes:
            process.kill()
            process.join()
    if thread.is_alive():
        return found + seen + Counter(lost=1)
    if shared:
        shared.close()
    return found + seen


def _outcomes(end: Connection) -> Counter[str]:
    """What a process reports, read by read; of one that dies or hangs the rest is lost."""
    seen: Counter[str] = Counter()
    try:
        while seen.total() < READS and end.poll(HANG_S):
            seen[end.recv()] += 1
    except EOFError:
        pass
    seen["lost"] = READS - seen.total()
    return seen


def _report(path: Path, shared: h5py.File | None, sums: Sequence[int], seed: int, end: Connection) -> None:
    for _, outcome in zip(range(READS), _reads(path, shared, sums, seed), strict=False):
        end.send(outcome)


def _reads(path: Path, shared: h5py.File | None, sums: Sequence[int], seed: int) -> Iterator[str]:
    """Read random samples without end and compare their sums; how each read ended."""
    stored = (shared or h5py.File(path, "r"))["samples"]
    random = np.random.default_rng(seed)
    while True:
        place = int(random.integers(len(sums)))
        try:
            yield "right" if int(stored[place].sum(dtype=np.int64)) == sums[place] else "wrong"
        except (OSError, RuntimeError, KeyError, ValueError):
            yield "failed"
