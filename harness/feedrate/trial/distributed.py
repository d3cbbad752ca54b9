"""Replicas of a model: none, on several GPUs of one process (dp), or in processes that torchrun starts (ddp).

``batch_size`` is each replica's own. With ``ddp`` every rank runs the whole trial on its own share of the samples: the
single process' order with batches ``world_size`` times as large, of which a rank has every ``world_size``-th sample.
That is what ``DistributedSampler`` deals out, so that the ranks' k-th batches together are the k-th batch of one
process, and the mean of their gradients is its gradient.

A step of one rank waits for all (gradients are averaged in the backward pass), so all must take the same number of
steps. They agree on it outside the window, from the slowest rank's pace before; inside, nobody asks. The window begins
when all ranks are ready and ends when all are done. Rank 0 reports; phases and spans are its own, samples are all's.

The ranks are started by torchrun's own agent, through its API, as forks of the trial's process and in its group: the
trial's process has imported torch and computed nothing, so that a fork is as good as a fresh process, as it is for
every trial, and a kill of the group leaves none of them. For the probes the agent is the main process, and ranks count
among its workers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import torch
import torch.distributed
from torch import nn

from feedrate.machine import linux
from feedrate.schema import window
from feedrate.trial.job import Job, Reporter
from feedrate.trial.loop import Limits, Window

Synchronize = Callable[[], None]
Measure = Callable[[Limits], Window]
SPARE = 1.25
"""The agreed steps would fill this multiple of the wanted time at the pace of the warm-up: later ones may be faster."""
MONITOR_S = 1.0
"""How often torchrun's agent looks whether all ranks live."""
LOCAL = "127.0.0.1"
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""With it set PyTorch counts devices without starting CUDA."""


class Alone:
    """One replica: nobody to share with, nothing to agree on."""

    world = 1
    """Replicas of the model."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Replicate the model."""
        return model

    def share(self, batches: Iterable[list[int]]) -> Iterable[list[int]]:
        """Take this process' samples of batches for all replicas."""
        return batches

    def together(self, synchronize: Synchronize) -> Synchronize:
        """Make of a wait for the device a wait for all replicas."""
        return synchronize

    def warm_up(self, measure: Measure, limits: Limits) -> Window:
        """Warm up until the limits allow an end."""
        return measure(limits)

    def agree(self, limits: Limits, pace_ns: int) -> Limits:  # noqa: ARG002 - others need the pace
        """Settle when the window ends, knowing the host time of a step."""
        return limits


class Devices(Alone):
    """Replicas on the first GPUs, all driven by this process (``torch.nn.DataParallel``).

    The loader makes one batch for all of them; it is moved to the first GPU, which deals it out, gathers the outputs
    and computes the loss.
    """

    def __init__(self, world: int) -> None:
        self.world = world

    def wrap(self, model: nn.Module) -> nn.Module:
        """Replicate the model, in every step anew, as DataParallel does."""
        return nn.DataParallel(model, device_ids=list(range(self.world)))


class Ranks(Alone):
    """Replicas in processes of their own, of which this is one (``DistributedDataParallel``)."""

    def __init__(self) -> None:
        """Take part in the process group that ``_join`` has made."""
        self.rank = torch.distributed.get_rank()
        self.world = torch.distributed.get_world_size()
        self._device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"

    def wrap(self, model: nn.Module) -> nn.Module:
        """Have the backward pass average the gradients of all ranks."""
        devices = [torch.cuda.current_device()] if self._device == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices)

    def share(self, batches: Iterable[list[int]]) -> Iterable[list[int]]:
        """Take this rank's samples."""
        return Share(batches, self.rank, self.world)

    def together(self, synchronize: Synchronize) -> Synchronize:
        """Wait for the device, then for all ranks: a window's wall clock is the group's."""

        def wait() -> None:
            synchronize()
            torch.distributed.barrier()
            synchronize()

        return wait

    def warm_up(self, measure: Measure, limits: Limits) -> Window:
        """Take the least steps, agree from their pace how many fill the time, and take the rest."""
        first = measure(replace(limits, window_ns=0, capacity=limits.least))
        rest = self.agree(limits, first.pace_ns()).least - first.steps
        return joined(first, measure(Limits(0, rest, 1, rest))) if rest > 0 else first

    def agree(self, limits: Limits, pace_ns: int) -> Limits:
        """Fix a number of steps that all ranks take: as many as the slowest needs to fill the time."""
        return fixed(limits, self._most(pace_ns))

    def _most(self, value: int) -> int:
        held = torch.tensor(value, dtype=torch.int64, device=self._device)
        torch.distributed.all_reduce(held, torch.distributed.ReduceOp.MAX)
        return int(held.item())


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's samples of every batch."""

    batches: Iterable[list[int]]
    """Of all ranks together: sample numbers."""
    rank: int
    world: int

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches:
            yield batch[self.rank :: self.world]


