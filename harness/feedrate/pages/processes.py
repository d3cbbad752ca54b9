"""Processes that make parts of the website, one a core up to four, and what spares all of them work.

Pages, made in processes of their own while the caller makes others.

A page is a pure function of what it is given, so that the order does not matter. Processes are worth their
start (a second, and their memory) only where there is much to draw.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver, get_context, parent_process
from typing import Any, ParamSpec, TypeVar

from feedrate.machine.identity import usable_cores
from feedrate.pages.runs import RunView, by_reference

_NEW_OBJECTS = 70_000
"""Before Python looks for garbage in cycles; its own number is 700."""
_MOST = 4
"""Processes: with more, memory would grow with the machine's cores and not with what there is to show."""
_NEEDED = ("feedrate.questions.runs.page", "feedrate.questions.suites.page", "feedrate.site.brief")


def prepare() -> None:
    """Begin to load what pages need, in the process from which those of ``pool`` are forked.

    It holds nothing else: loading takes each over a second, and a fork of the caller would share the locks of its
    threads.
    """
    get_context("forkserver").set_forkserver_preload(list(_NEEDED))
    forkserver.ensure_running()


def start_pool() -> ProcessPoolExecutor:
    """Start processes that have loaded what pages need; runs go to them and come back as references."""
    prepare()
    by_reference()
    context = get_context("forkserver")
    return ProcessPoolExecutor(min(_MOST, len(usable_cores())), context, initializer=_begin)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Let this process look for garbage less often.

    Frames and charts are many objects, most of them needed to the end: looking through them over and again took 1.8 of
    28 CPU seconds of a build, and takes 0.1 so.
    """
    before = gc.get_threshold()
    _collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _begin() -> None:
    """End with the caller, however it ends, and at once on Ctrl-C: what it says then is said by the caller."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    _collect_seldom()
    by_reference()


def _end_with_caller() -> None:
    if caller := parent_process():
        caller.join()
        os._exit(1)


def _collect_seldom() -> None:
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


WORTH = 2_000
"""Trials of the runs that are shown in full, from which on processes are started."""
Given = ParamSpec("Given")
Made = TypeVar("Made")
Taken = TypeVar("Taken")


class Ahead:
    """What takes long, begun before it is needed."""

    def __init__(self, pool: ProcessPoolExecutor | None) -> None:
        self._pool = pool
        self._begun: list[Future[Any]] = []

    def begin(self, make: Callable[Given, Made], *given: Given.args, **more: Given.kwargs) -> Callable[[], Made]:
        """Begin to make something; without processes it is made when it is asked for.

        Args:
            make: a function of a module.
            given: what it is called with; runs go to a process as references.
            more: by name.

        Returns:
            Waits for it and gives it.
        """
        if not self._pool:
            return partial(make, *given, **more)
        self._begun.append(self._pool.submit(make, *given, **more))
        return self._begun[-1].result

    def finished(self) -> Iterator[Any]:
        """Give everything that was begun, each as soon as it is made; without processes nothing is made yet."""
        for begun in as_completed(self._begun):
            yield begun.result()

    def each(self, make: Callable[[Taken], Made], items: Iterable[Taken]) -> Iterator[Made]:
        """Do what ``map`` does, several at a time where there are processes."""
        return self._pool.map(make, items) if self._pool else map(make, items)


@contextmanager
def started(runs: Sequence[RunView]) -> Iterator[Ahead]:
    """Start processes where they are worth it."""
    if len(usable_cores()) < 2 or trials(runs) < WORTH:
        yield Ahead(None)
        return
    with start_pool() as pool:
        try:
            yield Ahead(pool)
        finally:
            pool.shutdown(cancel_futures=True)


def trials(runs: Sequence[RunView]) -> int:
    """How many trials some runs have: what their pages cost."""
    return sum(sum(shown.manifest.outcomes.values()) for shown in runs)
