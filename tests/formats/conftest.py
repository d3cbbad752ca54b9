"""Each storage format in turn."""

from __future__ import annotations

from types import ModuleType

import pytest

from feedrate.schema.plugins import load, names


@pytest.fixture(params=names("feedrate.formats"))
def storage(request: pytest.FixtureRequest) -> ModuleType:
    """Each format in turn."""
    return load("feedrate.formats", request.param)
