"""Whether several processes can read an HDF5 file at once: through one inherited handle, or each through its own.

A file of noise is written; four processes are forked that read random samples of it at the same time and compare each
with what was written. ``guarded = False``: the file was opened once, before the fork, so that all share the position of
one file descriptor. ``guarded = True``: every process opens it for itself, as HDF5 asks for.

The value is the share of reads that failed or gave other bytes; the fact, that there was one. A run in which none went
wrong is no proof that none can.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import h5py
import numpy as np

from feedrate.trial.checks import Finding
from feedrate.trial.checks.hdf5_memory import write
from feedrate.trial.job import Job

REQUIRES: dict[str, str] = {"h5py": "h5py"}
PROCESSES = 4
READS = 300
"""Of each process."""
SAMPLES = 128
"""About 25 MB."""
LIMIT_S = 60.0


def check(job: Job) -> Finding:
    """Write the file, read it in four processes, and count what went wrong."""
    root, guarded = Path(job.data_root), job.value("guarded")
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="check-hdf5-", dir=root) as folder:
        write(Path(folder), SAMPLES, job.seed)
        wrong, failed = read_at_once(Path(folder) / "noise.h5", job.seed, guarded)
    total, way = PROCESSES * READS, "each through a handle of its own" if guarded else "through one inherited handle"
    return Finding(
        wrong + failed > 0,
        (wrong + failed) / total,
        f"Of {total} reads of {PROCESSES} processes at once, {way}, {failed} failed and {wrong} gave other bytes than "
        "were written.",
    )


def read_at_once(path: Path, seed: int, guarded: bool) -> tuple[int, int]:
    """Read from several processes at once; says how many reads were wrong, and how many failed."""
    with h5py.File(path, "r") as file:
        sums = [int(sample.sum(dtype=np.int64)) for sample in file["samples"]]
    shared = None if guarded else h5py.File(path, "r")
    context = multiprocessing.get_context("fork")
    ends, processes = [], []
    for number in range(PROCESSES):
        mine, theirs = context.Pipe(duplex=False)
        work = (path, shared, sums, seed + number, theirs)
        processes.append(context.Process(target=_read, args=work, daemon=True))
        processes[-1].start()
        theirs.close()
        ends.append(mine)
    try:
        found = [_answer(end) for end in ends]
    finally:
        for process in processes:
            process.kill()
            process.join()
        if shared:
            shared.close()
    return sum(wrong for wrong, _ in found), sum(failed for _, failed in found)


def _answer(end: Connection) -> tuple[int, int]:
    """What a process found; one that died or hangs has failed to read."""
    try:
        return end.recv() if end.poll(LIMIT_S) else (0, READS)
    except EOFError:
        return 0, READS


def _read(path: Path, shared: h5py.File | None, sums: list[int], seed: int, end: Connection) -> None:
    """Read random samples and compare their sums."""
    stored = (shared or h5py.File(path, "r"))["samples"]
    wrong = failed = 0
    for place in np.random.default_rng(seed).integers(len(sums), size=READS).tolist():
        try:
            wrong += int(stored[place].sum(dtype=np.int64)) != sums[place]
        except (OSError, RuntimeError, KeyError):
            failed += 1
    end.send((wrong, failed))
