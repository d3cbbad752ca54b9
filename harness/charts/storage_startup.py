"""Start-up of a loader, by format: from creating its iterator to holding the first batch."""

from __future__ import annotations

import pandas as pd

from harness.charts import _storage as storage
from harness.charts._figure import Figure

TITLE = "Start-up"
QUESTION = "How long does each format take to its first batch?"
READS = "trials"


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a line a format, sorted by its warm start-up.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
    """
    return storage.costs(trials, TITLE, QUESTION, "startup_ms", "time to the first batch", "ms")
