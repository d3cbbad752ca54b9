"""Runs jobs in forked children of a warm template and watches them, without torch in this process.

The parent blocks in ``select`` on the child's pipe and its pidfd, never spins, and never waits for the pipe's end
(workers inherit it). When a job is over, for whatever reason, its whole process group is killed before the child is
reaped, so that the group's id cannot have been given to anybody else; whatever got out of the group has become a child
of ours, as this process is a subreaper, and is killed too.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from feedrate.machine import linux
from feedrate.machine.probes.procfs import descendants, remove_segments, semaphores, shm_segments
from feedrate.schema.errors import TrialError
from feedrate.schema.redaction import shorten

TEMPLATE_TIMEOUT_S = 180.0
ORDER_TIMEOUT_S = 60.0
TICK_S = 0.09
"""Time between two ticks."""
STILL_S = 2.0
"""Between two looks at a trial: this process did not run, as where a laptop slept or somebody stopped it."""
LOSSES = 3
"""Templates that are lost in a row, after each of which another is started."""
_READ = 1 << 20
_KILLED_S = 10.0
"""How long a process may take to end that was killed."""
_T = TypeVar("_T")


@dataclass(slots=True)
class Answer:
    """What came of a job."""

    outcome: str
    """ok, error, oom, timeout or crash."""
    result: dict[str, Any] = field(default_factory=dict)
    """The child's ``result`` event; empty unless ok."""
    kind: str | None = None
    message: str | None = None
    ordered_ns: int = 0
    """When the job was given to the template, monotonic clock."""
    over_ns: int = 0
    """When nothing of it was left."""
    first_batch_ns: int | None = None
    """When the child held its first batch, monotonic clock."""
    left_processes: int = 0
    """Processes that had left the group and were still alive; killed."""
    left_shm_segments: int = 0
    """Shared-memory files whose owner is dead; removed."""


class TemplateLost(TrialError):
    """The template process is gone, or was killed as it did not answer; nothing of its jobs is left."""


Watch = Callable[[str, int, dict[str, Any]], None]
"""Called with (event, the child's pid, the event's fields); ``tick`` comes every ``TICK_S`` between events."""


_CACHES = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
"""Where a user keeps what was compiled: a trial that found it there would not compile."""


