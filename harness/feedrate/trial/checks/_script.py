"""A training script as its user might have written it, which a check starts and ends (``_orphans``).

Run as ``python -m feedrate.trial.checks._script ENDS_BY WORKERS``. It prints ``ready`` when its workers deliver. Then
it trains until a signal ends it, or waits for a line on stdin to end by itself in the middle of the epoch. Workers are
``plain`` PyTorch's, ``guarded`` (they die with their parent), or ``reporting``: they print that they got SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from feedrate.machine.linux import die_with_parent

BY_ITSELF = ("return", "exception")
"""Ways to end for which the script waits for a line on stdin; others are signals."""
READY, GOT_SIGTERM = b"ready\n", b"a worker got SIGTERM\n"
WORKERS = 2
_STEP_S = 0.01
"""Workers wait for the training process more than they work, as they should."""
_READY_AFTER = 5
"""Steps until every worker has delivered."""


def _report(*_: object) -> None:
    os.write(sys.stdout.fileno(), GOT_SIGTERM)
    os._exit(0)


def _prepare(workers: str, script: int, _worker: int) -> None:
    if workers == "guarded":
        die_with_parent(script)
    elif workers == "reporting":
        signal.signal(signal.SIGTERM, _report)


def _train(batches: Iterator[torch.Tensor], ends_by: str) -> None:
    for step, batch in enumerate(batches, start=1):
        batch.sum().item()
        time.sleep(_STEP_S)
        if step == _READY_AFTER:
            os.write(sys.stdout.fileno(), READY)
            if ends_by in BY_ITSELF:
                sys.stdin.readline()
            if ends_by == "return":
                return
            if ends_by == "exception":
                raise RuntimeError("planted: the training step failed")


if __name__ == "__main__":
    _ends_by, _workers = sys.argv[1:]
    # A template ignores SIGINT, and what is ignored stays so in what it starts; a script from a shell starts like this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if _workers == "guarded":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    _init = partial(_prepare, _workers, os.getpid())
    _numbers: Any = range(1 << 20)  # samples that cost nothing, in an epoch that outlasts every check
    _loader = DataLoader(_numbers, 8, num_workers=WORKERS, multiprocessing_context="fork", worker_init_fn=_init)
    _batches = iter(_loader)  # held by the module: it lives until the interpreter takes itself down
    _train(_batches, _ends_by)
