"""Processes that make parts of the website while the caller makes others, one a core up to four.

A page is a pure function of what it is given, so that the order does not matter. Processes are worth their start (a
second, and their memory) only where there is much to draw.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from feedrate.machine.identity import usable_cores
from feedrate.pages.kept import Kept

if TYPE_CHECKING:  # a process that only draws pictures loads no runs
    from feedrate.pages.runs import RunView

WORTH = 2_000
"""Trials of the runs that are shown in full, from which on processes are started."""
_NEW_OBJECTS = 70_000
"""Before Python looks for garbage in cycles; its own number is 700."""
_FEW = 3
"""With more parts than these, further processes are worth their start."""
_MOST = 4
"""Processes: with more, memory would grow with the machine's cores and not with what there is to show."""
_NEEDED = ("feedrate.questions.runs.page", "feedrate.questions.suites.page", "feedrate.suites.claims")
Made = TypeVar("Made")
Item = TypeVar("Item")


def prepare() -> None:
    """Begin to load what pages need, in the process from which those of ``start_pool`` are forked.

    It holds nothing else: loading takes each over a second, and a fork of the caller would share the locks of its
    threads.
    """
    get_context("forkserver").set_forkserver_preload(list(_NEEDED))
    forkserver.ensure_running()


def start_pool() -> ProcessPoolExecutor:
    """Start processes that have loaded what pages need; runs go to them and come back as references."""
    prepare()
    return ProcessPoolExecutor(min(_MOST, len(usable_cores())), get_context("forkserver"), initializer=_begin)


def _begin() -> None:
    end_with_caller()
    collect_seldom()


def end_with_caller() -> None:
    """Let this process end with the one that started it, and at once on Ctrl-C: the caller alone answers that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_wait_for_caller, daemon=True).start()


def _wait_for_caller() -> None:
    if caller := parent_process():
        caller.join()
        os._exit(1)


def collect_seldom() -> None:
    """Let this process look for garbage less often.

    Frames and charts are many objects, most of them needed to the end: looking through them over and again took 1.8 of
    28 CPU seconds of a build, and takes 0.1 so.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def in_parts(make: Callable[[Sequence[Item]], Made], items: Sequence[Item], size: int) -> list[Made]:
    """Call a function with so many items at a time, by several processes where there are many parts."""
    parts = [items[at : at + size] for at in range(0, len(items), size)]
    if len(parts) <= _FEW:
        return list(map(make, parts))
    with start_pool() as pool:
        return list(pool.map(make, parts))


class Ahead:
    """What takes long, begun before it is needed; without processes it is made when its result is wanted."""

    def __init__(self, pool: ProcessPoolExecutor | None, kept: Kept) -> None:
        self.pool = pool
        self.kept = kept

    def begin(self, name: str, runs: Sequence[Path], make: Callable[..., Made], *values: Any) -> Callable[[], Made]:
        """Begin to call a function of a module, unless what it makes of these runs is kept under the name.

        What is returned waits for its result and gives it.
        """
        result: Callable[[], Made] = partial(make, *values)
        if not self.kept.holds(name, runs) and self.pool:
            result = self.pool.submit(make, *values).result
        return partial(self.kept.made, result, name, runs)


@contextmanager
def started(runs: Sequence[RunView], kept: Kept) -> Iterator[Ahead]:
    """Start processes where the trials of some runs are worth it."""
    if len(usable_cores()) < 2 or trials(runs) < WORTH:
        yield Ahead(None, kept)
        return
    with start_pool() as pool:
        try:
            yield Ahead(pool, kept)
        finally:
            pool.shutdown(cancel_futures=True)


def trials(runs: Sequence[RunView]) -> int:
    """How many trials some runs have: what their pages cost."""
    return sum(sum(view.manifest.outcomes.values()) for view in runs)
