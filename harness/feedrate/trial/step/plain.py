"""A step of training as three callables, and the plain one that all others are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from feedrate.trial.loader import Fields

LEARNING_RATE = 1e-4
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(output, target) → a scalar tensor."""


class Step(NamedTuple):
    """What a step does, in its order; an axis that changes a step makes another one out of it."""

    forward: Callable[[Fields], torch.Tensor]
    """Loss of one batch of (input, target); what rides along behind them is ignored."""
    backward: Callable[[torch.Tensor], None]
    """Gradients of the loss."""
    optimizer: Callable[[None], None]
    """Update of the weights; gradients are cleared for the next step."""


class RealStep:
    """Forward and loss, backward, optimizer of a network; Adam, gradients set to None."""

    def __init__(self, model: torch.nn.Module, loss: Loss, *, set_to_none: bool = True) -> None:
        """Put a step together."""
        self._model = model
        self._loss = loss
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        self.clear = partial(self.optimizer.zero_grad, set_to_none=set_to_none)

    def forward(self, fields: Fields) -> torch.Tensor:
        """Loss of one batch of (input, target); what rides along behind them is ignored."""
        source, target = fields[:2]
        return self._loss(self._model(source), target)

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients of the loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def optimize(self, _: None) -> None:
        """Update the weights and clear the gradients."""
        self.optimizer.step()
        self.clear()

    def step(self) -> Step:
        """The three parts in their order."""
        return Step(self.forward, self.backward, self.optimize)
