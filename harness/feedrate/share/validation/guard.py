"""Files of others held against the rules in a process of its own, so that one which crashes a reader is refused.

The process may use no more memory and time than ``caps`` says, writes no file, and dies with its parent. It takes
questions and answers them as JSON over a connection of its own, so that nothing that a library prints can be taken for
an answer. When it dies over a file, that file is refused and the next one gets a new process. Outside of it no library
that reads files is loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Self

from feedrate.machine import linux
from feedrate.schema.errors import EnvironmentFault
from feedrate.schema.redaction import MOST, scrub
from feedrate.share.validation import caps
from feedrate.share.validation.findings import Rule, Validated, quote

_WITHIN = f"within {caps.SECONDS.most} seconds and {caps.MEMORY_BYTES.most // caps.MIB} MiB of memory"
READABLE = Rule("readable", f"It can be read {_WITHIN}, and crashes no reader.")
_EXPECTED = f"one that can be read {_WITHIN}"
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


def check(path: Path, results: Path | None = None, *, in_place: bool = False) -> Validated:
    """Hold one file of trials, or one run's folder, against the rules.

    Args:
        path: of either.
        results: where runs lie; None where nobody says.
        in_place: whether the folder must be named for its run, below one that is named for its machine; one that lies
            below ``results`` must in any case.
    """
    with Guard() as guard:
        return guard.check(path, results, in_place=in_place)


def check_all(paths: Iterable[Path], results: Path | None = None) -> Iterator[Validated]:
    """Hold files of trials, and runs' folders, against the rules, one after the other.

    Args:
        paths: files, runs' folders, or folders such as ``results`` with every run below them.
        results: as ``check`` takes it.

    Yields:
        A result for each file and run; a path that names nothing is refused.
    """
    with Guard() as guard:
        for path in paths:
            if path.is_dir() and not (path / "run.json").exists() and not (path / "trials.parquet").exists():
                runs = {run.parent for depth in ("*", "*/*") for run in path.glob(f"{depth}/run.json")}
                for folder in sorted(runs, key=lambda folder: (folder.name, folder)):
                    yield guard.check(folder, results, in_place=True)
                if not runs:
                    yield _nothing(path, "holds no run")
            elif os.path.lexists(path):
                yield guard.check(path, results)
            else:
                yield _nothing(path, "no such file")


def _nothing(path: Path, got: str) -> Validated:
    wanted = "a trials.parquet, a run's folder, or a folder of runs"
    return Validated(str(path), findings=(READABLE.finding("the path", got, wanted),))


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

    def check(self, path: Path, results: Path | None = None, *, in_place: bool = False) -> Validated:
        """Hold one file or folder against the rules (``check``); what kills the process is refused."""
        within = results is not None and path.absolute().is_relative_to(results.absolute())
        try:
            answer = self.ask({"judge": str(path.absolute()), "in_place": in_place or within})
            if "failed" in answer:  # what is wrong may be this environment: a package that the reader lacks
                raise Gone(f"a reader failed over it ({quote(scrub(answer['failed']), 200)})")
        except Gone as gone:
            return Validated(str(path), findings=(READABLE.finding(quote(path.name), str(gone), _EXPECTED),))
        return replace(Validated.from_json(answer["judged"]), path=str(path))

    def ask(self, question: dict[str, Any], seconds: float = caps.SECONDS.most) -> dict[str, Any]:
        """Ask the process something that ``_answer`` knows; it is killed when it has not answered after ``seconds``.

        Raises:
            Gone: it died over the question, or was killed.
        """
        try:
            answer = self._exchange(self._connection or self._start(), question, seconds)
            if answer.get("exhausted"):
                raise Gone(f"it takes more than {caps.MEMORY_BYTES.most // caps.MIB} MiB of memory")
        except BaseException:
            self._end()
            raise
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

    def _exchange(self, connection: Connection, question: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Send a question, if there is one, and wait for an answer."""
        try:
            if question is not None:
                connection.send_bytes(json.dumps(question).encode())
            if not connection.poll(seconds):
                raise Gone(f"it takes longer than {seconds:g} s")
            answer: dict[str, Any] = json.loads(connection.recv_bytes(_LONGEST))
        except (EOFError, OSError) as error:
            status = self._process.wait() if self._process else 0
            if status == -signal.SIGXCPU:
                raise Gone(f"it takes more than {caps.SECONDS.most} s of CPU time") from error
            how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            raise Gone(f"the process that read it {how}") from error
        return answer

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

    _limit_memory()
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
                answer = {"failed": failure(error)}
            connection.send_bytes(json.dumps(answer).encode())


def _limit_memory() -> None:
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


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    from feedrate.share.validation import validator

    return {"judged": validator.judge(Path(question["judge"]), in_place=question["in_place"]).as_json()}


def failure(error: Exception) -> str:
    """Say the class of an error and its first line, as libraries append what they read."""
    line = str(error).strip().partition("\n")[0][:MOST]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
