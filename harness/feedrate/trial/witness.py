"""An external clock: another process that stamps one byte at each border of what feedrate times itself.

The witness is a fresh, small Python that blocks in ``read`` on a pipe. It stamps each byte with
``CLOCK_MONOTONIC_RAW``, which no time server slews (feedrate's own clock is ``CLOCK_MONOTONIC``), and sends its stamps
to the trial's parent itself. It adds the time in which a byte wakes it: some ten microseconds at each border, and on a
busy machine milliseconds, unless the system grants it the real-time priority that it asks for.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any, Self

OPENS, CLOSES = "w", "W"
"""Borders of the window."""
EPOCHS_BEGIN, EPOCHS_END = "e", "E"
"""Borders of the stretch of short epochs behind it."""
END = b"."
"""The byte after which the witness reports and leaves; workers hold the pipe open, so that its end never comes."""
READY = b"!"
TIMEOUT_S = 30.0


class Witness:
    """A running witness, seen from the trial; use it as a context, and stamp inside."""

    def __init__(self, report: int) -> None:
        reading, self._pipe = os.pipe()
        command = [sys.executable, "-I", "-S", __file__, str(reading), str(report)]
        self._process = subprocess.Popen(command, pass_fds=[reading, report], stdout=subprocess.PIPE)
        os.close(reading)

    def __enter__(self) -> Self:
        """Wait until it listens."""
        output: Any = self._process.stdout
        if output.read(1) != READY:
            os.close(self._pipe)
            self._process.communicate(timeout=TIMEOUT_S)
            raise RuntimeError("the witness process ended before it listened; its message stands above")
        return self

    def __exit__(self, *_: object) -> None:
        """Have it report, and wait until it has: a trial's result must come last."""
        os.write(self._pipe, END)
        os.close(self._pipe)
        self._process.communicate(timeout=TIMEOUT_S)

    def stamp(self, border: str) -> None:
        """Mark a border with its byte, an ASCII character."""
        os.write(self._pipe, border.encode())


def listen(inlet: int, report: int) -> None:
    """Stamp every byte that comes, until ``END``; then report event ``witness`` with ``stamps`` (ns by border)."""
    stamps = {}
    while True:
        border = os.read(inlet, 1)
        moment = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if border in (END, b""):
            break
        stamps[border.decode()] = moment
    os.write(report, json.dumps({"event": "witness", "stamps": stamps}).encode() + b"\n")


if __name__ == "__main__":
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.write(sys.stdout.fileno(), READY)
    listen(int(sys.argv[1]), int(sys.argv[2]))
