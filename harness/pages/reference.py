"""The list of runs, and the data dictionary, which comes from the tables of axes and columns themselves."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from harness.axes import AXES, Axis
from harness.pages import described, markup, trust
from harness.pages.gathered import Shown
from harness.pages.markup import Page
from harness.records import AXIS_COLUMNS, SCHEMA_VERSION, TABLES, Column

RUNS = "runs/index.md"
DICTIONARY = "dictionary.md"
_TABLE_DOCS = {
    "trials": "A row a trial: identity, every axis by its name (null where it does not apply), what was measured.",
    "steps": "A row a step, of the first steps of each trial’s window.",
    "telemetry": "A row a probe sample, on the clock of the run.",
}


def runs_page(runs: Sequence[Shown]) -> Page:
    """List every run, newest first."""
    rows = [
        (
            markup.link(RUNS, shown.page, shown.manifest.run_id),
            trust.badge(RUNS, shown),
            markup.link(RUNS, shown.machine_page, described.machine_name(shown.run)),
            escape(described.day(shown.manifest.started_at)),
            str(shown.manifest.blocks),
            str(shown.manifest.cells),
            str(shown.failed),
        )
        for shown in runs
    ]
    listing = (
        markup.table(
            "All runs",
            ("Run", "Grade", "Machine", "Date", "Blocks", "Cells", "Failed"),
            rows,
            ("Blocks", "Cells", "Failed"),
            stack=True,
        )
        if rows
        else markup.paragraph("There are no runs yet. Type make sweep, then make site.")
    )
    lead = markup.paragraph(
        "One run is one sweep on one machine. Each has a page with its settings, its failures and its raw files. Its "
        "grade says how quiet the machine was and how often it was asked.",
        "fr-lead",
    )
    return Page(RUNS, "Runs", f"# Runs\n\n{lead}\n{listing}", hide=("navigation", "toc"))


def dictionary_page() -> Page:
    """Write the data dictionary."""
    body = [
        "# Data dictionary\n",
        markup.paragraph(
            f"Every column of the published files, from the tables that the harness itself uses (schema version "
            f"{SCHEMA_VERSION}). Null means that a quantity does not apply or could not be observed, never zero.",
            "fr-lead",
        ),
    ]
    body += [
        markup.heading(2, "Axes", "axes"),
        markup.paragraph(
            "The knobs, spelled as PyTorch spells them. Defaults are frozen: they are part of a cell’s identity."
        ),
    ]
    body.append(_entries([(axis.name, _axis_kind(axis), axis.doc) for axis in AXES], "axis"))
    axes = {column.name for column in AXIS_COLUMNS}
    for name, columns in TABLES.items():
        listed = [column for column in columns if name != "trials" or column.name not in axes]
        body += [markup.heading(2, f"{name}.parquet", name), markup.paragraph(_TABLE_DOCS[name])]
        body.append(_entries([(column.name, _kind(column), column.doc) for column in listed], name))
    return Page(DICTIONARY, "Data dictionary", "\n".join(body))


def _axis_kind(axis: Axis) -> str:
    default = str(axis.default).lower() if axis.type is bool else axis.default
    kinds = {"str": "name", "int": "whole number", "float": "number", "bool": "true or false"}
    unit = f", {axis.unit}" if axis.unit else ""
    choices = f": {', '.join(axis.choices())}" if axis.choices and axis.choices() else ""
    return f"{kinds[axis.type.__name__]}{unit}{choices}; default {default}"


def _kind(column: Column) -> str:
    return f"{column.dtype}, {column.unit}" if column.unit else column.dtype


def _entries(entries: Sequence[tuple[str, str, str]], prefix: str) -> str:
    lines = "".join(
        f'<div id="{prefix}-{escape(name)}"><dt><code>{escape(name)}</code><span>{escape(kind)}</span></dt>'
        f"<dd>{escape(doc)}</dd></div>"
        for name, kind, doc in entries
    )
    return f'<dl class="fr-dictionary">{lines}</dl>\n'
