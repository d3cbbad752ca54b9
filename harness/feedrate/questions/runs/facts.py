"""What a run says of itself in a few lines, and what is said of it beside its records, the same on every page.

Runs as a table: one row each, in the columns that a page has use for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.questions.runs import trust
from feedrate.schema import words
from feedrate.store.marks import TIERS

RULES = "contribute.md#tiers"


def _linked(page: str, said: str) -> str:
    """A link to the rules; ``site/scripts/site/tiers.js`` finds tiers by its class."""
    return markup.link(page, RULES, said, "fr-tier")


def tier(page: str, shown: RunView) -> str:
    """Write who vouches for a run as a link to what that means."""
    return _linked(page, shown.beside.tier)


def tiers(page: str, runs: Sequence[RunView]) -> str:
    """Write who vouches for some runs: one tier, or how many runs of each.

    Args:
        page: path of the page that holds the link.
        runs: at least one.
    """
    held = [shown.beside.tier for shown in runs]
    counts = [(held.count(name), name) for name in reversed(TIERS) if name in held]
    said = counts[0][1] if len(counts) == 1 else ", ".join(f"{count:,} {name}" for count, name in counts)
    return _linked(page, said)


def beside(shown: RunView) -> list[tuple[str, str]]:
    """Name who vouches for a run, and what its submitter says of it.

    Returns:
        Names and values, the values being HTML.
    """
    given = (("Label", shown.beside.label), ("Submitter’s note", shown.beside.note))
    return [("Tier", tier(shown.page, shown)), *((name, escape(text)) for name, text in given if text)]


def short(shown: RunView) -> list[tuple[str, str]]:
    """Name what was measured, when and with what, from the manifest alone.

    Returns:
        Names and values, the values being HTML.
    """
    run = shown.manifest
    outcomes = ", ".join(f"{count:,} {name}" for name, count in run.outcomes.items())
    return [
        ("Device", escape(run.device)),
        ("Repeat it", markup.code(run.command)),
        ("Began", f"{escape(descriptions.day(run.started_at))} ({escape(run.started_at)})"),
        ("Took", escape(descriptions.minutes(run.started_at, run.ended_at))),
        ("Measured", f"{words.plural(run.cells, 'cell')}, in up to {words.plural(run.blocks, 'block')}"),
        ("Trials", escape(outcomes)),
        ("Stopped", escape(trust.STOPPED.get(run.stop_reason, run.stop_reason))),
        ("Suites", escape(words.listed(run.suites) or "none")),
        ("PyTorch", escape(run.software.torch or "unknown")),
        ("Version", f"feedrate {escape(run.feedrate_version)}, protocol {run.protocol_version}, seed {run.seed}"),
    ]


Cell = Callable[[RunView, str], str]
"""What a run has in a column, as HTML on the page of a path."""
NUMBERS = ("Blocks", "Cells", "Failed")
"""How much was measured: in every such table, last."""


def _named(shown: RunView, path: str) -> str:
    """A run's id as a link, below it what its submitter calls it."""
    link = markup.link(path, shown.page, shown.manifest.run_id)
    return markup.two_lines(link, shown.beside.label, "fr-label") if shown.beside.label else link


_CELLS: Mapping[str, Cell] = {
    "Run": _named,
    "Grade": lambda shown, path: trust.badge(path, shown),
    "Tier": lambda shown, path: tier(path, shown),
    "Machine": lambda shown, path: markup.link(path, shown.machine_page, shown.name),
    "Device": lambda shown, _: escape(descriptions.device_name(shown.manifest.device)),
    "Date": lambda shown, _: escape(descriptions.day(shown.manifest.started_at)),
    "Suites": lambda shown, _: escape(words.listed(shown.manifest.suites)),
    "Blocks": lambda shown, _: str(shown.manifest.blocks),
    "Cells": lambda shown, _: str(shown.manifest.cells),
    "Failed": lambda shown, _: str(shown.failed),
}
"""By heading. All but the grade are told without reading a table, which ten thousand runs can afford."""


def runs_table(
    caption: str, runs: Sequence[RunView], path: str, columns: Sequence[str], suites: Cell = _CELLS["Suites"]
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
