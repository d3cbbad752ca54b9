"""Short pages of the runs and machines that are not featured, lists of all of them, and what other pages say of that.

A short page has what a run says of itself, the best setting of each of its tasks, and its raw files. A grade, charts
and what holds a setting back take a look at each run by itself, which ten thousand runs do not get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import pandas as pd

from harness.analysis.estimates import AXIS_NAMES
from harness.analysis.rows import rows_of
from harness.charts import _words as words
from harness.charts._slices import EMULATED, LOAD, TRAIN
from harness.pages import (
    claims,
    described,
    featured,
    home,
    machine_facts,
    machines,
    markup,
    reference,
    releases,
    run_facts,
    withdrawn,
)
from harness.pages.featured import Cast
from harness.pages.gathered import Shown
from harness.pages.headlines import task_cell
from harness.pages.markup import Page
from harness.pages.run import FILES, downloads
from harness.pages.run_table import runs_table

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


def likes(everyone: Cast) -> list[Page]:
    """Give an empty page of the kind of all short ones; none where every run is shown in full."""
    return [Page("runs/empty.md", "", "", listed=False, hide=HIDE)] if everyone.brief else []


def by_run(best: pd.DataFrame) -> dict[str, list[Row]]:
    """Take the rows of ``briefly.best`` apart: run_id to what its page says of its best settings."""
    found: dict[str, list[Row]] = {}
    for row in rows_of(best[list(_READ)]):
        found.setdefault(str(row["run_id"]), []).append(row)
    return found


def run_page(shown: Shown, best: Sequence[Row]) -> Page:
    """Write a run's short page as HTML; it copies the run's files beside it.

    Args:
        shown: the run.
        best: its rows of ``briefly.best``, as ``by_run`` gives them.
    """
    run = shown.manifest
    there = {name: shown.run.folder / name for name in FILES if (shown.run.folder / name).is_file()}
    files = {f"runs/{shown.slug}/{name}": path for name, path in there.items()}
    machine = ("Machine", markup.link(shown.page, shown.machine_page, shown.name))
    body = [
        _opened("Run", run.run_id),
        markup.facts([*run_facts.beside(shown), machine, *run_facts.short(shown)]),
        *_section("Best settings", "best", _table(best)),
        *_section("What to know", "know", "".join(map(markup.paragraph, run.substitutions))),
        *_section("Files", "files", downloads(shown, files)),
        markup.paragraph(
            "This page is short: a grade, charts and what holds each setting back are worked out for the "
            f"{featured.DETAILED} newest runs and for those that suites, claims and the page of the experiment speak "
            "of. With this run’s folder alone under results/, make site works them out for it.",
            "fr-note",
        ),
    ]
    return Page(shown.page, f"Run {run.run_id}", "\n".join(body), files=files, listed=False, hide=HIDE)


def machine_page(own: Sequence[Shown], best: Sequence[Sequence[Row]]) -> Page:
    """Write the short page of a machine as HTML.

    Args:
        own: its runs, newest first; at least one.
        best: rows of ``briefly.best`` of each, as ``by_run`` gives them.
    """
    path, name = own[0].machine_page, described.machine_name(own[0].run)
    told = next(((shown, rows) for shown, rows in zip(own, best, strict=True) if rows), None)
    body = [
        _opened("Machine", name),
        markup.facts(machine_facts.facts(own)),
        *(_section(f"Best settings of run {told[0].manifest.run_id}", "best", _table(told[1])) if told else []),
        *_section("Runs", "runs", _runs(own, path)),
        f'<p class="fr-note">{markup.link(path, machines.INDEX, "All machines")}</p>\n',
    ]
    return Page(path, name, "\n".join(body), listed=False, hide=HIDE)


def _runs(runs: Sequence[Shown], path: str) -> str:
    return runs_table("Runs", runs, path, ("Run", "Tier", "Machine", "Date", "Suites"))


def lists(everyone: Cast) -> Iterator[Page]:
    """List all runs and all machines, so many a page, as HTML; nothing where every run is shown in full."""
    if not everyone.brief:
        return
    for number, part in enumerate(_parts(everyone.every), 1):
        path = _list_path("runs", number)
        yield _list("All runs, newest first", path, _runs(part, path), _numbers(path, everyone, "runs", number))
    own = sorted(everyone.machines.values(), key=lambda runs: (_name(runs), runs[0].machine_id))
    for number, group in enumerate(_parts(own), 1):
        path = _list_path("machines", number)
        table = _machines_table(group, path)
        yield _list("All machines, by name", path, table, _numbers(path, everyone, "machines", number))


def _parts(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + ROWS] for at in range(0, len(items), ROWS)]


def _list_path(what: str, number: int) -> str:
    return f"{what}/all-{number}.md"


def _list(title: str, path: str, table: str, numbers: str) -> Page:
    body = f'<h1 id="{FIRST}">{title}</h1>\n{numbers}{table}{numbers}'
    return Page(path, title, body, listed=False, hide=HIDE)


def _numbers(page: str, everyone: Cast, what: str, here: int = 0) -> str:
    """Link the pages of a list."""
    count = len(everyone.every) if what == "runs" else len(everyone.machines)
    links = [
        f"<strong>{number}</strong>" if number == here else markup.link(page, _list_path(what, number), str(number))
        for number in range(1, (count + ROWS - 1) // ROWS + 1)
    ]
    said = f", {ROWS:,} a page" if len(links) > 1 else ""
    return f'<p class="fr-note">All {count:,} {what}{said}: {" ".join(links)}</p>\n'


def _machines_table(groups: Sequence[Sequence[Shown]], path: str) -> str:
    rows = [
        (
            markup.link(path, own[0].machine_page, _name(own)),
            escape(machine_facts.devices(own)),
            machine_facts.memory(own[0].manifest.machine),
            str(len(own)),
            escape(described.day(own[0].manifest.started_at)),
            run_facts.tiers(path, own),
        )
        for own in groups
    ]
    columns = ("Machine", "Device", "Memory", "Runs", "Last measured", "Tier")
    return markup.table("Machines", columns, rows, ("Runs",), stack=True)


def _name(own: Sequence[Shown]) -> str:
    return described.machine_name(own[0].run)


def noted(page: Page, everyone: Cast) -> Page:
    """Say on a page that it does not show everything, and where the rest is; nothing where everything is shown.

    Args:
        page: any page of the site.
        everyone: all runs.
    """
    said = "\n\n".join(filter(None, (_left_out(page, everyone), _withdrawn(page, everyone))))
    return replace(page, body=f"{page.body}\n\n{said}") if said else page


def _withdrawn(page: Page, everyone: Cast) -> str:
    """The list of runs that were withdrawn, on the page of all runs."""
    return withdrawn.listed(page.path, everyone.withdrawn) if page.path == reference.RUNS else ""


def _left_out(page: Page, everyone: Cast) -> str:
    kind = page.path.partition("/")[0]
    if kind in (home.PATH, claims.PATH, "suites"):
        return _machines_left_out(page, everyone, featured.CHARTED if kind == "suites" else featured.MACHINES)
    if not everyone.brief:
        return ""
    if page.path == releases.PATH:
        return _numbers(page.path, everyone, "runs") if len(everyone.every) > ROWS else ""
    if page.path in (reference.RUNS, machines.INDEX):
        of = "" if page.path == reference.RUNS else "the machines of "
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


def _machines_left_out(page: Page, everyone: Cast, most: int) -> str:
    if len(everyone.machines) <= most:
        return ""
    where = _list_path("machines", 1) if everyone.brief else machines.INDEX
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
            escape(described.knobs(row)),
            words.number(float(row["samples_per_s"])),
            described.spread(float(row["samples_per_s_lo"]), float(row["samples_per_s_hi"])),
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
