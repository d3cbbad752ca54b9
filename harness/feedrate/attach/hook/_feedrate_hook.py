"""What runs inside people's training processes: it takes times, writes them (``_feedrate_log``), and nothing else.

The standard library alone, on Python 3.9 to 3.14 and PyTorch 2.4 and newer. Nothing is synchronised. Whether the
device starved: an event is recorded behind a step's launches, when the next batch is asked for. If it has happened when
the batch comes, the device has run dry; a second event, recorded then, tells since when.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn

from _feedrate_log import (
    BACKWARD,
    BATCH,
    DRAINED,
    END,
    LOG,
    NEXT,
    OPTIMIZER,
    REUSED,
    SCHEDULED,
    STARVED,
    TAKEN,
    now,
)

OWN = os.path.join(os.path.dirname(__file__), "_feedrate")
"""How the paths of the hook's files begin."""
STEPS = int(os.environ.get("FEEDRATE_STEPS") or 0)
HEADSPACE = int(os.environ.get("FEEDRATE_HEADSPACE") or 0)
TORCH = os.sep + "torch" + os.sep
DETAIL_NS, SELDOM = 16_000_000, 32
"""How often a step is recorded in detail (phases, CPU times, whether the device starved, and without workers how its
batch was prepared): at random, so many ns apart and one in so many at least, on average. Of all others only the wait
is recorded."""
DRAW = random.Random()  # of its own: the script may have seeded Python's
"""Steps that are looked at in a fixed rhythm would all be those of one worker, or those that update the weights."""


class Collate:
    """A loader's ``collate_fn`` with a clock; everything else is its own."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original, self.took = original, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not LOG.detail:
            return self.original(*args, **kwargs)
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
            if not LOG.detail:
                return original(self, index)
            collate = self.collate_fn if isinstance(self.collate_fn, Collate) else None
            works = LOG.worker >= 0  # in the training process nobody asks how long it stood in line
            queued, cpu, begun = SCHEDULED.wait_ns() if works else 0, time.thread_time_ns(), now()
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
                SCHEDULED.wait_ns() - queued if works else 0,
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
        begun = now()
        task = self._feedrate_queue.get(*args, **kwargs)
        if isinstance(task, tuple) and len(task) == 2 and isinstance(task[0], int):
            LOG.batch = task[0]
            LOG.write(TAKEN, begun, now(), LOG.worker, LOG.batch)
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
        self.forget()

    def forget(self) -> None:
        """Begin anew: a process that was forked has none of its parent's events."""
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
        self.read()
        try:
            if event.query():
                second = self.free.pop() if self.free else sys.modules["torch"].cuda.Event(enable_timing=True)
                second.record()
                self.waiting.append((event, second, begun))
            else:
                self.free.append(event)
        except RuntimeError:
            self.works = False

    def read(self) -> None:
        """Write for how long the device had starved, as far as it has told by now."""
        try:
            while self.waiting and self.waiting[0][1].query():
                first, second, asked = self.waiting.pop(0)
                LOG.write(STARVED, asked, asked + int(first.elapsed_time(second) * 1e6))
                self.free += first, second
        except RuntimeError:
            self.works = False


DEVICE = Device()
"""One for all loops: what is pending of one that ended is read by the next, or when the script ends."""
atexit.register(DEVICE.read)
os.register_at_fork(after_in_child=DEVICE.forget)


class Shared:
    """What all loops of this process share; not in ``Loop``, as Python forgets what it knew of a class that changes."""

    def __init__(self) -> None:
        self.steps = 0
        """Batches that were taken."""
        self.kept: Any = None
        """The batch of the last real step, where it is used again."""
        self.reused = 0


SHARED = Shared()


