"""Where the hook writes what it saw: records in files that are mapped into memory, a file a process; lines of JSON.

Every record is twelve 64-bit integers. It costs some microseconds, survives a process that is killed, and
``feedrate run`` reads it while the file grows. The standard library alone, on Python 3.9 to 3.14.

==========  ====================================================================================================
record      its fields after kind, begin and end
==========  ====================================================================================================
NEXT        iterator, batch, batches that lay ready, CPU time of the process at begin and end (0: not read), twice the
            updates so far and one where CUDA is in use, when the iterator was asked for (of its first batch; else 0),
            time in the sampler, time that passed until a batch came
BATCH       worker (-1: the training process), batch, samples, collation, CPU time, time on a run queue, iterator,
            CPU time of all threads of the process
BACKWARD    -
OPTIMIZER   -
STARVED     -: begins when a batch was asked for, and lasts as long as the device had nothing to do
END         iterator, time in the sampler, time that passed until a batch came, updates so far
TAKEN       worker, batch: a worker asked for work, and got it
MADE        iterator, time in the sampler, bytes that were pickled for its workers
SAVED       -: a checkpoint was written (``torch.save``)
COLLECTED   -: Python looked for garbage
COPIED      bytes that went to the device
EXIT        updates so far: the interpreter ends
FIRST       fingerprint of the first batch that a worker prepared
READ        bytes that a worker read, from the page cache or from storage: it ends
HANDED      -: the main thread waited for another one, of those scripts whose batches another one takes
==========  ====================================================================================================

Updates are steps of optimizers, and backward passes of detailed steps.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

now = time.perf_counter_ns
"""One clock for all processes of a machine."""
FOLDER = os.environ.get("FEEDRATE_RUN", "")
OWN = os.path.join(os.path.dirname(__file__), "_feedrate")
"""How the paths of the hook's files begin."""
NEXT, BATCH, BACKWARD, OPTIMIZER, STARVED, END, REUSED, DRAINED, TAKEN = range(1, 10)
MADE, SAVED, COLLECTED, COPIED, EXIT, FIRST, READ, HANDED = range(10, 18)
RECORD = struct.Struct("<12q")
PARTS = tuple(struct.Struct(f"<{3 + count}q") for count in range(10))
"""A record by how many fields it has; the others are 0 in the file already."""
FIRST_BYTES, MOST_BYTES = 1 << 18, 1 << 26
"""Of a process' file: it doubles as it fills, up to 700,000 records; what comes later is not recorded."""


class Log:
    """The records of this process. After a fork the child begins a file of its own."""

    map: mmap.mmap
    fd = -1

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        if self.fd >= 0:  # the parent's
            os.close(self.fd)
        self.lock = threading.Lock()
        self.pid, self.count, self.size, self.fd = os.getpid(), itertools.count(), 0, -1
        self.path = os.path.join(FOLDER, f"{self.pid}-{now()}")
        self.iterator, self.worker, self.batch = -1, -1, -1
        self.pending: list[tuple[int, ...]] = []
        """Records of the main process that are written with the next detailed step."""
        self.first = True
        """Whether this process has prepared no batch yet."""
        self.detail = True
        """Whether more is recorded of this step than its wait."""

    def write(self, kind: int, begun: int = 0, ended: int = 0, *fields: int) -> None:
        """Write a record; where no file can be written any more, nothing is."""
        offset = next(self.count) * RECORD.size
        if offset + RECORD.size > self.size and not self.grow(offset + RECORD.size):
            return
        PARTS[len(fields)].pack_into(self.map, offset, kind, begun, ended, *fields)

    def keep(self, kind: int, begun: int, ended: int, *fields: int) -> None:
        """Have a record written with the next detailed step: to write it by itself takes ten times as long."""
        self.pending.append((kind, begun, ended, *fields, *(0,) * (9 - len(fields))))

    def flush(self) -> None:
        """Write what is pending, in one piece."""
        pending, self.pending = self.pending, []
        if not pending:
            return
        numbers = tuple(itertools.chain.from_iterable(pending))  # another thread may still add to the list
        packed = struct.pack(f"<{len(numbers)}q", *numbers)
        last = next(itertools.islice(self.count, len(packed) // RECORD.size - 1, None))  # takes so many at once
        end = (last + 1) * RECORD.size
        if end <= self.size or self.grow(end):
            self.map[end - len(packed) : end] = packed

    def grow(self, least: int) -> bool:
        with self.lock:
            if least <= self.size:
                return True
            if not FOLDER:  # the hook was imported, and nobody reads what it writes
                return False
            if self.size >= MOST_BYTES:
                self.size = -1
                self.say("full")
            if self.size < 0:
                return False
            try:
                if self.fd < 0:
                    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                    self.fd = os.open(self.path + ".records", flags, 0o600)
                size = max(FIRST_BYTES, 2 * self.size)
                os.posix_fallocate(self.fd, 0, size)  # a write into a hole of a full disk would be a SIGBUS
                self.map, self.size = mmap.mmap(self.fd, size), size
            except (OSError, ValueError):
                self.size = -1
                return False
            return True

    def say(self, what: str, **fields: Any) -> None:
        """Append a line of JSON on what this process saw."""
        line = json.dumps({"what": what, "pid": self.pid, "t_ns": now(), **fields}, default=str) + "\n"
        try:
            fd = os.open(self.path + ".jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(fd, line.encode())
            finally:
                os.close(fd)
        except OSError:
            pass


def started_ns() -> int:
    """When this process began, on ``now``'s clock, within 10 ms; 0 where the kernel does not say."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") - asleep
    except (OSError, ValueError, IndexError):
        return 0


def read_bytes() -> int:
    """How many bytes this process has read by system calls; 0 where the kernel does not say."""
    try:
        with open("/proc/self/io", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


LOG = Log()


class Guard:
    """Around all that the hook does in the script's threads: where it fails, the script goes on without it."""

    MOST = 8
    """Failures that a process tells of."""

    def __init__(self) -> None:
        self.failures = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        """Note a failure of the hook; False for what a handler of a signal raised meanwhile: that is the script's."""
        if not isinstance(error, Exception):
            return False
        handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
        trace, at = error.__traceback__, ""
        while trace is not None:
            code = trace.tb_frame.f_code
            if code in handlers:
                return False
            at = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}" if code.co_filename.startswith(OWN) else at
            trace = trace.tb_next
        self.failures += 1
        if self.failures <= self.MOST:
            with contextlib.suppress(Exception):
                LOG.say("failed", at=at, error=repr(error))
        return True

    def __call__(self, function: Callable[[], object]) -> Callable[[], None]:
        """A function within it, as for those that Python calls at forks and ends."""

        def guarded() -> None:
            with self:
                function()

        return guarded


GUARD = Guard()
os.register_at_fork(after_in_child=GUARD(LOG.begin))


class Scheduled:
    """How long this thread has waited for a core: ``/proc``'s second number of its schedstat."""

    fd = -1

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        if self.fd >= 0:  # another thread's, or the parent's
            os.close(self.fd)
        self.thread, self.fd = 0, -1

    def wait_ns(self) -> int:
        """Nanoseconds since the thread began; 0 where the kernel does not say."""
        thread = threading.get_ident()
        if thread != self.thread:
            self.begin()
            self.thread = thread
            with contextlib.suppress(OSError):
                self.fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(self.fd, 64, 0).split()[1]) if self.fd >= 0 else 0


SCHEDULED = Scheduled()
os.register_at_fork(after_in_child=GUARD(SCHEDULED.begin))
