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
from feedrate.trial import collate
from feedrate.trial import step as steps
from feedrate.trial.collate import Finish
from feedrate.trial.job import Job
from feedrate.trial.loader import Batch, Fields
from feedrate.trial.plants import Wait
from feedrate.trial.step import Training
from feedrate.trial.step.network import Wrap
from feedrate.trial.step.plain import Step


class Stage(NamedTuple):
    """One timed part of a step."""

    phase: str
    """Its name in ``records.PHASES``."""
    run: Callable[[Any], Any]
    """Takes what the stage before returned; the first takes a ``Batch``."""


def _emulated(step_ms: float) -> Stage:
    """Sleep for ``step_ms`` on average, as MLPerf Storage does for an accelerator that is not there."""
    linux.exact_timers()
    wait, ns = Wait(), round(step_ms * 1e6)

    def sleep(_: Fields) -> None:
        wait(ns)

    return Stage("forward", sleep)


def _copy(device: torch.device, non_blocking: bool, finish: Finish | None) -> Stage:
    """Copy a batch to the device; what was handed over as bytes is normalised there, on the stream of the copy."""

    def to_device(batch: Batch) -> Fields:
        return tuple(field.to(device, non_blocking=non_blocking) for field in batch.fields)

    if finish is None:
        return Stage("h2d", to_device)
    return Stage("h2d", lambda batch: finish(to_device(batch)))


def _unpack(first: Stage) -> Stage:
    """On a CPU the batch is where it is needed: the first stage takes its tensors as they are."""
    run = first.run
    return first._replace(run=lambda batch: run(batch.fields))


class Row(NamedTuple):
    """The stages of a trial."""

    stages: list[Stage]
    training: Training | None
    """What is behind them where a model runs."""


def stages_of(step: Step) -> list[Stage]:
    """Name the parts of a training step."""
    return [Stage("forward", step.forward), Stage("backward", step.backward), Stage("optimizer", step.optimizer)]


def build(job: Job, device: torch.device) -> list[Stage]:
    """Choose the stages of a trial that needs nothing outside its window."""
    return assemble(job, device).stages


def assemble(job: Job, device: torch.device, wrap: Wrap = lambda network: network) -> Row:
    """Choose the stages of a trial."""
    mode = job.value("mode")
    if mode == "load":
        return Row([], None)
    copy = _copy(device, job.value("non_blocking"), collate.on_device(job))
    if mode == "copy":
        return Row([copy], None)
    emulated = mode == "train" and job.value("step") == "emulated"
    training = None if emulated else steps.build(job, device, wrap)
    stages = stages_of(training.step) if training else [_emulated(job.value("step_ms"))]
    if mode == "train" and device.type == "cuda":
        return Row([copy, *stages], training)
    return Row([_unpack(stages[0]), *stages[1:]], training)
