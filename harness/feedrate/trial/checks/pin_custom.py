"""Whether a DataLoader with ``pin_memory`` pins batches of a class of the user's own.

PyTorch looks for tensors in the containers that it knows (mappings, sequences, tuples) and calls ``pin_memory()`` on
whatever has it; any other object is handed on as it is. One batch of each kind goes through a real DataLoader, and its
tensor is asked where it lies. Source: ``torch/utils/data/_utils/pin_memory.py``.

The value is the number of kinds that came unpinned; the fact, that exactly the class without ``pin_memory()`` did.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

DEVICE: str = "cuda"
"""Page-locked memory is the CUDA driver's."""
_CUSTOM = "a class without pin_memory()"


class Custom:
    """A batch of a class that PyTorch does not know."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


class Pinnable(Custom):
    """The same, with the method that PyTorch's documentation asks for."""

    def pin_memory(self) -> Pinnable:
        """Pin what it holds."""
        return Pinnable(self.values.pin_memory())


_KINDS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "tensor": (lambda values: values, lambda batch: batch),
    "dictionary": (lambda values: {"values": values}, lambda batch: batch["values"]),
    "tuple": (lambda values: (values,), lambda batch: batch[0]),
    "a class with pin_memory()": (Pinnable, lambda batch: batch.values),
    _CUSTOM: (Custom, lambda batch: batch.values),
}
"""Kind of batch to how its tensor is put into it and taken out."""


def check(_job: Job) -> Finding:
    """Send a batch of every kind through a pinning DataLoader."""
    pinned: dict[str, bool] = {}
    numbers: Any = range(8)
    for kind, (wrap, unwrap) in _KINDS.items():
        collate = partial(_collate, wrap)
        loader: DataLoader[int] = DataLoader(numbers, len(numbers), collate_fn=collate, pin_memory=True)
        pinned[kind] = unwrap(next(iter(loader))).is_pinned()
    if not pinned["tensor"]:
        raise TrialError("pin_memory pinned nothing at all; expected a CUDA device")
    unpinned = [kind for kind in pinned if not pinned[kind]]
    others = ", ".join(kind for kind in pinned if pinned[kind])
    evidence = f"Pinned came: {others}; left in pageable memory: {', '.join(unpinned) or 'none'}."
    return Finding(unpinned == [_CUSTOM], float(len(unpinned)), evidence)


def _collate(wrap: Callable[[torch.Tensor], Any], numbers: list[int]) -> Any:
    return wrap(torch.tensor(numbers))
