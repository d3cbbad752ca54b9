"""What tests of loaders share: trials of synthetic samples, and workers that end soon."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from feedrate.trial.job import Job


@pytest.fixture(scope="session")
def job(pack: Callable[..., str]) -> Callable[..., Job]:
    """Makes a job of axes, whose samples are packed in its format."""

    def make(**axes: object) -> Job:
        cell = {"workload": "synthetic", "mode": "load", "patch_size": 8, "n_samples": 24, "batch_size": 4}
        cell |= {"storage_format": "memmap"} | axes
        packed = pack(str(cell["storage_format"]))
        return Job("trial", cell=cell, packed=packed, seed=5, warmup_s=0.05, window_s=0.2)

    return make


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch waits 0.2 s, not 5 s, for each worker of an iterator that garbage collection finds."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
