"""The short pages and the lists of a site that has too many runs to show all of them in full.

A short page has what a run says of itself, the best setting of each of its tasks, and its raw files. A grade, charts
and what holds a setting back take a look at each run by itself, which ten thousand runs do not get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis import summary
from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.charts.figure import EMULATED, LOAD, TRAIN
from feedrate.pages import descriptions, markup, processes, selection
from feedrate.pages.headlines import NUMBERS, task_cell
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.pages.selection import Selection
from feedrate.pages.template import render, table
from feedrate.questions.claims import page as claims_page
from feedrate.questions.home import page as home_page
from feedrate.questions.machines import page as machines_page
from feedrate.questions.reference import page as reference_page
from feedrate.questions.runs import facts as runs_facts
from feedrate.questions.runs import page as runs_page
from feedrate.questions.runs.facts import runs_table
from feedrate.schema import words
from feedrate.site.publish import Published, put
from feedrate.store.runs import StoredRun

HIDE = ("navigation", "toc")
FIRST = "top"
"""Id of a short page's first heading."""
ROWS = 1_000
"""Of a list's page."""
_READ = ("run_id", *AXIS_NAMES, "samples_per_s", "samples_per_s_lo", "samples_per_s_hi", "n")
Row = Mapping[Any, Any]
"""A row of ``analysis.summary.best``."""


def placeholders(everyone: Selection) -> list[Page]:
    """Give an empty page of the kind of all short ones; none where every run is shown in full."""
    return [Page("runs/empty.md", "", "", listed=False, hide=HIDE)] if everyone.brief else []


def run_page(view: RunView, best: Sequence[Row]) -> Page:
    """Write a run's short page as HTML; it copies the run's files beside it."""
    run = view.manifest
    machine = {"Machine": markup.link(view.page, view.machine_page, view.name)}
    body = render(
        "runs/brief.html",
        first=FIRST,
        run=run,
        summary=runs_facts.beside(view) | machine | runs_facts.short(view),
        best=_best_settings(best),
        downloads=runs_facts.downloads(view),
        detailed=selection.DETAILED,
    )
    return Page(view.page, f"Run {run.run_id}", body, files=runs_facts.files(view), listed=False, hide=HIDE)


def machine_page(own: Sequence[RunView], best: Sequence[Sequence[Row]]) -> Page:
    """Write the short page of a machine as HTML."""
    path, name = own[0].machine_page, _name(own)
    newest, rows = next(((view, rows) for view, rows in zip(own, best, strict=True) if rows), (None, ()))
    body = render(
        "machines/brief.html",
        page=path,
        first=FIRST,
        name=name,
        summary=machines_page.facts(own),
        run_id=newest.manifest.run_id if newest else "",
        best=_best_settings(rows),
        runs=_runs(own, path),
        index=machines_page.INDEX,
    )
    return Page(path, name, body, listed=False, hide=HIDE)


def _best_settings(best: Sequence[Row]) -> Markup:
    """The best setting of each task, real training first; nothing without any."""
    rows = [
        {**row, "kind": LOAD if row["mode"] == LOAD else EMULATED if row["step"] == EMULATED else TRAIN} for row in best
    ]
    lines = [
        (
            task_cell(row),
            descriptions.knobs(row),
            words.number(float(row["samples_per_s"])),
            descriptions.spread(float(row["samples_per_s_lo"]), float(row["samples_per_s_hi"])),
            row["n"],
        )
        for row in sorted(rows, key=lambda row: (TRAIN, EMULATED, LOAD).index(row["kind"]))
    ]
    columns = ("What ran", "Best setting", *NUMBERS)
    return table("The best setting of each task", columns, lines, NUMBERS, stack=True) if lines else Markup()


def _runs(runs: Sequence[RunView], path: str) -> Markup:
    return runs_table("Runs", runs, path, ("Run", "Tier", "Machine", "Date", "Suites"))


def lists(everyone: Selection) -> Iterator[Page]:
    """List all runs and all machines, so many a page, as HTML; nothing where every run is shown in full."""
    if not everyone.brief:
        return
    for number, runs in enumerate(_parts_of(everyone.every), 1):
        path = _list_path("runs", number)
        yield _list("All runs, newest first", path, _runs(runs, path), _numbers(path, everyone, "runs", number))
    by_name = sorted(everyone.machines.values(), key=lambda own: (_name(own), own[0].machine_id))
    for number, machines in enumerate(_parts_of(by_name), 1):
        path = _list_path("machines", number)
        listing = _machines_table(machines, path)
        yield _list("All machines, by name", path, listing, _numbers(path, everyone, "machines", number))


def _name(own: Sequence[RunView]) -> str:
    return descriptions.name_of(own[0].manifest.machine)


def _parts_of(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + ROWS] for at in range(0, len(items), ROWS)]


def _list_path(what: str, number: int) -> str:
    return f"{what}/all-{number}.md"


def _list(title: str, path: str, listing: Markup, numbers: Markup) -> Page:
    body = Markup('<h1 id="{}">{}</h1>\n{}{}{}').format(FIRST, title, numbers, listing, numbers)
    return Page(path, title, body, listed=False, hide=HIDE)


