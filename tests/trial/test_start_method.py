"""Workers that are forked, spawned, or forked from a server: the same samples, and none outlives its trial."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from beside import tried

from feedrate.schema import plugins
from feedrate.schema.plugins import ROOT
from feedrate.sweep.launcher import Template
from feedrate.trial import feed, loader, prepare
from feedrate.trial.job import Job
from feedrate.workloads import DataSpec

COUNT = 32
METHODS = ("fork", "spawn", "forkserver")
PLANTED = {"read_us": 1, "decode_us": 1, "collate_us": 1, "payload_bytes": 8, "read_shape": "jittered"}
NEW_INTERPRETERS_S = 120
"""Two interpreters that import torch beside other work."""


def cell(storage_format: str = "memmap", **more: object) -> dict[str, object]:
    own = {"workload": "synthetic", "mode": "load", "patch_size": 8, "n_samples": COUNT, "batch_size": 4}
    return own | {"storage_format": storage_format} | more


def packed(root: Path, storage_format: str = "memmap") -> str:
    spec = DataSpec("synthetic", COUNT, 8, 1)
    prepare.prepare(spec, storage_format, root, lambda done, total: None)
    return os.fspath(prepare.dataset_root(root, spec, storage_format))


def first_batches(found: str, count: int, **more: object) -> list[bytes]:
    job = Job("trial", cell=cell(**more), packed=found, seed=5)
    batches = feed.open_feed(job, torch.device("cpu")).batches
    return [batch.fields[0].numpy().tobytes() for batch in islice(batches, count)]


@pytest.mark.parametrize("storage_format", plugins.names("feedrate.formats"))
def test_all_that_a_worker_needs_survives_a_pickle(tmp_path: Path, storage_format: str) -> None:
    """Of every format, with planted costs and an index where they can be, opened before or not."""
    access = {"access": "sequential"} if storage_format in ("tfrecord", "webdataset") else {"index_kind": "numpy"}
    job = Job(
        "trial",
        cell=cell(storage_format, index_entries=2 * COUNT, **access, **PLANTED),
        packed=packed(tmp_path, storage_format),
    )
    _, dataset, collate = feed.samples(job)
    held: Any = feed.indexed(job, dataset)

    def batch(found: Any, collated: Any) -> bytes:
        taken = islice(found, 3) if isinstance(found, loader.StampedStream) else [found[i] for i in (0, 5, COUNT - 1)]
        fields: bytes = collated(list(taken)).fields[0].numpy().tobytes()
        return fields

    expected = batch(*pickle.loads(pickle.dumps((held, collate))))
    assert batch(held, collate) == expected
    assert batch(*pickle.loads(pickle.dumps((held, collate)))) == expected


@pytest.mark.parametrize("workload", plugins.names("feedrate.workloads"))
def test_transforms_survive_a_pickle(workload: str) -> None:
    """Of every workload, as the same function in the worker."""
    transform = plugins.load("feedrate.workloads", workload).transform
    assert pickle.loads(pickle.dumps(transform)) is transform


@pytest.mark.slow
def test_spawned_workers_give_the_same_batches(tmp_path: Path) -> None:
    """A new interpreter that got everything in a pickle reads what this process reads, in the same order."""
    found = packed(tmp_path)
    assert first_batches(found, 4, num_workers=1, start_method="spawn") == first_batches(found, 4)


def test_a_worker_leaves_with_the_training_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child has the kernel kill it with its parent; one that a server made waits for the training process to end."""
    bound: list[int] = []
    ended, left = threading.Event(), threading.Event()
    monkeypatch.setattr(loader, "die_with_parent", bound.append)
    monkeypatch.setattr(loader, "parent_process", lambda: SimpleNamespace(join=ended.wait))
    monkeypatch.setattr(loader.os, "_exit", lambda _: left.set())
    loader._bind_worker(17, False, 0)
    loader._bind_worker(18, True, 0)
    assert bound == [17]
    assert not left.wait(0.05)
    ended.set()
    assert left.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_batches_epoch_after_epoch(tmp_path: Path, method: str) -> None:
    """With workers that are kept, and with new ones for every epoch."""
    found, more = packed(tmp_path), {"num_workers": 1, "epoch_steps": 3, "start_method": method}
    expected = first_batches(found, 5)
    assert first_batches(found, 5, **more, persistent_workers=True) == expected
    assert first_batches(found, 5, **more) == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_trial_leaves_nothing_behind(tmp_path: Path, method: str) -> None:
    """Neither workers nor their server nor the tracker of their semaphores; start-up is in its column."""
    job = {"kind": "trial", "cell": cell(num_workers=2, start_method=method), "packed": packed(tmp_path)}
    job |= {"warmup_s": 0.05, "window_s": 0.2}
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with Template() as template:
        seen: set[int] = set()

        def watch(event: str, pid: int, _: dict[str, Any]) -> None:
            if event == "first_batch":
                seen.update(process.pid for process in psutil.Process(pid).children(recursive=True))

        answer = template.run(json.dumps(job), timeout_s=NEW_INTERPRETERS_S, watch=watch)
        assert answer.outcome == "ok", answer.message
        assert answer.left_processes == 0
        assert len(seen) == {"fork": 2, "spawn": 3, "forkserver": 4}[method]
        assert not any(psutil.pid_exists(pid) for pid in seen)
    assert {process.pid for process in psutil.Process().children(recursive=True)} == before
    startup_s = answer.result["row"]["startup_ns"] / 1e9
    assert startup_s > 1 or method == "fork"


TRAINING = """
import sys
from pathlib import Path
import torch
from feedrate.trial import feed
from feedrate.trial.job import Job
if __name__ == "__main__":
    opened = feed.open_feed(Job(**json.loads(sys.argv[1])), torch.device("cpu"))
    print("ready", flush=True)
    while True:
        next(opened.batches)
"""


@pytest.mark.slow
@tried
@pytest.mark.parametrize("method", METHODS)
def test_workers_are_gone_when_the_training_process_is_killed(tmp_path: Path, method: str) -> None:
    """By SIGKILL, at which it can do nothing itself: within two seconds no worker, server or tracker is left."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    job = {"kind": "trial", "cell": cell(num_workers=2, start_method=method), "packed": packed(folder)}
    script = folder / "training.py"
    script.write_text(TRAINING)
    command = [sys.executable, os.fspath(script), json.dumps(job)]
    training = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.fspath(ROOT)}, stdout=subprocess.PIPE)
    assert training.stdout is not None
    assert training.stdout.readline() == b"ready\n"
    training.stdout.close()
    family = psutil.Process(training.pid).children(recursive=True)
    training.send_signal(signal.SIGKILL)
    training.wait()
    _, alive = psutil.wait_procs([process for process in family if running(process)], timeout=2)
    until = time.monotonic() + 2
    while any(map(running, alive)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(running, alive))


def running(process: psutil.Process) -> bool:
    """Whether it still runs; the dead may wait to be reaped."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
