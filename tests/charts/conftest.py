"""What tests of charts share: trials of made-up runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from feedrate.pages.runs import RunView


@pytest.fixture(scope="session")
def trials(show: Callable[..., RunView]) -> Callable[..., pd.DataFrame]:
    """The trials of a run of the given kind, read back through the store."""

    def make(**what: Any) -> pd.DataFrame:
        return show(**what).trials

    return make
