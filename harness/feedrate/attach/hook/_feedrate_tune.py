"""What ``feedrate tune`` does inside a training process: it trains on, and its loader's settings change below it.

Every iterator over a DataLoader is wrapped. Once ``feedrate tune``, at the other end of a socket, has named the loader
to tune, that one's batches come from loaders like it with other settings. Each is a trial: its workers start, what was
prefetched before is consumed, and a window is timed that ends on a round of the workers. Then the next settings are
asked for. Where it counts how an epoch starts with workers that live on, the loader starts over behind its first batch.
What the script sees is one long epoch. A trial whose loader fails is told so, and the script goes on.

An iterator may end within a trial, as a set of samples ends, or the script begins another. The window then goes on
behind the new one's warm-up, or, where an epoch is shorter than that, with whole epochs, starts included.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from _feedrate_hook import settings
from _feedrate_log import LOG, now
from _feedrate_loop import end_script
from _feedrate_step import DEVICE, SHARED, leaves

SOCKET = os.environ.get("FEEDRATE_TUNE", "")
EVERY_LOADER = os.environ.get("FEEDRATE_TUNE_ANY") == "1"
PLACE = os.environ.get("FEEDRATE_TUNE_PLACE")
"""Where the loader is made, known from an earlier start of the script."""
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
LATE = 3
"""A window that is so many times as long as asked for ends at any step."""
LONG = 1_000_000
"""Steps that its epochs then seem to have: loops that count them would end before the search does."""
ASKED_EVERY_NS, ASKED_STEPS = 1_500_000_000, 12
"""How often, and after how many steps, it is asked whether a loader is the one to tune."""
ELSEWHERE_NS = 10_000_000_000
"""How often it is told that the script goes over another loader within a step, as for a validation."""


class Pass:
    """One pass over a trial's loader.

    =========  ==========================  ==============================  ==========================================
    state      a batch is asked for        it came                         the loader ends
    =========  ==========================  ==============================  ==========================================
    starting                               warming; of whole epochs timed  there is nothing to train on
    warming    timed, once it is warm                                      the trial becomes one of whole epochs
    timed      the window may be full                                      the window goes on in the next pass
    =========  ==========================  ==============================  ==========================================
    """

    def __init__(self, made: int) -> None:
        self.state = "starting"
        self.made, self.asked, self.taken = made, made, 0
        """When it began, when its last batch was asked for, and batches that came."""
        self.timed_from, self.untimed = 0, 0
        """When it became timed, and after how many batches."""
        self.iterator: Any = None

    def time_from(self, moment: int) -> None:
        """Become timed: what was before does not count."""
        self.state, self.timed_from, self.untimed = "timed", moment, self.taken


class Window:
    """What a trial took: sums over the timed stretches of its passes."""

    def __init__(self) -> None:
        self.wall_ns, self.steps, self.begun_ns, self.ended_ns = 0, 0, 0, 0
        self.starts_ns: list[int] = []
        """How long each pass took to its first batch."""
        self.iterators: list[int] = []
        self.bytes = 0
        """Of a batch."""
        self.cpu_ns: int | None = 0
        """CPU time of this process and its workers; None where a worker had gone."""


class Trial:
    """One setting and what it took."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked, self.settings, self.follows = asked, asked["settings"], asked.get("follows", False)
        self.whole = asked["whole"]
        """Whether the window holds whole epochs, starts included."""
        self.window, self.within = Window(), Pass(0)
        self.others, self.usual = 0, -1
        """Batches of other loaders since the last one, and the fewest in a step so far."""

    @property
    def interrupted(self) -> bool:
        """Whether the step at hand holds another loop, and not the batches that each takes of several loaders."""
        return self.others > 1 + 2 * max(0, self.usual)

    def ask(self, moment: int) -> bool:
        """Note that a batch is asked for; whether the window is full."""
        within, window = self.within, self.window
        if within.state == "timed" and within.taken > within.untimed and self.interrupted:
            within.timed_from, within.untimed = within.timed_from + moment - within.asked, within.untimed + 1
            window.cpu_ns = None
        if within.taken:
            self.others, self.usual = 0, self.others if self.usual < 0 else min(self.usual, self.others)
        within.asked = moment
        if self.follows:
            return TUNER.moved_on()
        if within.state == "timed":
            wall_ns, steps = window.wall_ns + moment - within.timed_from, within.taken - within.untimed
            late = wall_ns >= LATE * self.asked["window_ns"]
            even = not self.whole and steps % max(1, int(self.settings.get("num_workers") or 0)) == 0
            return self.full(wall_ns, window.steps + steps) and (late or even)
        # Behind the first pass the page cache and the processor are warm.
        warm = moment - within.made >= self.asked["warmup_ns"] or window.starts_ns[1:]
        if warm and within.taken >= self.asked["warm_steps"]:
            within.asked = moment = settled(moment)
            within.time_from(moment)
            window.cpu_ns = plus(window.cpu_ns, cpu_ns(within.iterator), -1)
            window.begun_ns = window.begun_ns or moment
        return False

    def starts_over(self) -> bool:
        """Whether the loader is to start over now: its workers live on, and its first batch has come."""
        return bool(self.asked["restart"]) and len(self.window.starts_ns) == self.within.taken == 1

    def full(self, wall_ns: int, steps: int) -> bool:
        """Whether so much is enough for a window."""
        return bool(wall_ns >= self.asked["window_ns"] and steps >= self.asked["least_steps"])

    def take(self, moment: int, data: Any, iterator: Any) -> None:
        """Note that a batch came."""
        within, window = self.within, self.window
        if within.state == "starting":
            within.state, within.iterator = "warming", iterator
            window.iterators.append(getattr(getattr(iterator, "_feedrate_loop", None), "iterator", -1))
            window.starts_ns.append(moment - within.made)
            window.bytes = window.bytes or sum(int(tensor.nbytes) for tensor in leaves(data, sys.maxsize))
            if self.whole:
                within.time_from(within.made)
                window.begun_ns = window.begun_ns or within.made
        within.taken += 1

    def pause(self, moment: int, steps: int) -> None:
        """End a pass: its last whole step ended then, after so many batches."""
        within, window = self.within, self.window
        if within.state == "timed":
            window.wall_ns += moment - within.timed_from
            window.cpu_ns = None if self.whole else plus(window.cpu_ns, cpu_ns(within.iterator))
            window.steps += steps - within.untimed
            window.ended_ns = moment
        elif steps:
            self.whole = True
        within.state = "ended"

    def result(self) -> dict[str, Any]:
        """What is sent when the window is full, or an iterator failed."""
        return {
            **vars(self.window),
            "whole": self.whole,
            "restart": self.asked["restart"],
            "non_blocking": TUNER.non_blocking,
        }


