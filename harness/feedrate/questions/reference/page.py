"""Pages to look things up: how to run it, and the data dictionary, from the tables of axes and columns themselves."""

from __future__ import annotations

import re

from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page
from feedrate.pages.template import render
from feedrate.schema.axes import AXES, Axis
from feedrate.schema.columns import AXIS_COLUMNS, SCHEMA_VERSION, STEPS_KEPT, TABLES

DICTIONARY, RUN_PATH = "dictionary.md", "run.md"
_UNITS = {"us": "µs", "C": "°C"}
"""Units that the tables spell in ASCII."""
_KINDS = {"str": "name", "int": "whole number", "float": "number", "bool": "true or false"}


def dictionary_page() -> Page:
    """Write the data dictionary."""
    axis_names = {column.name for column in AXIS_COLUMNS}
    files = {
        name: [
            (column.name, f"{column.dtype}, {_unit(column.unit)}" if column.unit else column.dtype, column.doc)
            for column in columns
            if name != "trials" or column.name not in axis_names
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


_HEADING = re.compile(r"^## (?P<title>.+?)(?: \{ #(?P<name>[\w-]+) \})?$", re.MULTILINE)


def run_page(prose: str) -> Page:
    """Write how to run it; GitHub shows the same prose."""
    text = _HEADING.sub(_named, prose)
    body = text.replace("\n## ", f"\n{markup.contents(text)}\n\n## ", 1)
    return Page(RUN_PATH, "Run it", body, hide=("navigation",))


def _named(heading: re.Match[str]) -> str:
    """Give a heading an id that stays, made from its title where it has none."""
    short = re.sub(r"[^a-z]+", "-", heading["title"].partition(":")[0].lower()).strip("-")
    return f"## {heading['title']} {{ #{heading['name'] or markup.slug(short)} }}"
