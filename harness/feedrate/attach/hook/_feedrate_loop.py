"""One loop over a loader, as what runs in the training process sees it: what is asked for, waited for and recorded.

The standard library alone, as all of the hook. Of most steps only the wait is recorded: details cost microseconds.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NoReturn

from _feedrate_log import DRAINED, END, HANDED, LOG, NEXT, REUSED, now, started_ns
from _feedrate_step import DEVICE, GARBAGE, GENERATORS, SHARED, callers, detail, leaves

STEPS = int(os.environ.get("FEEDRATE_STEPS") or 0)
HEADSPACE = int(os.environ.get("FEEDRATE_HEADSPACE") or 0)
DETAIL_NS, SELDOM = 32_000_000, 32
"""How often a step is recorded in detail (phases, CPU times, whether the device starved, and without workers how its
batch was prepared): at random, so many ns apart and one in so many at least, on average. Of all others only the wait
is recorded."""
PLENTY, SPARSER = 500, 3
"""Behind so many of them, they come so many times as seldom: one costs some ten times what any other step costs."""
DRAW = random.Random()  # of its own: the script may have seeded Python's
"""Steps that are looked at in a fixed rhythm would all be those of one worker, or those that update the weights."""


class Loop:
    """One iterator over one loader, as the loop that takes its batches sees it."""

    ids = itertools.count()

    starting: Loop | None = None
    """The one whose workers are being started."""

    def __init__(self, begun_ns: int, **fields: Any) -> None:
        self.iterator, self.parallel = next(self.ids), bool(fields.get("num_workers"))
        self.left, self.every, self.asked, self.mean_ns = 1, 1, begun_ns, 2.0 * DETAIL_NS
        """Steps until one is recorded in detail, from one to the next; when the last one began; mean duration."""
        self.made = begun_ns
        """When its next first batch was asked for by making it, or by starting it over; 0 once that came."""
        self.sampler, self.waited, self.pickled = 0, 0, 0
        """Time since the last batch in the sampler, and until a batch came; bytes that were pickled for workers."""
        self.looked = False
        """Whether a batch was looked at."""
        self.taken = 0
        """Batches that it gave since it began, or began anew."""
        self.entry: dict[str, Any] | None = {"begun_ns": begun_ns, **fields}
        """What is said of it with its first batch, when its workers and the loop that takes batches are known."""

    def say(self, workers: Sequence[Any] = ()) -> None:
        """Say once what it is, and in which loop of which thread its batches are taken."""
        line, self.entry = self.entry, None
        if line is None:
            return
        SHARED.loops += 1
        if not self.iterator:
            LOG.say("versions", python=sys.version.split()[0], **versions())
            LOG.say("process", began_ns=started_ns(), cores=len(os.sched_getaffinity(0)))
        main = threading.current_thread() is threading.main_thread()
        pids = [worker.pid for worker in workers]
        if not main:
            time_threads()
        LOG.say(
            "iterator", iterator=self.iterator, **ranks(), workers=pids, main=main, loop=callers(GENERATORS), **line
        )

    def spent(self) -> tuple[int, int]:
        """Time in the sampler, and until a batch came, since this was last asked."""
        spent, self.sampler, self.waited = (self.sampler, self.waited), 0, 0
        return spent

    def ask(self, begun: int, lying: int, batch: int) -> tuple[int, int, Any, int]:
        """Begin a step behind some batch in detail; what is done here is of the wait, as workers go on meanwhile.

        Returns:
            lying, CPU time of the process, event on the device, updates so far.
        """
        detail(True)
        LOG.iterator, LOG.batch = self.iterator, batch + 1
        GARBAGE.flush()
        self.mean_ns += ((begun - self.asked) / self.every - self.mean_ns) / 2
        self.asked = begun
        sparser = SPARSER if SHARED.steps > PLENTY else 1
        mean = 1 if STEPS else min(sparser * SELDOM, max(1, int(sparser * DETAIL_NS / self.mean_ns)))
        self.left = self.every = 1 + int(DRAW.random() * (2 * mean - 1))  # randrange takes twice as long
        return lying, time.process_time_ns(), DEVICE.asked(), SHARED.updates

    def record(self, begun: int, ended: int, step: tuple[int, int, Any, int] | None, batch: int, data: Any) -> None:
        """Record a detailed step whose batch has come; its number is -1 where it is not known.

        ``step`` is what ``ask`` gave, None where that failed.
        """
        if step is None:
            return
        lying, cpu, event, updates = step
        cpu_ended = time.process_time_ns()
        details = batch, lying, cpu, cpu_ended, 2 * updates + (event is not None), self.made
        LOG.keep(NEXT, begun, ended, self.iterator, *details, *self.spent())
        LOG.flush()
        self.made = 0
        if not self.looked:
            self.look(data)
        if event is not None:
            DEVICE.came(event, begun)
        SHARED.steps += 1
        if HEADSPACE and SHARED.steps == STEPS:
            SHARED.kept = data

    def look(self, batch: Any) -> None:
        """Say what a batch consists of."""
        self.looked = True
        with contextlib.suppress(Exception):  # whatever a batch of others is
            tensors = leaves(batch)
            size = sum(int(one.nbytes) for one in tensors)
            there = any(getattr(one, "is_cuda", False) for one in tensors)
            LOG.say("batch", iterator=self.iterator, objects=len(tensors), bytes=size, on_device=there)

    def end(self, begun: int) -> None:
        """Note that there was no other batch."""
        LOG.flush()
        GARBAGE.flush()
        DEVICE.read()
        LOG.write(END, begun, now(), self.iterator, *self.spent(), SHARED.updates)
        detail(False)

    def finish(self, take: Callable[[Any], Any], iterator: Any) -> Any:
        """Give the last batch again after the steps that were asked for, to see what remains without the loader.

        Then run the loader without the step, and end the script.
        """
        begun = now()
        if SHARED.reused < HEADSPACE:
            SHARED.reused += 1
            LOG.write(REUSED, begun, begun, self.iterator, SHARED.reused)
            return again(SHARED.kept)
        self.end(begun)
        for _ in range(HEADSPACE):
            begun = now()
            try:
                take(iterator)
            except StopIteration:
                break
            LOG.write(DRAINED, begun, now(), self.iterator)
        LOG.say("stopped", steps=SHARED.steps)
        return end_script()


def end_script() -> NoReturn:
    """End the script in order, from a loop in any thread of it."""
    if threading.current_thread() is not threading.main_thread():
        os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(0)


def ranks() -> dict[str, int]:
    """Which of how many processes of a training this is, as PyTorch knows it, else as torchrun says it."""
    with contextlib.suppress(Exception):  # processes that PyTorch itself spawned, or Lightning, have no RANK
        distributed = sys.modules["torch"].distributed
        if distributed.is_available() and distributed.is_initialized():
            return {"rank": int(distributed.get_rank()), "ranks": int(distributed.get_world_size())}
    return {"rank": number_of("RANK", 0), "ranks": number_of("WORLD_SIZE", 1)}


def number_of(name: str, default: int) -> int:
    """A whole number of the environment, as torchrun sets it."""
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def versions() -> dict[str, str]:
    """Versions of what the script has imported, by the names of their packages."""
    packages = {"torch": "torch", "torchvision": "torchvision", "numpy": "numpy", "PIL": "pillow", "pandas": "pandas"}
    numbers = {name: getattr(sys.modules.get(module), "__version__", None) for module, name in packages.items()}
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return {name: str(version) for name, version in {**numbers, "cuda": cuda}.items() if version}


def again(batch: Any) -> Any:
    """The same tensors in containers of their own, as a step may take its batch apart."""
    if isinstance(batch, MutableMapping):
        copy: Any = dict(batch) if type(batch) is dict else batch.copy()  # type: ignore[attr-defined]
        for key in list(copy):
            copy[key] = again(copy[key])
        return copy
    if type(batch) in (list, tuple):
        return type(batch)(again(item) for item in batch)
    return batch


def time_threads() -> None:
    """Time how long the main thread waits for other threads, once one of those takes batches: in queues, or joining."""
    for kind, name in ((threading.Condition, "wait"), (threading.Thread, "join")):
        wait: Any = getattr(kind, name)
        if hasattr(wait, "_feedrate"):
            return

        def timed(self: Any, timeout: float | None = None, *, wait: Any = wait) -> Any:
            if threading.get_ident() != threading.main_thread().ident:
                return wait(self, timeout)
            begun = now()
            try:
                return wait(self, timeout)
            finally:
                LOG.write(HANDED, begun, now())

        timed._feedrate = True  # type: ignore[attr-defined]
        setattr(kind, name, functools.wraps(wait)(timed))
