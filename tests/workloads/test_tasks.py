"""Every workload and model says what it is for."""

from __future__ import annotations

import importlib

import pytest
import torch

from feedrate.schema.plugins import names

TASKS = {"super-resolution", "classification"}
PACKAGES = ("feedrate.workloads", "feedrate.workloads.models")


@pytest.mark.parametrize("package", PACKAGES)
def test_declared(package: str) -> None:
    """Each file has a TASK; every task has a workload and a model."""
    found = {name: importlib.import_module(f"{package}.{name}").TASK for name in names(package)}
    assert set(found.values()) == TASKS


@pytest.mark.parametrize("name", names("feedrate.workloads"))
def test_normalizes(name: str) -> None:
    """Each workload knows how to turn a batch of bytes into what its transform makes, sample by sample."""
    workload = importlib.import_module(f"feedrate.workloads.{name}")
    fields = [torch.zeros(2, 3, 4, 5, dtype=torch.uint8), torch.zeros(2, 3, 4, 5, dtype=torch.uint8)]
    fields[1] = fields[1][:, :1, :1, :1] if workload.TASK == "classification" else fields[1]
    sample = tuple(field[0].permute(1, 2, 0).numpy() for field in fields)
    for found, expected in zip(workload.normalize(fields), workload.transform(sample), strict=True):
        assert (found.dtype, found.shape[1:]) == (expected.dtype, expected.shape)