def settled(moment: int) -> int:
    """Wait until the device is done: a host that runs ahead of it would time itself; give the moment, or that then."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize(DEVICE.index if DEVICE.index >= 0 else None)
        moment = now()
    return moment


def cpu_ns(iterator: Any) -> int | None:
    """CPU time that this process and an iterator's workers have taken; None where one of them has gone."""
    total = time.process_time_ns()
    for worker in getattr(iterator, "_workers", ()):
        try:
            with open(f"/proc/{worker.pid}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        total += (int(fields[11]) + int(fields[12])) * TICK_NS
    return total


def plus(total: int | None, more: int | None, sign: int = 1) -> int | None:
    """Add to a sum, of which nothing is known where a part is not."""
    return None if total is None or more is None else total + sign * more


class Tuner:
    """This process' end of the search."""

    def __init__(self) -> None:
        self.pid = 0
        self.stream: Any = None
        self.target: Any = json.loads(PLACE) if PLACE else None
        """What tells the loader that is tuned from others (``key_of``)."""
        self.tuned: Any = None
        """A reference to it, as one line may make several."""
        self.told = 0
        """When it was last told that the script is elsewhere."""
        self.trial: Trial | None = None
        self.loader: Any = None
        """What gives the batches of the running trial."""
        self.loaders: dict[str, list[int]] = {}
        """Where loaders were made, to the steps over them, when it was asked whether to tune them, and the first."""
        self.seen = 0
        """Which trial another rank was told, by its file's number."""
        self.non_blocking: bool | None = None
        """What the script gave the last copy to a device; None where none was seen."""
        self.copies = False
        """Whether copies are patched."""

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Ask what to do next; where nobody answers any more, the script ends."""
        LOG.flush()
        try:
            if self.pid != os.getpid():
                link = socket.socket(socket.AF_UNIX)
                link.connect(SOCKET)
                self.pid, self.stream = os.getpid(), link.makefile("rw", encoding="utf-8")
            line = json.dumps({"what": what, "pid": self.pid, **fields}, default=str)
            self.stream.write(line + "\n")
            self.stream.flush()
            answer = json.loads(self.stream.readline())
        except (OSError, ValueError):
            answer = {"do": "stop"}
        if answer["do"] == "stop":
            end_script()
        return dict(answer)

    def tunes(self, loader: Any) -> bool:
        """Whether a loader is the one that is tuned, or was made in its place."""
        return self.target == key_of(loader) and (self.tuned or (lambda: None))() in (None, loader)

    def elsewhere(self, trial: Trial, moment: int) -> None:
        """Note a batch of another loader, and tell where the step takes long for such."""
        trial.others += 1
        if trial.interrupted and moment - self.told > ELSEWHERE_NS and not trial.follows:
            self.told = moment
            self.ask("elsewhere")

    def look(self, loader: Any, updates: int, step_ns: int) -> bool:
        """Ask whether a loader is the one to tune; ``updates`` were computed over it, 0 ns a step is not known."""
        torch = __import__("torch")
        facts: dict[str, Any] = {
            "made": loader.__dict__.get("_feedrate_made", []),
            "key": key_of(loader),
            "updates": updates,
            "step_ns": step_ns,
            "epoch_steps": steps_of(loader),
            "cuda": bool(torch.cuda.is_initialized()),
            "batch_sampler": type(loader.batch_sampler).__name__,
        }
        answer = self.ask("loader", settings=settings(loader), any=EVERY_LOADER, **facts)
        if answer["do"] != "trial":
            return False
        self.target, self.tuned, self.trial = key_of(loader), weakref.ref(loader), Trial(answer)
        if facts["cuda"]:
            patch_copies(torch)
        self.moved_on()
        return True

    def moved_on(self) -> bool:
        """Whether the rank that is asked what to do has begun another trial."""
        before, self.seen = self.seen, os.stat(f"{SOCKET}.json").st_ino
        return self.seen != before

    def following(self, error: str = "") -> None:
        """Tell of the trial that has ended, and take the next."""
        if (trial := self.trial) is not None and trial.follows and not error:
            with open(f"{SOCKET}.json", encoding="utf-8") as file:
                self.trial = Trial({**json.load(file), "follows": True})
        elif trial is not None:
            self.trial = Trial(self.ask("trial", number=trial.asked["number"], error=error, **trial.result()))
            self.moved_on()
        self.loader = None


TUNER = Tuner()


def key_of(loader: Any) -> list[Any]:
    """What tells a loader from others: all calls that led to its making, as JSON has them, and its sampler."""
    made, sampler = loader.__dict__.get("_feedrate_made", []), getattr(loader, "sampler", None)
    return [[list(caller) for caller in made], type(sampler).__qualname__]


class Tuned:
    """An iterator over a loader whose settings may change."""

    def __init__(self, loader: Any, make: Callable[[Any], Any]) -> None:
        self._feedrate_loader, self._feedrate_make = loader, make
        self._feedrate_inner: Any = None
        self._feedrate_trial: Trial | None = None
        self._feedrate_seen = TUNER.loaders.setdefault(str(key_of(loader)), [0, now(), now()])
        self._feedrate_updates = SHARED.updates
        if self._feedrate_tuned():
            TUNER.tuned = weakref.ref(loader)
        self._feedrate_pause()
        if (EVERY_LOADER and TUNER.target is None) or (self._feedrate_tuned() and TUNER.trial is None):
            TUNER.look(loader, 0, 0)
        self._feedrate_begin(now())

    def _reset(self, loader: Any, *args: Any, **kwargs: Any) -> None:
        """Start over, as PyTorch has loaders do whose workers live on."""
        self._feedrate_updates = SHARED.updates
        if self._feedrate_tuned():
            self._feedrate_pause()
            self._feedrate_begin(now())
        else:
            self._feedrate_inner._reset(loader, *args, **kwargs)

    def _feedrate_pause(self) -> None:
        """Note that the script begins another iterator within a trial."""
        if self._feedrate_tuned() and (trial := TUNER.trial) is not None and trial.within.taken:
            trial.pause(trial.within.asked, trial.within.taken - 1)

    def _feedrate_tuned(self) -> bool:
        return TUNER.tunes(self._feedrate_loader)

    def _feedrate_begin(self, made: int) -> None:
        """Make an iterator whose start counts from then: of the script's own loader, or with the trial's settings."""
        self._feedrate_trial = TUNER.trial if self._feedrate_tuned() else None
        if self._feedrate_trial is None:
            self._feedrate_inner = self._feedrate_make(self._feedrate_loader)
            return
        try:
            if TUNER.loader is None:
                TUNER.loader = like(self._feedrate_loader, self._feedrate_trial.settings)
            self._feedrate_trial.within = Pass(made)
            self._feedrate_inner = iter(TUNER.loader)
        except Exception as error:  # noqa: BLE001 - workers that cannot be started
            self._feedrate_failed(self._feedrate_trial, error)

    def _feedrate_failed(self, trial: Trial, error: Exception) -> None:
        """Tell that the loader of a trial failed, and begin the next; the present settings' are the script's."""
        if trial.settings.get("present"):
            raise error
        self._feedrate_close()
        lines = str(error).strip().splitlines() or [""]
        of_worker = str(error).startswith("Caught ")  # its traceback ends with the error itself
        TUNER.following(lines[-1] if of_worker else f"{type(error).__name__}: {lines[0]}")
        self._feedrate_begin(now())

    def _feedrate_close(self) -> None:
        """Stop the workers of the iterator at hand."""
        inner, self._feedrate_inner = self._feedrate_inner, None
        close = getattr(inner, "_shutdown_workers", None)
        if close is not None:
            close()

    def __iter__(self) -> Tuned:
        return self

    def __next__(self) -> Any:
        asked, trial = now(), self._feedrate_trial
        if trial is None:
            return self._feedrate_untuned(asked)
        if trial is not TUNER.trial:  # another iterator over the same loader has gone on
            self._feedrate_close()
            self._feedrate_begin(now())
        elif trial.starts_over():
            self._feedrate_begin(now())
        elif trial.ask(asked):
            asked = settled(asked)
            trial.pause(asked, trial.within.taken)
            TUNER.following()  # workers still live: what memory they have is looked at meanwhile
            self._feedrate_close()
            self._feedrate_begin(now())
        return self._feedrate_take(asked)

    def _feedrate_take(self, asked: int) -> Any:
        """Give a batch of the trial's loader, and begin that again where it ends."""
        trial = self._feedrate_trial
        if trial is None:
            return next(self._feedrate_inner)
        try:
            data = next(self._feedrate_inner)
        except StopIteration:
            if trial.within.state == "starting":  # there is nothing to train on
                raise
            asked = settled(max(asked, trial.within.asked))
            trial.pause(asked, trial.within.taken)
            made = asked  # that its workers stop is part of what an epoch costs
            if trial.whole and not trial.follows and trial.full(trial.window.wall_ns, trial.window.steps):
                TUNER.following()
                self._feedrate_close()
                made = now()
            self._feedrate_begin(made)
            return self._feedrate_take(asked)
        except Exception as error:  # noqa: BLE001 - whatever befalls workers
            self._feedrate_failed(trial, error)
            return self._feedrate_take(asked)
        trial.take(now(), data, self._feedrate_inner)
        return data

    def _feedrate_untuned(self, asked: int) -> Any:
        """Give a batch of a loader that is not tuned, or not yet."""
        seen = self._feedrate_seen
        if TUNER.target is None:
            seen[0] += 1
            if seen[0] > ASKED_STEPS and asked - seen[1] > ASKED_EVERY_NS:
                seen[1] = asked
                step_ns = (asked - seen[2]) // seen[0]
                if TUNER.look(self._feedrate_loader, SHARED.updates - self._feedrate_updates, step_ns):
                    self._feedrate_close()
                    self._feedrate_begin(now())
                    return next(self)
        elif TUNER.trial is not None:
            TUNER.elsewhere(TUNER.trial, asked)
        return next(self._feedrate_inner)

    def __len__(self) -> int:
        return len(self._feedrate_loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_feedrate_inner"], name)


def like(loader: Any, given: dict[str, Any]) -> Any:
    """A loader that differs from another one in its settings alone."""
    torch = __import__("torch")
    base = torch.utils.data.DataLoader
    made = base.__new__(base)
    attributes = dict(loader.__dict__)
    workers = int(given.get("num_workers", loader.num_workers))
    attributes |= {
        "num_workers": workers,
        "prefetch_factor": given.get("prefetch_factor") or 2 if workers else None,
        "persistent_workers": bool(workers and given.get("persistent_workers")),
        "pin_memory": bool(given.get("pin_memory", loader.pin_memory)),
        "timeout": loader.timeout if workers else 0,
        "_iterator": None,
        "_feedrate_arm": True,
        "check_worker_number_rationality": lambda: None,
    }
    context = loader.multiprocessing_context
    if workers and (method := given.get("start_method")):
        context = torch.multiprocessing.get_context(method)
    attributes["_DataLoader__multiprocessing_context"] = context if workers else None
    if (size := given.get("batch_size")) and size != loader.batch_size:
        sampler = loader.batch_sampler
        attributes |= {"batch_size": size, "batch_sampler": type(sampler)(sampler.sampler, size, sampler.drop_last)}
    made.__dict__.update(attributes)
    return made


def patch_copies(torch: Any) -> None:
    """Have copies of tensors to a device return before they are done, or not, as a trial says."""

    def patched(copy: Any, index: int) -> Any:
        """Wrap a method of tensors whose argument ``non_blocking`` may come at a place, too."""

        @functools.wraps(copy)
        def wrapped(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            trial = TUNER.trial
            if trial is None or tensor.device.type != "cpu" or not (index == 1 or to_device(torch, args, kwargs)):
                return copy(tensor, *args, **kwargs)
            TUNER.non_blocking = bool(args[index] if len(args) > index else kwargs.get("non_blocking", False))
            if (wanted := trial.settings.get("non_blocking")) is not None:
                if len(args) > index:
                    args = (*args[:index], wanted, *args[index + 1 :])
                else:
                    kwargs["non_blocking"] = wanted
            return copy(tensor, *args, **kwargs)

        return wrapped

    if not TUNER.copies:  # once, though loaders of other starts are named, too
        TUNER.copies = True
        torch.Tensor.to, torch.Tensor.cuda = patched(torch.Tensor.to, 2), patched(torch.Tensor.cuda, 1)


def to_device(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether arguments of ``Tensor.to`` name a device that is not the CPU."""
    wanted = kwargs.get("device", args[0] if args else None)
    if isinstance(wanted, (str, int)):
        wanted = torch.device(wanted)
    return isinstance(wanted, torch.device) and wanted.type != "cpu"


def steps_of(loader: Any) -> int:
    """Steps of an epoch; 0 where they are not known, or without end."""
    try:
        steps = int(getattr(type(loader).__len__, "__wrapped__", type(loader).__len__)(loader))
    except (TypeError, NotImplementedError):
        return 0
    return steps if steps < 1 << 40 else 0


def patch_iter(module: Any) -> None:
    """Wrap every iterator over a DataLoader, and have the one that is tuned look endless."""
    get, length = module.DataLoader._get_iterator, module.DataLoader.__len__

    @functools.wraps(get)
    def _get_iterator(self: Any) -> Any:
        return get(self) if self.__dict__.get("_feedrate_arm") else Tuned(self, get)

    @functools.wraps(length)
    def __len__(self: Any) -> int:
        tuned = PLACE and TUNER.tunes(self) and not self.__dict__.get("_feedrate_arm")
        return LONG if tuned else int(length(self))

    module.DataLoader._get_iterator, module.DataLoader.__len__ = _get_iterator, __len__
