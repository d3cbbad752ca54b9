"""The short pages and the lists of a site that has too many runs to show all of them in full.

A short page has what a run says of itself, the best setting of each of its tasks, and its raw files. A grade, charts
and what holds a setting back take a look at each run by itself, which ten thousand runs do not get.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup

from feedrate.analysis import summary
from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.pages import descriptions, markup, processes, selection
from feedrate.pages.headlines import BEST, NUMBERS, setting_cells
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.pages.selection import Selection
from feedrate.pages.tasks import KINDS, kind_of
from feedrate.pages.template import render, table
from feedrate.questions.claims import page as claims_page
from feedrate.questions.home import page as home_page
from feedrate.questions.machines import page as machines_page
from feedrate.questions.reference import page as reference_page
from feedrate.questions.runs import facts as runs_facts
from feedrate.questions.runs import page as runs_page
from feedrate.questions.runs.facts import runs_table
from feedrate.schema.axes import SCRIPT
from feedrate.site.publish import Published

HIDE = ("navigation", "toc")
FIRST = "top"
"""Id of a short page's first heading."""
ROWS = 1_000
"""Of a list's page."""
_PART = 250
"""Machines whose pages are written together."""
_RATE = {"samples_per_s": "samples_per_s", "samples_per_s_lo": "lo", "samples_per_s_hi": "hi"}
Short = tuple[RunView, Sequence[Mapping[Any, Any]]]
"""A run whose page is short, and the best setting of each of its tasks: rows of ``analysis.summary.fastest_cells``."""


def placeholders(everyone: Selection) -> list[Page]:
    """Give an empty page of the kind of all short ones; none where every run is shown in full."""
    return [Page("runs/empty.md", "", "", listed=False, hide=HIDE)] if everyone.brief else []


def write(made: Published, everyone: Selection) -> None:
    """Add the pages of every run and machine that is not shown in full, and the lists of all."""
    if not everyone.brief:
        return
    for page in lists(everyone):
        _put(made, page)
    best = defaultdict(list)
    columns = ["run_id", *AXIS_NAMES, *_RATE, "n"]
    asked = everyone.cells[everyone.cells["workload"].ne(SCRIPT)]
    for row in rows_of(summary.fastest_cells(asked)[columns].rename(columns=_RATE)):
        best[str(row["run_id"])].append({**row, "kind": kind_of(row)})
    short = {view.page for view in everyone.brief}
    owned = everyone.machines.values()
    runs = [[(view, best[view.manifest.run_id]) for view in own if view.page in short] for own in owned]
    machines = [(few, len(few) == len(own)) for few, own in zip(runs, owned, strict=True) if few]
    processes.in_parts(partial(_put_machines, made), machines, _PART)


def _put_machines(made: Published, machines: Sequence[tuple[Sequence[Short], bool]]) -> None:
    """Write the short pages of some machines' runs, and the machine's own where it is short too."""
    for runs, alone in machines:
        for view, best in runs:
            _put(made, run_page(view, best))
        if alone:
            _put(made, machine_page(runs))


def _put(made: Published, page: Page) -> None:
    made.put(page, page.body, FIRST)


def run_page(view: RunView, best: Sequence[Mapping[Any, Any]]) -> Page:
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


def machine_page(runs: Sequence[Short]) -> Page:
    """Write the short page of a machine as HTML, from its runs, newest first."""
    own = [view for view, _ in runs]
    path, name = own[0].machine_page, _name(own)
    newest = next(((view, best) for view, best in runs if best), None)
    body = render(
        "machines/brief.html",
        page=path,
        first=FIRST,
        name=name,
        summary=machines_page.facts(own),
        run_id=newest[0].manifest.run_id if newest else "",
        best=_best_settings(newest[1] if newest else ()),
        runs=_runs(own, path),
        index=machines_page.INDEX,
    )
    return Page(path, name, body, listed=False, hide=HIDE)


def _best_settings(best: Sequence[Mapping[Any, Any]]) -> Markup:
    """The best setting of each task, real training first; nothing without any."""
    lines = map(setting_cells, sorted(best, key=lambda row: KINDS.index(row["kind"])))
    return table("The best setting of each task", BEST, lines, NUMBERS, stack=True) if best else Markup()


def _name(own: Sequence[RunView]) -> str:
    return descriptions.name_of(own[0].manifest.machine)


def _runs(runs: Sequence[RunView], path: str) -> Markup:
    return runs_table("Runs", runs, path, ("Run", "Tier", "Machine", "Date", "Suites"))


def lists(everyone: Selection) -> Iterator[Page]:
    """List all runs and all machines, ``ROWS`` a page, as HTML."""
    by_name = sorted(everyone.machines.values(), key=lambda own: (_name(own), own[0].machine_id))
    kinds: Sequence[tuple[str, str, Sequence[Any], Callable[[Any, str], Markup]]] = (
        ("runs", "newest first", everyone.every, _runs),
        ("machines", "by name", by_name, _machines_table),
    )
    for what, order, items, listing in kinds:
        for number, at in enumerate(range(0, len(items), ROWS), 1):
            path, title = _list_path(what, number), f"All {what}, {order}"
            numbers = _numbers(path, everyone, what, number)
            text = Markup('<h1 id="{}">{}</h1>\n{}{}{}')
            body = text.format(FIRST, title, numbers, listing(items[at : at + ROWS], path), numbers)
            yield Page(path, title, body, listed=False, hide=HIDE)


def _list_path(what: str, number: int) -> str:
    return f"{what}/all-{number}.md"


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
