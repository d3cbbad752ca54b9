"""What every network says of itself."""

from __future__ import annotations

import importlib
import inspect

import pytest

from feedrate.schema.axes import BY_NAME
from feedrate.schema.plugins import declared, names

PACKAGE = "feedrate.workloads.models"


@pytest.mark.parametrize("name", names(PACKAGE))
def test_knobs_are_what_build_takes(name: str) -> None:
    """A literal names the axes that build() takes, by keyword, each with its axis' default."""
    knobs = declared(PACKAGE, name, "KNOBS")
    taken = inspect.signature(importlib.import_module(f"{PACKAGE}.{name}").build).parameters
    assert tuple(taken) == knobs
    assert all(taken[knob].kind is inspect.Parameter.KEYWORD_ONLY for knob in knobs)
    assert all(taken[knob].default == BY_NAME[knob].default for knob in knobs)
