"""The runs of a store → its compact data set (``store.compact``): what admission lets in, estimated many at a time.

A grade is not among the columns: it takes a tenth of a second a run, more than all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa

from feedrate.analysis.estimates import AXIS_NAMES, IDENTITY, asked, cells
from feedrate.analysis.storage import PROVING, believable
from feedrate.pages import processes
from feedrate.schema.errors import InputError
from feedrate.share import validator
from feedrate.store import compact, location, runs
from feedrate.store.compact import CELLS, Appended
from feedrate.store.runs import RESULTS, StoredRun
from feedrate.store.tables import arrow_schema

_PART = 100
"""Runs that are read together."""
_COLUMNS = tuple(dict.fromkeys((*IDENTITY, "block", "role", "outcome", "samples_per_s", *AXIS_NAMES, *PROVING)))
"""Of trials, that are read."""
Admit = Callable[[Sequence[Path]], validator.Admitted]


def update(results: Path = RESULTS, admit: Admit = validator.admit, folder: Path | None = None) -> Appended:
    """Bring a store's data set, by default the one within it, to what lies there; runs that are refused get no rows.

    Raises:
        InputError: the data set is of another version, or the runs lie in a store behind a URL.
        EnvironmentFault: the disk cannot be written.
    """
    if location.remote(results):
        raise InputError(f"{results}: a store; expected a folder: a data set is made where its runs lie as files")
    return compact.append(partial(_estimated, admit), results, folder)


def _estimated(admit: Admit, folders: Sequence[Path]) -> pa.Table:
    nothing = arrow_schema(CELLS).empty_table()
    return pa.concat_tables([nothing, *processes.in_parts(estimated, admit(folders).folders, _PART)])


def estimated(folders: Sequence[Path]) -> pa.Table:
    """Estimate every cell of some runs from their trials, as ``analysis.estimates`` does, and say where each ran."""
    trials = believable(runs.rows(folders, _COLUMNS))
    estimates = cells(trials)
    where = pd.DataFrame([_where(run) for run in runs.runs(only=folders)])
    estimates = estimates.assign(asked=asked(trials, estimates), first=~estimates["run_id"].duplicated()).merge(
        where, on="run_id"
    )
    return pa.Table.from_pandas(estimates[[column.name for column in CELLS]], arrow_schema(CELLS), preserve_index=False)


def _where(run: StoredRun) -> dict[str, object]:
    """What a run's manifest says of when and where it ran."""
    machine = run.manifest.machine
    return {
        "run_id": run.manifest.run_id,
        "started_at": run.manifest.started_at,
        "cpu": machine.cpu_model,
        "gpu": machine.gpu_name,
        "cores": machine.cores_logical,
        "storage": machine.storage.device_class if machine.storage else None,
    }
