"""What runs where batches are prepared: in a worker, or in the training process. The standard library alone."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import time
from collections.abc import Callable
from resource import RUSAGE_CHILDREN, getrusage
from types import TracebackType
from typing import Any

from _feedrate_log import BATCH, FIRST, GUARD, LOG, OWN, READ, SCHEDULED, TAKEN, now, read_bytes
from _feedrate_step import fingerprint


def children_ns() -> int:
    """CPU time of processes that this one has started and waited for, as ffmpeg is that decodes for it."""
    used = getrusage(RUSAGE_CHILDREN)
    return int(1e9 * (used.ru_utime + used.ru_stime))


def patch_fetch(module: Any) -> None:
    """Time what a batch takes where it is prepared: in a worker, or in the training process."""

    def wrap_fetch(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def fetch(self: Any, index: Any) -> Any:
            if not LOG.detail:
                return original(self, index)
            collate, took = self.collate_fn, 0

            def timed(samples: Any) -> Any:
                nonlocal took
                begun = now()
                try:
                    return collate(samples)
                finally:
                    took = now() - begun

            works = LOG.worker >= 0  # in the training process nobody asks how long it waited for a core
            queued, others = 0, 0
            with GUARD:
                queued, others = SCHEDULED.wait_ns() if works else 0, children_ns()
            process, cpu, begun = time.process_time_ns() if works else 0, time.thread_time_ns(), now()
            self.collate_fn = timed if callable(collate) else collate
            try:
                data = original(self, index)
            finally:
                self.collate_fn = collate
            ended = now()
            with GUARD:
                others = children_ns() - others
                cpu = time.thread_time_ns() - cpu + others
                queued = SCHEDULED.wait_ns() - queued if works else 0
                process = time.process_time_ns() - process + others if works else 0
                samples = len(index) if isinstance(index, (list, tuple)) else 1
                batch = LOG.worker, LOG.batch, samples, took
                write = LOG.write if works else LOG.keep
                write(BATCH, begun, ended, *batch, cpu, queued, LOG.iterator, process)
                if works and LOG.first:
                    LOG.first = False
                    with contextlib.suppress(Exception):  # whatever a batch of others is
                        if number := fingerprint(data):
                            LOG.write(FIRST, ended, now(), number)
            return data

        return fetch

    for fetcher in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        fetcher.fetch = wrap_fetch(fetcher.fetch)


class Indices:
    """A worker's queue of indices: whoever takes one from it works on that batch."""

    def __init__(self, queue: Any) -> None:
        self._feedrate_queue = queue

    def get(self, *args: Any, **kwargs: Any) -> Any:
        begun = now()
        task = self._feedrate_queue.get(*args, **kwargs)
        if isinstance(task, tuple) and len(task) == 2 and isinstance(task[0], int):
            LOG.batch = task[0]
            with GUARD:
                LOG.write(TAKEN, begun, now(), LOG.worker, LOG.batch)
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_feedrate_queue"], name)


def patch_worker(module: Any) -> None:
    """Have a worker know its number and the batch that it works on."""
    original, wrapper = module._worker_loop, module.ExceptionWrapper

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        before = 0
        with GUARD:
            if len(args) > 10 and hasattr(args[2], "get"):
                LOG.worker = args[10] if isinstance(args[10], int) else -1
                args = (*args[:2], Indices(args[2]), *args[3:])
            allow_profiler()
            before = read_bytes()
        try:
            return original(*args, **kwargs)
        finally:
            with GUARD:
                LOG.write(READ, now(), now(), read_bytes() - before)

    def wrap_exception(exc_info: Any = None, where: str = "in background") -> Any:
        kind, error, trace = exc_info or sys.exc_info()
        with GUARD:
            trace = without_own(trace)
        return wrapper((kind, error, trace), where)

    module._worker_loop, module.ExceptionWrapper = _worker_loop, wrap_exception


def allow_profiler() -> None:
    """Let processes below ``feedrate run`` read this one's stack where Linux (Yama) allows it to ancestors alone."""
    with contextlib.suppress(Exception):  # a convenience; the profiler says what it lacks
        import ctypes

        ctypes.CDLL(None).prctl(0x59616D61, int(os.environ.get("FEEDRATE_PID") or 0), 0, 0, 0)


def without_own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of the hook's files."""
    frames = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(OWN):
            frames.append(trace)
        trace = trace.tb_next
    for frame, following in itertools.zip_longest(frames, frames[1:]):
        frame.tb_next = following
    return frames[0] if frames else None
