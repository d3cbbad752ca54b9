"""Replicas of a model: each rank's share of the samples, the number of steps, gradients, and how ranks end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler

from feedrate.loaders import Batch, Batches
from feedrate.schema.plugins import ROOT
from feedrate.trial import distributed, feed, stages
from feedrate.trial.job import Job
from feedrate.trial.rendezvous import Meeting, Rendezvous

if TYPE_CHECKING:  # ranks load this file too, without the tests beside it
    from warm import Runner

CELL: dict[str, Any] = {"workload": "synthetic", "storage_format": "lmdb", "n_samples": 64, "patch_size": 16}
CELL |= {"mode": "train", "step": "real", "model": "srcnn", "batch_size": 4, "parallel": "ddp", "world_size": 2}


@settings(max_examples=60)
@given(world=st.integers(1, 5), size=st.integers(1, 6), count=st.integers(1, 90), seed=st.integers(0, 9))
def test_a_rank_gets_what_distributed_sampler_gives_it(world: int, size: int, count: int, seed: int) -> None:
    """Rank by rank and batch by batch the shares of one permutation are those of PyTorch's DistributedSampler."""
    permutation = [index for batch in Batches(count, 1, seed, endless=False) for index in batch]
    for rank in range(world):
        sampler = DistributedSampler(permutation, world, rank, shuffle=False, drop_last=True)
        theirs = [[permutation[at] for at in batch] for batch in BatchSampler(sampler, size, drop_last=True)]
        assert list(Batches(count, world * size, seed, endless=False, rank=rank, ranks=world)) == theirs


def test_data_parallel_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With dp the loader makes the batch of all GPUs in one, and DataParallel deals it out."""
    job, model = Job("trial", cell={**CELL, "parallel": "dp", "world_size": 3}), torch.nn.Linear(1, 1)
    monkeypatch.setattr(torch.nn, "DataParallel", lambda model, device_ids: (model, device_ids))
    assert distributed.replicate(job, model) == (model, [0, 1, 2])
    assert [len(batch) for batch in islice(feed.batch_order(job, 64), 6)] == [12] * 6


def batch_of(indices: list[int]) -> Batch:
    """Images that their numbers make."""
    images = torch.stack([torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(at)) for at in indices])
    return Batch((images, images.flip(3)), b"")


def gradients(job: Job, wrap: Any, order: Any, steps: int = 3) -> list[torch.Tensor]:
    """Train some steps on a trial's order of samples; the weights and the last step's gradients."""
    torch.manual_seed(job.seed)
    row, training = stages.assemble(job, torch.device("cpu"), wrap)
    assert training
    batches = [batch_of(indices) for indices in islice(order, steps)]
    for batch in batches:
        loss = row[0].run(batch)
        row[1].run(loss)
        found = [p.grad.clone() for p in training.network.parameters() if p.grad is not None]
        row[2].run(None)
    return [*found, *(p.detach().clone() for p in training.network.parameters())]


NODES = """
import os, sys, torch
from pathlib import Path
from importlib.util import spec_from_file_location, module_from_spec
from feedrate.trial import distributed
from feedrate.trial.job import Job

def work(job, reporter):
    spec = spec_from_file_location("test_distributed", sys.argv[1])
    tests = module_from_spec(spec)
    spec.loader.exec_module(tests)
    distributed.join(job)
    torch.save(tests.both_ways(job), Path(sys.argv[2], f"{torch.distributed.get_rank()}.pt"))

second = os.fork()  # a node each
try:
    distributed.launch(Job.parse(sys.argv[3 + bool(second)]), 1, work)
except RuntimeError as error:
    print(error, flush=True)
if second:
    os.wait()
