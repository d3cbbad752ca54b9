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

from feedrate.machine import linux
from feedrate.trial import collate, step
from feedrate.trial.collate import Normalizer
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch, Fields
from feedrate.trial.plants import Wait


class Stage(NamedTuple):
    """One timed part of a step."""

    phase: str
    """One of ``columns.PHASES``."""
    run: Callable[[Any], Any]
    """Takes what the stage before returned; the first takes a ``Batch``."""


def build(job: Job, device: torch.device, wrap: step.Wrap = lambda network: network) -> list[Stage]:
    """Choose the stages of a trial that needs nothing outside its window."""
    return assemble(job, device, wrap)[0]


def assemble(
    job: Job, device: torch.device, wrap: step.Wrap = lambda network: network
) -> tuple[list[Stage], step.Training | None]:
    """Choose the stages of a trial; with them, where a model runs, the training behind them."""
    mode = job.value("mode")
    if mode == "load":
        return [], None
    copy = copy_stage(device, job.value("non_blocking"), collate.normalizer(job, "cuda"))
    if mode == "copy":
        return [copy], None
    if mode == "train" and job.value("step") == "emulated":
        training, stages = None, [_emulated_stage(job.value("step_ms"))]
    else:
        training = step.build(job, device, wrap)
        stages = [Stage(phase, run) for phase, run in training.step._asdict().items()]
    if mode == "train" and device.type == "cuda":
        return [copy, *stages], training
    # The batch is where it is needed: the first stage takes its tensors as they are.
    run = stages[0].run
    return [stages[0]._replace(run=lambda batch: run(batch.fields)), *stages[1:]], training


def copy_stage(device: torch.device, non_blocking: bool, normalizer: Normalizer | None) -> Stage:
    """Copy a batch to the device; what was handed over as bytes is normalised there, on the stream of the copy."""

    def to_device(batch: Batch) -> Fields:
        return tuple(field.to(device, non_blocking=non_blocking) for field in batch.fields)

    if normalizer is None:
        return Stage("h2d", to_device)
    return Stage("h2d", lambda batch: normalizer(to_device(batch)))


def _emulated_stage(step_ms: float) -> Stage:
    """Sleep for ``step_ms`` on average, as MLPerf Storage does for an accelerator that is not there."""
    linux.exact_timers()
    wait, ns = Wait(), round(step_ms * 1e6)
    return Stage("forward", lambda _: wait(ns))
