"""What runs inside people's training processes: it takes times, writes them (``_feedrate_log``), and nothing else.

The standard library alone, on Python 3.9 to 3.14 and PyTorch 2.4 and newer. Nothing is synchronised.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import parent_process
from time import process_time_ns
from types import TracebackType
from typing import Any

from _feedrate_log import GUARD, LOG, MADE, NEXT, now
from _feedrate_loop import STEPS, Loop
from _feedrate_step import SHARED, callers, detail, patch_autograd, patch_optimizer, patch_saving, patch_tensor
from _feedrate_worker import allow_profiler, patch_fetch, patch_worker, without_own


def patch_loader(module: Any) -> None:
    """Time every batch that a loop takes of a DataLoader.

    Iterators are patched in their base class: ultralytics' and timm's loaders keep one for all epochs, and torchdata's
    have classes of their own, so that ``DataLoader.__iter__`` is not always called.
    """
    base = module._BaseDataLoaderIter
    begin = base.__init__

    @functools.wraps(begin)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        with GUARD:
            self._feedrate_loop = described(loader)
        begin(self, loader, *args, **kwargs)

    allow_profiler()
    base.__init__ = __init__
    time_class(base, received, lying)
    patch_indices(base)
    for kind in (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter):
        patch_start(kind)
    patch_pickling()
    patch_places(module.DataLoader)


def time_class(kind: Any, number: Callable[[Any], int], ready: Callable[[Any], int] = lambda _: -1) -> None:
    """Time what iterators of a class give, of those that are watched; once, as a class may be met again.

    What gives a batch's number, and how many lie ready, gives -1 where that is not known.
    """
    if not hasattr(kind.__next__, "_feedrate"):
        kind._feedrate_loop = None  # of those that are not watched; to ask their __dict__ takes twice as long
        kind.__next__ = timed_next(kind.__next__, number, ready)


def timed_next(take: Any, number: Callable[[Any], int], ready: Callable[[Any], int]) -> Any:
    """Wrap what gives the next batch of an iterator."""

    @functools.wraps(take)
    def __next__(self: Any) -> Any:
        begun, loop = now(), self._feedrate_loop
        if loop is None:
            return take(self)
        detailed, step, many, batch = loop.left == 1, None, -1, loop.taken
        if detailed:
            with GUARD:
                loop.say(getattr(self, "_workers", ()))
            if STEPS and SHARED.steps >= STEPS:
                return loop.finish(take, self)
            with GUARD:
                step = loop.ask(begun, ready(self), number(self))
        else:
            # Of most steps only the wait is recorded. Each Python function that is called here costs a microsecond, a
            # guard two, as the step has taken the processor's caches.
            loop.left -= 1
            if LOG.detail:
                with GUARD:
                    detail(False)
            cpu = process_time_ns() if loop.left == loop.every - 1 else 0  # the detailed step ends
            if loop.parallel:
                with GUARD:
                    many = ready(self)
        try:
            data = take(self)
        except StopIteration:
            with GUARD:
                loop.end(begun)
            raise
        ended = now()
        loop.taken += 1
        if detailed:
            with GUARD:
                loop.record(begun, ended, step, number(self), data)
            return data
        if loop.parallel:
            batch = -1
            with GUARD:
                batch = number(self)
        updates = 2 * SHARED.updates
        waits = loop.sampler, loop.waited
        LOG.pending.append((NEXT, begun, ended, loop.iterator, batch, many, cpu, 0, updates, 0, *waits))
        loop.sampler = loop.waited = 0
        return data

    __next__._feedrate = True  # type: ignore[attr-defined]
    return __next__


def patch_indices(base: Any) -> None:
    """Time how iterators draw indices."""
    draw = base._next_index

    @functools.wraps(draw)
    def _next_index(self: Any) -> Any:
        if (loop := self._feedrate_loop) is None:
            return draw(self)
        begun = now()
        try:
            return draw(self)
        finally:
            loop.sampler += now() - begun

    base._next_index = _next_index


def patch_start(kind: Any) -> None:
    """Time the making of iterators of a class, and from then on how long each lets the loop wait for a batch.

    Those whose workers live on begin anew (``_reset``): it asks the workers for as many batches as may be prefetched.
    """
    make, reset = kind.__init__, kind._reset

    @functools.wraps(reset)
    def _reset(self: Any, *args: Any, **kwargs: Any) -> None:
        loop = self.__dict__.get("_feedrate_loop")
        again = loop and not loop.entry
        if again:
            loop.made, loop.left, loop.taken = now(), 1, 0
        reset(self, *args, **kwargs)
        if again:
            with GUARD:
                LOG.write(MADE, loop.made, now(), loop.iterator, loop.spent()[0])

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        begun, before = now(), Loop.starting
        Loop.starting = None  # the class of the iterator itself calls ``described``
        try:
            make(self, *args, **kwargs)
        finally:
            loop, Loop.starting = self.__dict__.get("_feedrate_loop"), before
        if loop:
            with GUARD:
                LOG.write(MADE, begun, now(), loop.iterator, loop.spent()[0], loop.pickled)
                queue = getattr(self, "_data_queue", None)
                if queue is not None:
                    time_queue(queue, loop)

    kind.__init__, kind._reset = __init__, _reset


def time_queue(queue: Any, loop: Loop) -> None:
    """Have a queue of batches note how long nothing came: of processes before it is received, of threads in all."""
    name = "_poll" if hasattr(queue, "_poll") else "get"
    wait = getattr(queue, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = now()
        try:
            return wait(*args, **kwargs)
        finally:
            loop.waited += now() - begun

    setattr(queue, name, timed)


def patch_pickling() -> None:
    """Count the bytes of data sets that are pickled for workers: those of spawn and forkserver."""
    from multiprocessing import reduction

    dump = reduction.dump

    @functools.wraps(dump)
    def counted(obj: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if (loop := Loop.starting) is None:
            return dump(obj, file, *args, **kwargs)
        before = file.tell()
        dump(obj, file, *args, **kwargs)
        loop.pickled += file.tell() - before
        return None

    reduction.dump = counted


LOADERS = itertools.count()
"""Their numbers: one line may make several."""


def patch_places(loader: Any) -> None:
    """Note where loaders of a class are made."""
    make = loader.__init__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        with GUARD:
            if "_feedrate_made" not in self.__dict__:  # a subclass may call it in turn
                self.__dict__.update(_feedrate_made=callers(), _feedrate_number=next(LOADERS))
        make(self, *args, **kwargs)

    loader.__init__ = __init__


def described(loader: Any) -> Loop | None:
    """The loop over a loader that begins; None where the loader is not as expected, and stays unobserved."""
    try:
        own = loader.__dict__
        description = {"made": own.get("_feedrate_made", []), "loader": own.get("_feedrate_number", -1)}
        description |= settings(loader)
        Loop.starting = Loop(now(), **description)
        return Loop.starting
    except Exception as error:  # noqa: BLE001 - the script goes on, whatever its loader is
        LOG.say("not hooked", module=type(loader).__qualname__, error=repr(error))
        return None


def lying(iterator: Any) -> int:
    """Batches that workers have prepared and no step has taken."""
    if not iterator._feedrate_loop.parallel:
        return -1
    try:
        early = len(iterator._task_info) - int(iterator._tasks_outstanding)  # those that came before their turn
        return int(iterator._data_queue.qsize()) + early
    except (AttributeError, NotImplementedError, RuntimeError):
        return -1


def received(iterator: Any) -> int:
    """Number of the batch that came last, in its epoch; -1 where batches come out of order."""
    if not iterator._feedrate_loop.parallel:
        return counted(iterator)
    return int(iterator._rcvd_idx) - 1 if getattr(iterator, "_in_order", True) else -1


def settings(loader: Any) -> dict[str, Any]:
    """What a loader is, as its attributes say; nothing of it is called."""
    context = getattr(loader, "multiprocessing_context", None)
    torch = sys.modules["torch"]
    starts = context or torch.multiprocessing  # whose default is fixed as soon as workers are started
    method = starts.get_start_method() if loader.num_workers else None
    dataset, sampler = loader.dataset, getattr(loader, "batch_sampler", None)  # fastai's have no sampler
    while isinstance(dataset, torch.utils.data.Subset):
        dataset = dataset.dataset
    return {
        "batch_size": getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "drop_last": bool(loader.drop_last),
        "start_method": method,
        "dataset": type(loader.dataset).__qualname__,
        "iterable": isinstance(dataset, torch.utils.data.IterableDataset),
        "sampler": type(getattr(loader, "sampler", None)).__qualname__,
        "collate": str(getattr(getattr(loader, "collate_fn", None), "__module__", "")),
        "at_once": sampler is None or hasattr(type(dataset), "__getitems__"),
        "snapshot_every_n_steps": getattr(loader, "snapshot_every_n_steps", None),
    }


def patch_stateful(module: Any) -> None:
    """Time torchdata's loaders, whose iterators have classes of their own."""
    patch_places(module.StatefulDataLoader)
    for name in ("_StatefulSingleProcessDataLoaderIter", "_StatefulMultiProcessingDataLoaderIter"):
        patch_start(getattr(module, name))


