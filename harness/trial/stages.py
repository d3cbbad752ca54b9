"""A training step as a row of stages; each takes what the one before returned.

``mode`` and ``step`` choose the row, so that the loop has no ifs and a stage that is not there costs nothing:

=========  ========  ==========================================
mode       step      stages
=========  ========  ==========================================
train      real      (h2d,) forward, backward, optimizer
train      emulated  (h2d,) forward = sleep for ``step_ms``
load                 none: the loader is drained
compute              forward, backward, optimizer on one resident batch
copy                 h2d of one resident batch
=========  ========  ==========================================

On a CPU there is nothing to copy and no ``h2d``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from harness import linux, registry
from harness.trial.job import Job
from harness.trial.loader import Batch, Fields
from harness.trial.planted import Wait

LEARNING_RATE = 1e-4


class Stage(NamedTuple):
    """One timed part of a step."""

    phase: str
    """Its name in ``records.PHASES``."""
    run: Callable[[Any], Any]
    """Takes what the stage before returned; the first takes a ``Batch``."""


class RealStep:
    """Forward and loss, backward, optimizer of a network; Adam, gradients set to None."""

    def __init__(self, model: torch.nn.Module, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        self._model = model
        self._loss = loss
        self._optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def forward(self, fields: Fields) -> torch.Tensor:
        """Loss of one batch of (input, target); what rides along behind them is ignored."""
        source, target = fields[:2]
        return self._loss(self._model(source), target)

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients of the loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def optimize(self, _: None) -> None:
        """Update the weights and drop the gradients."""
        self._optimizer.step()
        self._optimizer.zero_grad()

    def stages(self) -> list[Stage]:
        """The three stages in their order."""
        return [Stage("forward", self.forward), Stage("backward", self.backward), Stage("optimizer", self.optimize)]


def _emulated(step_ms: float) -> Stage:
    """Sleep for ``step_ms`` on average, as MLPerf Storage does for an accelerator that is not there."""
    linux.exact_timers()
    wait, ns = Wait(), round(step_ms * 1e6)

    def sleep(_: Fields) -> None:
        wait(ns)

    return Stage("forward", sleep)


def _copy(device: torch.device, non_blocking: bool) -> Stage:
    def to_device(batch: Batch) -> Fields:
        return tuple(field.to(device, non_blocking=non_blocking) for field in batch.fields)

    return Stage("h2d", to_device)


def _unpack(first: Stage) -> Stage:
    """On a CPU the batch is where it is needed: the first stage takes its tensors as they are."""
    run = first.run
    return first._replace(run=lambda batch: run(batch.fields))


def _real(job: Job, device: torch.device) -> list[Stage]:
    model = registry.load("harness.workloads.models", job.value("model")).build().to(device)
    loss = registry.load("harness.workloads", job.value("workload")).loss
    return RealStep(model, loss).stages()


def build(job: Job, device: torch.device) -> list[Stage]:
    """Choose the stages of a trial.

    Args:
        job: the trial; its cell names mode, step, model and workload.
        device: where the step runs.
    """
    mode = job.value("mode")
    if mode == "load":
        return []
    copy = _copy(device, job.value("non_blocking"))
    if mode == "copy":
        return [copy]
    emulated = mode == "train" and job.value("step") == "emulated"
    stages = [_emulated(job.value("step_ms"))] if emulated else _real(job, device)
    if mode == "train" and device.type == "cuda":
        return [copy, *stages]
    return [_unpack(stages[0]), *stages[1:]]
