"""Mixed precision: the forward pass and the loss under autocast, gradients of a scaled loss, and what overflowed.

As in PyTorch's own recipe, the backward pass runs outside autocast. ``GradScaler`` reads back in every step whether
gradients were finite: the wait for the device is part of what scaling costs.

PyTorch's debugging aids, switched on in every step as an experiment may have left them on.

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

from feedrate.trial.loader import Fields
from feedrate.trial.step.plain import Loss, RealStep, Step

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Values of the axis ``amp``."""


def autocast(step: Step, device: torch.device, amp: str) -> Step:
    """Run forward pass and loss in mixed precision."""
    return step._replace(forward=torch.autocast(device.type, dtype=DTYPES[amp])(step.forward))


def scaled(real: RealStep, device: torch.device) -> Step:
    """Scale the loss, and skip the update when a gradient overflowed."""
    scaler = torch.amp.GradScaler(device.type)

    def backward(loss: torch.Tensor) -> None:
        real.backward(scaler.scale(loss))

    def optimize(_: None) -> None:
        scaler.step(real.optimizer)
        scaler.update()
        real.clear()

    return Step(real.forward, backward, optimize)


class Overflows:
    """Counts steps that were not finite, without a kernel or a synchronisation in any of them.

    Every step's loss, a number on the device, is kept and looked at after the window; updates are counted on the host.
    A step counts when its loss was not finite, or when the scaler skipped its update because a gradient was not. (Where
    there is no scaler, such a gradient spoils the weights, and shows in every later loss.)
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._losses: list[torch.Tensor] = []
        self._updates = 0
        optimizer.register_step_post_hook(self._updated)

    def _updated(self, *_: object) -> None:
        self._updates += 1

    def watched(self, step: Step) -> Step:
        """Keep the losses of a step."""

        def forward(fields: Fields) -> torch.Tensor:
            loss = step.forward(fields)
            self._losses.append(loss.detach())
            return loss

        return step._replace(forward=forward)

    def reset(self) -> None:
        """Forget what was; called outside a window."""
        self._losses.clear()
        self._updates = 0

    def count(self) -> int:
        """Say how many steps since the reset were not finite; waits for the device."""
        if not self._losses:
            return 0
        unsound = int((~torch.stack(self._losses).isfinite()).sum().item())
        return max(unsound, len(self._losses) - self._updates)


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
    """Enter a context when a step begins and leave it when the step has ended."""
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
    """Check the gradients of every batch's loss after the backward pass."""
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
