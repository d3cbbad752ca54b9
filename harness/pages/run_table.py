"""Runs as a table: one row each, in the columns that a page has use for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from harness.charts import _words as words
from harness.pages import described, markup, run_facts, trust
from harness.pages.gathered import Shown

Cell = Callable[[Shown, str], str]
"""What a run has in a column, as HTML on the page of a path."""
NUMBERS = ("Blocks", "Cells", "Failed")
"""How much was measured: in every such table, last."""


def _named(shown: Shown, path: str) -> str:
    """A run's id as a link, below it what its submitter calls it."""
    label = f'<br><span class="fr-label">{escape(shown.beside.label)}</span>' if shown.beside.label else ""
    return markup.link(path, shown.page, shown.manifest.run_id) + label


_CELLS: Mapping[str, Cell] = {
    "Run": _named,
    "Grade": lambda shown, path: trust.badge(path, shown),
    "Tier": lambda shown, path: run_facts.tier(path, shown),
    "Machine": lambda shown, path: markup.link(path, shown.machine_page, shown.name),
    "Device": lambda shown, _: escape(described.device_name(shown.manifest.device)),
    "Date": lambda shown, _: escape(described.day(shown.manifest.started_at)),
    "Suites": lambda shown, _: escape(words.listed(shown.manifest.suites)),
    "Blocks": lambda shown, _: str(shown.manifest.blocks),
    "Cells": lambda shown, _: str(shown.manifest.cells),
    "Failed": lambda shown, _: str(shown.failed),
}
"""By heading. All but the grade are told without reading a table, which ten thousand runs can afford."""


def runs_table(
    caption: str, runs: Sequence[Shown], path: str, columns: Sequence[str], suites: Cell = _CELLS["Suites"]
) -> str:
    """Write runs as a table.

    Args:
        caption: says to a screen reader what the table holds.
        runs: in the order of the table.
        path: of the page that holds it.
        columns: of ``Run``, ``Grade``, ``Tier``, ``Machine``, ``Device``, ``Date`` and ``Suites``, in the order of the
            table; ``NUMBERS`` come behind them.
        suites: writes the suites of a run; else they are named without links.
    """
    names = (*columns, *NUMBERS)
    cells = [{**_CELLS, "Suites": suites}[name] for name in names]
    rows = [[cell(shown, path) for cell in cells] for shown in runs]
    return markup.table(caption, names, rows, NUMBERS, stack=True)