class Loop:
    """One iterator over one loader, as the loop that takes its batches sees it."""

    ids = itertools.count()

    def __init__(self, begun_ns: int, **said: Any) -> None:
        self.iterator, self.parallel = next(self.ids), bool(said.get("num_workers"))
        self.left, self.every, self.asked, self.mean_ns = 1, 1, begun_ns, 2.0 * DETAIL_NS
        """Steps until one is recorded in detail, from one to the next; when the last one began; mean duration."""
        self.made = begun_ns
        """When its next first batch was asked for by making it, or by starting it over; 0 once that came."""
        if not self.iterator:
            LOG.say("versions", python=sys.version.split()[0], **versions())
        ranks = {"rank": number_of("RANK", 0), "ranks": number_of("WORLD_SIZE", 1)}
        LOG.say("iterator", iterator=self.iterator, begun_ns=begun_ns, **ranks, **said)

    def take(self, begun: int, original: Callable[..., Any], place: Callable[..., int], lying: int, *of: Any) -> Any:
        """Take one batch, and record its step in detail.

        Args:
            begun: when it was asked for. What is done here before belongs to the wait: a worker goes on meanwhile.
            original: gives the next batch, or raises StopIteration.
            place: gives the number of the batch that came last; -1 where it is not known.
            lying: how many batches lie ready; -1 where that is not known.
            of: what both functions are given.
        """
        if STEPS and SHARED.steps >= STEPS:
            if HEADSPACE and SHARED.reused < HEADSPACE:
                return self.reuse()
            self.stop(original, *of)
        LOG.detail = True
        self.mean_ns += ((begun - self.asked) / self.every - self.mean_ns) / 2
        self.asked = begun
        mean = 1 if STEPS else min(SELDOM, max(1, int(DETAIL_NS / self.mean_ns)))
        self.left = self.every = DRAW.randrange(1, 2 * mean)
        cpu, event = time.process_time_ns(), DEVICE.asked()
        try:
            data = original(*of)
        except StopIteration:
            self.end(begun)
            raise
        ended, cpu_ended, made = now(), time.process_time_ns(), self.made
        LOG.flush()
        LOG.write(NEXT, begun, ended, self.iterator, place(*of), lying, cpu, cpu_ended, event is not None, made)
        self.made = 0
        if event is not None:
            DEVICE.came(event, begun)
        SHARED.steps += 1
        if HEADSPACE and SHARED.steps == STEPS:
            SHARED.kept = data
        return data

    def end(self, begun: int) -> None:
        """Note that there was no other batch."""
        LOG.flush()
        DEVICE.read()
        LOG.write(END, begun, now(), self.iterator)

    def reuse(self) -> Any:
        """Give the last real batch again: what remains is the step without its loader."""
        begun = now()
        SHARED.reused += 1
        LOG.write(REUSED, begun, begun, self.iterator, SHARED.reused)
        return again(SHARED.kept)

    def stop(self, original: Callable[..., Any], *of: Any) -> None:
        """End the script after the steps that were asked for; before, run the loader without the step."""
        begun = now()
        self.end(begun)
        for _ in range(HEADSPACE):
            begun = now()
            try:
                original(*of)
            except StopIteration:
                break
            LOG.write(DRAINED, begun, now(), self.iterator)
        LOG.say("stopped", steps=SHARED.steps)
        end_script()


