"""What a training step does, as the host sees it: gradients, updates, copies, checkpoints, garbage, a starving device.

The standard library alone, as all of the hook. Whether the device starved: an event is recorded behind a step's
launches, when the next batch is asked for. If it has happened when the batch comes, the device has run dry; a second
event, recorded then, tells since when.
"""

from __future__ import annotations

import atexit
import functools
import gc
import inspect
import itertools
import os
import sys
import threading
import zlib
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from _feedrate_log import BACKWARD, COLLECTED, COPIED, EXIT, GUARD, LOG, OPTIMIZER, OWN, SAVED, STARVED, now

GENERATORS = inspect.CO_GENERATOR


class Shared:
    """What all loops of this process share; not in ``Loop``, as Python forgets what it knew of a class that changes."""

    def __init__(self) -> None:
        self.steps = 0
        """Batches that were taken in detailed steps."""
        self.kept: Any = None
        """The batch of the last real step, where it is used again."""
        self.reused = 0
        self.updates = 0
        """Steps of optimizers, and backward passes of detailed steps: a loop in which there are none evaluates."""
        self.loops, self.told = 0, 0
        """Loops that have begun, and those of which it was said where gradients are computed."""


SHARED = Shared()


MOST_LEAVES = 4096
"""Tensors of a batch that are looked at in each step."""


def leaves(batch: Any, most: int = MOST_LEAVES) -> list[Any]:
    """The first tensors and arrays of a batch, in their order."""
    tensors: list[Any] = []
    waiting = [batch]
    while waiting and len(tensors) < most:
        node = waiting.pop()
        if isinstance(node, Mapping):  # such as Hugging Face's BatchEncoding
            waiting += reversed(list(node.values()))
        elif isinstance(node, (list, tuple)):
            waiting += reversed(node)
        elif hasattr(node, "nbytes"):
            tensors.append(node)
    return tensors


def fingerprint(batch: Any) -> int:
    """A number by which batches differ that differ in some of 256 values of each tensor; 0 without tensors."""
    number = 0
    for tensor in leaves(batch, 16):
        values = tensor.reshape(-1)
        every = len(values) // 256 | 1  # an odd number: else all may lie in one column of an image
        number = zlib.crc32(repr(values[::every].tolist()).encode(), number)
    return number


def callers(without: int = 0) -> list[tuple[str, int, str]]:
    """Who called: [file, line, function] of every frame outside PyTorch and the hook, innermost first.

    ``without`` kinds of functions. Of a loop those are ``GENERATORS``: while its body runs, they are on no stack.
    """
    torch = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", None) or OWN) + os.sep
    frames: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(frames) < 64:
        code = frame.f_code
        foreign = code.co_filename.startswith((torch, OWN, "<"))
        if not foreign and not code.co_flags & without:
            frames.append((os.path.abspath(code.co_filename), frame.f_lineno, code.co_name))
        frame = frame.f_back
    return frames


class Device:
    """Whether the accelerator ran dry between two steps, by CUDA events and without waiting for it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a process that was forked has none of its parent's events."""
        self.free: list[Any] = []
        self.waiting: list[tuple[Any, Any, int]] = []
        self.works, self.index = True, -1
        """Whether it can be asked; and which device it is, -1 where that is not known yet."""

    def asked(self) -> Any:
        """Mark the end of a step's launches; None where CUDA is not in use."""
        torch = sys.modules.get("torch")
        if torch is None or not self.works or not torch.cuda.is_initialized():
            return None
        try:
            if self.index < 0 and not self.find(torch.cuda):
                return None
            event = self.free.pop() if self.free else torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self.index))
        except RuntimeError:  # a kernel of the script has failed: its own next call says so
            self.works = False
            return None
        return event

    def find(self, cuda: Any) -> bool:
        """Find the device that holds tensors: a script may leave the current one alone, and an event there costs it."""
        count = cuda.device_count()
        used = [index for index in range(count) if count == 1 or cuda.memory_reserved(index)]
        current = cuda.current_device()
        if current in used or len(used) == 1:
            self.index = current if current in used else used[0]
        return self.index >= 0

    def came(self, event: Any, begun: int) -> None:
        """Look whether the device had finished when the batch came that was asked for at ``begun``."""
        self.read()
        try:
            if event.query():
                cuda = sys.modules["torch"].cuda
                second = self.free.pop() if self.free else cuda.Event(enable_timing=True)
                second.record(cuda.current_stream(self.index))
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
os.register_at_fork(after_in_child=GUARD(DEVICE.forget))


AUTOGRAD: list[tuple[Any, Any, Any]] = []
"""The module whose ``backward`` is timed, that function, and the one that times it."""


