"""What tests of clusters share: a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_slurm import Slurm, missing


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm of four nodes, which each test leaves as it was."""
    if why := missing():
        pytest.skip(f"a real Slurm cannot run here: {why}")
    cluster = Slurm(tmp_path_factory.mktemp("slurm"), 4)
    cluster.start()
    yield cluster
    cluster.stop()
