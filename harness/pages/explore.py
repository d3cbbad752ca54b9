"""The page Explore: every number of every cell, to be picked, filtered, drawn, read and taken away.

The page is drawn by ``site/assets/explore.js`` from the files that ``explore_shards`` writes. Without scripts there is
a table of the run that it opens with.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from harness.analysis.estimates import AXIS_NAMES
from harness.analysis.explored import MEASURES
from harness.analysis.rows import rows_of
from harness.charts import _words as words
from harness.charts._embed import figure_csv
from harness.charts._figure import Figure
from harness.charts._slices import EMULATED, plain
from harness.pages import described, explore_shards, markup
from harness.pages.explore_shards import INDEX, RAN
from harness.pages.featured import Cast
from harness.pages.gathered import Shown
from harness.pages.home import leading
from harness.pages.markup import Page
from harness.pages.placed import Placed

PATH = "explore.md"
SCRIPTS = (
    "charts",
    "choices",
    "controls",
    "data",
    "dom",
    "marks",
    "specs",
    "state",
    "table",
    "view",
    "words",
)
"""Modules beside ``explore.js``, each ``explore_NAME.js``: asked for at once, as each names the next."""
_NAME = "explore"
_CSV = "data/explore-opening.csv"
_ORDER = ("mode", "step", "workload", "patch_size", "storage_format", "num_workers", "batch_size")
"""Axes by which the cells of that table are in order."""
_MOST = 50
"""Cells of the table for readers without scripts."""
_LEAD = (
    "Every cell of every run: choose what is drawn, against what, and which cells stay. The address of the page holds "
    "the whole choice, runs included, so that a link shows the same marks when there are more results."
)
_HOW = (
    "A mark is a cell: the mean over blocks with its 95\u00a0% Student-t interval; n counts blocks. Rates, durations, "
    "energy and memory are geometric means; phases, power and percentages are arithmetic ones, so that phases add up. "
    "Intervals say what another block would give in the same hours, nothing about other runs or machines. They are "
    "single ones, not corrected for how many are looked at, and the best of many marks is a little too good. Numbers "
    "here are rounded to five significant digits; the raw files of each run are on its page."
)
_NOTHING = '<div class="fr-nothing"><p>There is nothing to explore yet. Type make sweep, then make site.</p></div>\n'


def page(everyone: Cast) -> Page:
    """Write the page and its data.

    Args:
        everyone: all runs; none is fine.
    """
    lead = markup.paragraph(_LEAD, "fr-lead")
    cells = _measured(everyone)
    if not len(cells):
        return Page(PATH, "Explore", f"# Explore\n\n{lead}\n{_NOTHING}", hide=("navigation", "toc"))
    first = _opening(everyone, cells)
    run_id = first.manifest.run_id
    written = explore_shards.shards(cells, {shown.manifest.run_id: _about(shown) for shown in everyone.every})
    names = {name: described.machine_name(runs[0].run) for name, runs in everyone.machines.items()}
    index = explore_shards.index(cells, written, names, {"machine": first.machine_id, "run": run_id})
    own = cells[cells["run_id"].eq(run_id)]
    files: dict[str, str | Path] = {**{shard.path: shard.text for shard in written}, INDEX: index, _CSV: _csv(own)}
    body = ["# Explore\n", lead, markup.slot(_NAME), "\n", _plain(first, own), markup.paragraph(_HOW, "fr-note")]
    frame = Placed(_NAME, _frame(markup.addressed(INDEX, index)))
    return Page(PATH, "Explore", "\n".join(body), {_NAME: frame}, files, hide=("navigation", "toc"))


def _measured(everyone: Cast) -> pd.DataFrame:
    """The cells with at least one block, those of a machine together, the machine that was measured last first."""
    order = {name: place for place, name in enumerate(everyone.machines)}
    cells = everyone.cells
    cells = cells[cells["n"].gt(0)]
    return cells.iloc[cells["machine_id"].map(order).to_numpy().argsort(kind="stable")].reset_index(drop=True)


def _opening(everyone: Cast, cells: pd.DataFrame) -> Shown:
    """The newest run that speaks for its machine; where none does, the newest that has a cell."""
    have = set(cells["run_id"])
    return next(shown for shown in [*leading(everyone.featured), *everyone.every] if shown.manifest.run_id in have)


def _about(shown: Shown) -> dict[str, Any]:
    run = shown.manifest
    return {
        "machine": shown.machine_id,
        "tier": shown.beside.tier,
        "started": run.started_at,
        "day": described.day(run.started_at),
        "suites": sorted(run.suites),
        "blocks": run.blocks,
        "page": shown.page.replace(".md", ".html"),
    }


def _frame(index: str) -> str:
    waiting = (
        "Reading the numbers … Opened as a file, without a server, this page cannot read them: make serve shows it."
    )
    return markup.scripted("explore", index, [f"explore_{name}" for name in SCRIPTS], waiting)


def _plain(shown: Shown, cells: pd.DataFrame) -> str:
    """The cells of the opening run as a table; the script takes it away once it can show more."""
    rows = [
        (
            escape(RAN[EMULATED if row["step"] == EMULATED else str(row["mode"])]),
            escape(described.setting({name: row[name] for name in AXIS_NAMES if name not in ("mode", "step")})),
            words.number(float(row["samples_per_s"])),
            described.spread(float(row["samples_per_s_lo"]), float(row["samples_per_s_hi"])),
            str(row["n"]),
        )
        for row in rows_of(cells.sort_values(list(_ORDER), kind="stable").head(_MOST))
    ]
    some = f"the first {_MOST} of {len(cells):,} cells" if len(cells) > _MOST else words.plural(len(cells), "cell")
    name = escape(shown.name)
    run = markup.link(PATH, shown.page, f"run {shown.manifest.run_id}")
    link = markup.download(PATH, _CSV, f"All measures of all {len(cells):,} cells as CSV")
    columns = ("What ran", "Setting", "Samples/s", "95 % interval", "n")
    return (
        '<div class="fr-explore-plain" id="fr-explore-plain">\n'
        f'<p class="fr-origin">{name}, {run}: {some}. Axes at their default are not named.</p>\n'
        f"{markup.table('Cells of one run', columns, rows, ('Samples/s', 'n'), stack=True)}"
        f'<p class="fr-note">{link}. To choose other runs, measures and pictures, this page needs JavaScript.</p>\n'
        "</div>\n"
    )


def _csv(cells: pd.DataFrame) -> str:
    axes = [name for name in AXIS_NAMES if cells[name].notna().any()]
    measures = [measure.name for measure in MEASURES if cells[f"{measure.name}_n"].gt(0).any()]
    ends = [f"{name}{end}" for name in measures for end in ("", "_lo", "_hi", "_n")]
    names = ["machine_id", "run_id", "cell_id", "suite", "device", *axes, *ends, "failed"]
    rows: list[Mapping[str, Any]] = [{name: plain(row[name]) for name in names} for row in rows_of(cells[names])]
    return figure_csv(Figure("Explore", "", rows=tuple(rows)))