def detail(on: bool) -> None:
    """Record more of a step than its wait, or not; then a backward pass does without the function that times it."""
    LOG.detail = on
    timed = on or SHARED.loops > SHARED.told
    for module, *functions in AUTOGRAD:
        if module.backward is functions[not timed]:  # else somebody else has replaced it in turn
            module.backward = functions[timed]


def patch_autograd(module: Any) -> None:
    """Time the backward pass, as the host sees it."""
    original = module.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        SHARED.updates += 1
        if SHARED.loops > SHARED.told:
            SHARED.told = SHARED.loops
            with GUARD:
                LOG.say("backward", callers=callers(GENERATORS))
        if not LOG.detail:
            return original(*args, **kwargs)
        begun = now()
        try:
            return original(*args, **kwargs)
        finally:
            with GUARD:
                LOG.keep(BACKWARD, begun, now())

    module.backward = backward
    AUTOGRAD.append((module, original, backward))


def patch_optimizer(module: Any) -> None:
    """Time the steps of optimizers by PyTorch's own hooks."""
    torch = sys.modules["torch"]
    begun: list[int] = []

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if LOG.detail and not torch.compiler.is_compiling():
            begun.append(now())

    def after(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        SHARED.updates += 1
        if begun and not torch.compiler.is_compiling():
            with GUARD:
                LOG.keep(OPTIMIZER, begun.pop(), now())

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def patch_saving(name: str) -> Callable[[Any], None]:
    """Time checkpoints that a function of a module writes."""

    def patch(module: Any) -> None:
        original = getattr(module, name)

        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            begun = now()
            try:
                return original(*args, **kwargs)
            finally:
                if threading.current_thread() is threading.main_thread():
                    with GUARD:
                        LOG.write(SAVED, begun, now())

        setattr(module, name, save)

    return patch


DEVICES = ("/dev/nvidiactl", "/dev/kfd")
"""One of these is there where a GPU is."""


def patch_tensor(module: Any) -> None:
    """Time copies of tensors to a device, as the host sees them."""
    torch = sys.modules["torch"]

    def timed(copy: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(copy)
        def copied(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            # First: what a compiler traces must hang on nothing that changes from step to step.
            if torch.compiler.is_compiling() or not LOG.detail or tensor.device.type != "cpu":
                return copy(tensor, *args, **kwargs)
            begun = now()
            made = copy(tensor, *args, **kwargs)
            if made.device.type != "cpu" and threading.current_thread() is threading.main_thread():
                with GUARD:
                    LOG.keep(COPIED, begun, now(), tensor.nbytes)
            return made

        return copied

    if any(map(os.path.exists, DEVICES)):
        module.Tensor.to, module.Tensor.cuda = timed(module.Tensor.to), timed(module.Tensor.cuda)


COLLECTING_NS = 100_000
"""A look for garbage that takes less is not recorded."""


class Stamps(map):  # type: ignore[type-arg] # not subscriptable before Python 3.12
    """A map of which an attribute that is set takes the next item."""

    start = stop = property(fset=next)


class Garbage:
    """When Python looked for garbage, stamped without a line of Python.

    A signal that comes meanwhile is handled by the next Python function that runs. Were that a callback of the
    collector, what the script's handler raises would be dropped: its Ctrl-C would do nothing.
    """

    KEPT = 2048
    """Stamps from one record to the next, of starts and ends in turn; of more the older are overwritten."""

    def __init__(self) -> None:
        self.main, self.next, self.last = threading.main_thread().ident, 0, 0
        self.stamps = [(0, 0)] * self.KEPT
        taken = zip(iter(now, None), iter(threading.get_ident, None))  # noqa: B905 - Python 3.9 has no strict
        gc.callbacks.append(
            functools.partial(setattr, Stamps(self.stamps.__setitem__, itertools.cycle(range(self.KEPT)), taken))
        )

    def flush(self) -> None:
        """Record what the main thread has looked for since the last time."""
        while True:
            (begun, _), (ended, thread) = self.stamps[self.next : self.next + 2]
            if not self.last < begun < ended:
                return
            self.next, self.last = (self.next + 2) % self.KEPT, ended
            if thread == self.main and ended - begun > COLLECTING_NS:
                LOG.write(COLLECTED, begun, ended)


GARBAGE = Garbage()
os.register_at_fork(before=GUARD(GARBAGE.flush))


def leave() -> None:
    """Write what is pending, and that the interpreter ends."""
    LOG.flush()
    DEVICE.read()
    if LOG.fd >= 0:
        GARBAGE.flush()
        LOG.write(EXIT, now(), 0, SHARED.updates)


atexit.register(GUARD(leave))
