"""The list of runs, and the data dictionary, which comes from the tables of axes and columns themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from harness.axes import AXES, Axis
from harness.incoming.findings import Validated
from harness.pages import described, markup, rules
from harness.pages.gathered import Shown
from harness.pages.markup import Page
from harness.pages.run_table import runs_table
from harness.records import AXIS_COLUMNS, SCHEMA_VERSION, STEPS_KEPT, TABLES, Column

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


def runs_page(runs: Sequence[Shown], refused: Sequence[Validated] = ()) -> Page:
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
    return Page(RUNS, "Runs", f"# Runs\n\n{lead}\n{listing}{rules.left_out(refused)}", hide=("navigation", "toc"))


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
        f"<dd>{described.prose(doc)}</dd></div>"
        for name, kind, doc in entries
    )
    return f'<dl class="fr-dictionary">{lines}</dl>\n'
