"""What tests of charts share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from feedrate.charts import render
from feedrate.charts.figure import Figure


@pytest.fixture(scope="session")
def specs() -> Callable[[Figure], list[dict[str, Any]]]:
    """The Vega-Lite specification of each panel of a figure."""
    return lambda figure: [render.specification(panel) for panel in figure.panels]