def end_script() -> NoReturn:
    """End the script in order, from a loop in any thread of it."""
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
    """Time every batch that a loop takes of a DataLoader.

    Iterators are patched in their base class: ultralytics' and timm's loaders keep one for all epochs, and torchdata's
    have classes of their own, so that ``DataLoader.__iter__`` is not always called.
    """
    base = module._BaseDataLoaderIter
    begin, reset, take = base.__init__, base._reset, base.__next__

    @functools.wraps(begin)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        self._feedrate_loop = described(loader)
        begin(self, loader, *args, **kwargs)

    @functools.wraps(reset)
    def _reset(self: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(loop := self.__dict__.get("_feedrate_loop"), Loop):
            loop.made, loop.left = now(), 1
        reset(self, *args, **kwargs)

    @functools.wraps(take)
    def __next__(self: Any) -> Any:
        begun, loop = now(), self.__dict__.get("_feedrate_loop")
        if isinstance(loop, dict):  # now its workers are known, too
            workers = [worker.pid for worker in getattr(self, "_workers", ())]
            loop = self._feedrate_loop = Loop(workers=workers, **loop)
        if not loop:
            return take(self)
        if loop.left > 1:  # no more than is needed, in as few words as Python runs fast
            loop.left -= 1
            LOG.detail = False
            cpu = time.process_time_ns() if loop.left == loop.every - 1 else 0  # when the detailed step ended
            ready = lying(self) if loop.parallel else -1
            try:
                data = take(self)
            except StopIteration:
                loop.end(begun)
                raise
            batch = received(self) if loop.parallel else self._num_yielded - 1
            LOG.pending.append((begun, now(), loop.iterator, batch, ready, cpu, 0, 0, 0))
            return data
        LOG.iterator, LOG.batch = loop.iterator, self._num_yielded
        if not loop.parallel:
            return loop.take(begun, take, yielded, -1, self)
        return loop.take(begun, take, received, lying(self), self)

    allow_profiler()
    base.__init__, base._reset, base.__next__ = __init__, _reset, __next__
    patch_places(module.DataLoader)


def patch_places(loader: Any) -> None:
    """Note where loaders of a class are made."""
    make = loader.__init__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__.setdefault("_feedrate_made", callers())  # a subclass may call it in turn
        make(self, *args, **kwargs)

    loader.__init__ = __init__


def described(loader: Any) -> dict[str, Any] | None:
    """What is said of an iterator over a loader; None where that is not as expected, and stays unobserved."""
    begun = now()
    try:
        return {"begun_ns": begun, "made": loader.__dict__.get("_feedrate_made", []), **settings(loader)}
    except Exception as error:  # noqa: BLE001 - the script goes on, whatever its loader is
        LOG.say("not hooked", module=type(loader).__qualname__, error=repr(error))
        return None


def lying(iterator: Any) -> int:
    """Batches that workers have prepared and no step has taken."""
    try:
        early = len(iterator._task_info) - int(iterator._tasks_outstanding)  # those that came before their turn
        return int(iterator._data_queue.qsize()) + early
    except (AttributeError, NotImplementedError, RuntimeError):
        return -1


def yielded(iterator: Any) -> int:
    """Number of the batch that came last, in its epoch, of an iterator without workers."""
    return int(iterator._num_yielded) - 1


def received(iterator: Any) -> int:
    """The same of one with workers; -1 where batches come out of order."""
    return int(iterator._rcvd_idx) - 1 if getattr(iterator, "_in_order", True) else -1


def callers() -> list[tuple[str, int, str]]:
    """Who called: [file, line, function] of every frame outside PyTorch and this file, innermost first."""
    found: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(found) < 64:
        file = frame.f_code.co_filename
        if TORCH not in file and not file.startswith(OWN) and not file.startswith("<"):
            found.append((os.path.abspath(file), frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found


def settings(loader: Any) -> dict[str, Any]:
    """What a loader is, as its attributes say; nothing of it is called."""
    context = getattr(loader, "multiprocessing_context", None)
    torch = sys.modules["torch"]
    starts = context or torch.multiprocessing  # whose default is fixed as soon as workers are started
    method = starts.get_start_method() if loader.num_workers else None
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
        if not LOG.detail:
            return original(*args, **kwargs)
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
        if LOG.detail and not torch.compiler.is_compiling():
            begun.append(now())

    def after(*_: Any) -> None:
        if begun and not torch.compiler.is_compiling():
            LOG.write(OPTIMIZER, begun.pop(), now())

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


PATCHES = {
    "torch.autograd": patch_autograd,
    "torch.optim.optimizer": patch_optimizer,
    "torch.utils.data.dataloader": patch_loader,
    "torch.utils.data._utils.fetch": patch_fetch,
    "torch.utils.data._utils.worker": patch_worker,
    "torchdata.stateful_dataloader.stateful_dataloader": lambda module: patch_places(module.StatefulDataLoader),
    "torchdata.stateful_dataloader.worker": patch_worker,
}


def patch(module: Any) -> None:
    """Patch a module that was just imported; one that is not as expected stays as it is."""
    try:
        PATCHES[module.__name__](module)
        if module.__name__ == "torch.utils.data.dataloader" and os.environ.get("FEEDRATE_TUNE"):
            import _feedrate_tune

            _feedrate_tune.patch_iter(module)
    except Exception as error:  # noqa: BLE001 - the script goes on, whatever its PyTorch is
        LOG.say("not hooked", module=module.__name__, error=repr(error))


class Watched:
    """Any iterable whose batches are timed like a DataLoader's (``feedrate.watch``)."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._feedrate_iterable, self._feedrate_made = iterable, callers()

    def __iter__(self) -> Iterator[Any]:
        begun, inner = now(), iter(self._feedrate_iterable)
        kind = type(self._feedrate_iterable).__qualname__
        loop = Loop(begun_ns=begun, workers=[], made=self._feedrate_made, watched=True, dataset=kind)
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
    """Leave the hook's files out of the tracebacks that the script prints, which are its own."""
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        chain = [error]
        for each in chain:  # what it came from is printed, too
            each.with_traceback(without_own(each.__traceback__))
            chain += [cause for cause in (each.__cause__, each.__context__) if cause is not None and cause not in chain]
        before(kind, error, without_own(trace))

    sys.excepthook = excepthook


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


hide()
