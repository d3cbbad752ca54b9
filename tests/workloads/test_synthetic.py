"""Every workload says what it is for; patterns that every machine makes alike."""

from __future__ import annotations

import hashlib
import importlib

import numpy as np
import pytest

from feedrate.schema.plugins import names
from feedrate.workloads import DataSpec
from feedrate.workloads.synthetic import samples


def test_golden() -> None:
    """The bytes are the published ones: a change of the pattern must raise VERSION and this hash."""
    digest = hashlib.sha256()
    for sample in samples(DataSpec("synthetic", 64, 33, 1)).samples:
        for field in sample:
            assert field.dtype == np.uint8
            assert field.shape == (33, 33, 3)
            digest.update(field.tobytes())
    assert digest.hexdigest()[:16] == "88161eb9623b762c"


def test_seeded_by_index_alone() -> None:
    """Sample i is the same in a small and in a large set, and no two samples are equal."""
    few, many = (list(samples(DataSpec("synthetic", n, 8, 1)).samples) for n in (3, 500))
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(few, many, strict=False))
    assert len({target.tobytes() for _, target in many}) == 500


@pytest.mark.parametrize("package", ["feedrate.workloads", "feedrate.workloads.models"])
def test_every_file_has_a_task(package: str) -> None:
    """Every task has a workload and a model."""
    tasks = {importlib.import_module(f"{package}.{name}").TASK for name in names(package)}
    assert tasks == {"super-resolution", "classification", "language"}
