"""Which signal workers get when the training process ends by itself, if any.

A training script with two workers returns or raises in the middle of its epoch, while the iterator lives until the
interpreter takes itself down. PyTorch's workers end with status 0 on a SIGTERM from their parent, as if they had been
told to end (``torch/csrc/DataLoader.cpp``). Here they do so too, and say before that it came.

The value is the share of workers that got SIGTERM; the fact, that it is all.
"""

from __future__ import annotations

import subprocess
import sys

from feedrate.schema.errors import TrialError
from feedrate.trial.checks import Finding, _script
from feedrate.trial.job import Job

LIMIT_S = 120.0


def check(job: Job) -> Finding:
    """End a script and read how many of its workers got the signal."""
    ends_by = job.value("ends_by")
    command = [sys.executable, "-P", "-m", _script.__name__, ends_by, "reporting"]
    done = subprocess.run(command, input=b"\n", capture_output=True, timeout=LIMIT_S, check=False)
    if _script.READY not in done.stdout:
        raise TrialError(f"the training script did not begin to train: {done.stderr.decode().strip()[-200:]}")
    terminated, workers = done.stdout.count(_script.GOT_SIGTERM), _script.WORKERS
    how = "returned" if ends_by == "return" else "raised an exception"
    return Finding(
        terminated == workers,
        terminated / workers,
        f"When the training script {how} in the middle of an epoch, {terminated} of its {workers} workers got SIGTERM.",
    )
