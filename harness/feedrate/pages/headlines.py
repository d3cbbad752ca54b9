"""The numbers that come first, as a table: the best setting of each task, what limits it, what loader settings gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import LOAD
from feedrate.pages import descriptions, markup
from feedrate.pages.tasks import gain_words, set_words, what_ran
from feedrate.pages.template import table
from feedrate.schema import words

RULE = "methodology.md#best"
"""Where it is told what cross-fitted means."""
_NUMBERS = ("Samples/s", "95 % interval", "n")
"""Columns that are set flush right."""


def headline_table(rows: pd.DataFrame) -> Markup:
    """Write headlines as a table; nothing when there are none."""
    if not len(rows):
        return Markup()
    lines = []
    for row in rows_of(rows):
        rate, spread = words.number(row["samples_per_s"]), words.interval(row["lo"], row["hi"])
        settings = markup.two_lines(descriptions.knobs(row), set_words(row))
        gained = markup.two_lines(*gain_words(row["gain"]))
        lines.append((task_cell(row), settings, rate, spread, row["n"], _held_back(row), gained))
    columns = ("What ran", "Best setting", *_NUMBERS, "Held back by", "Best speed-up without repacking")
    return table("The best setting of each task", columns, lines, _NUMBERS, stack=True)


def _held_back(row: Mapping[Any, Any]) -> str:
    """What holds it back, and how much of its slowest stage and of its compute stage it reaches."""
    if row["kind"] == LOAD:
        return "the loader itself"
    reached = (("efficiency", row["efficiency"]), ("AU", row["au"]))
    shares = [f"{name}\u00a0{words.percent(float(value))}" for name, value in reached if words.is_number(value)]
    return markup.two_lines(row["bound"], ", ".join(shares))


def sized_name(row: Mapping[Any, Any]) -> Markup:
    """Write a workload in bold, with the height and width of its images where it has such."""
    name = Markup("<strong>{}</strong>").format(row["workload"])
    size = Markup(", {}\u00a0px").format(row["patch_size"]) if words.is_number(row["patch_size"]) else ""
    return name + size


def task_cell(row: Mapping[Any, Any]) -> Markup:
    """Write a task as the first cell of its row: workload, patch size, what ran."""
    return markup.two_lines(sized_name(row), what_ran(row), style=f"fr-kind fr-kind-{row['kind']}")
