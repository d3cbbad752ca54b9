"""The warm template leaves CUDA alone: a process that has asked for it cannot fork children that use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from stubs import compile_library
from warm import Runner

from feedrate.sweep.launcher import Template

CELL = {"workload": "synthetic", "storage_format": "lmdb", "n_samples": 64, "patch_size": 16, "batch_size": 8}
CELL |= {"num_workers": 1, "prefetch_factor": 2}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file into which a stub of CUDA's driver writes who called what, in all processes that are started."""
    if torch.version.cuda is None:
        pytest.skip("this PyTorch never looks for CUDA")
    folder = compile_library("libcuda", tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([str(folder), os.environ.get("LD_LIBRARY_PATH", "")]))
    monkeypatch.setenv("CUDA_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def initialised(calls: Path) -> set[int]:
    """The processes that called cuInit."""
    lines = calls.read_text().splitlines() if calls.exists() else []
    return {int(line.split()[0]) for line in lines if line.endswith(" cuInit")}


@pytest.mark.slow
def test_the_template_never_asks_for_cuda(calls: Path, tmp_path: Path) -> None:
    """Behind imports, a packing and a trial it has not called cuInit; a child that asks for CUDA is seen."""
    asking: set[int] = set()
    with Template() as template:
        runner = Runner(template, tmp_path / "data", CELL)
        assert runner.run(mode="train").outcome == "ok"
        runner.run("facts", watch=lambda _event, pid, _: asking.add(pid))
        assert asking
        assert asking <= initialised(calls)
        assert template.pid not in initialised(calls)
