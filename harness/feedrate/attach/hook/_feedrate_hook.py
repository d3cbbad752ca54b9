"""What runs inside people's training processes: it takes times, writes them to a file of its own, and nothing else.

The standard library alone, on Python 3.11 to 3.14 and PyTorch 2.4 and newer. Times are ``perf_counter_ns``, which is
one clock for all processes of a machine. Every record is ten 64-bit integers, written into a file that is mapped into
memory: it costs a microsecond, survives a process that is killed, and the parent reads it while it grows. What a loader
is, is a line of JSON.

==========  ====================================================================================================
record      its fields after kind, begin and end
==========  ====================================================================================================
NEXT        iterator, batch, batches that lay ready, CPU time of the process at begin and end, whether CUDA is in use,
            when the iterator was asked for (of its first batch; else 0)
BATCH       worker (-1: the training process), batch, samples, collation, CPU time, time on a run queue, iterator
BACKWARD    -
OPTIMIZER   -
STARVED     -: begins when a batch was asked for, and lasts as long as the device had nothing to do
END         iterator
==========  ====================================================================================================

Nothing is synchronised. Whether the device starved: an event is recorded behind a step's launches, when the next batch
is asked for. If it has happened when the batch comes, the device has run dry; a second event, recorded then, tells
since when.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

now = time.perf_counter_ns
FOLDER = os.environ.get("FEEDRATE_RUN", "")
STEPS = int(os.environ.get("FEEDRATE_STEPS") or 0)
HEADSPACE = int(os.environ.get("FEEDRATE_HEADSPACE") or 0)
NEXT, BATCH, BACKWARD, OPTIMIZER, STARVED, END, REUSED, DRAINED = range(1, 9)
RECORD = struct.Struct("<10q")
FIRST_BYTES = 1 << 18
TORCH = os.sep + "torch" + os.sep


class Log:
    """The records of this process. After a fork the child begins a file of its own."""

    map: mmap.mmap
    fd = -1

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        if self.fd >= 0:  # the parent's
            os.close(self.fd)
        self.lock = threading.Lock()
        self.pid, self.count, self.size, self.fd = os.getpid(), itertools.count(), 0, -1
        self.path = os.path.join(FOLDER, f"{self.pid}-{now()}")
        self.iterator, self.worker, self.batch = -1, -1, -1

    def write(self, kind: int, begun: int = 0, ended: int = 0, *fields: int) -> None:
        """Write a record; where no file can be written any more, nothing is."""
        offset = next(self.count) * RECORD.size
        if offset + RECORD.size > self.size and not self.grow(offset + RECORD.size):
            return
        RECORD.pack_into(self.map, offset, kind, begun, ended, *fields, *(0,) * (7 - len(fields)))

    def grow(self, least: int) -> bool:
        with self.lock:
            if least <= self.size:
                return True
            if self.size < 0:
                return False
            try:
                if self.fd < 0:
                    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                    self.fd = os.open(self.path + ".records", flags, 0o600)
                size = max(FIRST_BYTES, 2 * self.size)
                os.posix_fallocate(self.fd, 0, size)  # a write into a hole of a full disk would be a SIGBUS
                self.map, self.size = mmap.mmap(self.fd, size), size
            except (OSError, ValueError):
                self.size = -1
                return False
            return True

    def say(self, what: str, **fields: Any) -> None:
        """Append a line of JSON on what this process saw."""
        line = json.dumps({"what": what, "pid": self.pid, "t_ns": now(), **fields}, default=str) + "\n"
        try:
            fd = os.open(self.path + ".jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(fd, line.encode())
            finally:
                os.close(fd)
        except OSError:
            pass


LOG = Log()
os.register_at_fork(after_in_child=LOG.begin)


class Scheduled:
    """How long this thread has waited for a core: ``/proc``'s second number of its schedstat."""

    fd = -1

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        if self.fd >= 0:  # another thread's, or the parent's
            os.close(self.fd)
        self.thread, self.fd = 0, -1

    def wait_ns(self) -> int:
        """Nanoseconds since the thread began; 0 where the kernel does not say."""
        thread = threading.get_ident()
        if thread != self.thread:
            self.begin()
            self.thread = thread
            with contextlib.suppress(OSError):
                self.fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(self.fd, 64, 0).split()[1]) if self.fd >= 0 else 0


SCHEDULED = Scheduled()
os.register_at_fork(after_in_child=SCHEDULED.begin)


