"""Processes that make parts of the website, one a core up to four, and what spares all of them work."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, parent_process

from harness.hardware import usable_cores
from harness.pages.gathered import by_reference

_NEW_OBJECTS = 70_000
"""Before Python looks for garbage in cycles; its own number is 700."""
_MOST = 4
"""Processes: with more, memory would grow with the machine's cores and not with what there is to show."""
_NEEDED = ("harness.pages.run", "harness.pages.suites", "harness.pages.brief")


def prepare() -> None:
    """Begin to load what pages need, in the process from which those of ``pool`` are forked.

    It holds nothing else: loading takes each over a second, and a fork of the caller would share the locks of its
    threads.
    """
    get_context("forkserver").set_forkserver_preload(list(_NEEDED))
    forkserver.ensure_running()


def pool() -> ProcessPoolExecutor:
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
