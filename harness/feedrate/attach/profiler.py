"""Which lines of the user's code cost the time: py-spy, sampled from outside.

py-spy reads the stacks of a process and its descendants without stopping them (``--nonblocking``); a sample that was
torn is dropped. Asleep or not, a thread counts (``--idle``), as a wait for storage is what is looked for; what does not
lie below a loader's ``fetch`` or in the training loop is left out by the frames of its stack.
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

RATE_HZ = 50
"""Samples a second of each process at most; more costs a machine with few cores more than it tells."""
SPARING_HZ = 30
"""Samples a second for each core of the machine, of all processes together: one takes 0.4 ms of CPU (Xeon of 2026)."""
_OPTIONS = ("--subprocesses", "--threads", "--idle", "--nonblocking", "--full-filenames", "--format=raw")
_FETCH = re.compile(r"torch/utils/data/_utils/fetch\.py$")
_LOADER = re.compile(r"torch/utils/data/dataloader\.py$|torchdata/")
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3\.\d+/|^<|/attach/hook/_feedrate_")
HOOK = re.compile(r"/attach/hook/_feedrate_\w+\.py$")
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


class Profiler:
    """py-spy beside the processes of a run: one a training process; none where it is not wanted."""

    def __init__(self, folder: Path, wanted: bool = True) -> None:
        self.program = program() if wanted else None
        self.problems: list[str] = [MISSING] if wanted and not self.program else []
        self._folder = folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def watch(self, pid: int, sparing: bool = False) -> None:
        """Begin to sample a process and its descendants, unless it is sampled already.

        ``sparing``: many processes less often each, so that all together cost 2 % of the cores at most.
        """
        if self.program and pid not in self._running:
            most = SPARING_HZ * len(identity.usable_cores()) // (1 + len(procfs.descendants(pid)))
            rate = max(1, min(RATE_HZ, most)) if sparing else RATE_HZ
            output = str(self._folder / f"{pid}.stacks")
            command = (self.program, "record", *_OPTIONS, f"--rate={rate}", f"--pid={pid}", "--output", output)
            try:
                with (self._folder / f"{pid}.py-spy").open("wb") as log:
                    self._running[pid] = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                    )
            except OSError as error:
                self.program = None
                self.problems.append(f"py-spy cannot be started ({error}): no lines of code")

    def close(self) -> list[Stack]:
        """End all and give what was seen; ``problems`` says what could not be."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        stacks: list[Stack] = []
        for pid, process in self._running.items():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            path = self._folder / f"{pid}.stacks"
            if path.is_file():
                stacks += read(path)
            else:
                self.problems.append(problem((self._folder / f"{pid}.py-spy").read_text(errors="replace")))
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


def read(path: Path) -> list[Stack]:
    """Read py-spy's raw format: frames by semicolons, outermost first, then the count."""
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
        if count.isdigit() and frames:
            stacks.append(Stack(process, thread, main, tuple(frames), int(count)))
    return stacks


def of_library(file: str) -> bool:
    """Whether a file belongs to a package or to Python, rather than to the user."""
    return bool(_LIBRARY.search(file))


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
        theirs = [frame for frame in stack.frames if not HOOK.search(frame.file)]
        lines[(of_user[-1:] or theirs[:1] or stack.frames[:1])[0]] += stack.count
    total = lines.total()
    return [
        HotLine(frame.file, frame.line, frame.name, linecache.getline(frame.file, frame.line).strip(), count / total)
        for frame, count in lines.most_common(most)
    ]
