"""A process of its own that reads files of others, so that one which crashes, hangs or bloats a parser is refused.

The process may use no more memory and time than ``caps`` says, writes no file, and dies with its parent. It takes
questions and answers them as JSON over a connection of its own, so that nothing that a library prints can be taken for
an answer. When it dies over a file, that file is refused and the next one gets a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Self

from feedrate.machine import linux
from feedrate.schema.errors import EnvironmentFault
from feedrate.schema.redaction import MOST
from feedrate.share.validation import caps
from feedrate.share.validation.findings import Rule

_WITHIN = f"within {caps.SECONDS.most} seconds and {caps.MEMORY_BYTES.most // caps.MIB} MiB of memory"
READABLE = Rule("readable", f"It can be read {_WITHIN}, and crashes no reader.")
EXPECTED = f"one that can be read {_WITHIN}"
"""What is expected of a file that breaks this rule."""
_START_S = 60.0
"""How long the process may take to start: it imports a library or two."""
_LONGEST = 64 * caps.MIB
"""Bytes of an answer."""
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # other pools reserve address space, which is what is limited
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
Answer = dict[str, Any]


class Gone(Exception):
    """The process did not answer, and why."""


class Guard:
    """The process, seen from outside; use it as a context. It is started when it is first asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, question: Answer, seconds: float = caps.SECONDS.most) -> Answer:
        """Ask the process something.

        Args:
            question: what ``_answer`` knows.
            seconds: it is killed when it has not answered after so long.

        Raises:
            Gone: it died over the question, or was killed.
        """
        try:
            answer = self._exchange(self._connection or self._start(), question, seconds)
        except BaseException:
            self._end()
            raise
        if answer.get("exhausted"):
            self._end()
            raise Gone(f"it takes more than {caps.MEMORY_BYTES.most // caps.MIB} MiB of memory")
        return answer

    def _start(self) -> Connection:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "feedrate.share.validation.guard", str(theirs.fileno()), str(os.getpid())],
                env=os.environ | _ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            self._exchange(self._connection, None, _START_S)
        except Gone as gone:
            raise EnvironmentFault(
                f"the process that reads files of others did not start: {gone}; expected {sys.executable} to have "
                "all of requirements.lock (make setup)"
            ) from gone
        return self._connection

    def _exchange(self, connection: Connection, question: Answer | None, seconds: float) -> Answer:
        """Send a question, if there is one, and wait for an answer."""
        try:
            if question is not None:
                connection.send_bytes(json.dumps(question).encode())
            if not connection.poll(seconds):
                raise Gone(f"it takes longer than {seconds:g} s")
            answer: Answer = json.loads(connection.recv_bytes(_LONGEST))
        except (EOFError, OSError) as error:
            raise Gone(self._why()) from error
        return answer

    def _why(self) -> str:
        """Why the process is gone."""
        status = self._process.wait() if self._process else 0
        if status == -signal.SIGXCPU:
            return f"it takes more than {caps.SECONDS.most} s of CPU time"
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"the process that read it {how}"

    def _end(self) -> None:
        if self._connection:
            self._connection.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None


def main(descriptor: int, parent: int) -> None:
    """Answer questions until there are no more."""
    linux.die_with_parent(parent)
    from feedrate.share.validation import validator  # noqa: F401 - before memory is limited

    _limit()
    with Connection(descriptor) as connection, contextlib.suppress(EOFError):
        connection.send_bytes(b'{"ready": true}')
        while True:
            question = json.loads(connection.recv_bytes())
            _limit_time()
            try:
                answer = _answer(question)
            except MemoryError:
                answer = {"exhausted": True}
            except Exception as error:  # noqa: BLE001 - whatever a file makes a reader raise refuses the file
                answer = failure(error)
            connection.send_bytes(json.dumps(answer).encode())


def _limit() -> None:
    """Give up what reading a file does not need."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + caps.MEMORY_BYTES.most
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _limit_time() -> None:
    """Let the next question take so much CPU time and no more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + caps.SECONDS.most + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _answer(question: Answer) -> Answer:
    from feedrate.share.validation import validator

    if (digests := question.get("admit")) is not None:
        admitted, refused = validator.admit(digests)
        return {"admitted": admitted, "refused": {path: each.as_json() for path, each in refused.items()}}
    if (path := question.get("flags")) is not None:
        return {"flags": [asdict(flag) for flag in validator.flags(Path(path), Path(question["results"]))]}
    return {"judged": validator.judge(Path(question["judge"]), in_place=question["in_place"]).as_json()}


def failure(error: Exception) -> Answer:
    """Say the class of an error and its first line, as libraries append what they read."""
    return {"failed": type(error).__name__, "why": str(error).strip().partition("\n")[0][:MOST]}


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
