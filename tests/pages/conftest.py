"""Made-up runs, read back as pages see them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from harness import store
from harness.pages.gathered import Shown

Show = Callable[..., Shown]


@pytest.fixture(scope="session")
def show(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Show:
    """Make up a run of the given kind and read it back through the store."""
    made: dict[str, Shown] = {}

    def make(**what: Any) -> Shown:
        if (name := str(what)) not in made:
            results = tmp_path_factory.mktemp("results")
            fake_run.write(results, fake_run.Fake(**what))
            made[name] = Shown(store.runs(results)[0])
        return made[name]

    return make
