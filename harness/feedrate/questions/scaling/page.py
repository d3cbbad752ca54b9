"""The page "How many nodes at once?" of the newest sweep whose nodes ran their trials together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd
from rich.console import Console

from feedrate.pages import report
from feedrate.pages.markup import Page
from feedrate.pages.report import Section
from feedrate.pages.runs import RunView
from feedrate.questions.nodes.sweep import Sweep, newest
from feedrate.questions.nodes.sweep import page as sweep_page
from feedrate.questions.scaling import charts, sentences
from feedrate.questions.scaling.analysis import loading, training
from feedrate.schema import words

PATH = "scaling.md"
TITLE = "How many nodes at once?"


def page(every: Sequence[RunView]) -> Page | None:
    """Write the page from the newest such sweep among all runs; None where there is none."""
    if not (found := newest(every, together=True)):
        return None
    sweep, node_views = found
    trials = sweep.joined()
    figure, text = charts.nodes_at_once.draw(trials), next(answers(trials), sentences.NOTHING)
    return sweep_page(PATH, TITLE, sweep, node_views, figure, len(node_views), answer=text)


def show(sweep: Sweep, console: Console) -> None:
    """Print a sentence for everything that was loaded or trained by several numbers of nodes."""
    lines = [*answers(sweep.joined()), words.INTERVALS]
    lines = lines if len(lines) > 1 else [sentences.NOTHING]
    report.show([Section(f"Sweep {sweep.name}, {sweep.size}: how many at once?", lines)], console)


def answers(trials: pd.DataFrame) -> Iterator[str]:
    """Answer in a sentence for everything that was loaded, the storage that is full first, or trained."""
    by_knee = sorted(loading(trials), key=lambda load: load.knee.value if load.knee else math.inf)
    yield from map(sentences.of_loading, by_knee)
    yield from map(sentences.of_training, training(trials))
