"""What feedrate asks of Linux beyond the standard library: who dies with whom, who inherits orphans, exact timers."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, and die now if it has died already.

    Args:
        parent: process id of the parent as it was before this process was made.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can get away unseen."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def exact_timers() -> None:
    """Have this thread, and what it starts from now on, woken when a sleep is over.

    By default the kernel may wake it up to 50 us later, to save power (``timer_slack_ns``).
    """
    _prctl(_PR_SET_TIMERSLACK, 1)