class Collate:
    """A loader's ``collate_fn`` with a clock; everything else is its own."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original, self.took = original, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begun = now()
        try:
            return self.original(*args, **kwargs)
        finally:
            self.took = now() - begun

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["original"], name)


def patch_fetch(module: Any) -> None:
    """Time what a batch takes where it is prepared: in a worker, or in the training process."""
    base = module._BaseDatasetFetcher

    def wrap_init(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if callable(getattr(self, "collate_fn", None)):
                self.collate_fn = Collate(self.collate_fn)

        return __init__

    def wrap_fetch(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def fetch(self: Any, index: Any) -> Any:
            collate = self.collate_fn if isinstance(self.collate_fn, Collate) else None
            queued, cpu, begun = SCHEDULED.wait_ns(), time.thread_time_ns(), now()
            data = original(self, index)
            ended = now()
            LOG.write(
                BATCH,
                begun,
                ended,
                LOG.worker,
                LOG.batch,
                len(index) if isinstance(index, (list, tuple)) else 1,
                collate.took if collate else 0,
                time.thread_time_ns() - cpu,
                SCHEDULED.wait_ns() - queued,
                LOG.iterator,
            )
            return data

        return fetch

    base.__init__ = wrap_init(base.__init__)
    for fetcher in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        fetcher.fetch = wrap_fetch(fetcher.fetch)


class Indices:
    """A worker's queue of indices: whoever takes one from it works on that batch."""

    def __init__(self, queue: Any) -> None:
        self._feedrate_queue = queue

    def get(self, *args: Any, **kwargs: Any) -> Any:
        task = self._feedrate_queue.get(*args, **kwargs)
        if isinstance(task, tuple) and len(task) == 2 and isinstance(task[0], int):
            LOG.batch = task[0]
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_feedrate_queue"], name)


def patch_worker(module: Any) -> None:
    """Have a worker know its number and the batch that it works on."""
    original, wrapper = module._worker_loop, module.ExceptionWrapper

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 10 and hasattr(args[2], "get"):
            LOG.worker = args[10] if isinstance(args[10], int) else -1
            args = (*args[:2], Indices(args[2]), *args[3:])
        allow_profiler()
        return original(*args, **kwargs)

    def wrap_exception(exc_info: Any = None, where: str = "in background") -> Any:
        kind, error, trace = exc_info or sys.exc_info()
        return wrapper((kind, error, without_own(trace)), where)

    module._worker_loop, module.ExceptionWrapper = _worker_loop, wrap_exception


def allow_profiler() -> None:
    """Let processes below ``feedrate run`` read this one's stack where Linux (Yama) allows it to ancestors alone."""
    with contextlib.suppress(Exception):  # a convenience; the profiler says what it lacks
        import ctypes

        ctypes.CDLL(None).prctl(0x59616D61, int(os.environ.get("FEEDRATE_PID") or 0), 0, 0, 0)


class Device:
    """Whether the accelerator ran dry between two steps, by CUDA events and without waiting for it."""

    def __init__(self) -> None:
        self.free: list[Any] = []
        self.waiting: list[tuple[Any, Any, int]] = []
        self.works = True

    def asked(self) -> Any:
        """Mark the end of a step's launches; None where CUDA is not in use."""
        torch = sys.modules.get("torch")
        if torch is None or not self.works or not torch.cuda.is_initialized():
            return None
        try:
            event = self.free.pop() if self.free else torch.cuda.Event(enable_timing=True)
            event.record()
        except RuntimeError:  # a kernel of the script has failed: its own next call says so
            self.works = False
            return None
        return event

    def came(self, event: Any, begun: int) -> None:
        """Look whether the device had finished when the batch came that was asked for at ``begun``."""
        try:
            while self.waiting and self.waiting[0][1].query():
                first, second, asked = self.waiting.pop(0)
                LOG.write(STARVED, asked, asked + int(first.elapsed_time(second) * 1e6))
                self.free += first, second
            if event.query():
                second = self.free.pop() if self.free else sys.modules["torch"].cuda.Event(enable_timing=True)
                second.record()
                self.waiting.append((event, second, begun))
            else:
                self.free.append(event)
        except RuntimeError:
            self.works = False