def patch_iterator(name: str) -> Callable[[Any], None]:
    """Time a class of iterators of a loader that is none of PyTorch's, as ``feedrate.watch`` does."""

    def patch_class(module: Any) -> None:
        kind = getattr(module, name)
        make = kind.__init__

        @functools.wraps(make)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            begun = now()
            make(self, *args, **kwargs)
            with GUARD:
                watch_iterator(self, begun, f"{module.__name__.split('.')[0]}’s {name}")

        kind.__init__ = __init__
        time_class(kind, counted)

    return patch_class


def patch_grain(module: Any) -> None:
    """Time what the end of a pipeline of Grain's gives; its DataLoader, which has one too, is timed by itself."""
    kind = module._OutputIterDataset
    make = kind.__iter__

    @functools.wraps(make)
    def __iter__(self: Any) -> Any:
        begun, iterator = now(), make(self)
        with GUARD:
            if parent_process() is None and not iterator._ctx.is_dataloader_pipeline:
                time_class(type(iterator), counted)
                watch_iterator(iterator, begun, "grain’s Dataset")
        return iterator

    kind.__iter__ = __iter__


def watch_iterator(iterator: Any, begun: int, name: str, made: Sequence[Any] = ()) -> None:
    """Time an iterator whose making began at a moment, and whose class is timed."""
    iterator._feedrate_loop = Loop(begun_ns=begun, made=made or callers(), watched=True, dataset=name)
    LOG.write(MADE, begun, now(), iterator._feedrate_loop.iterator)


