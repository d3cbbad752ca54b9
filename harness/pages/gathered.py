"""What all pages draw on: every run with its frames, read and estimated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from harness import registry, store
from harness.analysis import ceilings, loading, noise, variance
from harness.charts._embed import figure_csv, figure_html
from harness.charts._estimates import estimated
from harness.charts._figure import Figure
from harness.pages import markup
from harness.pages.headlines import headlines
from harness.suite import for_machines


class Shown:
    """A stored run with the frames that pages need."""

    def __init__(self, run: store.StoredRun) -> None:
        self.run = run
        self.manifest = run.manifest
        self.trials = run.table("trials")
        self.slug = markup.slug(run.manifest.run_id)
        self.page = f"runs/{self.slug}.md"

    @property
    def machine_id(self) -> str:
        """The machine's readable id."""
        return self.manifest.machine.machine_id

    @property
    def suites(self) -> list[str]:
        """Suites that trials of the run were made for, in order of their name."""
        return sorted(str(name) for name in self.trials["suite"].dropna().unique())

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Estimates of every cell."""
        return estimated(self.trials)

    @cached_property
    def judged(self) -> pd.DataFrame:
        """Estimates of every cell with its ceilings and what holds it back."""
        return ceilings.judged(self.trials)

    @cached_property
    def stages(self) -> pd.DataFrame:
        """What each cell's loader spends its time on."""
        return loading.stages(self.trials, self.judged)

    @cached_property
    def overlap(self) -> pd.DataFrame:
        """How much of loading and copying each training cell hides."""
        return loading.overlap(self.trials, self.judged)

    @cached_property
    def grade(self) -> noise.Grade:
        """How far the run can be trusted."""
        return noise.grade(self.trials, self.manifest.control)

    @cached_property
    def spread(self) -> dict[Any, Any] | None:
        """Where the spread between the run's trials comes from (``variance.overall``); None where too few ran."""
        target = self.manifest.protocol.ci_target_pct
        parts = variance.split(self.trials, target)
        found = variance.overall(parts[parts["n"] > 1], target)
        return next(iter(found.to_dict("records")), None)

    @cached_property
    def headlines(self) -> pd.DataFrame:
        """The best cell of each task."""
        return headlines(self.trials, self.judged[self.judged["suite"].astype(str).map(for_machines)])

    @property
    def asks(self) -> bool:
        """Whether the run asks which settings suit its machine, and not about claims or feedrate alone."""
        return any(map(for_machines, self.suites))

    def answers(self, suite: str) -> pd.DataFrame:
        """The best cell of each task of one suite; its ceilings may be cells of another."""
        return headlines(self.trials, self.judged[self.judged["suite"].eq(suite).fillna(False)])


def gather(results: Path) -> list[Shown]:
    """Read all runs, newest first."""
    found = [Shown(run) for run in store.runs(results)]
    return sorted(found, key=lambda shown: (shown.manifest.started_at, shown.manifest.run_id), reverse=True)


def newest(runs: Sequence[Shown]) -> list[Shown]:
    """Keep the newest run of each machine; ``runs`` come newest first."""
    first: dict[str, Shown] = {}
    for shown in runs:
        first.setdefault(shown.machine_id, shown)
    return list(first.values())


def draw(chart: str, shown: Shown, suite: str | None = None) -> Figure:
    """Draw one chart of a run.

    Args:
        chart: its name; the chart's ``READS`` says whether it takes the run's cells or its trials.
        shown: the run.
        suite: only what this suite asked for.
    """
    drawing = registry.load("harness.charts", chart)
    frame = shown.trials if getattr(drawing, "READS", "cells") == "trials" else shown.cells
    figure: Figure = drawing.draw(frame if suite is None else frame[frame["suite"].eq(suite).fillna(False)])
    return figure


@dataclass(frozen=True, slots=True)
class Placed:
    """A figure where a page shows it."""

    name: str
    html: str
    csv_path: str
    csv: str


def place(figure: Figure, name: str, page: str) -> Placed:
    """Make a figure ready for a page, its data as a file of its own beside it."""
    up = "../" * page.count("/")
    path = f"data/{name}.csv"
    return Placed(name, figure_html(figure, name, up + path), path, figure_csv(figure))
