"""The training step of a trial, put together from its cell.

A step is three callables (``plain.Step``). Every axis that changes it is one small function that makes another step out
of one; an axis at its default adds nothing, so that the plain step pays for nothing that it does not do. From inside to
outside: the plain step or the one with a loss scaler, autocast, layout of the images, their size, the tensor made in
every step, the check of gradients, the count of overflows, the output brought back, the reading of the loss, and the
debugging aid around all of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

from feedrate.schema import plugins
from feedrate.trial.job import Job
from feedrate.trial.step import moving, network, options
from feedrate.trial.step.network import Wrap
from feedrate.trial.step.plain import RealStep, Step

REHEARSALS = {"compile": 1, "script": 2}
"""Steps of one shape after which code is made: TorchScript watches its first run and optimises in the second."""


@dataclass(frozen=True, slots=True)
class Training:
    """The step of a trial, and what is done about it outside the window."""

    step: Step
    network: torch.nn.Module
    """Bare: its parameters are the ones that are trained."""
    optimizer: torch.optim.Optimizer
    rehearsals: int
    """Steps that make all code that the trial runs; 0 where nothing is compiled."""
    overflows: options.Overflows | None
    """Counts steps that were not finite; None without mixed precision."""

    def rehearse(self, step: Callable[[], object]) -> None:
        """Run whole steps until all is compiled, and take back what they changed: weights, statistics, moments.

        A loss scaler keeps what it has learnt.
        """
        begun = copy.deepcopy(self.network.state_dict())
        for _ in range(self.rehearsals):
            step()
        self.network.load_state_dict(begun)
        self.optimizer.state.clear()
        self.optimizer.zero_grad()


def build(job: Job, device: torch.device, wrap: Wrap) -> Training:
    """Put the training step of a trial together."""
    if device.type == "cuda":
        _set_libraries(job)
    loss = plugins.load("feedrate.workloads", job.value("workload")).loss
    bare = network.bare(job, device)
    called = network.fused(bare, job.value("fusion"), wrap)
    outputs = None if job.value("d2h") == "none" else moving.Outputs(job.value("d2h"), job.value("d2h_every"))
    real = RealStep(called, outputs.seen(loss) if outputs else loss, set_to_none=job.value("zero_grad") == "none")
    step = _on_images(job, _in_precision(job, device, real))
    if job.value("create_on") != "none":
        step = moving.created(step, device, job.value("create_on"))
    overflows = None if job.value("amp") == "off" else options.Overflows(real.optimizer)
    debug = job.value("debug")
    if debug in options.CHECKS:
        step = options.checked(step, bare, loss, options.CHECKS[debug])
    if overflows:
        step = overflows.watched(step)
    if outputs:
        step = outputs.returned(step)
    if job.value("sync_every_step"):
        step = moving.read(step)
    if debug in options.AROUND:
        step = options.around(step, options.AROUND[debug])
    return Training(step, bare, real.optimizer, REHEARSALS.get(job.value("fusion"), 0) * shapes(job), overflows)


def _set_libraries(job: Job) -> None:
    """Set how CUDA's libraries compute, in any case and before the network is made.

    It must depend neither on PyTorch's defaults nor on TORCH_ALLOW_TF32_CUBLAS_OVERRIDE. TF32 is as PyTorch has it by
    itself: for convolutions, not for products of matrices. The names are the old ones, which set the new ones
    (``fp32_precision``) too. The new ones alone would leave the old ones as the variable put them, and PyTorch's
    compiler, which reads both, stops where they disagree.
    """
    torch.backends.cudnn.benchmark = job.value("cudnn_benchmark")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False


def _in_precision(job: Job, device: torch.device, real: RealStep) -> Step:
    step = options.scaled(real, device) if job.value("grad_scaler") else real.step()
    amp = job.value("amp")
    return step if amp == "off" else options.autocast(step, device, amp)


def _on_images(job: Job, step: Step) -> Step:
    if job.value("memory_format") == "channels_last":
        step = network.channels_last(step)
    return network.varied(step, job.value("patch_size")) if job.value("vary_shapes") else step


def shapes(job: Job) -> int:
    """Count the sizes that a trial's images have in turn."""
    return len(network.sizes(job.value("patch_size"))) if job.value("vary_shapes") else 1
