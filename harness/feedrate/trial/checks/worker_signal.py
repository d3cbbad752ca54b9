"""Which signal workers get when the training process ends by itself, if any.

A training script runs in a fresh interpreter, with an iterator of two workers that lives until the interpreter takes
itself down, and ends in the middle of the epoch: it returns or raises. PyTorch's workers end with status 0 on a SIGTERM
from their parent, as if they had been told to end (``torch/csrc/DataLoader.cpp``). Here they do so too, and say before
that it came; the script counts that as its last act, behind PyTorch's and Python's own.

The value is the share of workers that got SIGTERM; the fact, that it is all.
"""

from __future__ import annotations

import subprocess
import sys

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding
from feedrate.trial.job import Job

LIMIT_S = 120.0
WORKERS = 2
_MARK = "got SIGTERM: "
SCRIPT = f"""
import atexit, os, signal, sys

reading, writing = os.pipe()

def say():
    os.close(writing)
    for worker in workers:
        worker.join(10)
    os.set_blocking(reading, False)
    print({_MARK!r} + str(len(os.read(reading, {WORKERS}) or b"")), flush=True)

def end(*_):
    os.write(writing, b".")
    os._exit(0)

workers = []
atexit.register(say)  # first of all, so that it runs last

from torch.utils.data import DataLoader

def prepare(worker):
    signal.signal(signal.SIGTERM, end)

loader = DataLoader(
    range(1 << 20), 8, num_workers={WORKERS}, worker_init_fn=prepare, multiprocessing_context="fork"
)
batches = iter(loader)
workers += batches._workers
for _ in range(5):
    next(batches)
if sys.argv[1] == "exception":
    raise RuntimeError("planted: the training step failed")
"""


def check(job: Job) -> Finding:
    """End a script and read how many of its workers got the signal."""
    ends_by = job.value("ends_by")
    command = [sys.executable, "-P", "-c", SCRIPT, ends_by]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if _MARK not in done.stdout:
        raise TrialError(f"the training script did not say how its workers ended: {done.stderr.strip()[-200:]}")
    terminated = int(done.stdout.partition(_MARK)[2].splitlines()[0])
    how = "returned" if ends_by == "return" else "raised an exception"
    return Finding(
        terminated == WORKERS,
        terminated / WORKERS,
        f"When the training script {how} in the middle of an epoch, {terminated} of its {WORKERS} workers got SIGTERM.",
    )
