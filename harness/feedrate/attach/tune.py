"""``feedrate tune``: finds the settings of a script's DataLoader that feed it best, while it trains.

The script runs once, as below ``feedrate run``. Its hook (``hook/_feedrate_tune.py``) asks over a socket which loader
to tune and what to try next; ``plan.search`` decides. So a trial takes a second or two instead of a start of the
script, and trials of one process differ less than starts of it. A script that ends, or is killed by what was tried, is
started again, and the search goes on.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import truediv
from pathlib import Path
from typing import Any

import psutil

from feedrate.attach import loop, predictions, records, report
from feedrate.attach.run import Ended, Watched, run
from feedrate.attach.space import Asked, Machine, Setting, fitting, settings
from feedrate.attach.trials import Trial, Window, expected, first_window_s, lengthened, rooms
from feedrate.attach.watch import EVERY_S
from feedrate.machine import identity, linux
from feedrate.machine.probes import procfs
from feedrate.plan.evidence import Model
from feedrate.plan.search import Outcome, Search
from feedrate.schema.errors import InputError
from feedrate.schema.window import warm_up_steps

PILOT_S = 1.0
"""Window of the present settings, which says how long those of all others last."""
WARMUP_S, LEAST_STEPS = 0.1, 12
SLOW_S, SLOWER = 60.0, 20
"""A trial that lasts longer than this, and so many times what was expected, is ended with its script."""
HUNG_S, QUIET_S, QUIET = 3.0, 5.0, 0.01
"""So is one that is so late if for so long none of its processes computed for more than this share, or read."""
CLOSING = 0.7
"""Share of the time after which no other setting is tried."""
HANGS = 3
"""Trials that may hang before the search ends."""
LASTING = 0.003
"""Share of an epoch from which on its start is worth knowing for workers that live on, too."""
ALIKE = "all workers yield the same samples: each needs a part of its own (get_worker_info())"
SLOWLY, HUNG = "took far too long", "hung: its processes neither computed nor read"
RESTARTS = 3
"""Starts of the script, one after the other, in which no trial ends."""
FORK, INSTEAD = "fork", "forkserver"
"""How workers are started that may hang, and how they are started then."""
READY_S = 600.0
"""For so long after its budget a script may get ready before it trains."""
ASKED = 12
"""So many times a loader is asked for that computes no gradients before it is taken for the one to tune."""


class Tuning:
    """A search while its script runs: what answers the hook."""

    def __init__(
        self,
        asked: Asked,
        *,
        within: float,
        seed: int,
        cores: float,
        on_trial: Callable[[Trial], None] = lambda _: None,
        on_block: Callable[[Outcome[Setting]], None] = lambda _: None,
    ) -> None:
        """Begin; ``within`` is the log of how many times as fast the best setting may be."""
        self.folder = Path()
        """Where the hook of the running script writes."""
        self._asked, self._within, self.seed = asked, within, seed
        self._on_trial, self._on_block = on_trial, on_block
        self.cuda = False
        self.machine = Machine(cores, free_memory(), procfs.free_shared_memory())
        self.present: Setting | None = None
        self.made: list[Any] = []
        """Where the loader was made, innermost caller first."""
        self.key: list[Any] = []
        """That, and the loader's sampler: what tells it from others."""
        self.loader: Mapping[str, Any] = {}
        """Its settings, as the hook says them."""
        self.search: Search[Setting] | None = None
        self.excluded: dict[Setting, str] = {}
        """Settings that do not fit, and why."""
        self.tried: list[Trial] = []
        self.window_s = PILOT_S
        self._step_ns = 0.0
        """How long a step lasted before the first trial; 0 where that is not known."""
        self.trained = True
        """Whether gradients were computed over the loader."""
        self.ended = ""
        """Why the search ended: ``known``, ``budget``, ``interrupted``, ``short`` (the script ends too soon), ``fails``
        (it does so when it is started again), ``hung`` (trials did, again and again); empty while it goes on."""
        self.ranks = 1
        """Processes of a start that train on such a loader."""
        self.budget_s = math.inf
        """How long it may take from the first trial on."""
        self.deadline = self.closes = math.inf
        """When the search must end, on the monotonic clock; and when it tries no other setting."""
        self._block, self._order = 0, list[Setting]()
        self._answers: list[dict[str, Any]] = []
        self._pulse: Pulse | None = None
        self._stopped, self._hung = "", 0
        """Why a trial was ended with its script, and how many hung."""
        self._pid, self._began = 0, False
        """Process that is asked for; and whether one had been when the script last ended."""
        self._looked_at: dict[str, int] = {}
        self.refused = ""
        """Why this loader cannot be tuned as asked."""

    @property
    def running(self) -> Setting | None:
        """The setting of the trial that runs."""
        return self._order[0] if self._order and not self.ended else None

    # ------------------------------------------------------------------------------------------- what the hook asks

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Say what a process is to do next."""
        if message["what"] == "loader":
            return self._named(message)
        if message["what"] == "elsewhere":  # a validation may take as long as it likes
            self._pulse = self._pulse and Pulse(self._pulse.expected_s)
            return {"do": "stop" if self.ended else "no"}
        if int(message["number"]) == len(self._answers) - 1:
            self._ended_trial(message)
            answer = self._following()
        else:  # it failed in another rank meanwhile
            answer = self._answers[-1]
        return answer | ({} if message["pid"] == self._pid or self.ended else {"follows": True})

    def _named(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Decide whether a loader is the one to tune; one that trains is."""
        if self.made:
            same = message["key"] == self.key
            if same and self._pid in (0, message["pid"]):
                self._pid = message["pid"]
                return self._following()
            self.ranks += same
            return self._answers[-1] | {"follows": True} if same else {"do": "no"}
        maker = json.dumps(message["key"])
        self._looked_at[maker] = self._looked_at.get(maker, 0) + 1
        if not message["any"]:
            loaders = records.loaders(records.read(self.folder))
            alike = [one for one in loaders if [*map(one.settings.get, ("made", "sampler"))] == message["key"]]
            others = any(loader.trains for loader in loaders)
            self.trained = bool(message["updates"]) and any(loader.trains for loader in alike)
            if not self.trained and (others or self._looked_at[maker] < ASKED):
                return {"do": "no"}
        began = time.monotonic()
        self.deadline, self.closes = began + self.budget_s, began + CLOSING * self.budget_s
        self._step_ns = float(message["step_ns"])
        self._pid, self.made, self.loader = message["pid"], message["made"], message["settings"]
        self.key = message["key"]
        if self._asked.batch_sizes and message["batch_sampler"] != "BatchSampler":
            self.refused = (
                f"--batch-size: the loader at {report.caller_line(self.made)} has a batch sampler of its own, "
                f"{message['batch_sampler']}; expected DataLoader(batch_size=...): leave --batch-size out"
            )
            return {"do": "stop"}
        arguments = message["settings"]
        workers = int(arguments["num_workers"])
        self.present = Setting(
            workers,
            arguments["prefetch_factor"] if workers else None,
            bool(arguments["persistent_workers"]),
            bool(arguments["pin_memory"]),
            batch_size=arguments["batch_size"] if self._asked.batch_sizes else None,
        )
        self.machine.epoch_steps = int(message["epoch_steps"])
        self.cuda = bool(message["cuda"])
        self._order = [self._trial_of(self.present)]
        return self._following()

    def _following(self) -> dict[str, Any]:
        """The trial to run next, or the end."""
        if not self._order:
            if self.search is None:
                return {"do": "stop"}
            self._block += 1
            self.window_s = lengthened(self.window_s, self.search)
            if self.search.measured:
                self._on_block(self.search.outcome())
            self.search.closing = time.monotonic() > self.closes
            self._order = self.search.next_block(self._block)
            if not self._order:
                self.ended = self.ended or ("budget" if self.search.closing else "known")
        if time.monotonic() > self.deadline and not self.ended:
            self.ended = "budget"
        if self.ended:
            return {"do": "stop"}
        setting = self._order[0]
        warm = warm_up_steps(setting.num_workers, setting.prefetch_factor or 0)
        given = dict(setting.knobs())
        if restart := self._restarts(setting):
            given["persistent_workers"] = True
        answer = {
            "do": "trial",
            "number": len(self._answers),
            "settings": given | {"present": self.present is not None and setting == self._trial_of(self.present)},
            "warm_steps": warm,
            "warmup_ns": int(WARMUP_S * 1e9),
            "window_ns": int(self.window_s * 1e9),
            "least_steps": LEAST_STEPS,
            "whole": self.machine.short(setting),
            "restart": restart,
        }
        self._answers.append(answer)
        path = self.folder / "tune.json.new"
        path.write_text(json.dumps(answer), encoding="utf-8")
        path.rename(self.folder / "tune.json")  # what other ranks look at in every step
        self._pulse = Pulse(self._expected_s(warm))
        return answer

    def _restarts(self, setting: Setting) -> bool:
        """Whether a trial is to show how an epoch starts with workers that live on, too."""
        if not (setting.num_workers and self.machine.epoch_steps) or self.machine.short(setting):
            return False
        ran = [trial for trial in self.tried if trial.told and trial.setting.num_workers]
        epochs = (trial.step_ns(trial.setting, 0) * self.machine.epoch_steps for trial in ran)
        starts = (trial.start_ns(lasting=False) for trial in ran)
        return not ran or max(map(truediv, starts, epochs)) > LASTING

    def _expected_s(self, warm_steps: int) -> float:
        """Seconds that a trial takes if its steps last as long as those of the slowest that was measured."""
        ran = [trial for trial in self.tried if trial.told]
        step_ns = max((trial.step_ns(trial.setting, 0) for trial in ran), default=self._step_ns)
        start_ns = max((trial.start_ns(lasting=False) for trial in ran), default=0.0)
        return self.window_s + ((warm_steps + LEAST_STEPS) * step_ns + 2 * start_ns) / 1e9

    def look(self) -> str:
        """See whether the running trial is to be ended with its script, and why."""
        if self.running is not None and self._pulse and not self._stopped:
            self._stopped = self._pulse.stopped()
        return self._stopped

    # ------------------------------------------------------------------------------------------- what a trial said

    def _ended_trial(self, message: Mapping[str, Any]) -> None:
        """Take over a trial that has ended."""
        setting, error = self._order.pop(0), str(message["error"])
        if self.search is None and self.present is not None:
            self.present = self.present._replace(non_blocking=message["non_blocking"])
            setting = setting._replace(non_blocking=message["non_blocking"])
        if error:
            self._take(Trial(self._block, setting, error=error))
            return
        loader, by_pass = records.loader_of(self.folder, int(message["pid"]), message["iterators"])
        if loader.settings.get("iterable") and any(map(records.alike, by_pass)):
            self._take(Trial(self._block, setting, error=ALIKE))
            return
        steps = loop.whole_steps(loader, (message["begun_ns"], message["ended_ns"]))
        fit = predictions.fit(loader, steps, self.machine.cores) if len(steps) > 1 and len(loader.batches) else None
        self.machine.batch_bytes = max(self.machine.batch_bytes, int(message["bytes"]))
        new = all(trial.setting.num_workers != setting.num_workers for trial in self.tried)
        if new and setting.num_workers:
            memory = filter(None, (procfs.footprint(worker.pid) for workers in by_pass for worker in workers))
            self.machine.worker_bytes = max([self.machine.worker_bytes, *(worker.uss for worker in memory)])
        preparing = float((fit.wait_ns + fit.compute_ns).mean()) if fit else None
        window = Window(loader, steps)
        self._take(Trial(self._block, setting, message, fit=fit, preparing_ns=preparing, window=window))

    def _trial_of(self, setting: Setting) -> Setting:
        return self.machine.trial_of(setting)

    def script_ended(self, ended: Ended) -> None:
        """Note that the script has ended.

        Raises:
            InputError: its loader cannot be tuned as asked.
        """
        if ended.returncode < 0:
            bury()
        if ended.watched.interrupted or ended.returncode in (-signal.SIGINT, 128 + signal.SIGINT):
            self.ended = self.ended or "interrupted"
        if self.refused:
            raise InputError(f"tune: {self.refused}")
        self._began, self._pid, self.ranks, self._pulse = bool(self._pid), 0, 1, None

    def died(self, ended: Ended) -> None:
        """Take over that the script ended while a trial ran: that failed, unless the script just came to its end."""
        how, self._stopped = self._stopped or ended.report.status, ""
        if not (ended.returncode and self._order and self._began):  # a start in which nothing ran shows no setting
            return
        setting = self._order.pop(0)
        if how != HUNG or self.search is None:
            self._take(Trial(self._block, setting, error=how))
            return
        self._hung += 1
        self.ended = self.ended or ("hung" if self._hung == HANGS else "")
        if setting.num_workers and (setting.start_method or self.loader["start_method"] or FORK) == FORK:
            self._start_otherwise(self.search)
        # One that had run before did not fail: a trial before it left the process so that a fork of it hangs.
        self._take(Trial(self._block, setting, error=how), fails=setting not in self.search.logs)

    def _start_otherwise(self, search: Search[Setting]) -> None:
        """Have workers that have not run started by another method: forked ones hang where threads hold a lock."""
        settings = list[Setting]()
        for setting in search.settings:
            forked = setting.num_workers and setting.start_method in (None, FORK)
            settings += [setting, setting._replace(start_method=INSTEAD)] if forked else [setting]
            if forked and setting not in search.logs and setting not in self.excluded:
                self.excluded[setting] = "forked workers may hang, as one has"
                search.failed.add(setting)
        search.extend(dict.fromkeys(settings))
        self._order = [setting for setting in self._order if setting not in search.failed]

    def _take(self, tried: Trial, *, fails: bool = True) -> None:
        self.tried.append(replace(tried, ended_ns=time.perf_counter_ns()))
        self._on_trial(tried)
        if tried.told or fails:
            self._learn(tried)

    def _learn(self, tried: Trial) -> None:
        """Have the search know of a trial, and lay it out by the first one."""
        if self.present is None:
            return
        if self.search is None:
            self.search = self._laid_out(tried, self.present)
        for setting in self.search.settings:
            if self._trial_of(setting) == tried.setting:
                took = tried.step_ns(setting, self.machine.epoch_steps) if tried.told else None
                self.search.add(tried.block, setting, took and math.log(took / (setting.batch_size or 1)))
        if not self._order and self.search.measured:
            # What does not fit is known better once a worker was seen.
            for setting, reason in fitting(self.search.settings, self.machine, self.present):
                if setting not in self.search.logs and setting not in self.excluded:
                    self.excluded[setting] = reason
                    self.search.failed.add(setting)
            every = self.search.settings
            gains = rooms(self.tried, every, self.machine)
            self.search.expect(Model(*expected(self.tried, every, self.machine), rooms=gains))

    def _laid_out(self, pilot: Trial, present: Setting) -> Search[Setting]:
        """Begin a search among all settings that fit, from what the present ones showed."""
        every = settings(present, self._asked, self.machine, cuda=self.cuda)
        self.excluded = dict(fitting(every, self.machine, present))
        if pilot.told:
            self.window_s = first_window_s(pilot)
        able = [setting for setting in every if setting not in self.excluded]
        return Search(
            able, within=self._within, seed=self.seed, present=present, trial_of=self._trial_of, knobs=Setting.knobs
        )


