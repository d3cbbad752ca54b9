"""The sweeps of a cluster among stored runs: which node measured what, and the page of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import AXIS_NAMES
from feedrate.analysis.machines import CELL, SAME_IN_BOTH
from feedrate.analysis.storage import PROVING, believable
from feedrate.charts.citation import together
from feedrate.charts.figure import Figure
from feedrate.pages import markup
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView, place
from feedrate.pages.template import render
from feedrate.questions.compare.analysis import STAGES
from feedrate.schema import words
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.store import marks, runs
from feedrate.store.runs import StoredRun

_COLUMNS = dict.fromkeys(
    (
        *("run_id", *CELL, *SAME_IN_BOTH, "block", "outcome", "samples_per_s", "mode", "step", "page_cache"),
        *("storage_format", "num_workers", *PROVING, *(stage.column for stage in STAGES if stage.column)),
    )
)
"""Of trials: what is asked of many nodes fits into memory."""
_OF_CELLS = dict.fromkeys(("run_id", *CELL, *AXIS_NAMES, "block", "role", "suite", "outcome", "samples_per_s"))
"""Of trials: what tells every cell from all others, and its throughput."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What the nodes of a cluster measured at once."""

    name: str
    runs: dict[int, StoredRun]
    """Number of a node to its newest run."""
    nodes: int
    """How many nodes swept."""
    together: bool = False
    """Whether they ran each trial at the same moment."""

    @property
    def size(self) -> str:
        """How many nodes swept; of a store that is not shown whole, or with withdrawn runs, those with a run here."""
        whole = words.plural(self.nodes, "node")
        return whole if len(self.runs) == self.nodes else f"{len(self.runs)} of {whole} (the others have no run here)"

    def trials(self) -> pd.DataFrame:
        """Read what is compared of all nodes' trials, with ``node``, in order of the nodes.

        Raises:
            InputError: a file is not one that feedrate wrote, or changed since.
        """
        read = ((node, runs.rows([run.folder], list(_COLUMNS))) for node, run in sorted(self.runs.items()))
        return believable(pd.concat([frame.assign(node=node) for node, frame in read], ignore_index=True))

    def joined(self) -> pd.DataFrame:
        """Read the trials of all nodes as if they were one run's, called like the sweep.

        A trial of several nodes counts where all of them measured it: fewer had a storage with less to do.

        Raises:
            InputError: a file is not one that feedrate wrote, or changed since.
        """
        rows = runs.rows([run.folder for run in self.runs.values()], list(_OF_CELLS)).assign(run_id=self.name)
        took_part = rows["outcome"].eq("ok").groupby([rows["cell_id"], rows["block"]]).transform("sum")
        return rows[took_part >= rows["nodes"].fillna(1)]


def sweeps(stored: Iterable[StoredRun]) -> list[Sweep]:
    """Sort the runs of clusters into sweeps, the newest first."""
    by_name: dict[str, Sweep] = {}
    for run in sorted(stored, key=lambda run: run.manifest.started_at, reverse=True):
        if member := run.manifest.cluster:
            sweep = by_name.setdefault(member.sweep, Sweep(member.sweep, {}, member.nodes, member.together))
            sweep.runs.setdefault(member.node, run)
    return list(by_name.values())


def newest(every: Iterable[RunView], *, together: bool) -> tuple[Sweep, dict[int, RunView]] | None:
    """Find the newest sweep of some runs, of nodes together or each by itself, and its run by node; None: no sweep."""
    views = {view.run.folder: view for view in every}
    sweep = next((one for one in sweeps(view.run for view in views.values()) if one.together == together), None)
    return (sweep, {node: views[run.folder] for node, run in sorted(sweep.runs.items())}) if sweep else None


def page(
    path: str, title: str, sweep: Sweep, node_views: Mapping[int, RunView], figure: Figure, nodes: int, **values: Any
) -> Page:
    """Write the page of a sweep with its figure, which tells of so many nodes and is called like the page's path.

    The template in the question's folder has the ``values``, the sweep, its day and links to the runs of its nodes.
    """
    name, views = path.removesuffix(".md"), list(node_views.values())
    blocks = words.plural(max(view.manifest.blocks for view in views), "repetition")
    origin = replace(together(view.origin for view in views), basis=f"{words.plural(nodes, 'node')}, up to {blocks}")
    links = [markup.link(path, view.page, f"node {node}") for node, view in node_views.items()]
    began = views[0].manifest.started_at
    body = render(f"{name}/page.md", title=title, sweep=sweep, began=began, links=links, **values)
    return Page(path, title, body, {name: place(figure, name, path, origin)})


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
        made = "feedrate sweep --on slurm --nodes 4 makes one"
        raise InputError(f"{results} holds no sweep of a cluster's nodes; expected one: {made}")
    raise InputError(f"SWEEP {name}: no such sweep under {results}; {expected_one_of(name, [s.name for s in every])}")
