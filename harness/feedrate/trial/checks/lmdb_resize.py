"""Whether the size of an LMDB can be changed once it was made.

A database with a small map is filled until LMDB says that it is full; then its map is enlarged and as much again is
written, all by the same process. The value is the share of all written values that are read back as they were; the
fact, that enlarging failed or a value was lost.
"""

from __future__ import annotations

from contextlib import suppress

import lmdb
import numpy as np

from feedrate.trial.checks import Finding, scratch
from feedrate.trial.job import Job

REQUIRES: dict[str, str] = {"lmdb": "lmdb"}
MAP_BYTES = 4 << 20
_VALUE_BYTES = 64 << 10


def check(job: Job) -> Finding:
    """Fill a map, enlarge it, write as much again and read everything."""
    noise = np.random.default_rng(job.seed)
    values: list[bytes] = []
    with scratch(job) as folder, lmdb.open(str(folder), map_size=MAP_BYTES) as database:
        _fill(database, noise, values)
        before = len(values)
        database.set_mapsize(4 * MAP_BYTES)
        _fill(database, noise, values, most=2 * before)
        with database.begin() as transaction:
            same = sum(transaction.get(b"%06d" % index) == value for index, value in enumerate(values))
    grew = len(values) >= 2 * before and same == len(values)
    return Finding(
        not grew,
        same / len(values),
        f"A map of {MAP_BYTES >> 20} MiB was full after {before} values of {_VALUE_BYTES >> 10} KiB; after set_mapsize "
        f"{len(values) - before} more were written, and {same} of {len(values)} were read back as they were.",
    )


def _fill(database: lmdb.Environment, noise: np.random.Generator, values: list[bytes], most: int = 1 << 20) -> None:
    """Write values of noise until the map is full, or there are enough."""
    with suppress(lmdb.MapFullError):
        while len(values) < most:
            value = noise.bytes(_VALUE_BYTES)
            with database.begin(write=True) as transaction:
                transaction.put(b"%06d" % len(values), value)
            values.append(value)
