"""PyTorch's debugging aids, switched on in every step as an experiment may have left them on.

============  ========================================================================================
anomaly       ``torch.autograd.set_detect_anomaly`` around the whole step
profiler      ``torch.profiler.profile`` around the whole step, a new one each: starting and stopping it is
              part of ``forward`` and ``optimizer``
nvtx          ``torch.autograd.profiler.emit_nvtx`` around the whole step; it waits for the device at both ends
gradcheck     after the backward pass, and part of it: ``torch.autograd.gradcheck`` of the loss with respect
              to the batch's input
gradgradcheck the same with ``torch.autograd.gradgradcheck``
============  ========================================================================================

The two checks need double precision, and evaluate the loss twice for every number of the input: they take a batch of 1
and a patch of a few pixels. They look at a copy of the network with the weights that it began with, which costs what
the trained weights would cost. A failed check does not end the trial: what is asked is its price.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch.autograd.profiler import emit_nvtx
from torch.profiler import ProfilerActivity, profile

from harness.trial.loader import Fields
from harness.trial.step.plain import Loss, Step

CHECKS: dict[str, Callable[..., bool]] = {
    "gradcheck": torch.autograd.gradcheck,
    "gradgradcheck": torch.autograd.gradgradcheck,
}


@cache
def _activities() -> tuple[ProfilerActivity, ...]:
    """What a profiler looks at; found once, as asking CUDA takes time in every step."""
    return (ProfilerActivity.CPU, *((ProfilerActivity.CUDA,) if torch.cuda.is_available() else ()))


AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "profiler": lambda: profile(activities=_activities()),
    "nvtx": emit_nvtx,
}


def around(step: Step, make: Callable[[], AbstractContextManager[Any]]) -> Step:
    """Enter a context when a step begins and leave it when the step has ended.

    Args:
        step: what runs inside.
        make: gives a new context for each step. An exception in a step leaves it open; the trial is over then.
    """
    entered: list[AbstractContextManager[Any]] = []

    def forward(fields: Fields) -> torch.Tensor:
        context = make()
        context.__enter__()
        entered.append(context)
        return step.forward(fields)

    def optimize(_: None) -> None:
        step.optimizer(None)
        entered.pop().__exit__(None, None, None)

    return step._replace(forward=forward, optimizer=optimize)


def checked(step: Step, model: torch.nn.Module, loss: Loss, check: Callable[..., bool]) -> Step:
    """Check the gradients of every batch's loss after the backward pass.

    Args:
        step: what is trained.
        model: the network that is checked; a copy of it is made in double precision.
        loss: of its output and the target.
        check: one of ``CHECKS``.
    """
    double = copy.deepcopy(model).double()
    seen: list[Fields] = []

    def forward(fields: Fields) -> torch.Tensor:
        seen.append(fields)
        return step.forward(fields)

    def backward(found: torch.Tensor) -> None:
        step.backward(found)
        source, target = (field.double() if field.is_floating_point() else field for field in seen.pop()[:2])
        source = source.detach().requires_grad_()
        check(lambda image: loss(double(image), target), (source,), raise_exception=False)

    return step._replace(forward=forward, backward=backward)
