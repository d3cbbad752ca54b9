"""The runs of a store → its summaries (``store.summaries``): what admission lets in, estimated many at a time.

A grade is not among them: it takes a look at each run by itself, a tenth of a second and more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from feedrate.analysis.blocks import blocks_of, moments
from feedrate.analysis.estimates import AXIS_NAMES, IDENTITY, asked, cells
from feedrate.analysis.storage import PROVING, believable
from feedrate.pages import processes
from feedrate.schema.errors import InputError
from feedrate.share.validation import admission
from feedrate.store import place, runs, summaries
from feedrate.store.migration import arrow_schema
from feedrate.store.runs import RESULTS, StoredRun
from feedrate.store.summaries import CELLS, RUNS, Added, Summary

_PART = 100
"""Runs that are read together."""
_COLUMNS = tuple(dict.fromkeys((*IDENTITY, "block", "role", "outcome", "samples_per_s", *AXIS_NAMES, *PROVING)))
"""Of trials, that are read."""


def update(results: Path = RESULTS, admit: Callable[[Sequence[Path]], admission.Admitted] = admission.admit) -> Added:
    """Bring a store's summaries to what lies in it, and merge small files; runs that are refused get no rows.

    Raises:
        InputError: the summaries are of another version, or the runs lie in a store behind a URL.
        EnvironmentFault: the disk cannot be written.
    """
    if place.remote(results):
        raise InputError(f"{results}: a store; expected a folder: summaries are made where its runs lie as files")
    added = summaries.add(partial(_summarise, admit), results)
    summaries.compact(results)
    return added


def _summarise(admit: Callable[[Sequence[Path]], admission.Admitted], folders: Sequence[Path]) -> Summary:
    nothing = summarised(())
    parts = [nothing, *processes.in_parts(summarised, admit(folders).folders, _PART)]
    return Summary(*(pa.concat_tables(tables) for tables in zip(*parts, strict=True)))


def summarised(folders: Sequence[Path]) -> Summary:
    """Estimate every cell of some runs from their trials, as ``analysis.estimates`` does, and say where each ran."""
    said = [_said(run) for run in runs.runs(only=folders)]
    of_runs = pa.Table.from_pylist(said, arrow_schema(RUNS))
    if not said:
        return Summary(arrow_schema(CELLS).empty_table(), of_runs)
    trials = believable(runs.rows(folders, _COLUMNS))
    found = cells(trials)
    logs = moments(blocks_of(trials).logs(list(found["run_id"]), list(found["cell_id"])))
    found = found.assign(asked=asked(trials, found), mean_log=logs.mean, var_log=np.square(logs.sd))
    where = pd.DataFrame(said)[["run_id", "started_at", "cpu", "gpu", "cores", "storage"]]
    rows = found.merge(where, on="run_id")[[column.name for column in CELLS]]
    return Summary(pa.Table.from_pandas(rows, arrow_schema(CELLS), preserve_index=False), of_runs)


def _said(run: StoredRun) -> dict[str, object]:
    """What a run's manifest says of it and of its machine."""
    manifest, machine = run.manifest, run.manifest.machine
    return {
        "machine_id": machine.machine_id,
        "run_id": manifest.run_id,
        "started_at": manifest.started_at,
        "device": manifest.device,
        "protocol_version": manifest.protocol_version,
        "cpu": machine.cpu_model,
        "gpu": machine.gpu_name,
        "cores": machine.cores_logical,
        "storage": machine.storage.device_class if machine.storage else None,
    }
