"""The loop below ``feedrate tune FILE.py:make``: takes batches of what a function makes, and steps, without end."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any


def made_by(file: str, name: str, batch_size: int) -> tuple[Any, Callable[[Any], Any]]:
    """Call the function: what it makes as a loader, and its step, which does nothing where it gives none."""
    from torch.utils.data import DataLoader, IterableDataset

    sys.path[0] = os.path.dirname(os.path.abspath(file))
    made = getattr(importlib.import_module(os.path.basename(file).removesuffix(".py")), name)()
    step: Callable[[Any], Any] = lambda _: None  # noqa: E731
    if isinstance(made, tuple) and len(made) == 2 and callable(made[1]):
        made, step = made
    if not isinstance(made, DataLoader):
        shuffled = not isinstance(made, IterableDataset)
        made = DataLoader(made, batch_size=batch_size, shuffle=shuffled, drop_last=shuffled)
    return made, step


if __name__ == "__main__":
    loader, step = made_by(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    while True:
        for batch in loader:
            step(batch)
