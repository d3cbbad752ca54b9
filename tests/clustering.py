"""Sweeps on many nodes for tests: of tiny cells, as the command line starts them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sweeping import until

from feedrate.store import runs
from feedrate.store.clusters import ClusterFolder

CELL = {"mode": "load", "workload": "synthetic", "storage_format": "memmap", "n_samples": 64, "patch_size": 8}
PROTOCOL = {"warmup_s": 0.1, "min_steps": 5}


def matrix(folder: Path, *more: dict[str, Any], blocks: int = 1, window_s: float = 0.2, **axes: Any) -> Path:
    """Write a matrix of a loader whose samples cost 5 ms each, asleep, and of more such cells."""
    cells = CELL | {"read_us": 5000, "batch_size": [2, 4], "num_workers": [0, 1]} | axes
    protocol = PROTOCOL | {"blocks": [blocks, blocks], "window_s": window_s}
    slices = [cells, *(cells | axes for axes in more)]
    text = {"version": 1, "protocol": protocol, "suites": {"loader": slices}, "profiles": {"quick": {}}}
    (folder / "matrix.yaml").write_text(json.dumps(text))
    return folder / "matrix.yaml"


def words(folder: Path, *more: str) -> list[str]:
    """What is typed to sweep a folder's matrix."""
    places = ("--matrix", "matrix.yaml", "--results", "results", "--data-root", str(folder.parent / "data"))
    return ["sweep", *places, *more]


def command(folder: Path, *more: str) -> list[str]:
    """The command that sweeps a folder's matrix in a process of its own."""
    return [sys.executable, "-m", "feedrate", *words(folder, *more)]


def orders(folder: Path) -> list[list[str]]:
    """The cells of every run, in the order in which they ran."""
    found = []
    for stored in runs.runs(folder / "results"):
        trials = stored.table("trials").sort_values(["block", "position"])
        assert (trials["outcome"] == "ok").all(), trials["error_message"].dropna().to_list()
        found.append(trials["cell_id"].to_list())
    return found


def started(folder: Path) -> ClusterFolder:
    """The folder of the sweep that has just begun."""
    until(lambda: len(list(folder.glob("results/cluster/*/node-1.json"))) == 1)
    (path,) = folder.glob("results/cluster/*/")
    return ClusterFolder(folder / "results", path.name)
