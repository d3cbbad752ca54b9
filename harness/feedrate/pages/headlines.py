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
NUMBERS = ("Samples/s", "95 % interval", "n")
"""Columns of a table of best settings that are set flush right."""
BEST = ("What ran", "Best setting", *NUMBERS)
"""First columns of such a table."""


def headline_table(rows: pd.DataFrame) -> Markup:
    """Write headlines as a table; nothing when there are none."""
    if not len(rows):
        return Markup()
    lines = []
    for row in rows_of(rows):
        gain = gain_words(row["gain"])
        lines.append((*setting_cells(row), _held_back(row), markup.two_lines(*gain) if gain[1] else gain[0]))
    columns = (*BEST, "Held back by", "Most gained by loader knobs alone")
    return table("The best setting of each task", columns, lines, NUMBERS, stack=True)


def setting_cells(row: Mapping[Any, Any]) -> tuple[object, ...]:
    """Write a task and its best setting as the cells below ``BEST``; rows of ``fastest_cells`` know of no others."""
    rate = words.number(float(row["samples_per_s"]))
    spread = descriptions.spread(float(row["lo"]), float(row["hi"]))
    setting, others = descriptions.knobs(row), set_words(row) if "members" in row else ""
    return task_cell(row), markup.two_lines(setting, others) if others else setting, rate, spread, row["n"]


def _held_back(row: Mapping[Any, Any]) -> str:
    """What holds it back, and how much of its slowest stage and of its compute stage it reaches."""
    if row["kind"] == LOAD:
        return "the loader itself"
    reached = (("efficiency", row["efficiency"]), ("AU", row["au"]))
    shares = [f"{name}\u00a0{words.percent(float(value))}" for name, value in reached if words.known(value)]
    return markup.two_lines(row["bound"], ", ".join(shares)) if shares else str(row["bound"])


def sized_name(row: Mapping[Any, Any]) -> Markup:
    """Write a workload in bold, with the height and width of its images where it has such."""
    name = Markup("<strong>{}</strong>").format(row["workload"])
    size = Markup(", {}\u00a0px").format(row["patch_size"]) if words.known(row["patch_size"]) else ""
    return name + size


def task_cell(row: Mapping[Any, Any]) -> Markup:
    """Write a task as the first cell of its row: workload, patch size, what ran."""
    return markup.two_lines(sized_name(row), what_ran(row), f"fr-kind fr-kind-{row['kind']}")
