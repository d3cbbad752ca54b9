"""A check is a plug-in whose finding becomes a trial's row; each check sees what it looks for, and its opposite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import psutil
import pytest
import torch
from beside import tried

from feedrate.schema import plugins
from feedrate.schema.axes import BY_NAME
from feedrate.schema.columns import MEASURED
from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding, balance, batches_ahead, hdf5_fork, pin_custom, run_check, termination
from feedrate.trial.checks._orphans import _await_ready, watch
from feedrate.trial.checks.next_epoch import SAMPLES
from feedrate.trial.checks.pin_custom import Custom, Pinnable
from feedrate.trial.job import Job, Reporter

if TYPE_CHECKING:
    from feedrate.sweep.launcher import Template

NAMES = plugins.names("feedrate.trial.checks")


def job(root: Path | str = "", **cell: Any) -> Job:
    return Job("trial", cell={"mode": "check", **cell}, data_root=str(root))


def test_every_file_is_a_check() -> None:
    """Each file has a function check; what it needs it declares without being imported; the axis names them all."""
    for name in NAMES:
        assert callable(plugins.load("feedrate.trial.checks", name).check)
        assert plugins.declared("feedrate.trial.checks", name, "DEVICE") in (None, "cuda")
    assert BY_NAME["check"].choices is not None
    assert BY_NAME["check"].choices() == NAMES


def test_a_finding_becomes_a_row(tmp_path: Path) -> None:
    """A data set with room grows and keeps its values: fact, value and evidence are columns; no file is left."""
    reading, writing = os.pipe()
    run_check(job(tmp_path / "data", check="hdf5_resize"), Reporter(writing))
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = json.load(answers)
    assert answer["event"] == "result"
    assert answer["row"].keys() == {"fact", "fact_value", "evidence"} <= {column.name for column in MEASURED}
    assert (answer["row"]["fact"], answer["row"]["fact_value"]) == (True, 1.0)
    assert "made without maxshape could not be (" in answer["row"]["evidence"]
    assert list((tmp_path / "data").iterdir()) == []


STALE = f"{SAMPLES} of {SAMPLES} samples of the second still came from the old state"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "fact", "words"),
    [
        ({"check": "next_epoch", "persistent_workers": True}, True, STALE),
        ({"check": "next_epoch", "persistent_workers": False}, False, "started anew"),
        ({"check": "termination", "ends_by": "sigint", "guarded": False}, False, "After SIGINT"),
        ({"check": "hdf5_fork", "guarded": True}, False, ""),
        ({"check": "lmdb_resize"}, False, ""),
        ({"check": "pin_everything"}, None, ""),
    ],
    ids=lambda value: value["check"] if isinstance(value, dict) else "",
)
def test_checks_run_as_trials(template: Template, tmp_path: Path, cell: dict, fact: bool | None, words: str) -> None:
    """From the template, as in a sweep: the opposite of a claim is a good trial; no process and no file is left."""
    order = {"kind": "trial", "cell": {"mode": "check", **cell}, "data_root": str(tmp_path)}
    answer = template.run(json.dumps(order), timeout_s=240, watch=lambda *_: None)
    assert answer.outcome == ("error" if fact is None else "ok"), answer.message
    row = answer.result.get("row", {"fact": None, "evidence": ""})
    assert row["fact"] is fact
    assert words in row["evidence"]
    assert (answer.left_processes, answer.left_shm_segments) == (0, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("in_order", "least", "most"), [(True, 1.0, 1.0), (False, balance.SHARED, balance.SLOWER + 1)])
def test_who_is_free_takes_the_next_batch_only_out_of_order(in_order: bool, least: float, most: float) -> None:
    """In order both workers prepare as many batches, one of them four times as slowly; else the fast one does more."""
    finding = balance.check(job(in_order=in_order))
    assert least <= finding.value <= most
    assert finding.fact != in_order


def test_batches_that_lie_ready_are_counted() -> None:
    """As many as workers times their prefetch factor, whoever waits for them."""
    finding = batches_ahead.check(job())
    assert (finding.fact, finding.value) == (True, batches_ahead.WORKERS * batches_ahead.PREFETCH)


@tried
def test_workers_of_a_script_that_ends_get_a_signal() -> None:
    """PyTorch's workers end with status 0 on SIGTERM: that it came is seen all the same."""
    finding = plugins.load("feedrate.trial.checks", "worker_signal").check(job(ends_by="return"))
    assert (finding.fact, finding.value) == (True, 1.0)
    assert "2 of its 2 workers got SIGTERM" in finding.evidence


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors remember that they were pinned, and PyTorch believes in an accelerator; what it walks through is real."""

    def pin(tensor: torch.Tensor, device: object = None) -> torch.Tensor:
        copy = tensor.clone()
        copy._pretended = True
        return copy

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: getattr(tensor, "_pretended", False))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))


@pytest.mark.usefixtures("pretended")
def test_a_custom_class_is_left_unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors, dictionaries, tuples and a class with pin_memory() come pinned; the class without it does not."""
    evidence = (
        "Pinned came: tensor, dictionary, tuple, a class with pin_memory(); left in pageable memory: a class without "
        "pin_memory()."
    )
    assert pin_custom.check(job()) == Finding(True, 1.0, evidence)
    monkeypatch.setattr(Custom, "pin_memory", Pinnable.pin_memory, raising=False)
    finding = pin_custom.check(job())
    assert (finding.fact, finding.value) == (False, 0)
    assert "left in pageable memory: none" in finding.evidence
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
    with pytest.raises(TrialError, match="expected a CUDA device"):
        pin_custom.check(job())


