"""Which signal workers get when the training process ends by itself, if any.

A training script runs in a fresh interpreter, with an iterator of two workers that lives until the interpreter takes
itself down, and ends in the middle of the epoch: it returns or raises. As its last act, behind PyTorch's and Python's
own, it says how each worker ended. PyTorch's workers end with status 0 on a SIGTERM from their parent, as if they had
been told to end (``torch/csrc/DataLoader.cpp``): here they handle it and end with ``TERMINATED``. The value is the
share of workers that got it; the fact, that it is all.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

LIMIT_S = 120.0
TERMINATED = 128 + signal.SIGTERM
_MARK = "exit codes: "
SCRIPT = f"""
import atexit, json, os, signal, sys

def say():
    for worker in workers:
        worker.join(10)
    print({_MARK!r} + json.dumps([worker.exitcode for worker in workers]), flush=True)

workers = []
atexit.register(say)  # first of all, so that it runs last

from torch.utils.data import DataLoader

def prepare(worker):
    signal.signal(signal.SIGTERM, lambda *_: os._exit({TERMINATED}))

loader = DataLoader(range(1 << 20), 8, num_workers=2, worker_init_fn=prepare, multiprocessing_context="fork")
batches = iter(loader)
workers += batches._workers
for _ in range(5):
    next(batches)
if sys.argv[1] == "exception":
    raise RuntimeError("planted: the training step failed")
"""


def check(job: Job) -> Finding:
    """End a script and read how its workers ended."""
    ends_by = job.value("ends_by")
    command = [sys.executable, "-P", "-c", SCRIPT, ends_by]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if _MARK not in done.stdout:
        raise TrialError(f"the training script did not say how its workers ended: {done.stderr.strip()[-200:]}")
    codes: list[int | None] = json.loads(done.stdout.partition(_MARK)[2].splitlines()[0])
    terminated = codes.count(TERMINATED)
    how = "returned" if ends_by == "return" else "raised an exception"
    return Finding(
        terminated == len(codes),
        terminated / len(codes),
        f"When the training script {how} in the middle of an epoch, {terminated} of its {len(codes)} workers got "
        "SIGTERM.",
    )
