"""What tests of the question Compare share: pages in a browser, a file to drop on one, runs of scripts, searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import visits
from dropping import made, ready
from playwright.sync_api import Browser, Page

from feedrate.site import scripts as site_scripts
from feedrate.site.serve import served


@pytest.fixture(scope="session")
def other(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``trials.parquet`` of a machine of four cores that feeds 1.5 times as fast as the published ones."""
    return made(fake_run, tmp_path_factory.mktemp("other"), "20260104T030405Z-four", cores=4)


@pytest.fixture(scope="session")
def written(
    fake_script: ModuleType, fake_tuned: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Makes up a run of a script, or a search where ``blocks`` are given, below one folder; each kind once."""
    results, folders = tmp_path_factory.mktemp("written"), dict[str, Path]()

    def write(**what: Any) -> Path:
        if str(what) not in folders:
            search, script = fake_tuned.Search, fake_script.Script
            module, kind = (fake_tuned, search) if "blocks" in what else (fake_script, script)
            folders[str(what)] = module.write(results, kind(**what))
        return folders[str(what)]

    return write


@pytest.fixture
def page(sites: dict[str, Any], browser: Browser) -> Iterator[Page]:
    """The page of two published machines, on which nothing may have gone wrong in the end."""
    seen = visits.visit(browser, sites["main"])
    yield ready(seen.open("compare.html"))
    assert seen.problems == []


@pytest.fixture(scope="module")
def scripts(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a folder in which the scripts of the page Compare and what they import lie."""
    folder = tmp_path_factory.mktemp("scripts")
    site_scripts.bundle(folder, ("compare/comparison.js", "compare/views.js", "compare/worker.js"))
    with served(folder) as address:
        opened = browser.new_page()
        opened.goto(address)
        yield opened
        opened.close()
