"""Whether workers are left behind when the training process ends, and for how long.

A training script runs in a fresh interpreter with two workers and is ended in the middle of its epoch: it returns,
raises, or gets a signal, which goes to the training process alone (as from ``kill``, a scheduler or the kernel's
out-of-memory killer; Ctrl-C in a terminal reaches the workers too).

The value is seconds from the end of the training process until the last worker was gone; the fact, that one still ran,
or lay defunct, after ``LIMIT_S``. PyTorch's workers look for their parent every 5 s (``MP_STATUS_CHECK_INTERVAL``), so
that they outlive it by that much: the evidence says so, and it is no leaving behind. With ``first_process=never_waits``
the script runs in a process namespace of its own, whose process 1 asks nobody for its status.
"""

from __future__ import annotations

import sys

from feedrate.trial.checks import Finding, _script
from feedrate.trial.checks._orphans import Ending, watch
from feedrate.trial.job import Job

LIMIT_S = 10.0
"""How long to wait for the training process after the order to end, and for its workers after its end; twice the
interval at which workers look for their parent."""
SEEN_S = 0.1
"""A worker that is gone so soon went with its parent."""
_HOW = {
    "return": "After the training script returned in the middle of an epoch",
    "exception": "After an exception in the training process",
}
_GUARDS = {False: "plain PyTorch", True: "workers die with their parent, SIGTERM ends in order"}


def check(job: Job, limit_s: float = LIMIT_S) -> Finding:
    """End a training script as the axis ``ends_by`` says and see what becomes of its workers."""
    ends_by, guarded, nested = job.value("ends_by"), job.value("guarded"), job.value("first_process") == "never_waits"
    script = [sys.executable, "-P", "-m", _script.__name__, ends_by, "guarded" if guarded else "plain"]
    return conclude(watch(script, ends_by, limit_s, nested=nested), ends_by, guarded, limit_s)


def conclude(ending: Ending, ends_by: str, guarded: bool, limit_s: float) -> Finding:
    """Put what was seen into a finding."""
    count, stayed = len(ending.outlived_s), ending.outlived_s.count(None)
    last_s = max(limit_s if outlived is None else outlived for outlived in ending.outlived_s)
    if stayed:
        fate = f"{stayed} of its {count} workers were still there {limit_s:g} s later, {ending.defunct} lay defunct"
    elif last_s <= SEEN_S:
        fate = f"its {count} workers were gone by then, none lay defunct"
    else:
        fate = f"the last of its {count} workers was gone {last_s:.1f} s later, none lay defunct"
    if ending.orphans:
        fate += f" ({ending.orphans} ended as orphans, whose status was asked for at once)"
    files = {0: "nothing was", 1: "1 file was"}.get(ending.segments, f"{ending.segments} files were")
    how = _HOW.get(ends_by, f"After {ends_by.upper()} to the training process alone")
    evidence = (
        f"{how} ({_GUARDS[guarded]}), it ended within {ending.main_s:.2f} s; {fate}, and {files} left in shared memory."
    )
    return Finding(stayed > 0, max(0.0, last_s), evidence)
