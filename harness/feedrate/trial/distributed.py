"""Replicas of a model: none, on several GPUs of one process (dp), or in processes that torchrun starts (ddp).

``batch_size`` is each replica's own. With ``ddp`` every rank runs the whole trial on its own share of the samples, as
``DistributedSampler`` deals it out: the ranks' k-th batches together are the k-th batch of one process, and the mean of
their gradients is its gradient. With ``dp`` (``torch.nn.DataParallel``) the loader makes one batch for all replicas; it
is moved to the first GPU, which deals it out in every step and computes the loss.

A step of one rank waits for all, as gradients are averaged in the backward pass: all must take as many steps. They
agree on it outside the window, from the slowest rank's pace before; inside, nobody asks. The window begins when all
ranks are ready and ends when all are done. The first rank of a node reports: its own phases and spans, all's samples.

Torchrun's own agent starts the ranks, through its API, as forks of the trial's process and in its group: a kill of the
group leaves none of them. For the probes the agent is the main process, and ranks count among its workers.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psutil
import torch
import torch.distributed
from torch import nn

from feedrate.machine import linux
from feedrate.schema import window
from feedrate.trial import rendezvous
from feedrate.trial.job import Job, Reporter
from feedrate.trial.loop import Limits, Window

SPARE = 1.25
"""The agreed steps would fill this multiple of the wanted time at the pace of the warm-up: later ones may be faster."""
MONITOR_S = 1.0
"""How often torchrun's agent looks whether all ranks live."""
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""With it set PyTorch counts devices without starting CUDA."""


def in_group() -> bool:
    """Whether this process is a rank."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank_and_world() -> tuple[int, int]:
    """Which share of each batch this process loads, of how many: (0, 1) where it loads all."""
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if in_group() else (0, 1)


def replicate(job: Job, model: nn.Module) -> nn.Module:
    """Replicate the model of a trial as its cell asks."""
    if job.value("parallel") == "dp":
        return nn.DataParallel(model, device_ids=list(range(job.value("world_size"))))
    if not in_group():
        return model
    devices = [torch.cuda.current_device()] if job.device == "cuda" else None
    # None is PyTorch's own size. It counts from the second step on: the first is always one bucket.
    whole_mib = math.ceil(sum(parameter.nbytes for parameter in model.parameters()) / 2**20)
    size_mib = whole_mib if job.value("ddp_buckets") == "one" else None
    replica = nn.parallel.DistributedDataParallel(model, device_ids=devices, bucket_cap_mb=size_mib)
    replica.require_backward_grad_sync = job.value("ddp_buckets") != "none"  # as no_sync() has it
    return replica


def barrier(synchronize: Callable[[], None]) -> Callable[[], None]:
    """Make of a wait for the device a wait for all ranks: a window's wall clock is the group's."""
    if not in_group():
        return synchronize

    def wait() -> None:
        synchronize()
        torch.distributed.barrier()
        synchronize()

    return wait


def warm_up(measure: Callable[[Limits], Window], limits: Limits) -> Window:
    """Warm up until the limits allow an end; ranks take the least steps, agree from their pace how many more."""
    if not in_group():
        return measure(limits)
    first = measure(replace(limits, window_ns=0, capacity=limits.min_steps))
    rest = agree(limits, first.pace_ns()).min_steps - first.steps
    if rest <= 0:
        return first
    return replace(measure(Limits(0, rest, 1, rest)), started=first.started, lead_in=tuple(first.borders()[1:]))


def agree(limits: Limits, pace_ns: int) -> Limits:
    """Settle when the window ends; ranks take as many steps as the slowest needs to fill the time, at its pace."""
    if not in_group():
        return limits
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    slowest = torch.tensor(pace_ns, dtype=torch.int64, device=device)
    torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
    needed = max(limits.min_steps, -(-int(SPARE * limits.window_ns) // int(slowest.item())))
    steps = min(window.whole(needed, limits.multiple), limits.capacity)
    return Limits(0, steps, limits.multiple, steps)


class FailureReporter(Reporter):
    """Writes failures alone: what a rank reports that is not the first."""

    def send(self, event: str, **fields: Any) -> None:
        """Write a failure; drop everything else."""
        if event == "failure":
            super().send(event, **fields)


def launch(job: Job, descriptor: int, work: Callable[[Job, Reporter], None]) -> None:
    """Start the ranks of a trial on this node, as torchrun does, and stay with them until one of them dies."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    nodes, meeting = job.value("nodes"), job.meeting
    if meeting:  # torchrun would wait long for a node that does not come
        rendezvous.meet(meeting, nodes)
    # LaunchConfig asks for an accelerator: asked of CUDA itself, that would poison the fork of every rank.
    os.environ[NVML_CHECK] = "1"
    config = LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=job.value("world_size") // nodes,
        run_id=f"{meeting.block}-{meeting.position}" if meeting else str(uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint=meeting.endpoint if meeting else "localhost:0",
        rdzv_configs={"is_host": not (meeting and meeting.turn)},
        local_addr=meeting.address if meeting else "127.0.0.1",
        max_restarts=0,
        monitor_interval=MONITOR_S,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
    )
    del os.environ[NVML_CHECK]  # with it every later question would go to NVML, which takes long
    try:
        elastic_launch(config, _run_rank)(job, descriptor, os.getpid(), work)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        status = failure.exitcode
        death = f"it ended with status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
        if -status == signal.SIGKILL:
            death += "; often the kernel's out-of-memory killer"
        raise RuntimeError(f"rank {rank} of {job.value('world_size')} died: {death}") from error
    raise RuntimeError("all ranks ended without a result")


def _run_rank(job: Job, descriptor: int, agent: int, work: Callable[[Job, Reporter], None]) -> None:
    linux.die_with_parent(agent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the agent's own handlers would leave a file of their traceback
    first = os.environ["LOCAL_RANK"] == "0"
    work(job, Reporter(descriptor) if first else FailureReporter(descriptor))


def join(job: Job) -> None:
    """Become a member of the trial's process group; called once in every rank, from torchrun's environment.

    Threads are shared out, so that all ranks of a node together use as many as one process does; who sets
    OMP_NUM_THREADS means each rank's own, as for torchrun.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        ranks = job.value("world_size") // job.value("nodes")
        torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
    if job.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    interface = "lo"  # not where the machine's name leads, which may be to itself alone
    if job.meeting:
        cards = psutil.net_if_addrs().items()
        interface = next(name for name, ends in cards if any(end.address == job.meeting.address for end in ends))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    torch.distributed.init_process_group("nccl" if job.device == "cuda" else "gloo")
