"""The page "How many nodes at once?" of the newest sweep whose nodes ran their trials together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd
from markupsafe import Markup
from rich.console import Console

from feedrate.analysis.estimate import Estimate
from feedrate.pages import markup, report
from feedrate.pages.markup import Page
from feedrate.pages.report import Section
from feedrate.pages.runs import RunView, place
from feedrate.pages.template import render
from feedrate.questions.nodes.sweep import Sweep, origin, sweeps
from feedrate.questions.scaling import charts, sentences
from feedrate.questions.scaling.analysis import Level, Loading, Training, loading, training
from feedrate.schema import words

PATH = "scaling.md"
TITLE = "How many nodes at once?"


def page(every: Sequence[RunView]) -> Page | None:
    """Write the page from the newest such sweep among all runs; None where there is none."""
    together = [sweep for sweep in sweeps(view.run for view in every) if sweep.together]
    if not together:
        return None
    sweep, views = together[0], {view.run.folder: view for view in every}
    node_views = {node: views[run.folder] for node, run in sorted(sweep.runs.items())}
    trials = sweep.joined()
    drawn = charts.nodes_at_once.draw(trials)
    figure = place(drawn, "scaling", PATH, origin(list(node_views.values()), len(node_views)))
    loaded, trained = loading(trials), training(trials)
    body = render(
        "scaling/page.md",
        title=TITLE,
        sweep=sweep,
        began=node_views[min(node_views)].manifest.started_at,
        answer=next(answers(trials), sentences.NOTHING),
        loaded=[row for series in loaded for row in _loaded(series)],
        trained=[row for series in trained for row in _trained(series)],
        links=[markup.link(PATH, view.page, f"node {node}") for node, view in node_views.items()],
    )
    return Page(PATH, TITLE, body, {figure.name: figure})


def show(sweep: Sweep, console: Console) -> None:
    """Print a sentence for everything that was loaded or trained by several numbers of nodes."""
    lines = [*answers(sweep.joined()), words.INTERVALS]
    lines = lines if len(lines) > 1 else [sentences.NOTHING]
    report.show([Section(f"Sweep {sweep.name}: how many nodes at once?", lines)], console)


def answers(trials: pd.DataFrame) -> Iterator[str]:
    """Answer in a sentence for everything that was loaded, the storage that is full first, or trained."""
    by_knee = sorted(loading(trials), key=lambda load: load.knee.value if load.knee else math.inf)
    yield from map(sentences.of_loading, by_knee)
    yield from map(sentences.of_training, training(trials))


def _loaded(load: Loading) -> Iterator[list[object]]:
    for level in load.levels:
        total = words.number(level.nodes * level.rate.value)
        yield [_named(load), level.nodes, _rate(level), total, level.rate.n]


def _trained(training: Training) -> Iterator[list[object]]:
    for level in training.levels:
        shares = [_share(level.efficiency), _share(level.exchange)]
        yield [_named(training), sentences.placed(level), _rate(level), *shares]


def _named(series: Loading | Training) -> Markup:
    return markup.two_lines(sentences.titled(series.cell), sentences.described(series.cell))


def _rate(level: Level) -> Markup:
    return markup.two_lines(words.number(level.rate.value), words.interval(level.rate.low, level.rate.high))


def _share(share: Estimate | None) -> Markup | str:
    if not share:
        return "–"
    return markup.two_lines(words.percent(share.value), words.interval(share.low, share.high, share.n, words.percent))