def fixed(limits: Limits, pace_ns: int) -> Limits:
    """Turn limits of time into a number of steps."""
    wanted = max(limits.least, -(-int(SPARE * limits.window_ns) // pace_ns))
    steps = min(window.whole(wanted, limits.multiple), limits.capacity)
    return Limits(0, steps, limits.multiple, steps)


def joined(first: Window, then: Window) -> Window:
    """Put two stretches of the same loop together; what lies between them falls to the last step of the first."""
    width = len(first.phases) + 1
    return replace(
        then,
        started=first.started,
        steps=first.steps + then.steps,
        stamps=first.stamps[: first.steps * width] + then.stamps,
        tags=first.tags[: first.steps] + then.tags,
    )


def of(job: Job) -> Alone:
    """The replicas of a trial, seen from the process that asks."""
    if job.value("parallel") == "dp":
        return Devices(job.value("world_size"))
    return Ranks() if torch.distributed.is_available() and torch.distributed.is_initialized() else Alone()


class FailuresOnly(Reporter):
    """What a rank says that is not the first: nothing, unless it fails."""

    def send(self, event: str, **fields: Any) -> None:
        """Write a failure; keep everything else."""
        if event == "failure":
            super().send(event, **fields)


def launch(job: Job, descriptor: int, work: Callable[[Job, Reporter], None]) -> None:
    """Start the ranks of a trial, as ``torchrun --standalone`` does, and stay with them until one of them dies.

    Raises:
        RuntimeError: a rank died; the message names it.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # LaunchConfig asks for an accelerator: asked of CUDA itself, that would poison the fork of every rank.
    os.environ[NVML_CHECK] = "1"
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=job.value("world_size"),
        run_id=str(uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr=LOCAL,
        max_restarts=0,
        monitor_interval=MONITOR_S,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
    )
    del os.environ[NVML_CHECK]  # with it every later question would go to NVML, which takes long
    try:
        elastic_launch(config, _rank)(job, descriptor, os.getpid(), work)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise RuntimeError(f"rank {rank} of {job.value('world_size')} died: {_death(failure.exitcode)}") from error
    raise RuntimeError("all ranks ended without a result")


def _death(status: int) -> str:
    if status >= 0:
        return f"it ended with status {status}"
    name = signal.Signals(-status).name
    return f"killed by {name}" + ("; often the kernel's out-of-memory killer" if name == "SIGKILL" else "")


def _rank(job: Job, descriptor: int, agent: int, work: Callable[[Job, Reporter], None]) -> None:
    linux.die_with_parent(agent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the agent's own handlers would leave a file of their traceback
    first = os.environ["RANK"] == "0"
    work(job, Reporter(descriptor) if first else FailuresOnly(descriptor))


def join(job: Job) -> None:
    """Become a member of the trial's process group; called once in every rank, from torchrun's environment.

    Threads are shared out, so that all ranks together use as many as one process does; who sets OMP_NUM_THREADS means
    each rank's own, as for torchrun.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // job.value("world_size")))
    if job.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are here, whatever the machine's name resolves to
    torch.distributed.init_process_group("nccl" if job.device == "cuda" else "gloo")