class Loop:
    """One iterator over one loader, as the loop that takes its batches sees it."""

    ids = itertools.count()
    steps = 0
    """Batches that all loops of this process took."""
    kept: Any = None
    """The batch of the last real step, where it is used again."""
    reused = 0

    def __init__(self, **said: Any) -> None:
        self.iterator, self.device, self.parallel = next(self.ids), Device(), bool(said["workers"])
        self.made = 0
        """When its next first batch was asked for by making it, or by starting it over; 0 once that came."""
        if not self.iterator:
            LOG.say("versions", python=sys.version.split()[0], **versions())
        LOG.say("iterator", iterator=self.iterator, rank=number_of("RANK", 0), ranks=number_of("WORLD_SIZE", 1), **said)

    def take(self, begun: int, original: Callable[..., Any], place: Callable[..., int], lying: int, *of: Any) -> Any:
        """Take one batch and time it.

        Args:
            begun: when the loop asked for it: what this file takes then is a wait to the loop, too.
            original: gives the next batch, or raises StopIteration.
            place: gives the number of the batch that came last; -1 where it is not known.
            lying: how many batches lie ready; -1 where that is not known.
            of: what both functions are given.
        """
        if STEPS and Loop.steps >= STEPS:
            if HEADSPACE and Loop.reused < HEADSPACE:
                return self.reuse()
            self.stop(original, *of)
        cpu, event = time.process_time_ns(), self.device.asked()
        try:
            data = original(*of)
        except StopIteration:
            LOG.write(END, begun, now(), self.iterator)
            raise
        ended, cpu_ended, made = now(), time.process_time_ns(), self.made
        LOG.write(NEXT, begun, ended, self.iterator, place(*of), lying, cpu, cpu_ended, event is not None, made)
        if event is not None:
            self.device.came(event, begun)
        self.made = 0
        Loop.steps += 1
        if HEADSPACE and Loop.steps == STEPS:
            Loop.kept = data
        return data

    def reuse(self) -> Any:
        """Give the last real batch again: what remains is the step without its loader."""
        begun = now()
        Loop.reused += 1
        LOG.write(REUSED, begun, begun, self.iterator, Loop.reused)
        return again(Loop.kept)

    def stop(self, original: Callable[..., Any], *of: Any) -> None:
        """End the script after the steps that were asked for; before, run the loader without the step."""
        begun = now()
        LOG.write(END, begun, begun, self.iterator)
        for _ in range(HEADSPACE):
            begun = now()
            try:
                original(*of)
            except StopIteration:
                break
            LOG.write(DRAINED, begun, now(), self.iterator)
        LOG.say("stopped", steps=Loop.steps)
        if threading.current_thread() is not threading.main_thread():
            os.kill(os.getpid(), signal.SIGINT)
        raise SystemExit(0)


def number_of(name: str, default: int) -> int:
    """A whole number of the environment, as torchrun sets it."""
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def versions() -> dict[str, str]:
    """Versions of what the script has imported, by the names of their packages."""
    packages = {"torch": "torch", "torchvision": "torchvision", "numpy": "numpy", "PIL": "pillow", "pandas": "pandas"}
    found = {name: getattr(sys.modules.get(module), "__version__", None) for module, name in packages.items()}
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return {name: str(version) for name, version in {**found, "cuda": cuda}.items() if version}


def again(batch: Any) -> Any:
    """The same tensors in containers of their own, as a step may take its batch apart."""
    if isinstance(batch, dict):
        copy = dict(batch) if type(batch) is dict else batch.copy()
        for key in list(copy):
            copy[key] = again(copy[key])
        return copy
    if type(batch) in (list, tuple):
        return type(batch)(again(each) for each in batch)
    return batch


def patch_loader(module: Any) -> None:
    """Time every batch that a loop takes of a DataLoader, and note where loaders are made and how they are set."""
    base = module._BaseDataLoaderIter
    make, begin, take = module.DataLoader.__init__, module.DataLoader.__iter__, base.__next__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__.setdefault("_feedrate_made", callers())  # a subclass may call it in turn
        make(self, *args, **kwargs)

    @functools.wraps(begin)
    def __iter__(self: Any) -> Any:
        begun = now()
        iterator = begin(self)
        if isinstance(iterator, base):
            loop = iterator.__dict__.get("_feedrate_loop")
            if loop is None:
                loop = iterator._feedrate_loop = loop_of(self, iterator, begun)
            if loop:
                loop.made = begun
        return iterator

    @functools.wraps(take)
    def __next__(self: Any) -> Any:
        begun, loop = now(), self.__dict__.get("_feedrate_loop")
        if not loop:
            return take(self)
        LOG.iterator, LOG.batch = loop.iterator, self._num_yielded
        return loop.take(begun, take, number, lying(self) if loop.parallel else -1, self)

    allow_profiler()
    module.DataLoader.__init__, module.DataLoader.__iter__, base.__next__ = __init__, __iter__, __next__


