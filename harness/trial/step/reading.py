"""Reading the loss back in every step, as a script that prints it does."""

from __future__ import annotations

import torch

from harness.trial.loader import Fields
from harness.trial.step.plain import Step


def read(step: Step) -> Step:
    """Read the loss (``loss.item()``) at the end of every step; the wait for the device is part of ``optimizer``.

    It comes last, so that the host waits for all that the step has put on the compute stream.
    """
    seen: list[torch.Tensor] = []

    def forward(fields: Fields) -> torch.Tensor:
        loss = step.forward(fields)
        seen.append(loss)
        return loss

    def optimize(_: None) -> None:
        step.optimizer(None)
        seen.pop().item()

    return step._replace(forward=forward, optimizer=optimize)
