"""Writes the short pages and the lists of a site that has too many runs to show all of them in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from harness.analysis import briefly
from harness.pages import apart, brief
from harness.pages.featured import Cast
from harness.pages.gathered import Shown
from harness.pages.markup import Page
from harness.site_publish import Published, put
from harness.store import StoredRun

_PART = 250
"""Machines whose pages are written together."""
_ALONE = 2
"""With more parts than these, further processes are worth their start."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one call of a process writes."""

    made: Published
    machines: Sequence[tuple[bool, Sequence[StoredRun]]]
    """Of each machine whether its own page is short too, and its runs whose pages are, newest first."""
    best: pd.DataFrame


def write(made: Published, everyone: Cast) -> None:
    """Add the pages of every run and machine that is not shown in full, and the lists of all.

    Args:
        made: the site; its frames know ``brief.likes``.
        everyone: all runs.
    """
    if not everyone.brief:
        return
    for page in brief.lists(everyone):
        _write(made, page)
    parts = list(_parts(made, everyone))
    if len(parts) <= _ALONE:
        list(map(_write_part, parts))
        return
    with apart.pool() as pool:
        list(pool.map(_write_part, parts))


def _parts(made: Published, everyone: Cast) -> Iterator[_Part]:
    best = briefly.best(everyone.cells)
    rows = best.groupby("run_id", sort=False).indices
    short = {shown.page for shown in everyone.brief}
    groups = [(own, [shown for shown in own if shown.page in short]) for own in everyone.machines.values()]
    wanted = [(len(few) == len(own), [shown.run for shown in few]) for own, few in groups if few]
    for at in range(0, len(wanted), _PART):
        part = wanted[at : at + _PART]
        places = [place for _, runs in part for run in runs for place in rows.get(run.manifest.run_id, ())]
        yield _Part(made, part, best.iloc[places])


def _write_part(part: _Part) -> None:
    by_run = brief.by_run(part.best)
    for alone, runs in part.machines:
        shown = [Shown(run) for run in runs]
        best = [by_run.get(each.manifest.run_id, []) for each in shown]
        for each, rows in zip(shown, best, strict=True):
            _write(part.made, brief.run_page(each, rows))
        if alone:
            _write(part.made, brief.machine_page(shown, best))


def _write(made: Published, page: Page) -> None:
    html = made.frames.fill(page, replace(made.plain, html=page.body, first=brief.FIRST))
    put((made.folder / page.path).with_suffix(".html"), html)
    for name, content in page.files.items():
        put(made.folder / name, content)
