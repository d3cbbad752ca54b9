"""What only a CUDA device can show: device spans, pinned copies, NVML. Skipped where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from harness import store
from harness.probes import gpu
from harness.registry import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(gpu.device() != "cuda", reason="needs a CUDA device")]

MATRIX = """
version: 1
protocol: {warmup_s: 0.3, window_s: 3, min_steps: 12, blocks: [1, 2], timeout_s: 120}
suites:
  loader:
    - {mode: train, patch_size: 64, n_samples: 512, storage_format: lmdb, batch_size: 64, num_workers: 2,
       pin_memory: [false, true], non_blocking: [false, true], timing: [events, serialized]}
    - {mode: [compute, copy], patch_size: 64, batch_size: 64}
profiles: {quick: {}}
"""


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "matrix.yaml").write_text(MATRIX)
    places = ["--matrix", folder / "matrix.yaml", "--results", folder / "results", "--data-root", folder / "data"]
    command = [sys.executable, "-m", "harness", "sweep", *map(str, places)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return store.runs(Path(folder) / "results")[-1].table("trials")


def test_every_cell_ran(trials: pd.DataFrame) -> None:
    """Pinned and pageable, blocking or not, by events or serialized: each is a cell of its own and runs."""
    assert (trials["outcome"] == "ok").all(), trials["error_message"].dropna().to_list()
    assert trials["cell_id"].nunique() == 10
    assert (trials["device"] == "cuda").all()


def test_device_spans_fill_the_window(trials: pd.DataFrame) -> None:
    """Spans and gaps by events add up to the host's wall clock within 5 %."""
    timed = trials[(trials["mode"] == "train") & (trials["timing"] == "events")]
    spans = [f"device_{span}_ns" for span in ("h2d", "forward", "backward", "optimizer", "idle")]
    share = timed[spans].sum(axis=1) / timed["wall_ns"]
    assert share.between(0.95, 1.01).all(), share.to_list()


def test_phases_close(trials: pd.DataFrame) -> None:
    """Host phases, the copy among them, add up to the wall clock within 1 %."""
    phases = [name for name in trials if name.startswith("host_")]
    assert ((trials[phases].fillna(0).sum(axis=1) / trials["wall_ns"] - 1).abs() <= 0.01).all()
    assert trials.loc[trials["mode"] != "compute", "host_h2d_ns"].notna().all()


def test_nvml_was_heard(trials: pd.DataFrame) -> None:
    """Utilization, power and memory are there, in their ranges."""
    assert trials["gpu_util_pct"].between(0, 100).all()
    assert (trials["gpu_power_w"] > 0).all()
    assert (trials["gpu_mem_peak_bytes"] > 0).all()


def test_serialized_has_no_events(trials: pd.DataFrame) -> None:
    """Serialized timing is a cross-check of its own: no device spans, never mixed in."""
    serialized = trials[trials["timing"] == "serialized"]
    assert serialized[["device_forward_ns", "device_idle_ns"]].isna().all(axis=None)