class Inherited:
    """An open file whose reads go wrong in a process that did not open it; a read holds a lock."""

    def __init__(self, stored: Any, wrong: str) -> None:
        self._stored, self._wrong, self._lock, self._pid = stored, wrong, threading.Lock(), os.getpid()

    def __getitem__(self, index: str | int) -> Any:
        if isinstance(index, str):
            return self
        if os.getpid() == self._pid:
            with self._lock:
                time.sleep(0.01)  # a fork falls into it
                return self._stored[index]
        if self._wrong == "lost":
            self._lock.acquire()
        if self._wrong == "failed":
            raise OSError("somebody else has moved the file's position")
        return self._stored[index - (self._wrong == "wrong")]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["right", "wrong", "failed", "lost"])
def test_what_an_inherited_file_does_wrong_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Other bytes, errors and reads that do not return, as a lock was held at the fork: all of the children's."""
    monkeypatch.setattr(hdf5_fork, "SAMPLES", 8)
    monkeypatch.setattr(hdf5_fork, "HANG_S", 0.5)
    path = tmp_path / "noise.h5"
    sums = hdf5_fork.write(path, 0)
    with h5py.File(path) as file:
        stored = file["samples"][:]
    monkeypatch.setattr(hdf5_fork.h5py, "File", lambda *_: Inherited(stored, wrong))
    seen = hdf5_fork.read_at_once(path, sums, 0, guarded=False)
    assert seen[wrong] >= hdf5_fork.PROCESSES * (hdf5_fork.READS if wrong != "lost" else 1)
    assert set(+seen) <= {"right", wrong}


def script(worker: str, end: str = "") -> list[str]:
    """A training process with two workers, which do ``worker`` and call ``up``; told to end, it does ``end``."""
    code = f"""
        import os, pathlib, sys, time
        awake, waking = os.pipe()
        def up():
            os.write(waking, b".")
        workers = []
        for _ in range(2):
            pid = os.fork()
            if not pid:
                {worker}
                os._exit(0)
            workers.append(pid)
        for _ in workers:
            os.read(awake, 1)
        print("ready", flush=True)
        sys.stdin.readline()
        {end}
    """
    return [sys.executable, "-c", textwrap.dedent(code)]


