"""Which row of the account a stack of the main thread belongs to, so that a line is charged within its own row only.

A stack names the functions that run, not the loop: the loop is known by who took its batches (``Loop``), and by where
its ``for`` begins and ends in the source. What runs before the line that computes gradients is the forward pass, what
runs behind it lies between steps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from linecache import getline
from pathlib import Path

from feedrate.attach.account import Account
from feedrate.attach.profiler import Frame, Stack, of_library
from feedrate.attach.records import Process

_DATALOADER = re.compile(r"torch/utils/data/dataloader\.py$|torchdata/stateful_dataloader/")
_FETCH = re.compile(r"torch/utils/data/_utils/fetch\.py$")
_OPTIMIZER = re.compile(r"torch/optim/")
_MARKS = (
    ("checkpoint", re.compile(r"torch/serialization\.py$"), "save"),
    ("checkpoint", re.compile(r"safetensors/torch\.py$"), "save_file"),
    ("backward", re.compile(r"torch/(autograd/__init__|_tensor)\.py$"), "backward"),
    ("optimizer", _OPTIMIZER, ""),
)
"""Rows by the file and the name of a function on a stack; the first that fits counts."""
_HIDDEN = re.compile(r"(-packages|/pytorch)/torch/|/attach/hook/_feedrate_|^<")
_QUEUE = re.compile(r"/lib(64)?/python3\.\d+/(queue|threading)\.py$")
_SHARER = re.compile(r"/multiprocessing/resource_sharer\.py$")
_SHARED = re.compile(r"/multiprocessing/(synchronize|managers)\.py$")
_STARTS = frozenset(("_get_iterator", "__iter__", "__init__", "_reset", "_shutdown_workers", "__del__"))
_WAITS = frozenset(("poll", "_poll", "wait", "select"))


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that takes batches, as the stack below it tells."""

    callers: tuple[Frame, ...]
    """Outermost first, down to the function that the loop stands in; its own line is any within the loop."""
    first: int
    last: int
    """Its lines in that function's file."""
    evaluates: bool

    def holds(self, frames: Sequence[Frame]) -> bool:
        """Whether some frames (outermost first, without PyTorch's) run within it."""
        depth = len(self.callers)
        if len(frames) < depth or tuple(frames[: depth - 1]) != self.callers[:-1]:
            return False
        caller, line = self.callers[-1], frames[depth - 1]
        return caller[:2] == line[:2] and self.first <= line.line <= self.last


@lru_cache
def _loops_in(file: str) -> tuple[tuple[int, int], ...]:
    """First and last line of every loop of a file; none where it cannot be read."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    kinds = (ast.For, ast.AsyncFor, ast.While)
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in ast.walk(tree) if isinstance(node, kinds))


def _frames(callers: Iterable[Sequence[object]]) -> tuple[Frame, ...]:
    """Frames of what the hook says (file, line, function; innermost first), outermost first."""
    return tuple(Frame(str(name), str(file), int(str(line))) for file, line, name in reversed(list(callers)))


def loops(process: Process, evaluating: Iterable[int]) -> Iterator[Loop]:
    """List the loops of a process' main thread, each once."""
    unique, idle = set[Loop](), frozenset(evaluating)
    for line in process.said:
        if line["what"] != "iterator" or not line.get("main", True):
            continue
        callers = _frames(line.get("loop", ()))
        for depth in range(len(callers), 0, -1):
            frame = callers[depth - 1]
            around = [lines for lines in _loops_in(frame.file) if lines[0] <= frame.line <= lines[1]]
            if around:
                loop = Loop(callers[:depth], *max(around), line["iterator"] in idle)
                if loop not in unique:
                    unique.add(loop)
                    yield loop
                break