def loop_of(loader: Any, iterator: Any, begun: int) -> Loop | None:
    """The loop over an iterator of a loader; None where that is not as expected, and stays unobserved."""
    try:
        workers = [worker.pid for worker in getattr(iterator, "_workers", ())]
        made = loader.__dict__.get("_feedrate_made", [])
        return Loop(begun_ns=begun, workers=workers, made=made, used=callers(), **settings(loader))
    except Exception as error:  # noqa: BLE001 - the script goes on, whatever its loader is
        LOG.say("not hooked", module=type(loader).__qualname__, error=repr(error))
        return None


def lying(iterator: Any) -> int:
    """Batches that workers have prepared and no step has taken."""
    try:
        early = sum(len(info) == 2 for info in iterator._task_info.values())
        return int(iterator._data_queue.qsize()) + early
    except (AttributeError, NotImplementedError, RuntimeError):
        return -1


def number(iterator: Any) -> int:
    """Number of the batch that came last, in its epoch."""
    if not hasattr(iterator, "_rcvd_idx"):
        return int(iterator._num_yielded) - 1
    return int(iterator._rcvd_idx) - 1 if getattr(iterator, "_in_order", True) else -1


def callers() -> list[tuple[str, int, str]]:
    """Who called: [file, line, function] of every frame outside PyTorch and this file, innermost first."""
    found: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(found) < 64:
        file = frame.f_code.co_filename
        if TORCH not in file and file != __file__ and not file.startswith("<"):
            found.append((os.path.abspath(file), frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found


def settings(loader: Any) -> dict[str, Any]:
    """What a loader is, as its attributes say; nothing of it is called."""
    context = getattr(loader, "multiprocessing_context", None)
    torch = sys.modules["torch"]
    method = (context or torch.multiprocessing).get_start_method(*(() if context else (True,)))
    return {
        "batch_size": getattr(loader, "batch_size", None) or getattr(loader.batch_sampler, "batch_size", None),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "drop_last": bool(loader.drop_last),
        "start_method": method,
        "dataset": type(loader.dataset).__qualname__,
        "iterable": isinstance(loader.dataset, torch.utils.data.IterableDataset),
        "sampler": type(loader.sampler).__qualname__,
    }


def patch_autograd(module: Any) -> None:
    """Time the backward pass, as the host sees it."""
    original = module.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        begun = now()
        try:
            return original(*args, **kwargs)
        finally:
            LOG.write(BACKWARD, begun, now())

    module.backward = backward


def patch_optimizer(module: Any) -> None:
    """Time the steps of optimizers by PyTorch's own hooks."""
    torch = sys.modules["torch"]
    begun: list[int] = []

    def before(*_: Any) -> None:
        if not torch.compiler.is_compiling():
            begun.append(now())

    def after(*_: Any) -> None:
        if not torch.compiler.is_compiling() and begun:
            LOG.write(OPTIMIZER, begun.pop(), now())

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


PATCHES = {
    "torch.autograd": patch_autograd,
    "torch.optim.optimizer": patch_optimizer,
    "torch.utils.data.dataloader": patch_loader,
    "torch.utils.data._utils.fetch": patch_fetch,
    "torch.utils.data._utils.worker": patch_worker,
}


def patch(module: Any) -> None:
    """Patch a module of PyTorch that was just imported; one that is not as expected stays as it is."""
    try:
        PATCHES[module.__name__](module)
    except Exception as error:  # noqa: BLE001 - the script goes on, whatever its PyTorch is
        LOG.say("not hooked", module=module.__name__, error=repr(error))


class Watched:
    """Any iterable whose batches are timed like a DataLoader's (``feedrate.watch``)."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._feedrate_iterable, self._feedrate_made = iterable, callers()

    def __iter__(self) -> Iterator[Any]:
        begun, inner = now(), iter(self._feedrate_iterable)
        kind = type(self._feedrate_iterable).__qualname__
        loop = Loop(begun_ns=begun, workers=[], made=self._feedrate_made, used=callers(), watched=True, dataset=kind)
        loop.made = begun
        for count in itertools.count():
            try:
                batch = loop.take(now(), inner.__next__, count.__int__, -1)
            except StopIteration:
                return
            yield batch

    def __len__(self) -> int:
        return len(self._feedrate_iterable)  # type: ignore[arg-type] # where it has none, this raises as it would

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_feedrate_iterable"], name)


def hide() -> None:
    """Leave this file out of the tracebacks that the script prints, which are its own."""
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error.with_traceback(without_own(trace)), without_own(trace))

    sys.excepthook = excepthook


def without_own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if trace is not None:
        trace.tb_next = without_own(trace.tb_next)
    return trace


hide()
