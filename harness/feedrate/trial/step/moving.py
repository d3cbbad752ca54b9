"""What else a step moves between host and device: a tensor that it makes, and its output.

Reading the loss back in every step, as a script that prints it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import torch

from feedrate.trial.loader import Fields
from feedrate.trial.step.plain import Loss, Step

Keep = Callable[[torch.Tensor], None]
"""Brings an output to the host."""


def created(step: Step, device: torch.device, where: str) -> Step:
    """Make a tensor of random numbers in every step, of the input's shape, and add none of it to the input.

    Both sides draw as many numbers and add as many products (with 0, which leaves the input as it was): they differ in
    where the numbers are drawn, and in the copy from there. All of it is part of ``forward``.
    """
    source = torch.device("cpu") if where == "host" else device

    def forward(fields: Fields) -> torch.Tensor:
        image, *others = fields
        made = torch.rand(image.shape, dtype=image.dtype, device=source).to(device)
        return step.forward((torch.add(image, made, alpha=0), *others))

    return step._replace(forward=forward)


class Outputs:
    """The model's outputs, some of which are brought back to the host at the end of their step."""

    def __init__(self, where: str, every: int) -> None:
        """Say what to bring back."""
        keep = Pinned().keep if where == "pinned" else pageable()
        self._turns = cycle([*[_nothing] * (every - 1), keep])
        self._held: list[torch.Tensor] = []

    def seen(self, loss: Loss) -> Loss:
        """Take the outputs where the loss sees them."""

        def found(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            self._held[:] = [output.detach()]
            return loss(output, target)

        return found

    def returned(self, step: Step) -> Step:
        """Bring outputs back when a step ends; the copy, or its launch, is part of ``optimizer``."""

        def optimizer(_: None) -> None:
            step.optimizer(None)
            next(self._turns)(self._held.pop())

        return step._replace(optimizer=optimizer)


def _nothing(_: torch.Tensor) -> None:
    pass


def pageable() -> Keep:
    """Make copies in pageable memory, for which the host waits; the last one is kept."""
    kept: list[torch.Tensor] = []

    def keep(output: torch.Tensor) -> None:
        kept[:] = [output.cpu()]

    return keep


class Pinned:
    """Two pinned buffers in turn for every shape, made when it first comes, which is in the warm-up.

    A copy returns at once. A buffer is written again only when the copy before into it is done: whoever reads the
    outputs has a step's time for it.
    """

    BUFFERS = 2

    def __init__(self) -> None:
        self._turns: dict[tuple[torch.Size, torch.dtype], Iterator[tuple[torch.Tensor, torch.cuda.Event]]] = {}

    def keep(self, output: torch.Tensor) -> None:
        """Begin to copy an output."""
        kind = (output.shape, output.dtype)
        if kind not in self._turns:
            self._turns[kind] = cycle([_buffer(output) for _ in range(self.BUFFERS)])
        buffer, done = next(self._turns[kind])
        done.synchronize()
        buffer.copy_(output, non_blocking=True)
        done.record()


def _buffer(output: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event]:
    """Room for an output of the same shape and layout, and what tells that a copy into it is done."""
    room = torch.empty_like(output, device="cpu", pin_memory=True)
    return room, torch.cuda.Event()  # type: ignore[no-untyped-call]


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