class Blame:
    """Tells the rows of the stacks of one process."""

    def __init__(self, process: Process, account: Account) -> None:
        # The innermost loop counts: most callers, then fewest lines.
        every = loops(process, account.evaluating)
        self._loops = sorted(every, key=lambda loop: (-len(loop.callers), loop.last - loop.first))
        gradients = (line["callers"] for line in process.said if line["what"] == "backward")
        self._gradients = [_frames(callers) for callers in gradients]
        lines = [line for line in process.said if line["what"] == "iterator"]
        self._workers = {pid for line in lines if line["iterator"] not in account.evaluating for pid in line["workers"]}
        self._pid, self._in_thread = process.pid, account.in_thread

    def by_row(self, stacks: Iterable[Stack]) -> Mapping[str, Sequence[Stack]]:
        """Sort stacks by row, without what called the part of a loader that the row is about.

        Those of ``waiting`` are what workers ran meanwhile.
        """
        by_row: dict[str, list[Stack]] = {}
        for stack in stacks:
            if row := self.row(stack):
                by_row.setdefault(row, []).append(below(stack, row))
        return by_row

    def row(self, stack: Stack) -> str:
        """The row that a stack belongs to; empty where it is of no row."""
        if stack.process in self._workers:
            return "waiting" if any(_FETCH.search(frame.file) for frame in stack.frames) else ""
        if stack.process != self._pid or not stack.main:
            return ""
        if self._in_thread and _QUEUE.search(stack.frames[-1].file):
            return "waiting"
        frames = [Frame(_plain(frame.name), frame.file, frame.line) for frame in stack.frames]
        shown = [frame for frame in frames if not _HIDDEN.search(frame.file)]
        loop = next((loop for loop in self._loops if loop.holds(shown)), None)
        if loop and loop.evaluates:
            return "evaluation"
        of_library = stamped(frames)
        if of_library is not None:
            return of_library
        return self._phase(shown) if loop or not self._loops else "between_epochs"

    def _phase(self, frames: Sequence[Frame]) -> str:
        """Before or behind the line that computes gradients: within the function that both stand in."""
        if not self._gradients:
            return "step"
        for callers in self._gradients:
            for here, there in zip(frames, callers, strict=False):
                if here[:2] != there[:2]:
                    break
                if here.line != there.line:
                    return "between_steps" if here.line > there.line else "forward"
        return "forward"


def stamped(frames: Sequence[Frame]) -> str | None:
    """Tell the row of a main thread within PyTorch or Python itself: empty where it waits for a batch, else None."""
    inside = next((at for at, frame in enumerate(frames) if _DATALOADER.search(frame.file)), None)
    if inside is not None:
        below = frames[inside:]
        names = {_plain(frame.name) for frame in below}
        if "_next_index" in names:
            return "sampler"
        if any(_FETCH.search(frame.file) for frame in below):
            return "here"
        if ("__next__" not in names and names & _STARTS) or "_shutdown_workers" in names:
            return "starting"
        return "" if names & _WAITS else "receiving"
    # What computes gradients for an optimizer (LBFGS, Lightning) runs below its step, and is no update.
    closures = [at for at, frame in enumerate(frames) if _plain(frame.name) == "closure"]
    if closures and any(_OPTIMIZER.search(frame.file) for frame in frames[: closures[-1]]):
        frames = frames[closures[-1] :]
    for row, file, name in _MARKS:
        if any(file.search(frame.file) and name in ("", _plain(frame.name)) for frame in frames):
            return row
    return "garbage" if frames and "gc.collect(" in getline(frames[-1].file, frames[-1].line) else None


def below(stack: Stack, row: str) -> Stack:
    """Give a stack without what called the part of a loader that its row is about."""
    frames = stack.frames
    if row in ("waiting", "here"):
        fetches = [at for at, frame in enumerate(frames) if _FETCH.search(frame.file)]
        frames = frames[fetches[-1] + 1 :] or frames[fetches[-1] :] if fetches else frames
    elif row == "sampler":
        draws = [at for at, frame in enumerate(frames) if _plain(frame.name) == "_next_index"]
        frames = frames[draws[-1] + 1 :] or frames
        frames = frames if any(not of_library(frame.file) for frame in frames) else frames[-1:]
    return replace(stack, frames=frames)


def handing(receiving: Sequence[Stack]) -> float:
    """Share of the stacks of ``receiving`` that wait for a worker to hand over the descriptor of a tensor's memory."""
    return _share_in(receiving, _SHARER)


def shared(waiting: Sequence[Stack]) -> float:
    """Share of the stacks of ``waiting`` in which a worker waits for a lock of all processes, or for a Manager."""
    return _share_in(waiting, _SHARED)


def _share_in(stacks: Sequence[Stack], files: re.Pattern[str]) -> float:
    within = (stack.count * any(files.search(frame.file) for frame in stack.frames) for stack in stacks)
    return sum(within) / max(1, sum(stack.count for stack in stacks))


def _plain(name: str) -> str:
    """A function's own name; Python 3.11 and later name its class, too."""
    return name.rpartition(".")[2]
