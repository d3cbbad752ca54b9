"""What formats need around their libraries: one handle a process, errors that say what to do, work on all cores."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from feedrate.schema.errors import DataError

Handle = TypeVar("Handle")
Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_AHEAD = 2
"""Items that wait or are worked on, for each core: all that is held in memory, however many there are."""


class PerProcess(Generic[Handle]):
    """A handle that is opened at its first use in each process, and is left out of a pickle.

    One that was inherited by a fork is dropped unused. It closes when its owner is dropped, as handles do.
    """

    def __init__(self, opener: Callable[..., Handle], *arguments: Any) -> None:
        """Remember what opens the handle: a function of a module, so that it can be pickled, and its arguments."""
        self._opener = opener
        self._arguments = arguments
        self._pid = -1
        self._handle: Handle | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PerProcess, (self._opener, *self._arguments)

    def __call__(self) -> Handle:
        """Give the handle of this process."""
        handle = self._handle
        if handle is not None and self._pid == os.getpid():
            return handle
        self._handle = None  # before the next is opened: some libraries refuse to open a file twice
        self._handle = self._opener(*self._arguments)
        self._pid = os.getpid()
        return self._handle


def damaged(path: Path, problem: str | Exception, root: Path, index: int | None = None) -> DataError:
    """Make the error for a file, or one sample of it, that cannot be used; ``root`` is what the user is to delete."""
    text = getattr(problem, "strerror", None) or problem
    sample = "" if index is None else f"sample {index}: "
    return DataError(f"{path}: {sample}{text}; delete {root} and run again")


def map_on_all_cores(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Apply a function that releases the GIL, such as a compressor, in a thread for each core this process may use.

    Items are drawn in the calling thread, ``LOOK_AHEAD`` a core before their results are taken; results keep their
    order.
    """
    cores = len(os.sched_getaffinity(0))
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(cores)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > LOOK_AHEAD * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
