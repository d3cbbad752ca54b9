"""What tests of charts share: made-up runs, a chart of one, and the specifications of its panels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from feedrate.charts import render
from feedrate.charts.figure import Figure
from feedrate.pages.runs import RunView


@pytest.fixture(scope="session")
def trials(show: Callable[..., RunView]) -> Callable[..., pd.DataFrame]:
    """The trials of a run of the given kind, read back through the store."""

    def make(**what: Any) -> pd.DataFrame:
        return show(**what).trials

    return make


@pytest.fixture(scope="session")
def specs() -> Callable[[Figure], list[dict[str, Any]]]:
    """The Vega-Lite specification of each panel of a figure."""
    return lambda figure: [render.specification(panel) for panel in figure.panels]
