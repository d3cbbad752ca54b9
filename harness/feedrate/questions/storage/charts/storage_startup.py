"""Start-up of a loader, by format: from creating its iterator to holding the first batch."""

from __future__ import annotations

import pandas as pd

from feedrate.charts.figure import Figure
from feedrate.questions.storage import panels

TITLE = "Start-up"
QUESTION = "How long does each format take to its first batch?"
READS = "trials"


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a line a format, sorted by its warm start-up."""
    return panels.costs(trials, TITLE, QUESTION, "startup_ms", "time to the first batch", "ms")
