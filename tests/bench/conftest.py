"""A browser for the tests of what looks at pages."""

from __future__ import annotations

import pytest

from feedrate.bench import browser


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is."""
    executable = browser.browser_path()
    if executable is None:
        pytest.fail(browser.MISSING)
    return executable
