"""Pages to look things up: how to run it and contribute, the list of runs, the dictionary, the changelog of the data.

The dictionary comes from the tables of axes and columns themselves. How to contribute is one prose for the site and for
GitHub: ``site/pages/contribute.md`` followed by the sections of ``CONTRIBUTING.md``; tests hold the commands and files
that they name against the Makefile, the command line and the folders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from markupsafe import Markup

from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.accuracy import page as accuracy_page
from feedrate.questions.methodology import page as methodology_page
from feedrate.questions.runs.facts import runs_table
from feedrate.schema.axes import AXES, Axis
from feedrate.schema.columns import AXIS_COLUMNS, SCHEMA_VERSION, STEPS_KEPT, TABLES
from feedrate.share.findings import Validated
from feedrate.store.bench_record import BenchRecord

RUNS, DICTIONARY, PATH = "runs/index.md", "dictionary.md", "releases.md"
RUN_PATH, CONTRIBUTE_PATH = "run.md", "contribute.md"
TITLE = "Changelog of the data"
_MOST = 1_000
"""Runs that the changelog lists."""
_UNITS = {"us": "µs", "C": "°C"}
"""Units that the tables spell in ASCII."""
_KINDS = {"str": "name", "int": "whole number", "float": "number", "bool": "true or false"}


def runs_page(runs: Sequence[RunView], refused: Sequence[Validated] = ()) -> Page:
    """List every run, newest first, and those that are left out because they break a rule."""
    listing = runs_table("Runs", runs, RUNS, ("Run", "Grade", "Tier", "Machine", "Suites", "Date")) if runs else ""
    body = render("reference/runs.md", listing=listing, left_out=methodology_page.left_out(refused))
    return Page(RUNS, "Runs", body, hide=("navigation", "toc"))


def dictionary_page() -> Page:
    """Write the data dictionary."""
    own = {column.name for column in AXIS_COLUMNS}
    files = {
        name: [
            (each.name, f"{each.dtype}, {_unit(each.unit)}" if each.unit else each.dtype, each.doc)
            for each in columns
            if name != "trials" or each.name not in own
        ]
        for name, columns in TABLES.items()
    }
    axes = [(axis.name, _axis_kind(axis), axis.doc) for axis in AXES]
    names = {"version": SCHEMA_VERSION, "kept": STEPS_KEPT, "prose": descriptions.prose}
    return Page(DICTIONARY, "Data dictionary", render("reference/dictionary.md", axes=axes, files=files, **names))


def _axis_kind(axis: Axis) -> str:
    default = str(axis.default).lower() if axis.type is bool else axis.default
    unit = f", {_unit(axis.unit)}" if axis.unit else ""
    choices = f": {', '.join(axis.choices())}" if axis.choices and axis.choices() else ""
    return f"{_KINDS[axis.type.__name__]}{unit}{choices}; default {default}".removesuffix("; default ")


def _unit(name: str) -> str:
    return _UNITS.get(name, name)


def page(runs: Sequence[RunView], benches: Sequence[BenchRecord], changes: str) -> Page:
    """Write the changelog of the data, with the text of ``CHANGELOG.md``; of very many runs it lists the newest."""
    entries = sorted([*map(_run, runs[:_MOST]), *map(_bench, benches)], key=itemgetter(0, 1), reverse=True)
    body = render(
        "reference/releases.md",
        title=TITLE,
        runs=len(runs),
        most=_MOST,
        days={day: [row for *_, row in own] for day, own in groupby(entries, itemgetter(0))},
        # Its headings stand a level lower here, and its title is left out.
        changes=Markup(re.sub(r"^#", "##", re.sub(r"^#+ .*\n+", "", changes, count=1), flags=re.MULTILINE)),  # noqa: S704
    )
    return Page(PATH, TITLE, body)


def _run(view: RunView) -> tuple[str, str, tuple[object, ...]]:
    """A run in the changelog: its day, its name, its row."""
    run = view.manifest
    row = (
        _record("run", view.page, run.run_id),
        ", ".join(sorted(run.suites)) or "nothing",
        _roomy(markup.link(PATH, view.machine_page, view.name)),
        run.blocks,
        f"{sum(run.outcomes.values()):,}",
        run.feedrate_version,
    )
    return run.started_at[:10], run.run_id, row


def _bench(bench: BenchRecord) -> tuple[str, str, tuple[object, ...]]:
    """A record of ``make bench`` in the changelog."""
    row = (
        _record("bench record", accuracy_page.PATH, bench.name),
        f"feedrate itself: {', '.join(bench.sections)}",
        _roomy(descriptions.name_of(bench.machine)),
        "–",
        f"{len(bench.witnessed):,}" if bench.witnessed else "–",
        bench.feedrate_version,
    )
    return bench.started_at.isoformat()[:10], bench.name, row


def _roomy(name: str) -> Markup:
    """Keep a name from being squeezed to a word a line."""
    return Markup('<span class="fr-roomy">{}</span>').format(name)


def _record(kind: str, path: str, name: str) -> Markup:
    return markup.two_lines(kind, markup.link(PATH, path, name), "fr-id")


_HEADING = re.compile(r"^## (?P<title>.+?)(?: \{ #(?P<name>[\w-]+) \})?$", re.MULTILINE)
_FIRST = re.compile(r"^## ", re.MULTILINE)


def run_page(prose: str) -> Page:
    """Write how to run it; GitHub shows the same prose."""
    text = _HEADING.sub(_named, prose)
    return Page(RUN_PATH, "Run it", _FIRST.sub(lambda _: f"{markup.contents(text)}\n\n## ", text, count=1))


def contribute_page(prose: str, contributing: str) -> Page:
    """Write how to contribute: prose with a place for the contents and one for the sections of ``CONTRIBUTING.md``."""
    rest = contributing[match.start() :] if (match := _HEADING.search(contributing)) else ""
    text = _HEADING.sub(_named, prose.replace("{{contributing}}", rest))
    return Page(CONTRIBUTE_PATH, "Contribute", text.replace("{{contents}}", markup.contents(text)))


def _named(heading: re.Match[str]) -> str:
    """Give a heading an id that stays, made from its title where it has none."""
    short = re.sub(r"[^a-z]+", "-", heading["title"].partition(":")[0].lower()).strip("-")
    return f"## {heading['title']} {{ #{heading['name'] or markup.slug(short)} }}"
