"""Nodes that sweep together: trials at the same moment on several of them, whatever becomes of one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from clustering import command, matrix, started
from real_slurm import Slurm
from sweeping import until

from feedrate.share import validator
from feedrate.store import runs

WORDS = ("--together", "--suite", "loader", "--nodes", "2", "--seed", "8")
"""With this seed the first trial runs on one node, and the last on both."""
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


def require_together(trials: pd.DataFrame, nodes: int, within_s: float) -> None:
    """Every trial ran well, once on each of its nodes and nowhere else, and no other was prepared meanwhile.

    No window opens before all nodes have batches, and all overlap for more than half of the shortest; most open at the
    same moment (where all share two cores, not each).
    """
    assert (trials["outcome"] == "ok").all(), trials["error_message"].dropna().to_list()
    places = trials.groupby(["block", "position"])
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


@pytest.mark.slow
def test_a_node_that_dies_holds_nobody_up(tmp_path: Path) -> None:
    """Trials that need it fail at once and say so, all others run; the sweep ends and says that it is lost."""
    matrix(tmp_path, blocks=2, num_workers=0, nodes=[1, 2])
    output = tmp_path / "printed.txt"
    with (
        output.open("w") as printed,
        subprocess.Popen(command(tmp_path, "--on", "local", *WORDS), cwd=tmp_path, stdout=printed) as process,
    ):
        folder = started(tmp_path)
        until(lambda: folder.statuses()[0].trials >= 1)
        job = re.search(r"jobs\s(\d+)", output.read_text())
        assert job
        kill_tree(int(job[1]))
        assert process.wait(240) == 1
    assert re.search(r"local0 .* lost", output.read_text())
    trials = trials_of(tmp_path)
    assert set(trials["node"]) == {1}
    failed = trials[trials["outcome"] != "ok"]
    assert set(failed["block"]) == {0, 1}
    assert failed["error_message"].str.contains("that of node 0 ended before").all(), failed["error_message"].to_list()
    assert failed["trial_wall_ns"].max() / 1e9 < AT_ONCE_S
    later = trials[trials["block"] == 1].groupby("nodes")["outcome"].agg(list)
    assert later.to_dict() == {1: ["ok"] * 2, 2: ["error"] * 2}


def kill_tree(pid: int) -> None:
    """Kill a process and all below it, as if its machine had lost power."""
    root = psutil.Process(pid)
    tree = [root, *root.children(recursive=True)]
    for process in tree:
        process.send_signal(signal.SIGSTOP)
    for process in tree:
        process.kill()


@pytest.mark.slow
def test_a_node_that_is_taken_away_comes_back(slurm: Slurm, tmp_path: Path) -> None:
    """The others wait for it, and it goes on with them; no trial that ended is lost or there twice, no job is left.

    Every trial after it runs on as many nodes as it says, and at the same moment; two that train one model count the
    samples of both. Others take the runs in.
    """
    matrix(tmp_path, TRAINING, blocks=2, window_s=0.5, num_workers=0, nodes=[1, 2])
    words = command(tmp_path, "--on", "slurm", "--partition", "main", *WORDS)
    with subprocess.Popen(words, cwd=tmp_path, env=slurm.environment, text=True) as process:
        folder = started(tmp_path)
        until(lambda: folder.statuses()[1].trials >= 1)
        (journal,) = tmp_path.glob(f"results/{folder.statuses()[1].machine_id}/*/journal.jsonl")
        before = [json.loads(line)["trial"] for line in journal.read_bytes().splitlines()]
        slurm.restart("node1")
        until(lambda: folder.statuses()[1].state == "starts")
        back = time.time()
        assert process.wait(300) == 0
    until(lambda: slurm.ask("squeue", "-h") == "")
    trials = trials_of(tmp_path)
    assert not trials.duplicated(["block", "position", "node"]).any()
    rates = trials.set_index("trial_id")["samples_per_s"]
    assert {trial["trial_id"]: rates[trial["trial_id"]] for trial in before} == {
        trial["trial_id"]: trial["samples_per_s"] for trial in before
    }
    failed = trials[trials["outcome"] != "ok"]
    assert failed.groupby(["block", "position"]).ngroups <= 1, failed["error_message"].to_list()
    later = trials[trials.groupby(["block", "position"])["began"].transform("min") > back]
    assert len(later) >= 4
    require_together(later, 2, 0.5)
    whole = trials[trials["block"] == 1]
    assert whole.groupby("nodes")["position"].nunique().to_dict() == {1: 2, 2: 3}
    training = whole[whole["parallel"] == "ddp"]
    assert len(training) == 2
    assert training["steps"].nunique() == 1
    assert (training["samples"] == training["steps"] * 4 * 2).all()
    assert training["samples_per_s"].max() / training["samples_per_s"].min() < 1.05
    for run in runs.runs(tmp_path / "results"):
        assert run.manifest.cluster
        assert run.manifest.cluster.together
        assert re.search(" --nodes 2 .*--together$", run.manifest.command)
        assert validator.check(run.folder).valid