def free_memory() -> int:
    """Bytes of memory that may still be taken: what is free, or less where a control group allows less."""
    available, limit = psutil.virtual_memory().available, identity.memory_limit()
    return available if limit is None else min(available, limit)


class Pulse:
    """Whether the processes below this one still do something."""

    def __init__(self, expected_s: float) -> None:
        """Begin; ``expected_s`` is how long they have."""
        self._began, self.expected_s = time.monotonic(), expected_s
        self._beat, self._done = self._began, 0.0
        """When they last did something, and all that they had done by then."""

    def stopped(self) -> str:
        """Say why nothing more is to be expected of them, if so."""
        moment = time.monotonic()
        if moment - self._began > max(SLOW_S, SLOWER * self.expected_s):
            return SLOWLY
        if moment - self._began < HUNG_S * self.expected_s:
            self._beat = moment
            return ""
        below = procfs.descendants(os.getpid())
        done = sum((procfs.cpu_ns(pid) or 0) / 1e9 + (procfs.read_bytes(pid) or 0) for pid in below)
        if not 0 <= done - self._done < QUIET * (moment - self._beat):
            self._beat, self._done = moment, done
        return HUNG if moment - self._beat > QUIET_S else ""


class Server:
    """The end of the sockets at which hooks ask."""

    def __init__(self, path: Path, answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        self._answer, self._selector = answer, selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def serve(self, seconds: float) -> None:
        """Answer what is asked within so many seconds; where an answer fails, everyone who asks ends."""
        try:
            self._serve(seconds)
        except BaseException:
            self.close()
            raise

    def _serve(self, seconds: float) -> None:
        if not self._selector.get_map():
            time.sleep(seconds)
            return
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.fileobj is self._listener:
                    link, _ = self._listener.accept()
                    self._selector.register(link, selectors.EVENT_READ, link.makefile("rw", encoding="utf-8"))
                    continue
                line = key.data.readline()
                if not line:  # the process has ended
                    self._selector.unregister(key.fileobj)
                    key.data.close()
                    return
                key.data.write(json.dumps(self._answer(json.loads(line))) + "\n")
                key.data.flush()

    def close(self) -> None:
        """Have everyone who asks end."""
        for key in list((self._selector.get_map() or {}).values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


def bury() -> None:
    """End what a script left that was killed: a worker that was just being forked does not see that its parent died."""
    kill(*procfs.descendants(os.getpid()))
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def kill(*pids: int) -> None:
    """Kill processes."""
    for member in pids:
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            continue


@dataclass(frozen=True, slots=True)
class Session:
    """A tuned script: the search, and the starts of the script."""

    tuning: Tuning
    starts: Sequence[Ended]
    took_s: float

    @property
    def ended(self) -> Ended:
        """The last start."""
        return self.starts[-1]


def tune(command: Sequence[str], tuning: Tuning, *, budget_s: float = math.inf, any_loader: bool = False) -> Session:
    """Start a script, and start it again where it ends before the search.

    ``any_loader``: the first loader that gives a batch is the one to tune.

    Raises:
        InputError: the program cannot be started, or its loader cannot be tuned as asked.
        EnvironmentFault: there is no place for temporary files.
    """
    linux.adopt_orphans()
    began, idle, starts = time.monotonic(), 0, list[Ended]()
    tuning.budget_s = budget_s
    while True:
        before = len(tuning.tried)
        server: list[Server] = []

        def prepare(folder: Path, server: list[Server] = server) -> Mapping[str, str]:
            tuning.folder = folder
            server.append(Server(folder / "tune", tuning.answer))
            chosen = {"FEEDRATE_TUNE_PLACE": json.dumps(tuning.key)} if tuning.made else {}
            return {"FEEDRATE_TUNE": str(folder / "tune"), "FEEDRATE_TUNE_ANY": str(int(any_loader)), **chosen}

        def wait(watched: Watched, server: list[Server] = server) -> None:
            server[0].serve(EVERY_S)
            if watched.interrupted:  # a script that goes on after Ctrl-C ends where it next asks
                tuning.ended = tuning.ended or "interrupted"
            # It does not ask: its loader is none to tune, or it gets ready for very long.
            late = time.monotonic() > (tuning.deadline + SLOW_S if tuning.made else began + budget_s + READY_S)
            tuning.ended = tuning.ended or ("budget" if late else "")
            if tuning.look() or late or (tuning.ended and tuning.ranks > 1):  # ranks that wait for others: in no order
                kill(watched.process.pid, *procfs.descendants(watched.process.pid))

        starts.append(ended := run(command, lines=False, prepare=prepare, wait=wait))
        server[0].close()
        tuning.script_ended(ended)
        if tuning.ended or not tuning.made:
            break
        tuning.died(ended)
        idle = idle + 1 if len(tuning.tried) == before else 0
        if idle == RESTARTS:
            tuning.ended = "fails" if ended.returncode else "short"
        if tuning.ended or tuning.present in (tuning.search.failed if tuning.search else ()):
            break
    return Session(tuning, starts, time.monotonic() - began)
