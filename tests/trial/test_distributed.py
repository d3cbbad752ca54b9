"""Replicas of a model: each rank's share of the samples, the number of steps, gradients, and how ranks end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, islice
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
from feedrate.trial.distributed import fixed_limits, join_windows
from feedrate.trial.job import Job
from feedrate.trial.loop import Limits, Window
from feedrate.trial.rendezvous import Meeting, Rendezvous, meet
from feedrate.workloads.models import mlp

if TYPE_CHECKING:  # ranks load this file too, without the tests beside it
    from warm import Runner

CELL: dict[str, Any] = {
    "workload": "synthetic",
    "mode": "train",
    "step": "real",
    "model": "srcnn",
    "storage_format": "lmdb",
    "n_samples": 64,
    "patch_size": 16,
    "batch_size": 4,
    "parallel": "ddp",
    "world_size": 2,
}


@settings(max_examples=60)
@given(world=st.integers(1, 5), size=st.integers(1, 6), count=st.integers(1, 90), seed=st.integers(0, 9))
def test_a_rank_gets_what_distributed_sampler_gives_it(world: int, size: int, count: int, seed: int) -> None:
    """Rank by rank and batch by batch the shares of one permutation are those of PyTorch's DistributedSampler."""
    permutation = [index for batch in Batches(count, 1, seed, endless=False) for index in batch]
    for rank in range(world):
        sampler = DistributedSampler(permutation, world, rank, shuffle=False, drop_last=True)
        theirs = [[permutation[at] for at in batch] for batch in BatchSampler(sampler, size, drop_last=True)]
        assert list(Batches(count, world * size, seed, endless=False, rank=rank, ranks=world)) == theirs


def test_together_the_ranks_see_what_one_process_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The k-th batches of all ranks hold the samples of one process' k-th batch with their sizes added, epochs on."""
    one = feed.batch_order(Job("trial", cell={**CELL, "parallel": "none", "world_size": 1, "batch_size": 8}), 20)
    all_ranks = []
    for rank in range(2):
        monkeypatch.setattr(distributed, "rank_and_world", lambda rank=rank: (rank, 2))
        all_ranks.append(feed.batch_order(Job("trial", cell=CELL), 20))
    for whole, *shares in islice(zip(one, *all_ranks, strict=True), 7):
        assert all(len(share) == 4 for share in shares)
        assert sorted(chain.from_iterable(shares)) == sorted(whole)


@settings(max_examples=60)
@given(
    window=st.integers(0, 10**9), least=st.integers(1, 50), multiple=st.integers(1, 8), pace=st.integers(10**5, 10**8)
)
def test_agreed_steps_fill_the_time(window: int, least: int, multiple: int, pace: int) -> None:
    """As many steps as last the window at the pace seen, in whole bursts; the clock has no say any more."""
    limits = fixed_limits(Limits.rounded(window / 1e9, least, multiple), pace)
    assert limits.window_ns == 0
    assert limits.min_steps == limits.capacity
    assert limits.min_steps >= least
    assert limits.min_steps % multiple == 0
    assert limits.min_steps * pace >= window


def stretch(begins: int, steps: int) -> Window:
    """Steps of 2 fetching and 1 otherwise."""
    stamps = [begins + at for k in range(steps) for at in (3 * k, 3 * k + 2, 3 * k + 2)]
    end = begins + 3 * steps
    room = array("q", [*stamps, end, 0, 0])
    tags = [str(begins + k).encode() for k in range(steps)]
    return Window(("fetch", "other"), begins, end, 0, steps, room, [*tags, b""])


def test_two_stretches_make_one() -> None:
    """No step and no batch's stamps are lost; what lies between the two belongs to the last step of the first."""
    both = join_windows(stretch(0, 2), stretch(100, 3))
    assert (both.steps, both.wall_ns) == (5, 109)
    assert both.durations() == {"fetch": [2] * 5, "other": [1, 95, 1, 1, 1]}
    assert both.tags[:5] == [b"0", b"1", b"100", b"101", b"102"]


def test_one_replica_changes_nothing() -> None:
    """Without replicas all stays as it is: nothing is wrapped, dealt out or waited for."""
    model, limits = torch.nn.Linear(1, 1), Limits.rounded(1, 2, 3)
    assert distributed.replicate(Job("trial", cell={}), model) is model
    assert distributed.rank_and_world() == (0, 1)
    assert distributed.barrier(os.getpid) is os.getpid
    assert distributed.agree(limits, 1) is limits
    assert distributed.warm_up(lambda given: given, limits) is limits


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