def _numbers(page: str, everyone: Selection, what: str, here: int = 0) -> Markup:
    """Link the pages of a list."""
    count = len(everyone.every) if what == "runs" else len(everyone.machines)
    links = [
        Markup("<strong>{}</strong>").format(number)
        if number == here
        else markup.link(page, _list_path(what, number), str(number))
        for number in range(1, (count + ROWS - 1) // ROWS + 1)
    ]
    each = f", {ROWS:,} a page" if len(links) > 1 else ""
    text = '<p class="fr-note">All {:,} {}{}: {}</p>\n'
    return Markup(text).format(count, what, each, Markup(" ").join(links))  # noqa: S704 - a constant


def _machines_table(groups: Sequence[Sequence[RunView]], path: str) -> Markup:
    rows = [
        (
            markup.link(path, own[0].machine_page, _name(own)),
            machines_page.devices(own),
            machines_page.memory(own[0].manifest.machine),
            len(own),
            descriptions.day(own[0].manifest.started_at),
            runs_facts.tiers(path, own),
        )
        for own in groups
    ]
    columns = ("Machine", "Device", "Memory", "Runs", "Last measured", "Tier")
    return table("Machines", columns, rows, ("Runs",), stack=True)


def with_notes(page: Page, everyone: Selection) -> Page:
    """Say on a page that it does not show everything, and where the rest is; nothing where everything is shown."""
    gone = runs_page.withdrawn_list(page.path, everyone.withdrawn) if page.path == reference_page.RUNS else ""
    notes = "\n\n".join(filter(None, (_left_out(page, everyone), gone)))
    return replace(page, body=f"{page.body}\n\n{notes}") if notes else page


def _left_out(page: Page, everyone: Selection) -> str:
    kind = page.path.partition("/")[0]
    if kind in (home_page.PATH, claims_page.PATH, "suites"):
        return _machines_left_out(page, everyone, selection.CHARTED if kind == "suites" else selection.MACHINES)
    if not everyone.brief:
        return ""
    if page.path == reference_page.PATH:
        return _numbers(page.path, everyone, "runs") if len(everyone.every) > ROWS else ""
    if page.path in (reference_page.RUNS, machines_page.INDEX):
        of = "" if page.path == reference_page.RUNS else "the machines of "
        text = (
            f"Listed are {of}the {len(everyone.detailed):,} runs with a full page: the newest, and those that suites, "
            "claims and the page of the experiment draw on. All others have a short page."
        )
        return markup.paragraph(text, "fr-note") + _numbers(page.path, everyone, kind)
    if kind == "machines":
        own = [view for view in everyone.brief if view.machine_page == page.path]
        return f'<h2 id="older">Older runs</h2>\n{_runs(own, page.path)}' if own else ""
    return ""


def _machines_left_out(page: Page, everyone: Selection, most: int) -> str:
    if len(everyone.machines) <= most:
        return ""
    where = _list_path("machines", 1) if everyone.brief else machines_page.INDEX
    link = markup.link(page.path, where, f"All {len(everyone.machines):,} machines")
    return f'<p class="fr-note">Only the {most} machines that were measured last are shown. {link}</p>\n'


_PART = 250
"""Machines whose pages are written together."""
_ALONE = 2
"""With more parts than these, further processes are worth their start."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one call of a process writes."""

    made: Published
    machines: Sequence[tuple[bool, Sequence[StoredRun]]]
    """Of each machine whether its own page is short too, and its runs whose pages are, newest first."""
    best: pd.DataFrame


def write(made: Published, everyone: Selection) -> None:
    """Add the pages of every run and machine that is not shown in full, and the lists of all."""
    if not everyone.brief:
        return
    for page in lists(everyone):
        _write(made, page)
    parts = list(_parts(made, everyone))
    if len(parts) <= _ALONE:
        list(map(_write_part, parts))
        return
    with processes.start_pool() as pool:
        list(pool.map(_write_part, parts))


def _parts(made: Published, everyone: Selection) -> Iterator[_Part]:
    best = summary.fastest_cells(everyone.cells)
    rows = best.groupby("run_id", sort=False).indices
    short = {view.page for view in everyone.brief}
    groups = [(own, [view for view in own if view.page in short]) for own in everyone.machines.values()]
    wanted = [(len(few) == len(own), [view.run for view in few]) for own, few in groups if few]
    for at in range(0, len(wanted), _PART):
        part = wanted[at : at + _PART]
        places = [place for _, runs in part for run in runs for place in rows.get(run.manifest.run_id, ())]
        yield _Part(made, part, best.iloc[places])


def _write_part(part: _Part) -> None:
    by_run: dict[str, list[Row]] = {}
    for row in rows_of(part.best[list(_READ)]):
        by_run.setdefault(str(row["run_id"]), []).append(row)
    for alone, runs in part.machines:
        view = [RunView(run) for run in runs]
        best = [by_run.get(each.manifest.run_id, []) for each in view]
        for each, rows in zip(view, best, strict=True):
            _write(part.made, run_page(each, rows))
        if alone:
            _write(part.made, machine_page(view, best))


def _write(made: Published, page: Page) -> None:
    html = made.frames.fill(page, made.plain._replace(html=page.body, first=FIRST))
    put((made.folder / page.path).with_suffix(".html"), html)
    for name, content in page.files.items():
        put(made.folder / name, content)
