"""Writes the short pages and the lists of a site that has too many runs to show all of them in full.

Short pages of the runs and machines that are not featured, lists of all of them, and what other pages say of that.

A short page has what a run says of itself, the best setting of each of its tasks, and its raw files. A grade, charts
and what holds a setting back take a look at each run by itself, which ten thousand runs do not get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import pandas as pd

from feedrate.analysis import summary
from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.charts.figure import EMULATED, LOAD, TRAIN
from feedrate.pages import descriptions, markup, processes, selection
from feedrate.pages.headlines import task_cell
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.pages.selection import Selection
from feedrate.questions.claims import page as claims_page
from feedrate.questions.home import page as home_page
from feedrate.questions.machines import page as machines_page
from feedrate.questions.reference import page as reference_page
from feedrate.questions.runs import facts as runs_facts
from feedrate.questions.runs import withdrawn
from feedrate.questions.runs.facts import runs_table
from feedrate.questions.runs.page import FILES, downloads
from feedrate.schema import words
from feedrate.site.publish import Published, put
from feedrate.store.runs import StoredRun

HIDE = ("navigation", "toc")
FIRST = "top"
"""Id of a short page's first heading."""
ROWS = 1_000
"""Of a list's page."""
_ORDER = (TRAIN, EMULATED, LOAD)
_READ = ("run_id", *AXIS_NAMES, "samples_per_s", "samples_per_s_lo", "samples_per_s_hi", "n")
Row = Mapping[Any, Any]
"""A row of ``briefly.best``."""
_COLUMNS = ("What ran", "Best setting", "Samples/s", "95 % interval", "n")
_PICKED = (
    "n counts blocks. The best of many settings is picked by its own estimate, so that estimate is a little too good."
)


def likes(everyone: Selection) -> list[Page]:
    """Give an empty page of the kind of all short ones; none where every run is shown in full."""
    return [Page("runs/empty.md", "", "", listed=False, hide=HIDE)] if everyone.brief else []


def best_by_run(best: pd.DataFrame) -> dict[str, list[Row]]:
    """Take the rows of ``briefly.best`` apart: run_id to what its page says of its best settings."""
    found: dict[str, list[Row]] = {}
    for row in rows_of(best[list(_READ)]):
        found.setdefault(str(row["run_id"]), []).append(row)
    return found


def run_page(shown: RunView, best: Sequence[Row]) -> Page:
    """Write a run's short page as HTML; it copies the run's files beside it."""
    run = shown.manifest
    there = {name: shown.run.folder / name for name in FILES if (shown.run.folder / name).is_file()}
    files = {f"runs/{shown.slug}/{name}": path for name, path in there.items()}
    machine = ("Machine", markup.link(shown.page, shown.machine_page, shown.name))
    body = [
        _opened("Run", run.run_id),
        markup.facts([*runs_facts.beside(shown), machine, *runs_facts.short(shown)]),
        *_section("Best settings", "best", _table(best)),
        *_section("What to know", "know", "".join(map(markup.paragraph, run.substitutions))),
        *_section("Files", "files", downloads(shown, files)),
        markup.paragraph(
            "This page is short: a grade, charts and what holds each setting back are worked out for the "
            f"{selection.DETAILED} newest runs and for those that suites, claims and the page of the experiment speak "
            "of. With this run’s folder alone under results/, make site works them out for it.",
            "fr-note",
        ),
    ]
    return Page(shown.page, f"Run {run.run_id}", "\n".join(body), files=files, listed=False, hide=HIDE)


def machine_page(own: Sequence[RunView], best: Sequence[Sequence[Row]]) -> Page:
    """Write the short page of a machine as HTML."""
    path, name = own[0].machine_page, descriptions.machine_name(own[0].run)
    told = next(((shown, rows) for shown, rows in zip(own, best, strict=True) if rows), None)
    body = [
        _opened("Machine", name),
        markup.facts(machines_page.facts(own)),
        *(_section(f"Best settings of run {told[0].manifest.run_id}", "best", _table(told[1])) if told else []),
        *_section("Runs", "runs", _runs(own, path)),
        f'<p class="fr-note">{markup.link(path, machines_page.INDEX, "All machines")}</p>\n',
    ]
    return Page(path, name, "\n".join(body), listed=False, hide=HIDE)


def _runs(runs: Sequence[RunView], path: str) -> str:
    return runs_table("Runs", runs, path, ("Run", "Tier", "Machine", "Date", "Suites"))


def lists(everyone: Selection) -> Iterator[Page]:
    """List all runs and all machines, so many a page, as HTML; nothing where every run is shown in full."""
    if not everyone.brief:
        return
    for number, part in enumerate(_list_parts(everyone.every), 1):
        path = _list_path("runs", number)
        yield _list("All runs, newest first", path, _runs(part, path), _numbers(path, everyone, "runs", number))
    own = sorted(everyone.machines.values(), key=lambda runs: (_name(runs), runs[0].machine_id))
    for number, group in enumerate(_list_parts(own), 1):
        path = _list_path("machines", number)
        table = _machines_table(group, path)
        yield _list("All machines, by name", path, table, _numbers(path, everyone, "machines", number))


def _list_parts(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + ROWS] for at in range(0, len(items), ROWS)]


def _list_path(what: str, number: int) -> str:
    return f"{what}/all-{number}.md"