RANK = """
import sys, torch
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

try:
    distributed.launch(Job.parse(sys.argv[3]), 1, work)
except RuntimeError as error:
    print(error)
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
    """From their halves of every batch two ranks compute the gradients of the whole, and come to the same weights.

    Where gradients are not exchanged, each rank trains by itself on its share, as if there were no other.
    """
    job = {"kind": "trial", "cell": CELL | {"nodes": 2}, "seed": 3}
    commands = [[sys.executable, "-c", RANK, __file__, str(tmp_path), json.dumps(job | node)] for node in two_nodes]
    nodes = [subprocess.Popen(command, cwd=ROOT, stdout=-1, stderr=-2, text=True) for command in commands]
    for node in nodes:
        output, _ = node.communicate(timeout=120)
        assert "all ranks ended without a result" in output, output
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


@pytest.mark.parametrize(("buckets", "count"), [("many", 3), ("one", 1), ("none", 0)])
def test_gradients_are_exchanged_in_buckets(tmp_path: Path, buckets: str, count: int) -> None:
    """From the second step on the perceptron's 46 MB go in several buckets, in a single one, or nowhere."""
    cell = {**CELL, "model": "mlp", "world_size": 1, "ddp_buckets": buckets}
    exchanged: list[torch.Tensor] = []

    def exchange(_: None, bucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[no-untyped-def]
        exchanged.append(bucket.buffer())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    del exchange.__annotations__["return"]  # PyTorch takes no names for types
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        model: Any = distributed.replicate(Job("trial", cell=cell), mlp.build())
        model.register_comm_hook(None, exchange)
        for _ in range(2):
            exchanged.clear()
            model(torch.rand(2, 3, 16, 16)).sum().backward()
        assert len(exchanged) == count
    finally:
        torch.distributed.destroy_process_group()


DYING = """
import os, signal, torch
from feedrate.trial import distributed
from feedrate.trial.job import Job

def asked():
    raise SystemExit("CUDA itself was asked: ranks could not be forked any more")
torch._C._cuda_getDeviceCount = asked
torch.cuda._device_count_nvml = lambda: 1

def work(job, reporter):
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()

try:
    distributed.launch(Job("trial", cell={"world_size": 2}), 1, work)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_rank_that_dies_is_named_and_cuda_is_asked_nothing() -> None:
    """Torchrun's agent says which rank died, and how; no file stays behind.

    Its settings ask for an accelerator; the answer comes from NVML, which leaves forks as they are.
    """
    before = traces()
    command = [sys.executable, "-c", DYING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert "rank 1 of 2 died: killed by SIGKILL; often the kernel's out-of-memory killer" in done.stdout, done.stderr
    assert traces() == before


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each trial no process and no file of a traceback is left."""
    if "runner" not in request.fixturenames:
        yield
        return
    template = request.getfixturevalue("runner").template
    scratch = template._scratch.name  # its ranks' folder for temporary files
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


def test_a_rank_that_raises_is_an_answer(runner: Runner) -> None:
    """What a rank raises comes back with kind and message, at once."""
    answer = runner.run(workload="nothing")
    assert (answer.outcome, answer.kind) == ("error", "InputError")
    assert "unknown name 'nothing'" in answer.message
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


def test_a_window_waits_for_the_other_nodes(runner: Runner, two_nodes: list[dict[str, Any]]) -> None:
    """A trial that warmed up begins its window when the trial of the other node has done so, too."""
    first, second = (Meeting(**each["meeting"]) for each in two_nodes)
    came: dict[str, float] = {}

    def watch(event: str, _: int, __: dict) -> None:
        came.setdefault(event, time.perf_counter())
        if event == "tick" and "first_batch" in came and came["first_batch"] + 1.5 < time.perf_counter():
            came["met"] = came.get("met") or _met(second)

    answer = runner.run(watch=watch, meeting=asdict(first), mode="load", parallel="none", world_size=1, nodes=2)
    assert answer.outcome == "ok", answer.message
    assert came["first_batch"] + 1.5 < came["met"] < came["window_opens"] < came["met"] + 0.5


def _met(meeting: Meeting) -> float:
    begun = time.perf_counter()
    meet(meeting, 2)
    return begun


def test_a_trial_without_the_other_node_is_an_answer(runner: Runner, two_nodes: list[dict[str, Any]]) -> None:
    """Where the other node has moved on it fails at once, with replicas as well, which torchrun would wait for."""
    first, second = (Meeting(**each["meeting"]) for each in two_nodes)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.gate, 0, 1)
        for replicas in ({"parallel": "none", "world_size": 1}, {}):
            begun = time.monotonic()
            answer = runner.run(meeting=asdict(first), nodes=2, **replicas)
            assert (answer.outcome, answer.kind) == ("error", "TrialError")
            assert answer.message == "the window did not begin on all 2 nodes: that of node 1 ended before"
            assert time.monotonic() < begun + 10
        first.gate(0, 1)
        waiting.result()
