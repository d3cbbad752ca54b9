"""A visit to the site of made-up runs, on which nothing may go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from visits import Site, Visit, visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def seen(sites: dict[str, Site], browser: Browser) -> Iterator[Visit]:
    """Open the main site; at the end no message of the console, no failed and no foreign request may have been seen."""
    found = visit(browser, sites["main"])
    yield found
    assert found.problems == []
