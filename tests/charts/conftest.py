"""What tests of charts share: trials of made-up runs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from harness import store


@pytest.fixture(scope="module")
def trials(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pd.DataFrame]:
    """Make up a run and read its trials back through the store."""
    made: dict[str, pd.DataFrame] = {}

    def make(**what: Any) -> pd.DataFrame:
        if (name := str(what)) not in made:
            results = tmp_path_factory.mktemp("results")
            fake_run.write(results, fake_run.Fake(**what))
            made[name] = store.runs(results)[0].table("trials")
        return made[name]

    return make
