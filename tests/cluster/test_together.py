"""Nodes that sweep together: trials at the same moment on several of them, whatever becomes of one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from clustering import command, matrix, started, until
from real_slurm import Slurm

from feedrate.share import validator
from feedrate.store import runs
from feedrate.store.clusters import ClusterFolder

LOCAL = ("--on", "local", "--together", "--suite", "loader")
SLURM = ("--on", "slurm", "--together", "--suite", "loader")
NODES = [1, 2, 3]
"""How many run a trial."""
TRAINING = {"mode": "train", "batch_size": 4, "parallel": "ddp", "world_size": 2, "nodes": 2}
"""A cell of two ranks, a node each."""
FORK_S = 0.1
"""Most between a trial's begin and its loader's, which no column holds: it differs from node to node."""
AT_ONCE_S = 10.0
"""Most that a trial may take whose node is known to be gone; its timeout is 120 s."""


def trials_of(folder: Path) -> pd.DataFrame:
    """The trials of all nodes with when each and its window began and ended, in seconds of the epoch."""
    tables = []
    for stored in runs.runs(folder / "results"):
        assert stored.manifest.cluster
        tables.append(stored.table("trials").assign(node=stored.manifest.cluster.node))
    trials = pd.concat(tables).sort_values(["block", "position", "node"], ignore_index=True)
    trials["began"] = pd.to_datetime(trials["started_at"]).map(pd.Timestamp.timestamp)
    trials["ready"] = trials["began"] + trials["first_batch_ns"] / 1e9
    trials["opened"] = trials["began"] + (trials["first_batch_ns"] + trials["warmup_ns"]) / 1e9
    trials["closed"] = trials["opened"] + trials["wall_ns"] / 1e9
    return trials


def require_together(trials: pd.DataFrame, nodes: int, blocks: range, within_s: float) -> None:
    """Every trial ran well, once on each of its nodes and nowhere else, and no other was prepared meanwhile.

    No window opens before all nodes have batches, and all overlap for more than half of the shortest; most open at the
    same moment (where all share two cores, not each).
    """
    assert (trials["outcome"] == "ok").all(), trials["error_message"].dropna().to_list()
    places = trials.groupby(["block", "position"])
    assert sorted(trials["block"].unique()) == list(blocks)
    ended, apart = 0.0, []
    for (block, _), rows in places:
        count = rows["nodes"].iloc[0]
        assert rows["cell_id"].nunique() == 1
        assert rows["node"].to_list() == sorted((block + turn) % nodes for turn in range(count))
        assert rows["opened"].min() >= rows["ready"].max() - FORK_S
        assert rows["closed"].min() - rows["opened"].max() > (rows["wall_ns"] / 1e9).min() / 2
        apart.append(rows["opened"].max() - rows["opened"].min())
        assert rows["began"].min() >= ended - 0.001, "one was prepared while another was measured"
        ended = rows["closed"].max()
    assert np.median(apart) < within_s


@contextmanager
def sweeping(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], ClusterFolder]]:
    """A sweep that has measured for a while; it is gone afterwards."""
    with (
        (folder / "printed.txt").open("w") as printed,
        subprocess.Popen(command(folder, *words), cwd=folder, stdout=printed, stderr=printed, text=True) as process,
    ):
        try:
            yield process, started(folder)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_node_that_dies_holds_nobody_up(tmp_path: Path) -> None:
    """Trials that need it fail at once and say so, all others run; the sweep ends and says that it is lost."""
    matrix(tmp_path, blocks=2, batch_size=2, num_workers=0, nodes=NODES)
    with sweeping(tmp_path, *LOCAL, "--nodes", "3") as (process, folder):
        until(lambda: folder.statuses()[0].block == 1)
        printed = re.sub(r"\s+", " ", (tmp_path / "printed.txt").read_text())
        jobs = re.search(r"jobs ([\d, ]+)\.", printed)
        assert jobs, printed
        kill_tree(int(jobs[1].split(", ")[0]))
        assert process.wait(240) == 1
    assert re.search(r"local0 .* lost", (tmp_path / "printed.txt").read_text())
    trials = trials_of(tmp_path)
    assert set(trials["node"]) == {1, 2}
    failed = trials[trials["outcome"] != "ok"]
    assert failed["error_message"].str.contains("that of node 0 ended before").all(), failed["error_message"].to_list()
    assert failed["trial_wall_ns"].max() / 1e9 < AT_ONCE_S
    later = trials[trials["block"] == 1]
    ended = {(row.nodes, row.node): row.outcome for row in later.itertuples()}
    assert ended == {(1, 1): "ok", (2, 1): "ok", (2, 2): "ok", (3, 1): "error", (3, 2): "error"}


def kill_tree(pid: int) -> None:
    """Kill a process and all below it, as if its machine had lost power."""
    root = psutil.Process(pid)
    tree = [root, *root.children(recursive=True)]
    for process in tree:
        process.send_signal(signal.SIGSTOP)
    for process in tree:
        process.kill()


@pytest.mark.slow
def test_nodes_end_with_the_process_that_they_meet_in(tmp_path: Path) -> None:
    """It is killed outright: each node writes what it measured, and no process is left."""
    matrix(tmp_path, blocks=60, num_workers=0, nodes=[1, 2])
    with sweeping(tmp_path, *LOCAL, "--nodes", "2") as (process, folder):
        until(lambda: all(status.trials >= 2 for status in folder.statuses()))
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
    stored = runs.runs(tmp_path / "results")
    assert [run.manifest.stop_reason for run in stored] == ["interrupted"] * 2
    assert all(len(run.table("trials")) >= 2 for run in stored)


@pytest.mark.slow
def test_a_node_that_is_taken_away_comes_back(slurm: Slurm, tmp_path: Path) -> None:
    """The others wait for it, and it goes on with them; no trial that ended is lost or there twice, no job is left.

    In the block after it every trial runs on as many nodes as it says, on others than before, and at the same moment;
    two that train one model count the samples of both. Others take the runs in.
    """
    matrix(tmp_path, TRAINING, blocks=2, window_s=0.5, batch_size=2, num_workers=0, nodes=NODES)
    words = (*SLURM, "--nodes", "3", "--partition", "main")
    with subprocess.Popen(command(tmp_path, *words), cwd=tmp_path, env=slurm.environment, text=True) as process:
        folder = started(tmp_path)
        until(lambda: folder.statuses()[1].trials >= 2)
        (journal,) = tmp_path.glob(f"results/{folder.statuses()[1].machine_id}/*/journal.jsonl")
        before = [json.loads(line)["trial"] for line in journal.read_bytes().splitlines()]
        slurm.restart("node1")
        assert process.wait(300) == 0
    assert slurm.ask("squeue", "-h") == ""
    trials = trials_of(tmp_path)
    assert not trials.duplicated(["block", "position", "node"]).any()
    rates = trials.set_index("trial_id")["samples_per_s"]
    assert len(before) >= 2
    assert {trial["trial_id"]: rates[trial["trial_id"]] for trial in before} == {
        trial["trial_id"]: trial["samples_per_s"] for trial in before
    }
    failed = trials[trials["outcome"] != "ok"]
    assert failed.groupby(["block", "position"]).ngroups <= 1, failed["error_message"].to_list()
    whole = trials[trials["block"] == 1]
    require_together(whole, 3, range(1, 2), 0.5)
    training = whole[whole["parallel"] == "ddp"]
    assert (len(whole), len(training)) == (sum(NODES) + 2, 2)
    assert training["steps"].nunique() == 1
    assert (training["samples"] == training["steps"] * 4 * 2).all()
    assert training["samples_per_s"].max() / training["samples_per_s"].min() < 1.05
    for run in runs.runs(tmp_path / "results"):
        assert run.manifest.cluster
        assert run.manifest.cluster.together
        assert re.search(" --nodes 3 .*--together$", run.manifest.command)
        assert validator.check(run.folder).valid
