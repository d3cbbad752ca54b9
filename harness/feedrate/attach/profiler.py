"""Which lines of the user's code cost the time: py-spy, sampled from outside.

py-spy reads the stacks of a process and its descendants without stopping them (``--nonblocking``); a sample that was
torn is dropped. Asleep or not, a thread counts (``--idle``), as a wait for storage is what is looked for; what does not
lie below a loader's ``fetch`` or in the training loop is left out by the frames of its stack.

Where all cores compute, py-spy gets one just when a thread goes to sleep, and lines that sleep seem to cost more: by 8
points of a hot line's share on two cores. A real-time priority takes that bias away and brings a worse one: lines that
sleep then lose up to 29 points (November 2026).
"""

from __future__ import annotations

import linecache
import os
import re
import shutil
import signal
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from feedrate.machine import identity
from feedrate.machine.probes import procfs

RATE_HZ = 48
"""Samples a second of each process at most; more costs a machine with few cores more than it tells."""
SPARING_HZ = 10
"""Samples a second for each core of the machine, of all processes together: one takes 0.4 to 0.9 ms of CPU (2026)."""
DENSE_S, DENSER = 15, 6
"""For so long a process is sampled so many times as often: a short script shows its lines, a long one is not slowed."""
_OPTIONS = ("--subprocesses", "--threads", "--idle", "--nonblocking", "--full-filenames", "--format=raw")
_FETCH = re.compile(r"torch/utils/data/_utils/fetch\.py$")
_LOADER = re.compile(r"torch/utils/data/dataloader\.py$|torchdata/")
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3\.\d+/|^<")
_OWN = re.compile(r"/feedrate/(attach/hook/|__init__\.py$)")
"""What feedrate runs in a script."""
_FRAME = re.compile(r"^(?P<name>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")


