"""A process of its own that reads files of others, so that one which crashes, hangs or bloats a parser is refused.

The process may use no more memory and time than ``caps`` says, writes no file, and dies with its parent. It takes
questions as JSON lines on its standard input and answers over a pipe of its own, so that nothing that a library prints
can be taken for an answer. When it dies over a file, that file is refused and the next one gets a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from feedrate.machine import linux
from feedrate.schema.errors import EnvironmentFault
from feedrate.schema.redaction import MOST
from feedrate.share.validation import caps
from feedrate.share.validation.findings import Rule

_WITHIN = f"within {caps.SECONDS.most} seconds and {caps.MEMORY_BYTES.most // caps.MIB} MiB of memory"
READABLE = Rule("readable", f"It can be read {_WITHIN}, and crashes no reader.")
READ = f"one that can be read {_WITHIN}"
"""What is expected of a file that breaks this rule."""
_START_S = 60.0
"""How long the process may take to start: it imports a library or two."""
_CHUNK = 1 << 16
_ALONE = {
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
        self._answers = -1

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
            if self._process is None:
                self._start()
            self._write(json.dumps(question).encode() + b"\n")
            answer: Answer = json.loads(self._line(seconds))
        except BaseException:
            self._end()
            raise
        if answer.get("exhausted"):
            self._end()
            raise Gone(f"it takes more than {caps.MEMORY_BYTES.most // caps.MIB} MiB of memory")
        return answer

    def _start(self) -> None:
        self._answers, theirs = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "feedrate.share.validation.guard", str(theirs), str(os.getpid())],
            env=os.environ | _ALONE,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs],
            start_new_session=True,
        )
        os.close(theirs)
        try:
            self._line(_START_S)
        except Gone as gone:
            raise EnvironmentFault(
                f"the process that reads files of others did not start: {gone}; expected {sys.executable} to have "
                "all of requirements.lock (make setup)"
            ) from gone

    def _write(self, line: bytes) -> None:
        stream = self._process.stdin if self._process else None
        try:
            if stream:
                stream.write(line)
                stream.flush()
        except BrokenPipeError as error:
            raise Gone(self._why()) from error

    def _line(self, seconds: float) -> bytes:
        """The next line of its answers."""
        deadline, parts = time.monotonic() + seconds, b""
        while not parts.endswith(b"\n"):
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Gone(f"it takes longer than {seconds:g} s")
            if not (part := os.read(self._answers, _CHUNK)):
                raise Gone(self._why())
            parts += part
        return parts

    def _why(self) -> str:
        """Why the process is gone."""
        status = self._process.wait() if self._process else 0
        if status == -signal.SIGXCPU:
            return f"it takes more than {caps.SECONDS.most} s of CPU time"
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"the process that read it was {how}" if status < 0 else f"the process that read it {how}"

    def _end(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()
        os.close(self._answers)
        self._process = None


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


def _answerer() -> Callable[[Answer], Answer]:
    """Import what reads files, and say how questions are answered."""
    from feedrate.share.validation import validator

    def answer(question: Answer) -> Answer:
        if (folders := question.get("clear")) is not None:
            return {"clear": validator.clear([Path(folder) for folder in folders])}
        if (folders := question.get("digests")) is not None:
            return {"digests": [validator.digest(Path(folder)) for folder in folders]}
        if (path := question.get("flags")) is not None:
            return {"flags": [asdict(flag) for flag in validator.flags(Path(path), Path(question["results"]))]}
        return {"judged": validator.judge(Path(question["judge"]), placed=question["placed"]).as_json()}

    return answer


def _failed(error: Exception) -> Answer:
    """The class of an error and its first line: libraries append what they read."""
    return {"failed": type(error).__name__, "why": str(error).strip().partition("\n")[0][:MOST]}


def main(descriptor: int, parent: int) -> None:
    """Answer questions until there are no more."""
    linux.die_with_parent(parent)
    answer = _answerer()
    _limit()
    with os.fdopen(descriptor, "w", encoding="ascii") as answers:
        print(json.dumps({"ready": True}), file=answers, flush=True)
        for line in sys.stdin:
            _limit_time()
            try:
                said = answer(json.loads(line))
            except MemoryError:
                said = {"exhausted": True}
            except Exception as error:  # noqa: BLE001 - whatever a file makes a reader raise refuses the file
                said = _failed(error)
            print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
