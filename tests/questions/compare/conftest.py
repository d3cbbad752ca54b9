"""What the browser tests of the page Compare share: the page of two published machines, and a file to drop on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import visits
from dropping import made, ready
from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def other(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``trials.parquet`` of a machine of four cores that feeds 1.5 times as fast as the published ones."""
    return made(fake_run, tmp_path_factory.mktemp("other"), "20260104T030405Z-four", cores=4)


@pytest.fixture
def page(sites: dict[str, Any], browser: Browser) -> Iterator[Page]:
    """The page of two published machines, on which nothing may have gone wrong in the end."""
    seen = visits.visit(browser, sites["main"])
    yield ready(seen.open("compare.html"))
    assert seen.problems == []
