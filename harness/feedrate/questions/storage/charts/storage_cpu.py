"""CPU time of a sample, by format: what a training process and its workers burn to load it."""

from __future__ import annotations

import pandas as pd

from feedrate.charts.figure import Figure
from feedrate.questions.storage import panels

TITLE = "CPU time of a sample"
QUESTION = "How much CPU does each format take for a sample?"
READS = "trials"


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a line a format, sorted by its warm CPU time."""
    return panels.costs(trials, TITLE, QUESTION, "cpu_us", "CPU time per sample", "µs")
