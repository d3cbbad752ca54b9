"""Storage formats in turn."""

from __future__ import annotations

from types import ModuleType

import pytest
from contract import ALL_BUT_FEW_SLOWLY, FORMATS

from feedrate.schema.plugins import load


def impatient(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A format; LitData waits 0.2 s, not 2 s, for a chunk that is cut or gone."""
    module = load("feedrate.formats", name)
    if name == "litdata":
        monkeypatch.setattr("litdata.streaming.item_loader._MAX_WAIT_TIME", 0.2)
    return module


@pytest.fixture(params=FORMATS)
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Each format in turn."""
    return impatient(request.param, monkeypatch)


@pytest.fixture(params=ALL_BUT_FEW_SLOWLY)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Each format in turn that is not like another, for tests that take longer: but for a few in the slow part."""
    return impatient(request.param, monkeypatch)
