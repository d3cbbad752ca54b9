"""The page "Are my nodes alike?" of the newest sweep of nodes each by itself, which are called by their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from feedrate.analysis.estimates import rows_of
from feedrate.pages import markup
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView, place
from feedrate.pages.template import render
from feedrate.questions.nodes import chart, sentences
from feedrate.questions.nodes.analysis import ALL, Found, find
from feedrate.questions.nodes.sweep import origin, sweeps

PATH = "nodes.md"
TITLE = "Are my nodes alike?"


def page(every: Sequence[RunView]) -> Page | None:
    """Write the page from the newest sweep among all runs; None where no cluster swept."""
    found = [sweep for sweep in sweeps(view.run for view in every) if not sweep.together]
    if not found:
        return None
    sweep, views = found[0], {view.run.folder: view for view in every}
    own = {node: views[run.folder] for node, run in sorted(sweep.runs.items())}
    judged = find(sweep.trials())
    figure = place(chart.draw(judged), "nodes", PATH, origin(list(own.values()), len(judged.nodes)))
    parts = list(dict.fromkeys(judged.judged["part"]))
    body = render(
        "nodes/page.md",
        page=PATH,
        title=TITLE,
        sweep=sweep,
        began=own[min(own)].manifest.started_at,
        answer=sentences.answer(judged),
        variation=sentences.variation(judged),
        absent=sentences.absent(judged, sweep.nodes),
        reasons=list(sentences.reasons(judged)),
        columns=["Node", *(sentences.titled(part) for part in parts), "Blocks"],
        rows=list(_rows(judged, parts, own)),
    )
    return Page(PATH, TITLE, body, {figure.name: figure})


def _rows(found: Found, parts: Sequence[str], own: Mapping[int, RunView]) -> Iterator[list[object]]:
    """A row a node, the slowest in all cells first: how far it is off in each part."""
    every = {(row["part"], row["node"]): row for row in rows_of(found.judged)}
    for node in sorted(found.nodes if every else (), key=lambda node: every[ALL, node]["ratio"]):
        told = [_off(every[part, node]) for part in parts]
        link = markup.link(PATH, own[node].page, sentences.numbered(node))
        yield [link, *told, f"{every[ALL, node]['n']}"]


def _off(row: Mapping[str, Any]) -> Markup:
    """How far a node is off in a part, its interval below; bold where it is outlying."""
    value, lo, hi = (sentences.signed(100 * (row[end] - 1)) for end in ("ratio", "lo", "hi"))
    bold = Markup("<strong>{}\u00a0%</strong>").format(value)
    return markup.two_lines(bold if row["outlying"] else f"{value}\u00a0%", f"{lo} to {hi}")
