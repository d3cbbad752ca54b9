"""Files of others held against every rule, in a process that may be lost: one that crashes or swells is refused.

It may use no more memory, and for each file no more time, than the caps say, and writes no file. It prints a line a
file; when it dies over one, that is refused, and the next ones get a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from feedrate.machine import linux
from feedrate.machine.identity import usable_cores
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.redaction import scrub
from feedrate.share.findings import MEMORY_BYTES, MIB, RUN, SECONDS, TRIALS, Finding, Validated, quote
from feedrate.store import marks

_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # other pools reserve address space, which is what is limited
    "MALLOC_ARENA_MAX": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_AT_ONCE = 50
"""Files that a process is given; it imports for a second."""
_RESULT = TypeAdapter(Validated)


class Admitted(NamedTuple):
    """Which runs a site may show, in the order in which they came, and why not the others."""

    folders: tuple[Path, ...]
    refused: tuple[Validated, ...]


def check(path: Path, results: Path | None = None) -> Validated:
    """Hold one file of trials, or one run's folder, against the rules, as ``check_all`` does."""
    return next(check_all([path], results))


def check_all(paths: Iterable[Path], results: Path | None = None) -> Iterator[Validated]:
    """Hold files of trials, and runs' folders, against the rules; a path that names none is refused.

    Args:
        paths: files, runs' folders, or folders such as ``results`` with every run below them. The mark beside a
            run's folder stands for the run, so that ``results/*/*`` names each run once.
        results: where runs lie. A folder below it, and below one of ``paths``, must be named for its run and lie in
            one that is named for its machine.
    """
    asked: dict[Path, bool] = {}
    for path in dict.fromkeys(marks.marked_run(path) or path for path in paths):
        runs = [path]
        if path.is_dir() and not (path / RUN).exists() and not (path / TRIALS).exists():
            runs = sorted({run.parent for depth in ("*", "*/*") for run in path.glob(f"{depth}/{RUN}")}) or runs
        within = results is not None and path.absolute().is_relative_to(results.absolute())
        asked |= {run: within or run != path for run in runs}
    return judged(list(asked.items()))


def validated(folders: Sequence[Path]) -> dict[Path, Validated]:
    """Validate the runs in some folders, each by itself, on all cores."""
    lanes = max(1, min(len(usable_cores()), len(folders)))
    with ThreadPoolExecutor(lanes) as pool:
        parts = pool.map(lambda lane: list(judged([(path, True) for path in folders[lane::lanes]])), range(lanes))
        return {Path(result.path): result for batch in parts for result in batch}


def admit(folders: Sequence[Path], results: Mapping[Path, Validated] | None = None) -> Admitted:
    """Say which of the runs in some folders may be shown; ``results``, where they are known: ``validated``.

    They keep to every rule, lie in their place, no other machine has a run of their id, and what lies beside them is as
    feedrate writes it: what a damaged file wanted to say is not guessed, as it may have been a withdrawal.
    """
    results = dict(validated(folders) if results is None else results)
    ids = Counter(folder.name for folder, result in results.items() if result.valid)
    for folder, result in results.items():
        if result.valid and (finding := _beside(folder, ids)):
            results[folder] = replace(result, findings=(finding,))
    admitted = tuple(folder for folder in folders if results[folder].valid)
    return Admitted(admitted, tuple(results[folder] for folder in folders if not results[folder].valid))


def _beside(folder: Path, ids: Counter[str]) -> Finding | None:
    """What other runs, and the files beside it, have against a run that is valid itself."""
    if ids[folder.name] > 1:
        got = f"a run of the id {quote(folder.name)} under another machine too"  # which one is true nobody can say
        return Finding("the folder", got, "an id of one machine's run")
    try:
        marks.about(folder)
    except InputError as error:
        got, _, expected = str(error).removeprefix(f"{folder.parent}/").partition("; expected ")
        return Finding("beside the folder", got, expected or "what feedrate writes there", "Remove that file")
    return None


def judged(
    asked: Sequence[tuple[Path, bool]], seconds: float = SECONDS.most, memory_bytes: int = MEMORY_BYTES.most
) -> Iterator[Validated]:
    """Have files and folders judged within limits by ``rules.judge``; the truth says whether each must lie in place.

    Raises:
        EnvironmentFault: the process that reads files does not start.
    """
    # -P: the folder that this is typed in may be a stranger's, and no module is imported from there.
    command = [sys.executable, "-P", "-m", "feedrate.share.validator", *map(str, (seconds, memory_bytes, os.getpid()))]
    environment = os.environ | _ENVIRONMENT
    waiting = list(asked)
    while waiting:
        question = json.dumps([(str(path.absolute()), in_place) for path, in_place in waiting[:_AT_ONCE]]).encode()
        done = subprocess.run(
            command, input=question, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=False
        )
        for line in done.stdout.splitlines():
            yield replace(_RESULT.validate_json(line), path=str(waiting.pop(0)[0]))
        if done.returncode > 0:
            expected = f"expected {sys.executable} to have all of requirements.lock (make setup)"
            raise EnvironmentFault(f"the process that reads files of others does not start; {expected}")
        if done.returncode and waiting:
            killed = f"the process that read it was killed by {signal.Signals(-done.returncode).name}"
            late = f"it takes longer than {seconds:g} s"
            result = _unreadable(late if done.returncode == -signal.SIGALRM else killed)
            yield replace(result, path=str(waiting.pop(0)[0]))


def _judge_all(seconds: float, memory_bytes: int, parent: int) -> None:
    """Judge what standard input names, within limits, and print a line each: this is what runs in the process."""
    linux.die_with_parent(parent)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing that a library prints is taken for an answer
    from feedrate.share import rules

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    space = pages * resource.getpagesize() + memory_bytes
    for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_AS, space)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
    for path, in_place in json.load(sys.stdin):
        signal.setitimer(signal.ITIMER_REAL, seconds)  # which kills
        try:
            result = replace(rules.judge(Path(path), in_place=in_place), path="")  # which may be no text
        except MemoryError:
            result = _unreadable(f"it takes more than {memory_bytes // MIB:,} MiB of memory")
        except Exception as error:  # noqa: BLE001 - whatever a file makes a reader raise refuses the file
            # What is wrong may be this environment: a package that the reader lacks.
            line = scrub((str(error).strip().splitlines() or [""])[0])
            result = _unreadable(f"a reader failed over it ({quote(f'{type(error).__name__}: {line}', 200)})")
        answers.write(_RESULT.dump_json(result) + b"\n")


def _unreadable(problem: str) -> Validated:
    limits = f"{SECONDS.most} s and {MEMORY_BYTES.most // MIB:,} MiB of memory"
    return Validated("", findings=(Finding("the file", problem, f"one that can be read within {limits}"),))


if __name__ == "__main__":
    _judge_all(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