@pytest.fixture
def nothing_left() -> Any:
    """No process that the test started lives on."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert not set(psutil.Process().children(recursive=True)) - before


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.slow
@tried
@pytest.mark.parametrize("ends_by", ["sigkill", "return"])
def test_workers_that_ignore_death_are_left_behind(ends_by: str) -> None:
    """Workers that stay when their parent ends make the claim true, are timed up to the limit, and then killed."""
    ending = watch(script("up(); time.sleep(60)", "os._exit(0)"), ends_by, 0.6)
    assert ending.outlived_s == (None, None)
    finding = termination.conclude(ending, ends_by, False, 0.6)
    assert (finding.fact, finding.value) == (True, 0.6)
    assert "2 of its 2 workers were still there 0.6 s later, 0 lay defunct" in finding.evidence


def test_shared_memory_that_is_left_is_counted_and_removed() -> None:
    """Files that carry a dead worker's id are counted and removed; those of others are left alone."""
    mine = os.getpid()
    foreign = Path(f"/dev/shm/torch_{mine}_4242_0")
    leaves = f'pathlib.Path(f"/dev/shm/torch_{{os.getpid()}}_1_{mine}").touch(); up(); time.sleep(60)'
    ends = f"pathlib.Path({str(foreign)!r}).touch(); [os.kill(pid, 9) or os.waitpid(pid, 0) for pid in workers]"
    try:
        ending = watch(script(leaves, ends), "return", 3.0)
        assert ending.segments == 2
        assert "2 files were left in shared memory" in termination.conclude(ending, "return", False, 3.0).evidence
        assert foreign.exists()
        assert not list(Path("/dev/shm").glob(f"torch_*_1_{mine}"))
    finally:
        foreign.unlink(missing_ok=True)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([sys.executable, "-c", "raise SystemExit('no such luck')"], r"did not begin to train.*no such luck"),
        (script("up(); time.sleep(60)", "time.sleep(60)"), r"had not ended after 0\.5 s"),
    ],
    ids=["does not start", "does not end"],
)
def test_a_script_that_cannot_be_watched_is_an_error(command: list[str], message: str) -> None:
    """One that does not start, with its last word, and one that does not end, which is killed with its workers."""
    with pytest.raises(TrialError, match=message):
        watch(command, "return", 0.5)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.slow
@tried
def test_a_first_process_that_never_waits_keeps_them() -> None:
    """Real workers that die with their training process lie defunct for good; they go with it here."""
    finding = termination.check(job(ends_by="sigkill", guarded=True, first_process="never_waits"), 1.0)
    assert finding.fact
    assert "2 of its 2 workers were still there 1 s later, 2 lay defunct" in finding.evidence


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is ready and its workers come before all others, where that is allowed."""

    def prefer(started: subprocess.Popen[bytes]) -> None:
        _await_ready(started)
        script = psutil.Process(started.pid)
        for thread in (thread for process in (script, *script.children()) for thread in process.threads()):
            with suppress(PermissionError):
                os.sched_setscheduler(thread.id, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))

    monkeypatch.setattr("feedrate.trial.checks._orphans._await_ready", prefer)


@pytest.mark.usefixtures("ahead")
@pytest.mark.slow
@pytest.mark.parametrize(("ends_by", "guarded"), [("sigterm", False), ("sigkill", True)])
@tried
def test_every_ending(ends_by: str, guarded: bool) -> None:
    """Real workers: plain PyTorch's live on for seconds after SIGTERM alone; none is left behind."""
    finding = termination.check(job(ends_by=ends_by, guarded=guarded))
    assert not finding.fact, finding.evidence
    outlived = not guarded
    assert (0.5 < finding.value < termination.LIMIT_S) == outlived, finding.evidence
    if guarded:
        assert finding.value < termination.SEEN_S
        assert finding.evidence.startswith("After SIGKILL to the training process alone (workers die with their parent")
        assert "nothing was left in shared memory" in finding.evidence
