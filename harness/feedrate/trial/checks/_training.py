"""A training script as its user might have written it, for the check *termination*.

Run as ``python -m feedrate.trial.checks._training ENDS_BY plain|guarded``. It prints ``ready`` when its workers
deliver. Then it trains until a signal ends it, or waits for a line on stdin to end by itself in the middle of the
epoch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from feedrate.machine.linux import die_with_parent

WORKERS = 2
STEP_S = 0.01
"""A step's length: workers wait for the training process more than they work, as they should."""
_READY_AFTER = 5
"""Steps until every worker has delivered."""


class Numbers(Dataset[torch.Tensor]):
    """Samples that cost nothing, in an epoch that outlasts the check."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index))


def loader(guarded: bool) -> DataLoader[torch.Tensor]:
    """Make the loader; workers are forked, as PyTorch does wherever Python's own default is fork."""
    main_process = os.getpid()
    return DataLoader(
        Numbers(),
        batch_size=8,
        num_workers=WORKERS,
        multiprocessing_context="fork",
        worker_init_fn=(lambda _worker: die_with_parent(main_process)) if guarded else None,
    )


def train(batches: Iterator[torch.Tensor], ends_by: str) -> None:
    """Train until something ends it."""
    for step, batch in enumerate(batches, start=1):
        batch.mean().item()
        time.sleep(STEP_S)
        if step == _READY_AFTER:
            print("ready", flush=True)  # noqa: T201 - the word that the check waits for
            if ends_by in ("return", "exception"):
                sys.stdin.readline()
            if ends_by == "return":
                return
            if ends_by == "exception":
                raise RuntimeError("planted: the training step failed")


if __name__ == "__main__":
    _ends_by, _guards = sys.argv[1:]
    # A template ignores SIGINT, and what is ignored stays so in what it starts; a script from a shell starts like this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if _guards == "guarded":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Held by the module: it lives until the interpreter takes itself down.
    _batches = iter(loader(_guards == "guarded"))
    train(_batches, _ends_by)
