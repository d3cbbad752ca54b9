"""The list of runs, and the data dictionary, which comes from the tables of axes and columns themselves.

What was added to the published data and when, from the runs themselves; then what changed in feedrate.

How to run feedrate, what a run needs to be published, and how to add to it: one prose for the site and for GitHub.

The page is ``site/pages/contribute.md`` followed by the sections of ``CONTRIBUTING.md``; tests hold the commands and
files that they name against the Makefile, the command line and the folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.questions.accuracy import page as accuracy_page
from feedrate.questions.methodology import page as methodology_page
from feedrate.questions.runs.facts import runs_table
from feedrate.schema import words
from feedrate.schema.axes import AXES, Axis
from feedrate.schema.columns import AXIS_COLUMNS, PROTOCOL_VERSION, SCHEMA_VERSION, STEPS_KEPT, TABLES, Column
from feedrate.share.validation.findings import Validated
from feedrate.store.bench_record import BenchRecord

RUNS = "runs/index.md"
DICTIONARY = "dictionary.md"
_TABLE_DOCS = {
    "trials": "A row a trial: identity, every axis by its name (null where it does not apply), what was measured.",
    "steps": f"A row a step: the first {STEPS_KEPT} of each trial’s window.",
    "telemetry": "A row a probe sample, on the clock of the run.",
}
_UNITS = {"us": "µs", "C": "°C"}
"""Units that the tables spell in ASCII."""
_GROUPS = {
    "axis": {
        "workload": "What runs",
        "storage_format": "How samples are stored and read",
        "n_samples": "The set",
        "read_us": "Planted costs",
        "batch_size": "The loader",
        "pin_memory": "Copies between host and device",
        "norm": "The training step",
        "parallel": "Several devices",
        "timing": "Timing",
    },
    "trials": {
        "run_id": "Identity",
        "steps": "Window and throughput",
        "stored_bytes": "Storage and page cache",
        "host_fetch_ns": "Phases of the host",
        "device_h2d_ns": "Spans of the device",
        "worker_read_ns": "Stages of the workers",
        "gpu_util_pct": "GPU",
        "cpu_util_pct": "CPU and memory",
        "foreign_cpu_pct": "What may have disturbed it",
        "fact": "Checks of facts",
        "trial_wall_ns": "Upkeep",
    },
}
"""Headings of the data dictionary: the entry above which each stands."""


def runs_page(runs: Sequence[RunView], refused: Sequence[Validated] = ()) -> Page:
    """List every run, newest first, and those that are left out because they break a rule.

    Args:
        runs: that are shown.
        refused: as ``incoming.check.admitted`` gives them.
    """
    listing = (
        runs_table("Runs", runs, RUNS, ("Run", "Grade", "Tier", "Machine", "Suites", "Date"))
        if runs
        else markup.paragraph("There are no runs yet. Type make sweep, then make site.")
    )
    lead = markup.paragraph(
        "One run is one sweep on one machine; suites are what it asked. Its page has its settings, its failures and "
        "its raw files; its grade says how quiet the machine was and how often it was asked.",
        "fr-lead",
    )
    return Page(
        RUNS, "Runs", f"# Runs\n\n{lead}\n{listing}{methodology_page.left_out(refused)}", hide=("navigation", "toc")
    )


def dictionary_page() -> Page:
    """Write the data dictionary."""
    body = [
        "# Data dictionary\n",
        markup.paragraph(
            "Every column of the files on each run’s page, from the tables that the harness itself uses (schema "
            f"version {SCHEMA_VERSION}). Null means that a quantity does not apply or could not be observed, never "
            "zero.",
            "fr-lead",
        ),
    ]
    body += [
        markup.heading(2, "Axes", "axes"),
        markup.paragraph(
            "The knobs; those of PyTorch are spelled as there. Defaults are frozen, since a cell’s id is made of what "
            "differs from them. Where an axis cannot matter it is null."
        ),
    ]
    body += _grouped([(axis.name, _axis_kind(axis), axis.doc) for axis in AXES], "axis")
    axes = {column.name for column in AXIS_COLUMNS}
    for name, columns in TABLES.items():
        listed = [column for column in columns if name != "trials" or column.name not in axes]
        body += [markup.heading(2, f"{name}.parquet", name), markup.paragraph(_TABLE_DOCS[name])]
        body += _grouped([(column.name, _kind(column), column.doc) for column in listed], name)
    return Page(DICTIONARY, "Data dictionary", "\n".join(body))


def _axis_kind(axis: Axis) -> str:
    default = str(axis.default).lower() if axis.type is bool else axis.default
    kinds = {"str": "name", "int": "whole number", "float": "number", "bool": "true or false"}
    unit = f", {_unit(axis.unit)}" if axis.unit else ""
    choices = f": {', '.join(axis.choices())}" if axis.choices and axis.choices() else ""
    return f"{kinds[axis.type.__name__]}{unit}{choices}; default {default}"


def _kind(column: Column) -> str:
    return f"{column.dtype}, {_unit(column.unit)}" if column.unit else column.dtype


def _unit(name: str) -> str:
    return _UNITS.get(name, name)


def _grouped(entries: Sequence[tuple[str, str, str]], prefix: str) -> Iterator[str]:
    """Lists of entries, a heading above each group of them."""
    headings = _GROUPS.get(prefix, {})
    starts = [place for place, (name, _, _) in enumerate(entries) if name in headings or not place]
    for start, end in zip(starts, [*starts[1:], len(entries)], strict=True):
        if title := headings.get(entries[start][0]):
            yield markup.heading(3, title, f"{prefix}-from-{entries[start][0]}")
        yield _entries(entries[start:end], prefix)


def _entries(entries: Sequence[tuple[str, str, str]], prefix: str) -> str:
    lines = "".join(
        f'<div id="{prefix}-{escape(name)}"><dt><code>{escape(name)}</code><span>{escape(kind)}</span></dt>'
        f"<dd>{descriptions.prose(doc)}</dd></div>"
        for name, kind, doc in entries
    )
    return f'<dl class="fr-dictionary">{lines}</dl>\n'


PATH = "releases.md"
TITLE = "Changelog of the data"
_LEAD = (
    "Every run that stands, by the day on which it was measured. A run is never changed after that: its files are "
    "those that the sweep wrote; a withdrawn one is listed under Runs. What changed in feedrate itself, and what that "
    "means for earlier runs, stands below."
)
_MOST = 1_000
"""Runs that are listed."""
_HEADING = re.compile(r"^#+ .*\n+")


def page(runs: Sequence[RunView], benches: Sequence[BenchRecord], changes: str) -> Page:
    """Write the page; of very many runs it lists the newest.

    Args:
        runs: all runs, newest first; none is fine.
        benches: what ``make bench`` found, of all machines.
        changes: the text of ``CHANGELOG.md``.
    """
    listed = runs[:_MOST]
    entries = [(shown.manifest.started_at[:10], shown.manifest.run_id, _run(shown)) for shown in listed]
    entries += [(bench.started_at.isoformat()[:10], bench.name, _bench(bench)) for bench in benches]
    body = [f"# {TITLE}\n", markup.paragraph(_LEAD, "fr-lead"), *_versions(runs)]
    if len(listed) < len(runs):
        body.append(markup.paragraph(f"Listed are the newest {len(listed):,} of {len(runs):,} runs.", "fr-note"))
    body += _days(entries)
    if not entries:
        body.append(markup.paragraph("Nothing has been added yet. Type make sweep, then make site.", "fr-missing"))
    body += [markup.heading(2, "Changes of feedrate itself", "feedrate"), _demoted(changes)]
    return Page(PATH, TITLE, "\n".join(body))


def _days(entries: Sequence[tuple[str, str, tuple[str, ...]]]) -> Iterator[str]:
    """A table a day, newest first."""
    days: dict[str, list[tuple[str, ...]]] = {}
    for date, _, row in sorted(entries, key=lambda entry: entry[:2], reverse=True):
        days.setdefault(date, []).append(row)
    columns = ("Record", "What it asks", "Machine", "Blocks", "Trials", "feedrate", "Protocol")
    for date, rows in days.items():
        said = descriptions.day(date)
        yield markup.heading(2, said, f"day-{markup.slug(date)}")
        table = markup.table(f"Measured on {said}", columns, rows, ("Blocks", "Trials", "Protocol"), stack=True)
        yield f"<div data-search-exclude>{table}</div>\n"


def _run(shown: RunView) -> tuple[str, ...]:
    run = shown.manifest
    return (
        _named("run", shown.page, run.run_id),
        escape(", ".join(sorted(run.suites)) or "nothing"),
        _machine(markup.link(PATH, shown.machine_page, shown.name)),
        str(run.blocks),
        f"{sum(run.outcomes.values()):,}",
        escape(run.feedrate_version),
        str(run.protocol_version),
    )


def _bench(bench: BenchRecord) -> tuple[str, ...]:
    return (
        _named("bench record", accuracy_page.PATH, bench.name),
        f"feedrate itself: {escape(', '.join(bench.sections))}",
        _machine(escape(descriptions.name_of(bench.machine))),
        "–",
        f"{len(bench.witnessed):,}" if bench.witnessed else "–",
        escape(bench.feedrate_version),
        "–",
    )


def _machine(name: str) -> str:
    """Keep a name from being squeezed to a word a line."""
    return f'<span class="fr-roomy">{name}</span>'


def _named(what: str, path: str, name: str) -> str:
    return f'{what}<br><span class="fr-id">{markup.link(PATH, path, name)}</span>'


def _versions(runs: Sequence[RunView]) -> Iterator[str]:
    """Say what is compared with what."""
    versions = [shown.manifest.protocol_version for shown in runs]
    if others := sorted(set(versions) - {PROTOCOL_VERSION}):
        count = sum(version != PROTOCOL_VERSION for version in versions)
        of_others = f"of version {words.listed(map(str, others))}"
        yield markup.paragraph(
            f"Runs of protocol version {PROTOCOL_VERSION} are compared with one another. "
            f"{words.plural(count, 'run')} {of_others} {'is' if count == 1 else 'are'} shown on pages of their own "
            "alone."
        )
    elif versions:
        many = words.plural(len(versions), "run")
        yield markup.paragraph(
            f"{many}, all of protocol version {PROTOCOL_VERSION}: the cells that they share can be compared."
        )


def _demoted(changes: str) -> str:
    """Set the headings of a Markdown text a level lower, without its title."""
    rest = _HEADING.sub("", changes, count=1)
    return re.sub(r"^#", "##", rest, flags=re.MULTILINE)


CONTRIBUTE_PATH = "contribute.md"
_CONTENTS, _CONTRIBUTING = "{{contents}}", "{{contributing}}"
_CONTRIBUTE_HEADING = re.compile(r"^## (?P<title>.+?)(?: \{ #(?P<name>[\w-]+) \})?$", re.MULTILINE)


def contribute_page(prose: str, contributing: str) -> Page:
    """Write the page.

    Args:
        prose: Markdown with a place for the contents and one for the rest.
        contributing: the text of ``CONTRIBUTING.md``, whose title and opening are left to GitHub.
    """
    rest = contributing[found.start() :] if (found := _CONTRIBUTE_HEADING.search(contributing)) else ""
    whole = _CONTRIBUTE_HEADING.sub(_contribute_named, prose.replace(_CONTRIBUTING, rest))
    return Page(CONTRIBUTE_PATH, "Contribute", whole.replace(_CONTENTS, _contents(whole)))


def _contribute_named(heading: re.Match[str]) -> str:
    """Give a heading an id that stays, made from its title where it has none."""
    title = heading["title"]
    name = heading["name"] or markup.slug(re.sub(r"[^a-z]+", "-", title.partition(":")[0].lower()).strip("-"))
    return f"## {title} {{ #{name} }}"


def _contents(text: str) -> str:
    """List the sections, for screens that have no room for the theme's own list."""
    items = "".join(
        f'<li><a href="#{each["name"]}">{escape(each["title"])}</a></li>' for each in _CONTRIBUTE_HEADING.finditer(text)
    )
    return f'<nav class="fr-contents" aria-label="Contents of this page"><ul>{items}</ul></nav>\n'
