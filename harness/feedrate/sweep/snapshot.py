"""A run as tables: from its journal when it has ended, and as it stands while it is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from feedrate.store import archive, runs
from feedrate.sweep import manifest
from feedrate.sweep.run import ActiveRun

Entry = dict[str, Any]
"""A trial in the journal: its row, ``steps`` (column to values), ``telemetry`` (rows)."""


def keep(active: ActiveRun, entry: Entry, kept_in: Path) -> None:
    """Pack the run as it stands, with a trial that has ended and that the journal may not hold yet."""
    with tempfile.TemporaryDirectory(prefix="feedrate-") as scratch:
        folder = Path(scratch) / active.local.machine.machine_id / active.run_id
        entries: Iterator[list[Entry]] = chain(runs.journal_chunks(active.folder), [[entry]])
        runs.write_run(folder, manifest.assemble(active, "interrupted"), map(rows, entries))
        archive.pack_run(kept_in, folder)


def rows(entries: list[Entry]) -> dict[str, list[dict[str, Any]]]:
    """Turn a journal into the rows of the three tables."""
    tables: dict[str, list[dict[str, Any]]] = {"trials": [], "steps": [], "telemetry": []}
    for entry in entries:
        trial = entry["trial"]
        key = {"run_id": trial["run_id"], "trial_id": trial["trial_id"]}
        tables["trials"].append(trial)
        columns: dict[str, list[int | None]] = entry["steps"]
        names = list(columns)
        for step, values in enumerate(zip(*columns.values(), strict=True)):
            tables["steps"].append({**key, "step": step, **dict(zip(names, values, strict=True))})
        tables["telemetry"] += [{**key, **sample} for sample in entry["telemetry"]]
    return tables
