"""Every workload and model says what it is for."""

from __future__ import annotations

import importlib

import pytest

from harness.registry import names

TASKS = {"super-resolution", "classification"}
PACKAGES = ("harness.workloads", "harness.workloads.models")


@pytest.mark.parametrize("package", PACKAGES)
def test_declared(package: str) -> None:
    """Each file has a TASK; every task has a workload and a model."""
    found = {name: importlib.import_module(f"{package}.{name}").TASK for name in names(package)}
    assert set(found.values()) == TASKS
