"""Mixed precision: the forward pass and the loss under autocast, gradients of a scaled loss, and what overflowed.

As in PyTorch's own recipe, the backward pass runs outside autocast. ``GradScaler`` reads back in every step whether
gradients were finite: the wait for the device is part of what scaling costs.
"""

from __future__ import annotations

import torch

from harness.trial.loader import Fields
from harness.trial.step.plain import RealStep, Step

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Values of the axis ``amp``."""


def autocast(step: Step, device: torch.device, amp: str) -> Step:
    """Run forward pass and loss in mixed precision.

    Args:
        step: what to run.
        device: where.
        amp: one of ``DTYPES``.
    """
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
