"""A browser for the tests of what looks at pages."""

from __future__ import annotations

import pytest

from harness.bench import browsed


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is."""
    executable = browsed.browser_path()
    if executable is None:
        pytest.fail(browsed.MISSING)
    return executable