"""


def both_ways(job: Job) -> list[list[torch.Tensor]]:
    """What a rank trains where gradients are exchanged, and where they are not."""
    jobs = [replace(job, cell={**CELL, "ddp_buckets": buckets}) for buckets in ("many", "none")]
    return [gradients(one, partial(distributed.replicate, one), feed.batch_order(one, 64)) for one in jobs]


@pytest.fixture
def two_nodes() -> Iterator[list[dict[str, Any]]]:
    """Where two nodes meet before a trial: the part of each node's job that says so."""
    server = Rendezvous(2, None, "127.0.0.1")
    with ThreadPoolExecutor(2) as pool:
        meetings = pool.map(lambda node: Meeting(server.url, node, 2).gate(0, 0), range(2))
        yield [{"meeting": asdict(meeting)} for meeting in meetings]
    server.close()


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_ranks_of_two_nodes_train_as_one_process(
    tmp_path: Path, two_nodes: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From their halves of every batch two ranks compute the gradients of the whole, and come to the same weights."""
    job = {"kind": "trial", "cell": CELL | {"nodes": 2}, "seed": 3}
    command = [sys.executable, "-c", NODES, __file__, str(tmp_path), *(json.dumps(job | node) for node in two_nodes)]
    done = subprocess.run(command, cwd=ROOT, stdout=-1, stderr=-2, text=True, timeout=120, check=False)
    assert done.stdout.count("all ranks ended without a result") == 2, done.stdout
    single = Job("trial", cell={**CELL, "parallel": "none", "world_size": 1, "batch_size": 8}, seed=3)
    whole = gradients(single, lambda model: model, feed.batch_order(single, 64))
    for rank in range(2):
        exchanged, apart = torch.load(tmp_path / f"{rank}.pt")
        monkeypatch.setattr(distributed, "rank_and_world", lambda rank=rank: (rank, 2))
        alone = Job("trial", cell=CELL, seed=3)
        share = gradients(alone, lambda model: model, feed.batch_order(alone, 64))
        torch.testing.assert_close(exchanged, whole, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(apart, share, rtol=1e-4, atol=1e-6)
        assert not all(map(torch.allclose, share, whole)), "a share teaches something else than the whole"


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each trial no process and no file of a traceback is left."""
    if "runner" not in request.fixturenames:
        yield
        return
    template = request.getfixturevalue("runner").template
    scratch = template.scratch  # its ranks' folder for temporary files
    before = {p.pid for p in psutil.Process().children()}, traces(scratch)
    yield
    assert ({p.pid for p in psutil.Process().children()}, traces(scratch)) == before
    assert psutil.Process(template.pid).children(recursive=True) == []


def traces(folder: str = tempfile.gettempdir()) -> set[Path]:
    """What torch.multiprocessing and torchrun leave in a folder for temporary files."""
    return {path for name in ("pytorch-errorfile-*", "torchelastic_*") for path in Path(folder).glob(name)}


def test_ranks_train_together(runner: Runner) -> None:
    """Two ranks with a worker each: samples of both count, one row comes, phases close, and all are in one group."""
    seen: dict[str, list[int]] = {}

    def watch(event: str, pid: int, _: dict) -> None:
        seen.setdefault(event, [])
        if event == "window_closes":
            family = psutil.Process(pid).children(recursive=True)
            seen[event] = [os.getpgid(member.pid) == pid for member in family]

    answer = runner.run(watch=watch, num_workers=1, prefetch_factor=2)
    assert answer.outcome == "ok", answer.message
    row = answer.result["row"]
    assert row["samples"] == row["steps"] * 4 * 2
    assert row["samples_per_s"] == row["samples"] * 1e9 / row["wall_ns"]
    phases = [f"host_{phase}_ns" for phase in ("fetch", "forward", "backward", "optimizer", "other")]
    assert sum(row[phase] for phase in phases) == pytest.approx(row["wall_ns"], rel=0.05)  # a core may be taken away
    assert seen["window_closes"] == [True] * 4  # two ranks, two workers
    assert set(seen) >= {"first_batch", "window_opens", "result"}
    assert answer.left_processes == 0


@pytest.mark.slow
def test_a_killed_rank_is_an_answer(runner: Runner) -> None:
    """A rank that the kernel kills ends the trial as an error, not by its timeout; nothing is left behind."""

    def kill(event: str, pid: int, _: dict) -> None:
        if event == "window_opens":
            os.kill(psutil.Process(pid).children()[0].pid, signal.SIGKILL)

    answer = runner.run(watch=kill, window_s=50, read_us=3_000)
    assert answer.outcome == "error"
    assert "SIGKILL" in answer.message or re.search("onnect|pipe", answer.message)
    assert answer.left_processes == 0


@pytest.mark.slow
def test_a_killed_agent_takes_its_ranks_along(runner: Runner) -> None:
    """When the process that started the ranks is killed they go too, and so do their workers."""
    seen: list[psutil.Process] = []

    def kill(event: str, pid: int, _: dict) -> None:
        if event == "window_opens":
            seen.extend(psutil.Process(pid).children(recursive=True))
            os.kill(pid, signal.SIGKILL)
            _, alive = psutil.wait_procs(seen, timeout=10)
            assert all(member.status() == psutil.STATUS_ZOMBIE for member in alive)

    answer = runner.run(watch=kill, window_s=50, read_us=3_000, num_workers=1, prefetch_factor=2)
    assert (answer.outcome, answer.kind) == ("crash", "SIGKILL")
    assert len(seen) == 4
    assert answer.left_processes == 0


@pytest.mark.slow
def test_a_blocking_trial_is_a_fresh_interpreter(runner: Runner) -> None:
    """CUDA_LAUNCH_BLOCKING is there before anything starts, in the process that the parent has watched all along."""
    environments: list[bytes] = []

    def watch(event: str, pid: int, _: dict) -> None:
        if event == "first_batch":
            environments.append(Path(f"/proc/{pid}/environ").read_bytes())

    loading = {"num_workers": 1, "prefetch_factor": 2}
    answer = runner.run(watch=watch, parallel="none", world_size=1, launch_blocking=True, **loading)
    assert answer.outcome == "ok", answer.message
    assert b"CUDA_LAUNCH_BLOCKING=1\0" in environments[0]
    assert answer.left_processes == 0
