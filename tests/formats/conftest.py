"""Each storage format in turn, and the module that its contract tests share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.schema.plugins import load, names


def _shared(name: str) -> None:
    """Load a module that lies beside the tests: they are no package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} cannot be loaded")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


_shared("contract")


@pytest.fixture(params=names("feedrate.formats"))
def storage(request: pytest.FixtureRequest) -> ModuleType:
    """Each format in turn."""
    return load("feedrate.formats", request.param)
