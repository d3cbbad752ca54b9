"""What all pages draw on: every run with its frames, read and estimated once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

import pandas as pd
from altair.utils.schemapi import debug_mode

from feedrate.analysis import ceilings, loader, noise, steps
from feedrate.analysis.crossfit import LEAST_BLOCKS
from feedrate.analysis.estimates import cells
from feedrate.analysis.storage import believable
from feedrate.charts.citation import Citation, Origin, data_hash, day
from feedrate.charts.embed import FILES, RASTER, citation_html, figure_csv, figure_html, specifications
from feedrate.charts.figure import Figure, charts_by_name
from feedrate.charts.render import picture, standalone
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import FOLDER, Placed
from feedrate.pages.tasks import headlines, of_machines
from feedrate.plan.suite import MAIN, for_machines
from feedrate.schema import words
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.store import marks
from feedrate.store import runs as store_runs
from feedrate.store.manifest import Tuned

ON_SAMPLES = ("suite", "block", "position", "outcome", "flags")
"""Columns of trials that stand beside every sample of the probes."""
ON_LISTS = ("grade", "headlines", "origin")
"""What home, machines and lists say of a run, too: a process that makes the run's page has worked it out anyway."""


class RunView:
    """A stored run with the frames that pages need, each read or estimated when a page first needs it."""

    def __init__(self, run: store_runs.StoredRun) -> None:
        self.run = run
        self.manifest = run.manifest
        self.slug = markup.slug(run.manifest.run_id)
        self.page = f"runs/{self.slug}.md"
        self._of_suites: dict[str, pd.DataFrame] = {}
        self._headlines_of: dict[str, pd.DataFrame] = {}

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Rows of ``columns.TRIALS``; lists of all runs need the manifests alone."""
        return self.run.table("trials")

    @cached_property
    def beside(self) -> marks.Beside:
        """Who vouches for the run, what its submitter calls it, whether it was withdrawn."""
        return marks.about(self.run.folder)

    @property
    def machine_id(self) -> str:
        """The machine's readable id."""
        return self.manifest.machine.machine_id

    @property
    def where(self) -> tuple[str, str]:
        """Machine and device: of each one run speaks, and neither device of a machine for the other."""
        return self.machine_id, self.manifest.device

    @property
    def name(self) -> str:
        """Where the run was made, for people: the machine, with the device where that does not follow from it."""
        return descriptions.on(self.manifest.machine, self.manifest.device)

    @property
    def mark(self) -> str:
        """Tells machine and device apart in ids and names of files: the machine's slug, with the CPU as ``name``."""
        idle = descriptions.gpu_idle(self.manifest.machine, self.manifest.device)
        return markup.slug(self.machine_id) + ("-cpu" if idle else "")

    @property
    def failed(self) -> int:
        """How many trials did not end well."""
        return sum(count for outcome, count in self.manifest.outcomes.items() if outcome != "ok")

    @property
    def cores(self) -> float:
        """Cores that the machine lets a run use: its own, or what a quota leaves of them."""
        machine = self.manifest.machine
        return min(machine.cores_logical, machine.cpu_quota_cores or machine.cores_logical)

    @property
    def cores_logical(self) -> int:
        """Cores whose busy share the probes see: a quota takes none of them away."""
        return self.manifest.machine.cores_logical

    @cached_property
    def origin(self) -> Origin:
        """Where a figure of this run comes from, as citations say it."""
        run = self.manifest
        # One that was interrupted counts, too: settings that it reached have that many.
        basis = f"up to {words.plural(self.trials['block'].nunique(), 'repetition')}"
        return Origin((self.name,), (run.run_id,), day(run.started_at), (run.feedrate_version,), basis)

    @property
    def tuned(self) -> Tuned | None:
        """What a search among the settings of a script's loader found; None of other runs."""
        return self.manifest.search

    @cached_property
    def suites(self) -> list[str]:
        """Suites that trials of the run were made for, in order of their name."""
        return self.run.suites()

    @property
    def for_machines(self) -> bool:
        """Whether a suite of the run asks which settings suit a machine, and not about claims or feedrate alone."""
        return any(map(for_machines, self.suites))

    @property
    def cells(self) -> pd.DataFrame:
        """Estimates of every cell."""
        return cells(believable(self.trials))

    @property
    def judged(self) -> pd.DataFrame:
        """Estimates of every cell with its ceilings and what holds it back."""
        return ceilings.cells_with_ceilings(believable(self.trials))

    @property
    def telemetry(self) -> pd.DataFrame:
        """Samples of the probes, each with what ``ON_SAMPLES`` names of the trial that was running."""
        of_trials = self.trials[["trial_id", *ON_SAMPLES]]
        return self.run.table("telemetry").merge(of_trials, on="trial_id", how="inner")

    def trials_of(self, suite: str) -> pd.DataFrame:
        """Rows of ``trials`` that were made for a suite: always the same frame, of which much is worked out."""
        if suite not in self._of_suites:
            rows = self.trials["suite"].eq(suite).fillna(False)
            self._of_suites[suite] = self.trials if rows.all() else self.trials[rows]
        return self._of_suites[suite]

    def steps_of(self, trials: pd.DataFrame) -> pd.DataFrame:
        """Recorded steps of some trials, beside what the trials are: those of a search before and after it."""
        tuned = self.tuned
        chosen = steps.select_trials(trials, [tuned.present, tuned.recommended] if tuned and tuned.present else ())
        return steps.join_steps(chosen, self.run.table("steps", chosen["trial_id"]))

    @cached_property
    def stages(self) -> pd.DataFrame:
        """What each cell's loader spends its time on."""
        return loader.stages(self.trials)

    @cached_property
    def overlap(self) -> pd.DataFrame:
        """How much of loading and copying each training cell hides."""
        return loader.overlap(self.trials)

    @cached_property
    def grade(self) -> noise.Grade:
        """How far the run can be trusted."""
        return noise.grade(self.trials, self.manifest.control)

    @cached_property
    def headlines(self) -> pd.DataFrame:
        """The best cell of each task."""
        return headlines(believable(self.trials), of_machines(self.judged))

    def headlines_of(self, suite: str) -> pd.DataFrame:
        """The best cell of each task of one suite; its ceilings may be cells of another."""
        if suite not in self._headlines_of:
            cells = self.judged[self.judged["suite"].eq(suite).fillna(False)]
            self._headlines_of[suite] = headlines(believable(self.trials), cells)
        return self._headlines_of[suite]

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as a reference: frames are read and estimated where they are needed."""
        state = dict(vars(self))  # another thread sends while this one works out more
        return _received, (self.run, {name: state[name] for name in ON_LISTS if name in state})


_from_others: dict[Path, RunView] = {}
"""Runs that came to this process from another: what is worked out of one for a page serves the next."""


def adopt(views: Sequence[RunView]) -> None:
    """Let what comes from elsewhere speak of these runs, and not of copies."""
    _from_others.update({view.run.folder: view for view in views})


def _received(run: store_runs.StoredRun, state: Mapping[str, Any]) -> RunView:
    view = _from_others.setdefault(run.folder, RunView(run))
    vars(view).update(state)
    return view


def load_runs(results: Path, only: Collection[Path] | None = None) -> list[RunView]:
    """Read all runs, or those of some folders alone, newest first."""
    views = [RunView(run) for run in store_runs.runs(results, only)]
    return sorted(views, key=lambda view: (view.manifest.started_at, view.manifest.run_id), reverse=True)


def _standing(view: RunView) -> tuple[bool, ...]:
    """Least of the runs that speak first."""
    quick, short = view.manifest.profile == "quick", view.manifest.blocks < LEAST_BLOCKS
    return MAIN not in view.suites, view.beside.tier != marks.REFERENCE, short, quick


def ranked(runs: Sequence[RunView]) -> list[RunView]:
    """Order runs, newest first, by how much each has to say of its machine.

    First is one of the main suite; then a reference run, one with the repetitions that a gain takes, a longer profile
    than the quick one, a better grade, and last the newest.
    """
    return sorted(runs, key=lambda view: (*_standing(view), view.grade.letter))


def leading(runs: Sequence[RunView]) -> list[RunView]:
    """Keep the run of each machine and device that is :func:`ranked` first, both devices side by side."""
    machines: dict[str, dict[str, list[RunView]]] = {}
    for view in sorted(runs, key=_standing):
        tied = machines.setdefault(view.machine_id, {}).setdefault(view.manifest.device, [])
        if not tied or _standing(tied[0]) == _standing(view):
            tied.append(view)
    candidates = [tied for devices in machines.values() for tied in devices.values()]
    return [ranked(tied)[0] if len(tied) > 1 else tied[0] for tied in candidates]  # grades take long to work out


def draw(chart: str, view: RunView, suite: str | None = None) -> Figure:
    """Draw the chart of a name of one run; with a suite, of what was measured for that alone."""
    if chart not in charts_by_name():
        raise InputError(f"charts: unknown name '{chart}'; {expected_one_of(chart, charts_by_name())}")
    drawing = charts_by_name()[chart]
    if drawing.reads in ("trials", "steps"):
        frame = view.trials if suite is None else view.trials_of(suite)
        frame = view.steps_of(frame) if drawing.reads == "steps" else frame
    else:
        frame = getattr(view, drawing.reads)
        frame = frame if suite is None else frame[frame["suite"].eq(suite).fillna(False)]
    takes = signature(drawing.fill).parameters
    more = {name: getattr(view, name) for name in ("cores", "cores_logical", "tuned") if name in takes}
    # Altair would hold every part of a chart against its schema, over and again; the tests of charts let it.
    with debug_mode(False):
        return drawing.draw(frame, **more)


def place(figure: Figure, name: str, page: str, origin: Origin, *, raster: bool = True) -> Placed:
    """Make a figure ready for a page, with its citation and the files that it can be downloaded as.

    Links and citations call it by its name, which is unique on the site and safe in an id. Without ``raster`` PNG and
    PDF are no downloads.
    """
    if not figure.panels:
        return Placed(name, figure_html(figure, name, ""))
    up, table = "../" * page.count("/"), figure_csv(figure)
    citation = Citation(name, figure.title, origin, data_hash(table), f"{page.removesuffix('.md')}.html#{name}")
    # What a picture says of itself when it has left the site.
    *facts, version = origin.facts()
    basis = [origin.basis] if origin.basis else []
    caption = f"{'; '.join([*facts, *basis])}\n{version}; figure {name}; data sha256 {citation.data_hash}"
    files = {
        f"data/{name}.csv": table,
        f"{FOLDER}/{name}.svg": picture(figure, caption),
        f"{FOLDER}/{name}.vl.json": json.dumps(standalone(figure), separators=(",", ":"), sort_keys=True) + "\n",
    }
    kinds = {kind: end for kind, end in FILES.items() if raster or end not in RASTER}
    places = {kind: f"{FOLDER}/{name}.{end}" for kind, end in kinds.items()} | {"CSV": f"data/{name}.csv"}
    cite = citation_html(citation, {kind: up + path for kind, path in places.items()})
    html = figure_html(figure, name, up + places["CSV"], cite)
    return Placed(name, html, files, citation, specifications(figure, name), raster)
