"""A check is a plug-in whose finding becomes a trial's row; each check sees what it looks for, and its opposite."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import pytest
import torch
from beside import tried

from feedrate.schema import plugins
from feedrate.schema.axes import BY_NAME
from feedrate.schema.columns import MEASURED
from feedrate.schema.errors import InputError, TrialError
from feedrate.trial.checks import (
    Finding,
    balance,
    batches_ahead,
    hdf5_fork,
    hdf5_resize,
    pin_custom,
    run_check,
    worker_signal,
)
from feedrate.trial.checks.next_epoch import SAMPLES
from feedrate.trial.checks.pin_custom import Custom, Pinnable
from feedrate.trial.job import Job, Reporter

if TYPE_CHECKING:
    from feedrate.sweep.launcher import Template

NAMES = plugins.names("feedrate.trial.checks")


def reported(**cell: Any) -> dict[str, Any]:
    """What a check reports."""
    reading, writing = os.pipe()
    try:
        run_check(Job("trial", cell={"mode": "check", **cell}), Reporter(writing))
        return json.loads(os.read(reading, 1 << 16))
    finally:
        os.close(reading)
        os.close(writing)


def test_every_file_is_a_check() -> None:
    """Each file has a function check; what it needs it declares without being imported; the axis names them all."""
    for name in NAMES:
        assert callable(plugins.load("feedrate.trial.checks", name).check)
        assert plugins.declared("feedrate.trial.checks", name, "DEVICE") in (None, "cuda")
    assert BY_NAME["check"].choices is not None
    assert BY_NAME["check"].choices() == NAMES
    assert BY_NAME["check"].default in NAMES


def test_a_finding_becomes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check reports its fact, its value and its evidence, in columns of the table; an unknown one is refused."""
    finding = Finding(False, 0.25, "A quarter of it.")
    monkeypatch.setattr(plugins.load("feedrate.trial.checks", "next_epoch"), "check", lambda job: finding)
    answer = reported(check="next_epoch")
    assert answer["event"] == "result"
    assert answer["row"] == {"fact": False, "fact_value": 0.25, "evidence": "A quarter of it."}
    assert answer["row"].keys() <= {column.name for column in MEASURED}
    with pytest.raises(InputError, match=r"unknown name 'flatness'.*termination"):
        reported(check="flatness")


@pytest.mark.slow
def test_checks_run_as_trials(template: Template, tmp_path: Path) -> None:
    """From the template, as in a sweep: the opposite of a claim is a good trial; no process and no file is left."""
    stale = f"{SAMPLES} of {SAMPLES} samples of the second still came from the old state"
    cells: tuple[tuple[dict[str, object], bool | None, str], ...] = (
        ({"check": "next_epoch", "persistent_workers": True}, True, stale),
        ({"check": "next_epoch", "persistent_workers": False}, False, "started anew"),
        ({"check": "termination", "ends_by": "sigint", "guarded": False}, False, "After SIGINT"),
        ({"check": "hdf5_fork", "guarded": True}, False, ""),
        ({"check": "lmdb_resize"}, False, ""),
        ({"check": "pin_everything"}, None, ""),
    )
    for cell, fact, words in cells:
        job = {"kind": "trial", "cell": {"mode": "check", **cell}, "data_root": str(tmp_path)}
        answer = template.run(json.dumps(job), timeout_s=240, watch=lambda *_: None)
        assert answer.outcome == ("error" if fact is None else "ok"), answer.message
        row = answer.result.get("row", {"fact": None, "evidence": ""})
        assert row["fact"] is fact
        assert words in row["evidence"]
        assert (answer.left_processes, answer.left_shm_segments) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_is_enlarged_and_the_file_is_removed(tmp_path: Path) -> None:
    """One made with room grows and keeps its values, one without cannot; nothing stays in the folder of the data."""
    finding = hdf5_resize.check(Job("trial", cell={"mode": "check"}, data_root=str(tmp_path / "data")))
    assert (finding.fact, finding.value) == (True, 1.0)
    assert "made without maxshape could not be (" in finding.evidence
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(("in_order", "least", "most"), [(True, 1.0, 1.0), (False, balance.SHARED, balance.SLOWER + 1)])
def test_who_is_free_takes_the_next_batch_only_out_of_order(in_order: bool, least: float, most: float) -> None:
    """In order both workers prepare as many batches, one of them four times as slowly; else the fast one does more."""
    finding = balance.check(Job("trial", cell={"mode": "check", "in_order": in_order}))
    assert least <= finding.value <= most
    assert finding.fact != in_order


def test_batches_that_lie_ready_are_counted() -> None:
    """As many as workers times their prefetch factor, whoever waits for them."""
    finding = batches_ahead.check(Job("trial", cell={"mode": "check"}))
    assert (finding.fact, finding.value) == (True, batches_ahead.WORKERS * batches_ahead.PREFETCH)


@tried
def test_workers_of_a_script_that_ends_get_a_signal() -> None:
    """PyTorch's workers end with status 0 on SIGTERM: that it came is seen all the same."""
    finding = worker_signal.check(Job("trial", cell={"mode": "check", "ends_by": "return"}))
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
    job = Job("trial", device="cuda", cell={"mode": "check", "check": "pin_custom"})
    assert pin_custom.check(job) == Finding(True, 1.0, evidence)
    monkeypatch.setattr(Custom, "pin_memory", Pinnable.pin_memory, raising=False)
    finding = pin_custom.check(job)
    assert (finding.fact, finding.value) == (False, 0)
    assert "left in pageable memory: none" in finding.evidence
    monkeypatch.setattr(pin_custom, "_is_pinned", lambda *_: False)
    with pytest.raises(TrialError, match="expected a CUDA device"):
        pin_custom.check(job)


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

    def close(self) -> None:
        """Nothing is open."""


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
