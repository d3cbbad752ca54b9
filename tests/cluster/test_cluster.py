"""A sweep on many nodes: on this machine in their place, and on a real Slurm of four."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clustering
import pytest
from clustering import command, matrix, orders, started
from real_slurm import Slurm
from rich.console import Console
from sweeping import typed, until

from feedrate.cluster import node
from feedrate.cluster.node import TELL_S, NodeScreen
from feedrate.cluster.sweep import Watched, run
from feedrate.plan.options import SweepOptions
from feedrate.schema.errors import InputError
from feedrate.store import location, runs
from feedrate.store.clusters import ClusterFolder, NodeStatus, names


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    """The folder of a sweep."""
    made = ClusterFolder(tmp_path, "sweep")
    made.create()
    return made


def watched(folder: ClusterFolder, states: Iterable[str], late: set[int] | None = None) -> Watched:
    """Nodes whose jobs, named a, b, c …, are in given states; jobs without a state are gone."""
    engine: Any = SimpleNamespace(
        states=lambda: {job: state for job, state in zip("abcde", states, strict=True) if state}
    )
    meets: Any = SimpleNamespace(behind=lambda: late, leave=lambda _: None)
    return Watched(folder, engine, dict(enumerate("abcde")), rendezvous=meets if late else None)


def test_what_became_of_a_job_is_seen(folder: ClusterFolder) -> None:
    """A job that waits anew, one that ended without a word (missing twice), and one that ended well are told apart."""
    for number, state in enumerate(("measures", "measures", "ended", "waits", "measures")):
        folder.tell(NodeStatus(node=number, name=f"node{number}", state=state, block=2, blocks=9))
    sweep = watched(folder, ("PENDING", "", "", "PENDING", "RUNNING"))
    assert [status.node for status in sweep.look()] == [0, 1, 3, 4]
    assert [status.node for status in sweep.look()] == [0, 3, 4]
    assert sweep.remarks == {0: "waits to go on: its node was lost or taken away", 1: "lost"}
    lines = [sweep.line(status) for status in sweep.statuses[2:]]
    assert lines == ["ended", "waits", "repetition 2 of ~9, 0.0 s left"]


@pytest.mark.parametrize(
    ("late", "words"),
    [({2}, "waits for node2"), ({2, 3}, "waits for node2 and node3"), ({1, 2, 3, 4}, "waits for 4 nodes")],
)
def test_nodes_say_for_which_they_wait(late: set[int], words: str, folder: ClusterFolder) -> None:
    """By name where there are few; those that are waited for say what they do."""
    for number in range(5):
        folder.tell(NodeStatus(node=number, name=f"node{number}", state="prepares", note="packing"))
    sweep = watched(folder, ["RUNNING"] * 5, late)
    sweep.look()
    lines = {status.node: sweep.line(status) for status in sweep.statuses}
    assert lines == {node: "packing" if node in late else words for node in range(5)}


def test_nothing_is_written_while_a_trial_is_measured(folder: ClusterFolder) -> None:
    """A tick only looks whether to go on, and ends the sweep where the folder says so."""
    screen = NodeScreen(folder, NodeStatus(node=0, name="node0"))
    screen.tick({})
    assert folder.statuses() == []
    folder.stop()
    screen.tick({})  # too soon for another look
    time.sleep(TELL_S)
    with pytest.raises(KeyboardInterrupt):
        screen.tick({})
    assert folder.statuses() == []


def test_a_node_whose_run_no_store_took_has_failed(
    folder: ClusterFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With where the run lies: it did not end well, although all of it was measured."""
    folder.tell(NodeStatus(node=0, name="node0"))
    monkeypatch.setattr(node.request, "make", lambda *_: None)
    monkeypatch.setattr(node.sweep, "run", lambda *_: SimpleNamespace(folder=tmp_path / "machine" / "run"))
    part: Any = None  # the sweep is not made
    node.NodeSweep(SweepOptions(results=location.parse("memory://bucket/results")), part, folder, "node0")()
    (status,) = folder.statuses()
    assert status.state == "failed"
    assert "the store did not take the run" in status.note
    assert str(tmp_path / "machine" / "run") in status.note


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"on": "slrm", "nodes": 2}, "unknown engine 'slrm'; expected one of local, slurm .did you mean 'slurm'"),
        ({"on": "local", "nodes": 0}, "--nodes 0: expected one node or more"),
        ({"on": "local", "time": "soon"}, "--time: got 'soon'"),
        ({"together": True}, "expected --on slurm --nodes 4 beside it"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_starts(
    asked: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """With what was expected; no folder is made."""
    options = SweepOptions(matrix=matrix(tmp_path), results=tmp_path / "results", **asked)
    with pytest.raises(InputError, match=said):
        run(options, Console())
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("words", "count"), [("", 4), ("--partition small", 1), ("--constraint fast", 1)])
def test_more_nodes_than_slurm_has_are_refused(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, count: int
) -> None:
    """In all, of a partition or with a feature; nothing is submitted."""
    matrix(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    done = typed(*clustering.words(tmp_path, "--on", "slurm", "--nodes", "5", *words.split()))
    assert done.status == 2
    assert f"Slurm has {count} such node" in done.err
    assert slurm.ask("squeue", "-h") == ""


@pytest.mark.slow
def test_ctrl_c_cancels_all_and_keeps_what_was_measured(slurm: Slurm, tmp_path: Path) -> None:
    """Every node writes a run of the trials that it had, all in one order; no job is left.

    Each is a machine of its own, whose name stands in the cluster's folder alone.
    """
    matrix(tmp_path, blocks=60)
    words, pipe = command(tmp_path, "--on", "slurm", "--nodes", "2"), subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, env=slurm.environment, stdout=pipe, text=True) as process:
        folder = started(tmp_path)
        until(lambda: all(status.trials >= 2 for status in folder.statuses()))
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    stored = runs.runs(tmp_path / "results")
    assert [run.manifest.stop_reason for run in stored] == ["interrupted"] * 2
    first, second = (order[:2] for order in orders(tmp_path))
    assert len(first) == 2
    assert first == second
    members = [run.manifest.cluster for run in stored]
    assert sorted((member.sweep, member.node, member.nodes) for member in members if member) == [
        (folder.sweep, 0, 2),
        (folder.sweep, 1, 2),
    ]
    called = names(tmp_path / "results")
    assert len({called[run.manifest.machine.machine_id] for run in stored} & set(slurm.names)) == 2
    assert not any(name in (run.folder / "run.json").read_text() for run in stored for name in slurm.names)
    ended = [line.split() for line in printed.splitlines() if line.split()[1:2] == ["ended"]]
    assert [(name, unit) for name, _, _, unit, *_ in ended] == [
        (name, "measurements") for name in sorted(called.values())
    ]
    until(lambda: slurm.ask("squeue", "-h") == "")