def _list(title: str, path: str, table: str, numbers: str) -> Page:
    body = f'<h1 id="{FIRST}">{title}</h1>\n{numbers}{table}{numbers}'
    return Page(path, title, body, listed=False, hide=HIDE)


def _numbers(page: str, everyone: Selection, what: str, here: int = 0) -> str:
    """Link the pages of a list."""
    count = len(everyone.every) if what == "runs" else len(everyone.machines)
    links = [
        f"<strong>{number}</strong>" if number == here else markup.link(page, _list_path(what, number), str(number))
        for number in range(1, (count + ROWS - 1) // ROWS + 1)
    ]
    said = f", {ROWS:,} a page" if len(links) > 1 else ""
    return f'<p class="fr-note">All {count:,} {what}{said}: {" ".join(links)}</p>\n'


def _machines_table(groups: Sequence[Sequence[RunView]], path: str) -> str:
    rows = [
        (
            markup.link(path, own[0].machine_page, _name(own)),
            escape(machines_page.devices(own)),
            machines_page.memory(own[0].manifest.machine),
            str(len(own)),
            escape(descriptions.day(own[0].manifest.started_at)),
            runs_facts.tiers(path, own),
        )
        for own in groups
    ]
    columns = ("Machine", "Device", "Memory", "Runs", "Last measured", "Tier")
    return markup.table("Machines", columns, rows, ("Runs",), stack=True)


def _name(own: Sequence[RunView]) -> str:
    return descriptions.machine_name(own[0].run)


def noted(page: Page, everyone: Selection) -> Page:
    """Say on a page that it does not show everything, and where the rest is; nothing where everything is shown."""
    said = "\n\n".join(filter(None, (_left_out(page, everyone), _withdrawn(page, everyone))))
    return replace(page, body=f"{page.body}\n\n{said}") if said else page


def _withdrawn(page: Page, everyone: Selection) -> str:
    """The list of runs that were withdrawn, on the page of all runs."""
    return withdrawn.listed(page.path, everyone.withdrawn) if page.path == reference_page.RUNS else ""


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
            f"Listed are {of}the {len(everyone.detailed):,} runs with a full page: the newest, and those that "
            "suites, claims and the page of the experiment draw on."
        )
        return markup.paragraph(f"{text} All others have a short page.", "fr-note") + _numbers(
            page.path, everyone, kind
        )
    if kind == "machines":
        own = [shown for shown in everyone.brief if shown.machine_page == page.path]
        return f'<h2 id="older">Older runs</h2>\n{_runs(own, page.path)}' if own else ""
    return ""


def _machines_left_out(page: Page, everyone: Selection, most: int) -> str:
    if len(everyone.machines) <= most:
        return ""
    where = _list_path("machines", 1) if everyone.brief else machines_page.INDEX
    link = markup.link(page.path, where, f"All {len(everyone.machines):,} machines")
    return f'<p class="fr-note">Only the {most} machines that were measured last are shown. {link}</p>\n'


def _opened(kind: str, title: str) -> str:
    return f'<p class="fr-eyebrow">{kind}</p>\n\n<h1 id="{FIRST}">{escape(title)}</h1>\n'


def _section(title: str, name: str, content: str) -> list[str]:
    return [f'<h2 id="{name}">{escape(title)}</h2>\n', content] if content else []


def _table(best: Sequence[Row]) -> str:
    """The best settings, real training first; nothing without any."""
    if not best:
        return ""
    rows = sorted(map(_kinded, best), key=lambda row: _ORDER.index(row["kind"]))
    lines = [
        (
            task_cell(row),
            escape(descriptions.knobs(row)),
            words.number(float(row["samples_per_s"])),
            descriptions.spread(float(row["samples_per_s_lo"]), float(row["samples_per_s_hi"])),
            str(row["n"]),
        )
        for row in rows
    ]
    table = markup.table(
        "The best setting of each task", _COLUMNS, lines, ("Samples/s", "95 % interval", "n"), stack=True
    )
    return table + markup.paragraph(_PICKED, "fr-note")


def _kinded(row: Row) -> dict[Any, Any]:
    kind = LOAD if row["mode"] == LOAD else EMULATED if row["step"] == EMULATED else TRAIN
    return {**row, "kind": kind}


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
    short = {shown.page for shown in everyone.brief}
    groups = [(own, [shown for shown in own if shown.page in short]) for own in everyone.machines.values()]
    wanted = [(len(few) == len(own), [shown.run for shown in few]) for own, few in groups if few]
    for at in range(0, len(wanted), _PART):
        part = wanted[at : at + _PART]
        places = [place for _, runs in part for run in runs for place in rows.get(run.manifest.run_id, ())]
        yield _Part(made, part, best.iloc[places])


def _write_part(part: _Part) -> None:
    by_run = best_by_run(part.best)
    for alone, runs in part.machines:
        shown = [RunView(run) for run in runs]
        best = [by_run.get(each.manifest.run_id, []) for each in shown]
        for each, rows in zip(shown, best, strict=True):
            _write(part.made, run_page(each, rows))
        if alone:
            _write(part.made, machine_page(shown, best))


def _write(made: Published, page: Page) -> None:
    html = made.frames.fill(page, replace(made.plain, html=page.body, first=FIRST))
    put((made.folder / page.path).with_suffix(".html"), html)
    for name, content in page.files.items():
        put(made.folder / name, content)
