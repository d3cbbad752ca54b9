"""The sweeps of a cluster among stored runs: which node measured what, and what its nodes are called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from feedrate.analysis.machines import CELL, SAME_IN_BOTH
from feedrate.analysis.storage import PROVING, believable
from feedrate.questions.compare.analysis import STAGES
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.store import clusters, marks, runs
from feedrate.store.runs import StoredRun

_COLUMNS = dict.fromkeys(
    (
        *("run_id", *CELL, *SAME_IN_BOTH, "block", "outcome", "samples_per_s", "mode", "step", "page_cache"),
        *("storage_format", "num_workers", *PROVING, *(stage.column for stage in STAGES if stage.column)),
    )
)
"""Of trials: what is asked of many nodes fits into memory."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What the nodes of a cluster measured at once."""

    name: str
    runs: dict[int, StoredRun]
    """Number of a node to its newest run."""
    nodes: int
    """How many nodes swept."""

    def trials(self) -> pd.DataFrame:
        """Read what is compared of all nodes' trials, with ``node``, in order of the nodes.

        Raises:
            InputError: a file is not one that feedrate wrote, or changed since.
        """
        read = ((node, runs.rows([run.folder], list(_COLUMNS))) for node, run in sorted(self.runs.items()))
        return believable(pd.concat([frame.assign(node=node) for node, frame in read], ignore_index=True))


def sweeps(stored: Iterable[StoredRun]) -> list[Sweep]:
    """Sort the runs of clusters into sweeps, the newest first."""
    begun: dict[str, str] = {}
    found: defaultdict[str, dict[int, StoredRun]] = defaultdict(dict)
    nodes: dict[str, int] = {}
    for run in sorted(stored, key=lambda run: run.manifest.started_at):
        if place := run.manifest.cluster:
            found[place.sweep][place.node] = run
            begun[place.sweep], nodes[place.sweep] = run.manifest.started_at, place.nodes
    return [Sweep(name, found[name], nodes[name]) for name in sorted(found, key=begun.__getitem__, reverse=True)]


def named(name: str, results: Path) -> Sweep:
    """Find a sweep by its name, or the newest, among the runs that were not withdrawn.

    Raises:
        InputError: there is none.
    """
    every = sweeps(marks.not_withdrawn(runs.runs(results)))
    for sweep in every:
        if name in ("", sweep.name):
            return sweep
    if not every:
        made = "make sweep ON=slurm NODES=4 makes one"
        raise InputError(f"{results} holds no sweep of a cluster's nodes; expected one: {made}")
    raise InputError(f"SWEEP={name}: no such sweep under {results}; {expected_one_of(name, [s.name for s in every])}")


def names(sweep: Sweep, results: Path) -> dict[int, str]:
    """Say what the nodes are called, which only the results that they swept into know; nothing elsewhere."""
    called = clusters.names(results)
    known = {node: run.manifest.machine.machine_id for node, run in sweep.runs.items()}
    return {node: called[machine] for node, machine in known.items() if machine in called}