def counted(iterator: Any) -> int:
    """Number of the batch that came last of an iterator that does not count."""
    return int(iterator._feedrate_loop.taken) - 1


PATCHES = {
    "grain._src.python.data_loader": patch_iterator("DataLoaderIterator"),
    "grain._src.python.dataset.dataset": patch_grain,
    "nvidia.dali.plugin.pytorch": patch_iterator("DALIGenericIterator"),
    "spdl.pipeline._pipeline": patch_iterator("PipelineIterator"),
    "torch._tensor": patch_tensor,
    "torch.serialization": patch_saving("save"),
    "safetensors.torch": patch_saving("save_file"),
    "torch.autograd": patch_autograd,
    "torch.optim.optimizer": patch_optimizer,
    "torch.utils.data.dataloader": patch_loader,
    "torch.utils.data._utils.fetch": patch_fetch,
    "torch.utils.data._utils.worker": patch_worker,
    "torchdata.stateful_dataloader.stateful_dataloader": patch_stateful,
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
        return WatchedIterator(self._feedrate_iterable, self._feedrate_made)

    def __len__(self) -> int:
        return len(self._feedrate_iterable)  # type: ignore[arg-type] # where it has none, this raises as it would

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_feedrate_iterable"], name)


class WatchedIterator:
    """Gives what a watched iterable gives."""

    def __init__(self, iterable: Iterable[Any], made: list[tuple[str, int, str]]) -> None:
        begun, self._feedrate_inner = now(), iter(iterable)
        with GUARD:
            watch_iterator(self, begun, type(iterable).__qualname__, made)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._feedrate_inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_feedrate_inner"], name)


time_class(WatchedIterator, counted)


def hide() -> None:
    """Leave the hook's files out of the tracebacks that the script prints, which are its own."""
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        chain = [error]
        with GUARD:
            for link in chain:  # what it came from is printed, too
                link.with_traceback(without_own(link.__traceback__))
                causes = (link.__cause__, link.__context__)
                chain += [cause for cause in causes if cause is not None and cause not in chain]
            trace = without_own(trace)
        before(kind, error, trace)

    sys.excepthook = excepthook


hide()