class Template:
    """A running template process; use it as a context."""

    def __init__(self) -> None:
        linux.adopt_orphans()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Every worker makes a folder for its sockets there, which one that is killed leaves behind. PyTorch's compiler
        # keeps its cache there too: gone with the block, so that every block's compilation is a first one.
        # Where it cannot be removed, for want of file handles, the reason is another error, which the user must see.
        self._scratch = tempfile.TemporaryDirectory(prefix="feedrate-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "feedrate.trial.template", str(theirs.fileno()), str(os.getpid())],
            env={name: os.environ[name] for name in os.environ.keys() - _CACHES} | {"TMPDIR": self._scratch.name},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()

    @property
    def pid(self) -> int:
        """Process id of the template."""
        return self._process.pid

    @property
    def scratch(self) -> str:
        """Folder of temporary files of its jobs."""
        return self._scratch.name

    def __enter__(self) -> Self:
        """Wait until torch is imported."""
        ready = False
        try:
            self._control.settimeout(TEMPLATE_TIMEOUT_S)
            ready = bool(self._control.recv(_READ))
            if not ready:
                raise TemplateLost(f"it ended while importing torch ({self._ended()})")
            self._control.settimeout(None)
        except TimeoutError as error:
            raise TemplateLost(f"importing torch took longer than {TEMPLATE_TIMEOUT_S:.0f} s") from error
        finally:
            if not ready:
                self._process.kill()
                self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._scratch.cleanup()

    def run(self, job: str, *, timeout_s: float, watch: Watch) -> Answer:
        """Fork a child for a job, which is JSON, and stay with it until nothing of it is left; a failure is an answer.

        Raises:
            TemplateLost: the template is gone, and with it the job.
        """
        reading, writing = os.pipe()
        output = os.memfd_create("output")
        before, segments = _children(), shm_segments()
        ordered = time.perf_counter_ns()
        try:
            pid = self._order({"do": "fork", "job": job}, [writing, output])["pid"]
        except TemplateLost:
            os.close(reading)
            os.close(output)
            self._clear_lost(before, segments)
            raise
        finally:
            os.close(writing)
        child = _Child(pid, reading)
        answer = None
        try:
            answer = child.follow(timeout_s, watch)
        finally:
            family = child.family.union(descendants(pid))
            locks = child.locks | semaphores(pid)
            status, lost = self._end(pid)
            # Workers whose training process was killed are its descendants no more; they have become ours. So do the
            # workers of its ranks, once these are dead themselves.
            left, adopted = 0, set[int]()
            while orphans := _children() - before:
                left += _clear(orphans, pid)
                adopted |= orphans
            for path in locks:  # the tracker that would have removed them was killed with the group
                path.unlink(missing_ok=True)
            child.close()
            tail = _tail(output)
        left_shm_segments = remove_segments(shm_segments() - segments, family | adopted | {self.pid})
        if answer is None and lost:
            raise lost
        if answer is None:
            answer = _crash(status, tail)
        answer.left_processes, answer.left_shm_segments = left, left_shm_segments
        answer.ordered_ns, answer.over_ns = ordered, time.perf_counter_ns()
        answer.first_batch_ns = child.first_batch_ns
        return answer

    def _order(self, order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        try:
            self._control.settimeout(ORDER_TIMEOUT_S)
            socket.send_fds(self._control, [json.dumps(order).encode()], descriptors)
            data = self._control.recv(_READ)
        except TimeoutError as error:
            self._process.kill()
            raise TemplateLost(
                f"{order['do']}: no answer in {ORDER_TIMEOUT_S:g} s, as where it was stopped, or waits for a device or "
                "a network disk"
            ) from error
        except OSError as error:
            raise TemplateLost(self._ended()) from error
        if not data:
            raise TemplateLost(self._ended())
        answer: dict[str, Any] = json.loads(data)
        return answer

    def _ended(self) -> str:
        """How the template ended, once it has: only then are its children ours."""
        try:
            status = self._process.wait(_KILLED_S)
        except subprocess.TimeoutExpired as error:
            raise TrialError(f"process {self.pid}, the template, cannot be killed: it waits for a device") from error
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"it ended with status {status}"

    def _end(self, pid: int) -> tuple[int, TemplateLost | None]:
        """Kill what is left of the job's group, then reap the child; where the template is gone it is ours to reap."""
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            # The child was killed before it could make a group of its own.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            return self._order({"do": "reap", "pid": pid}, [])["status"], None
        except TemplateLost as lost:
            self._ended()
            with suppress(ChildProcessError):
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), lost
            return 0, lost

    def _clear_lost(self, before: set[int], segments: set[str]) -> None:
        """Kill a job that was forked by a template which did not live to say so."""
        self._ended()
        while orphans := _children() - before:
            for pid in orphans:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            _clear(orphans, group=0)
            remove_segments(shm_segments() - segments, orphans)
        remove_segments(shm_segments() - segments, {self.pid})


class Templates:
    """A template that is started anew when it is lost; close it at the end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._stack = ExitStack()
        self._template: Template | None = None
        self._lost = 0

    def close(self) -> None:
        """End the template: the next attempt starts another."""
        self._template = None
        self._stack.close()

    def attempt(self, work: Callable[[Template], _T], *, again: bool = True) -> _T:
        """Do some work with a template; where that is lost, do it once more with another.

        Raises:
            TemplateLost: it was lost, without ``again``.
            TrialError: it was lost ``LOSSES`` times in a row, and once more.
        """
        while True:
            try:
                if self._template is None:
                    self._template = self._stack.enter_context(Template())
                made = work(self._template)
            except TemplateLost as lost:
                self.close()
                self._lost += 1
                if self._lost > LOSSES:
                    raise TrialError(
                        f"the process that starts measurements was lost {self._lost} times in a row, the last time: "
                        f"{lost}; expected it to live. Often the kernel kills for want of memory: free some. The same "
                        "command goes on from here"
                    ) from lost
                if not again:
                    raise
                self._say(
                    f"The process that starts measurements was lost ({lost}): started anew ({self._lost} of {LOSSES})."
                )
            else:
                self._lost = 0
                return made

    def run(self, job: str, *, timeout_s: float, watch: Watch) -> Answer:
        """Do a job that can be done twice."""
        return self.attempt(lambda template: template.run(job, timeout_s=timeout_s, watch=watch))


class _Child:
    """A job's process, seen from the parent."""

    def __init__(self, pid: int, pipe: int) -> None:
        self._pid, self._pipe, self._pidfd = pid, pipe, os.pidfd_open(pid)
        self._unread = b""
        self.first_batch_ns: int | None = None
        self.family = {pid}
        """The process and its workers as they were at the first batch: one that is killed later is reaped unseen."""
        self.locks: set[Path] = set()
        """Its named semaphores, by which spawned workers find its locks, as they were then."""

    def close(self) -> None:
        os.close(self._pipe)
        os.close(self._pidfd)

    def follow(self, timeout_s: float, watch: Watch) -> Answer | None:
        """Pass events on until the final one; None when the child died without one."""
        now = time.monotonic()
        deadline, tick = now + timeout_s, now + TICK_S
        listening = [self._pipe, self._pidfd]
        while True:
            ready, _, _ = select.select(listening, [], [], max(0.0, min(tick, deadline) - time.monotonic()))
            if self._pipe in ready:
                data = os.read(self._pipe, _READ)
                if not data:  # nothing more can come
                    listening = [self._pidfd]
                *lines, self._unread = (self._unread + data).split(b"\n")
                for event in map(json.loads, lines):
                    answer = self._answer(event)
                    watch(event["event"], self._pid, event)
                    if answer:
                        return answer
            elif self._pidfd in ready:
                return None
            now = time.monotonic()
            if now >= deadline:
                message = f"no result after {timeout_s:g} s; it was ended (protocol.timeout_s sets the limit)"
                return Answer("timeout", kind="Timeout", message=message)
            if now >= tick:
                watch("tick", self._pid, {})
                tick = now + TICK_S

    def _answer(self, event: dict[str, Any]) -> Answer | None:
        if event["event"] == "first_batch":
            self.first_batch_ns = event["t_ns"]
            self.family.update(descendants(self._pid))
            self.locks.update(semaphores(self._pid))
        if event["event"] == "result":
            return Answer("ok", result=event)
        if event["event"] == "failure":
            return Answer(event["outcome"], kind=event["kind"], message=event["message"])
        return None


def _crash(status: int, tail: str) -> Answer:
    if status < 0:
        kind = signal.Signals(-status).name
        hint = "; often the kernel's out-of-memory killer" if kind == "SIGKILL" else ""
        return Answer("crash", kind=kind, message=f"the measured process was killed by {kind}{hint}. {tail}".strip())
    message = f"the measured process ended with status {status} and no result. {tail}".strip()
    return Answer("crash", kind="Exit", message=message)


def _tail(output: int, most: int = 2000) -> str:
    size = os.lseek(output, 0, os.SEEK_END)
    text = os.pread(output, most, max(0, size - most)).decode(errors="replace")
    os.close(output)
    return shorten(text.strip())


def _children() -> set[int]:
    """Our own children, adopted ones included."""
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def _clear(adopted: set[int], group: int) -> int:
    """Reap what became a child of ours when its own parent died; kill what had left the job's process group."""
    strays = 0
    for pid in adopted:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                if os.getpgid(pid) != group:
                    strays += 1
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
    return strays
