"""Whether an HDF5 data set can be enlarged after it was made and its file was closed.

A data set that is made with room to grow (``maxshape``) is filled, closed, opened again, enlarged and filled; then
every value is read. The same is tried with one that was made without, which HDF5 refuses to enlarge.

The value is the share of all written values that are read back as they were; the fact, that it is all.
"""

from __future__ import annotations

import h5py
import numpy as np

from feedrate.trial.checks import Finding, scratch
from feedrate.trial.job import Job

REQUIRES: dict[str, str] = {"h5py": "h5py"}
VALUES = 4096


def check(job: Job) -> Finding:
    """Enlarge a data set to twice its size and read everything."""
    values = np.random.default_rng(job.seed).integers(0, 256, 2 * VALUES, np.uint8)
    with scratch(job) as folder:
        with h5py.File(folder / "noise.h5", "w") as file:
            file.create_dataset("grows", data=values[:VALUES], maxshape=(None,))
            file.create_dataset("fixed", data=values[:VALUES])
        with h5py.File(folder / "noise.h5", "a") as file:
            file["grows"].resize(2 * VALUES, axis=0)
            file["grows"][VALUES:] = values[VALUES:]
            try:
                file["fixed"].resize(2 * VALUES, axis=0)
                refused = "was enlarged, too"
            except (TypeError, ValueError, OSError) as error:
                refused = f"could not be ({str(error).rstrip('.')})"
        with h5py.File(folder / "noise.h5") as file:
            same = float((file["grows"][:] == values).mean())
    return Finding(
        same == 1,
        same,
        f"A data set of {VALUES:,} values was enlarged to {2 * VALUES:,} after its file had been closed, and "
        f"{100 * same:.0f} % of them were read back as they were; one that was made without maxshape {refused}.",
    )