class Frame(NamedTuple):
    """A line that was running."""

    name: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack of one thread, outermost frame first, and how often it was seen."""

    process: int | None
    thread: str
    """Its id, as py-spy writes it."""
    main: bool
    """Whether it is its process' main thread."""
    frames: tuple[Frame, ...]
    count: int


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of code and its share of what was looked at."""

    file: str
    line: int
    name: str
    """The function that it is in."""
    code: str
    """Its text; empty where the file cannot be read."""
    share: float


@dataclass(frozen=True, slots=True)
class _Sampling:
    """py-spy beside a process."""

    process: subprocess.Popen[bytes]
    rate: int
    dense: bool
    """Whether it ends after ``DENSE_S``."""
    output: Path


class Profiler:
    """py-spy beside the processes of a run: one a training process; none where it is not wanted."""

    def __init__(self, folder: Path, wanted: bool = True) -> None:
        self.program = program() if wanted else None
        self.problems: list[str] = [MISSING] if wanted and not self.program else []
        self._folder = folder
        self._samplings: dict[int, list[_Sampling]] = {}

    def watch(self, pid: int, sparing: bool = False) -> None:
        """Sample a process and its descendants; called now and then, it begins what is next.

        ``sparing``: many processes less often each, so that all together cost 2 % of the cores at most after a while.
        """
        if not self.program:
            return
        before = self._samplings.setdefault(pid, [])
        if not before:
            most = SPARING_HZ * len(identity.usable_cores()) // (1 + len(procfs.descendants(pid)))
            rate = DENSER * max(1, min(RATE_HZ // DENSER, most)) if sparing else RATE_HZ
            self._begin(self.program, pid, rate, dense=sparing)
        elif before[-1].dense and before[-1].process.poll() == 0:
            self._begin(self.program, pid, before[-1].rate // DENSER)

    def _begin(self, program: str, pid: int, rate: int, *, dense: bool = False) -> None:
        samplings = self._samplings[pid]
        output = self._folder / f"{pid}-{len(samplings)}.stacks"
        until = (f"--duration={DENSE_S}",) if dense else ()
        command = (program, "record", *_OPTIONS, f"--rate={rate}", *until, f"--pid={pid}", "--output", str(output))
        try:
            with output.with_suffix(".py-spy").open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            samplings.append(_Sampling(process, rate, dense, output))
        except OSError as error:
            self.program = None
            self.problems.append(f"py-spy cannot be started ({error}): no lines of code")

    def close(self) -> list[Stack]:
        """End all and give what was seen; ``problems`` says what could not be."""
        every = [sampling for samplings in self._samplings.values() for sampling in samplings]
        for sampling in every:
            if sampling.process.poll() is None:
                sampling.process.send_signal(signal.SIGINT)
        for sampling in every:
            try:
                sampling.process.wait(20)
            except subprocess.TimeoutExpired:
                sampling.process.kill()
                sampling.process.wait()
        stacks: list[Stack] = []
        for first, *others in filter(None, self._samplings.values()):
            if not first.output.is_file():
                self.problems.append(problem(first.output.with_suffix(".py-spy").read_text(errors="replace")))
            for sampling in (first, *others):
                if sampling.output.is_file():  # a process may end before it is sampled again
                    stacks += read(sampling.output, first.rate // sampling.rate)
        return stacks


MISSING = "py-spy is not there (pip install py-spy): no lines of code"


def program() -> str | None:
    """Where py-spy is: beside this Python, or on the PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def problem(text: str) -> str:
    """Why py-spy saw nothing, and what allows it."""
    if "ermission" in text or "Operation not permitted" in text:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope")
        level = scope.read_text().strip() if scope.is_file() else ""
        how = f"kernel.yama.ptrace_scope is {level}; " if level and level != "0" else ""
        return (
            f"py-spy may not read the processes ({how}in a container give it --cap-add SYS_PTRACE; on a machine of "
            "your own: sudo sysctl kernel.yama.ptrace_scope=0): no lines of code"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    error = next((line for line in lines if line.startswith("Error")), lines[-1])
    return f"py-spy saw nothing ({error}): no lines of code"


def read(path: Path, weight: int = 1) -> list[Stack]:
    """Read py-spy's raw format: frames by semicolons, outermost first, then the count, which counts so many times.

    A torn stack that py-spy took for a whole one has bytes in its names that no name has.
    """
    stacks = []
    for text in path.read_text(errors="replace").splitlines():
        body, _, count = text.rpartition(" ")
        frames, process, thread, main = [], None, "", False
        for word in body.split(";"):
            if match := re.match(r"process (\d+):", word):
                process = int(match[1])
            elif match := re.match(r"thread \((\w+)\)(: MainThread)?", word):
                thread, main = match[1], bool(match[2])
            elif match := _FRAME.match(word):
                frames.append(Frame(match["name"], match["file"], int(match["line"] or 0)))
        torn = not all(f"{frame.name}{frame.file}".isprintable() for frame in frames)
        if count.isdigit() and frames and not torn:
            stacks.append(Stack(process, thread, main, tuple(frames), weight * int(count)))
    return stacks


def of_library(file: str) -> bool:
    """Whether a file belongs to a package or to Python, rather than to the user."""
    return bool(_LIBRARY.search(file) or _OWN.search(file))


def waits(stack: Stack) -> bool:
    """Whether a loader's next batch is waited for."""
    return any(_LOADER.search(frame.file) and "next" in frame.name for frame in stack.frames)


def prepares(stack: Stack) -> bool:
    """Whether a batch is being prepared."""
    return any(_FETCH.search(frame.file) for frame in stack.frames)


def share(stacks: Sequence[Stack], does: Callable[[Stack], bool]) -> float:
    """Share of samples in which a thread does something; threads that never do it do not count, as those of queues."""
    threads = {(stack.process, stack.thread) for stack in stacks if does(stack)}
    every = [stack for stack in stacks if (stack.process, stack.thread) in threads]
    return sum(stack.count for stack in every if does(stack)) / max(1, sum(stack.count for stack in every))


def hottest(stacks: Sequence[Stack], most: int = 5) -> list[HotLine]:
    """The lines of the user's code that were running most often, the innermost of each stack.

    Code of packages counts for the line that called it; where no line of a stack is the user's, for its own outermost.
    """
    lines: Counter[Frame] = Counter()
    for stack in stacks:
        of_user = [frame for frame in stack.frames if not of_library(frame.file)]
        theirs = [frame for frame in stack.frames if not _OWN.search(frame.file)]
        lines[(of_user[-1:] or theirs[:1] or stack.frames[:1])[0]] += stack.count
    total = lines.total()
    return [
        HotLine(frame.file, frame.line, frame.name, linecache.getline(frame.file, frame.line).strip(), count / total)
        for frame, count in lines.most_common(most)
    ]
