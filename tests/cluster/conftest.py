"""What tests of clusters share: a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_slurm import Slurm, missing


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A new Slurm of four nodes."""
    if why := missing():
        pytest.skip(f"a real Slurm cannot run here: {why}")
    cluster = Slurm(tmp_path_factory.mktemp("slurm"), 4)
    cluster.start()
    yield cluster
    cluster.stop()
