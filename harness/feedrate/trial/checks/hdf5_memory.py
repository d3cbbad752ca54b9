"""Whether opening an HDF5 file and reading one sample brings the whole file into memory.

A file of noise is written below the data folder, forced to disk and dropped from the page cache; then the process opens
it and reads one sample from its middle. Memory is looked at in both places where a file can be: what is resident in the
process, and the file's share of the system's page cache.

The value is the larger of the two, as a share of the file; the fact, that it is more than ``MOST``. It holds for the
drivers and layouts that it looks at (h5py's own, samples one after the other): HDF5 can be told to hold a file in
memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from feedrate.trial import page_cache
from feedrate.trial.checks import Finding, scratch
from feedrate.trial.job import Job

REQUIRES: dict[str, str] = {"h5py": "h5py"}
MOST = 0.5
"""More than this share of the file in memory counts as all of it: neither readahead nor libraries come near it."""
SAMPLES = 1024
"""About 200 MB."""
_SHAPE = (3, 256, 256)


def check(job: Job) -> Finding:
    """Write the file, read one sample of it, and look at memory before and after."""
    with scratch(job) as folder:
        return measure(folder, write(folder, SAMPLES, job.seed))


def write(folder: Path, samples: int, seed: int) -> int:
    """Write an HDF5 file of noise into an empty folder; gives its size in bytes."""
    path = folder / "noise.h5"
    with h5py.File(path, "w") as file:
        file["samples"] = np.random.default_rng(seed).integers(0, 256, (samples, *_SHAPE), np.uint8)
    return path.stat().st_size


def measure(folder: Path, size: int, opens: Callable[[Path], Any] = h5py.File) -> Finding:
    """Open the file, read a sample, and compare memory with what it was before."""
    before = page_cache.settle(folder, "cold")
    # Give freed memory back to the kernel: what is used again would add nothing to what is resident.
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    resident = resident_bytes()
    with opens(folder / "noise.h5") as file:
        stored = file["samples"]
        sample = stored[len(stored) // 2]
        added = max(0, resident_bytes() - resident)
        cached = page_cache.cached(folder) - before
    share = max(added / size, cached)
    return Finding(
        share > MOST,
        share,
        f"Reading one sample of {sample.nbytes / 1e6:.1f} MB from the middle of an HDF5 file of {size / 1e6:.0f} MB "
        f"added {added / 1e6:.1f} MB to the process' resident memory ({100 * added / size:.1f} % of the file) and "
        f"brought {100 * cached:.1f} % of it into the page cache.",
    )


def resident_bytes() -> int:
    """Bytes of this process that are in memory; ``smaps_rollup`` counts them one by one, ``statm`` may lag behind."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
