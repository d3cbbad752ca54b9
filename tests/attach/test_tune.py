"""``feedrate tune``: a real script is tuned while it trains, and nothing that befalls a trial ends the search."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from attaching import Done, Place, beside_the_hook, ended
from typer.testing import CliRunner

from feedrate.analysis.pipeline import Pipeline
from feedrate.attach import tune_report
from feedrate.attach.space import Asked, Machine, Setting
from feedrate.attach.trials import WINDOW_S, Trial, first_window_s, rooms
from feedrate.attach.tune import Server, Tuning
from feedrate.cli import app
from feedrate.schema.errors import InputError
from feedrate.store import runs

slow = pytest.mark.slow


def tune(place: Place, *words: str, options: tuple[str, ...] = (), **environment: str) -> Done:
    """Tune a script."""
    return ended(place.start(*command(place, *words, options=options), **environment))


def command(place: Place, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    own = ("--results", str(place.results), "--json", str(place.folder / "tuned.json"), *options)
    return [sys.executable, "-m", "feedrate", "tune", *own, "--", *words]


def interrupted(place: Place, text: str, when: str, options: tuple[str, ...]) -> tuple[str, Done]:
    """Tune a script until a pattern was printed, and end that by Ctrl-C: what it had printed, and what it did then."""
    process = place.start(*command(place, sys.executable, place.script(text), options=options))
    assert process.stderr is not None
    before = ""
    for line in process.stderr:
        before += line.decode()
        if re.search(when, before, re.DOTALL):
            os.killpg(process.pid, signal.SIGINT)
            break
    done = ended(process)
    assert done.status == 130, before + done.err
    return before, done


def told(place: Place) -> Mapping[str, Any]:
    """What was written for machines."""
    return json.loads((place.folder / "tuned.json").read_text())


def line_of(place: Place, text: str) -> int:
    lines = (place.folder / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@slow
def test_a_script_gets_workers_though_trials_die(tmp_path: Path) -> None:
    """A worker feeds a script that waits for reads twice as fast; the script is ended, and the search is a run.

    Workers that raise, and workers that kill the training, are rows with their reasons; nothing stays behind.
    """
    place = Place(tmp_path)
    text = """
TRAINING = os.getpid()

class Slow(Samples):
    def __getitem__(self, index):
        time.sleep(0.005)
        workers = torch.utils.data.get_worker_info()
        if workers and (workers.num_workers, workers.id) == (2, 0):
            if os.path.exists("killed"):
                raise OSError("two are too many")
            open("killed", "w").close()
            if not os.fork():
                time.sleep(600)  # and leaves a child
            os.kill(TRAINING, signal.SIGKILL)
        return super().__getitem__(index)

if __name__ == "__main__":
    for epoch in range(1000):
        for batch in DataLoader(Slow(1600), batch_size=4):
            step(batch)
            time.sleep(0.020)
"""
    options = ("--max-workers", "2", "--within", "50", "--budget", "60s")
    done = tune(place, sys.executable, place.script(text), options=options)
    assert done.status == 0, done.err
    found = told(place)
    assert found["recommended"]["num_workers"] == 1, done.err
    assert found["present"] == {"num_workers": 0}
    for words in ("DataLoader(..., num_workers=", f"train.py:{line_of(place, 'Slow(1600)')}"):
        assert words in done.err
    for reason in ("two are too many", "killed by SIGKILL"):
        assert reason in done.err
    (run,) = runs.runs(place.results)
    trials = run.table("trials")
    assert len(trials) == run.manifest.tuned[0].trials == found["trials"]
    assert set(trials["suite"]) == {"tune"}
    assert set(trials.loc[trials["outcome"] == "error", "num_workers"]) == {2}
    measured = trials[trials["outcome"] == "ok"]
    assert measured.groupby("num_workers")["samples_per_s"].mean().idxmax() == 1
    assert not place.left()


@slow
def test_a_trial_that_hangs_is_started_otherwise_and_ctrl_c_ends_the_search(tmp_path: Path) -> None:
    """Workers forked while a lock is held are ended and started afresh; what is known by then is said, and a run."""
    place = Place(tmp_path)
    text = """
LOCK = threading.Lock()  # as OpenMP's are

class Locked(Samples):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is None:
            LOCK.acquire(blocking=False)  # and is never released
        else:
            LOCK.acquire()
            LOCK.release()
        time.sleep(0.005)
        return super().__getitem__(index)

if __name__ == "__main__":
    for epoch in range(1000):
        for batch in DataLoader(Locked(800), batch_size=4):
            step(batch)
            time.sleep(0.020)
"""
    options = ("--max-workers", "1", "--within", "50", "--budget", "90s")
    before, done = interrupted(place, text, "so far .*forkserver", options)
    assert "interrupted" in done.err
    assert before.count("hung: ") == 1
    assert "forked workers may hang, as one has" in done.err
    recommended = told(place)["recommended"]
    assert recommended["multiprocessing_context"] == "forkserver", done.err
    assert f"set           {' '.join(f'{name}={value}' for name, value in recommended.items())}  at " in done.err
    (run,) = runs.runs(place.results)
    trials = run.table("trials")
    assert run.manifest.stop_reason == "interrupted"
    assert len(trials) == run.manifest.tuned[0].trials >= 4
    assert (trials["outcome"] == "error").sum() == 1
    assert not place.left()


@slow
def test_workers_that_live_on_are_tried(tmp_path: Path) -> None:
    """They gain the start of an epoch where they save it: the loader starts over, and its second start is seen."""
    place = Place(tmp_path)
    text = """
class Stream(torch.utils.data.IterableDataset):
    started = False

    def __len__(self):
        return 400

    def __iter__(self):
        if not self.started:
            time.sleep(0.5)
        self.started = True
        for sample in range(400):
            time.sleep(0.002)
            yield torch.zeros(4)

if __name__ == "__main__":
    for epoch in range(1000):
        for batch in DataLoader(Stream(), batch_size=4, num_workers=1):
            step(batch)
            time.sleep(0.010)
"""
    _, done = interrupted(place, text, "(so far.*){2}", ("--max-workers", "1", "--within", "10"))
    assert told(place)["recommended"].get("persistent_workers"), done.err
    gain = re.search(r"gain +about ([\d.]+)× over the present num_workers=1;", done.err)
    assert gain is not None, done.err
    assert float(gain[1]) > 1.2


@pytest.mark.parametrize(
    ("starts_s", "preparing_s", "gain"),
    [((0.5, 0.0), 0.008, 1.5), ((0.5, 0.5), 0.008, 1.0), ((0.5,), 0.1, 1.5 / 1.1), ((0.5,), None, 1.0)],
    ids=["workers start slowly", "so does each epoch of theirs", "preparing is known alone", "no later start is known"],
)
def test_workers_that_live_on_gain_the_start_that_they_save(
    starts_s: tuple[float, ...], preparing_s: float | None, gain: float
) -> None:
    """An epoch of 100 steps of 10 ms begins with its start: the later one where that was seen, else the batch's own."""
    told = {"wall_ns": 1e9, "steps": 100, "starts_ns": [1e9 * took for took in starts_s], "whole": False}
    tried = Trial(0, Setting(1), told | {"restart": len(starts_s) > 1}, preparing_ns=preparing_s and 1e9 * preparing_s)
    fresh, lasting = (tried.step_ns(Setting(1, persistent_workers=lasts), 100) for lasts in (False, True))
    assert fresh / lasting == pytest.approx(gain)


@pytest.mark.parametrize(
    ("pace_ms", "cpu_ms", "most"),
    [(10.6, 2.0, 10.6 / 10.5), (13.0, 24.0, 13.0 / 12.0), (13.0, None, 13.0 / 10.5)],
    ids=["waits for its step", "cores are busy", "neither"],
)
def test_a_trial_says_what_it_leaves_to_gain(pace_ms: float, cpu_ms: float | None, most: float) -> None:
    """By its step with the hand-over, or by the cores' time; of settings alone that take no less of the machine."""
    every, machine = [Setting(1, 2), Setting(4, 2), Setting(8, 2)], Machine(2, None, None)
    parts = Pipeline(np.full(8, 20e6), np.full(8, 1e6), 3e5, 2e5, 10e6, 0, 2)
    told = {"wall_ns": 10 * pace_ms * 1e6, "steps": 10, "starts_ns": [1], "whole": False, "restart": False}
    tried = Trial(0, every[1], told | {"cpu_ns": cpu_ms and 10 * cpu_ms * 1e6}, fit=parts)
    left = rooms([tried], every, machine)
    assert left.keys() == {(every[1], every[2])}
    assert left[every[1], every[2]] == pytest.approx([math.log(most)])


@pytest.mark.parametrize(("differ_ms", "window_s"), [(0.1, WINDOW_S[0]), (3.0, 1.125), (10.0, WINDOW_S[1])])
def test_windows_are_as_long_as_batches_ask_for(differ_ms: float, window_s: float) -> None:
    """What counts is how much batches change the pace, here 20 ms, not how much they differ for themselves."""
    parts = Pipeline(np.array([10 - differ_ms, 10 + differ_ms]) * 1e6, np.zeros(2), 0, 0, 1e7, 0, 2)
    told = {"wall_ns": 2e7, "steps": 1, "starts_ns": [1], "whole": False, "restart": False}
    pilot = Trial(0, Setting(0), told, fit=parts)
    assert first_window_s(pilot) == pytest.approx(window_s)


COPIES = """
from types import SimpleNamespace
import _feedrate_tune as tune

class device(str):
    type = property(lambda self: self.split(":")[0])

class Tensor:
    device = device("cpu")
    def to(self, *args, **kwargs):
        return args, kwargs
    def cuda(self, *args, **kwargs):
        return args, kwargs

Tensor.to.__wrapped__ = None  # a function that times copies is in place already where a GPU is
for _ in range(2):
    tune.patch_copies(SimpleNamespace(Tensor=Tensor, device=device))
for call, wanted in CALLS:
    tune.TUNER.trial = None if wanted == "no trial" else SimpleNamespace(settings={"non_blocking": wanted})
    tune.TUNER.non_blocking = None
    print([eval(f"Tensor().{call}"), tune.TUNER.non_blocking])
"""
"""Copies, as scripts write them, of a tensor that is not one."""


CALLS = [
    ("to('cuda')", True, (("cuda",), {"non_blocking": True}), False),
    ("to('cuda:1', None, True)", False, (("cuda:1", None, False), {}), True),
    ("to(device=device('cuda'), non_blocking=True)", None, ((), {"device": "cuda", "non_blocking": True}), True),
    ("cuda()", True, ((), {"non_blocking": True}), False),
    ("cuda(0, True)", False, ((0, False), {}), True),
    ("to('cpu')", True, (("cpu",), {}), None),
    ("to(dtype=float)", True, ((), {"dtype": float}), None),
    ("to('cuda')", "no trial", (("cuda",), {}), None),
]
"""What is called, what a trial asks for, what the copy is given, and what the script is seen to have asked for."""


def test_a_trial_says_whether_copies_block() -> None:
    """Only copies to a device are changed, only where a trial asks for it, and what the script gave them is seen."""
    text = COPIES.replace("CALLS", repr([(call, wanted) for call, wanted, _, _ in CALLS]))
    expected = [f"{[given, seen]}" for _, _, given, seen in CALLS]
    assert beside_the_hook(text).splitlines() == expected


def test_cpu_time_is_that_of_the_process_and_its_workers() -> None:
    """Another process' time counts as a worker's; where a worker has gone, nothing is known."""
    text = """
import os, time
from types import SimpleNamespace as Has
import _feedrate_tune as tune
while time.process_time() < 0.2:
    pass
own, gone = Has(pid=os.getpid()), Has(pid=2**22 + 1)
alone, both, none = (tune.cpu_ns(Has(_workers=workers)) for workers in ([], [own], [own, gone]))
print(alone >= 2e8, both - alone > 1e8, none)
"""
    assert beside_the_hook(text) == "True True None\n"


def test_a_window_leaves_out_steps_that_hold_another_loop() -> None:
    """A validation of many batches, not the one batch of another loader that each step takes."""
    text = """
import _feedrate_tune as tune
tune.TUNER.ask = lambda what: print(what)
asked = {"settings": {}, "whole": False, "warmup_ns": 0, "warm_steps": 1, "window_ns": 50, "least_steps": 5}
for usual in (0, 1):
    trial = tune.Trial({**asked, "restart": False})
    trial.within, now = tune.Pass(0), 0
    trial.take(now, [], object())
    for count in range(20):
        for _ in range(usual):
            tune.TUNER.elsewhere(trial, 10**12)
        now += 10
        if count == 4:
            for _ in range(30):
                tune.TUNER.elsewhere(trial, 10**12)
            now += 5000
        if trial.ask(now):
            break
        trial.take(now, [], object())
    trial.pause(now, trial.within.taken)
    print(usual, trial.window.steps, trial.window.wall_ns, trial.window.cpu_ns)
"""
    assert beside_the_hook(text) == "elsewhere\n0 5 50 None\n1 5 50 None\n"


def test_a_window_begins_when_the_device_is_done() -> None:
    """A host that runs ahead of it is waited for; without CUDA nothing is."""
    text = """
import sys
from types import SimpleNamespace as Has
import _feedrate_tune as tune
count = []
cuda = Has(is_initialized=lambda: bool(count), synchronize=lambda device: count.append(1))
sys.modules["torch"] = Has(cuda=cuda)
asked = {"settings": {}, "whole": False, "warmup_ns": 0, "warm_steps": 1, "window_ns": 0, "least_steps": 3}
for expected in (0, 1):
    trial = tune.Trial({**asked, "restart": False})
    trial.within = tune.Pass(0)
    trial.take(0, [], object())
    while not trial.ask(tune.now()):
        trial.take(tune.now(), [], object())
    print(len(count) - expected)
    count.append(1)
"""
    assert beside_the_hook(text) == "0\n1\n"


def test_the_loader_that_is_tuned_is_told_from_others_of_its_line() -> None:
    """It, or one that the script made in its place once it had gone; none that was made by other calls."""
    text = """
import _feedrate_tune as tune
class Loader:
    def __init__(self, *made):
        self.__dict__.update(_feedrate_made=[("help.py", 3, "make"), *made], sampler=[])
train, check, other = Loader(("train.py", 1, "")), Loader(("train.py", 1, "")), Loader(("train.py", 2, ""))
tune.TUNER.target, tune.TUNER.tuned = tune.key_of(train), tune.weakref.ref(train)
print(*map(tune.TUNER.tunes, (train, check, other)))
del train
print(*map(tune.TUNER.tunes, (check, other)))
"""
    assert beside_the_hook(text) == "True False False\nTrue False\n"


def test_who_asks_is_not_left_waiting(tmp_path: Path) -> None:
    """Where an answer fails, the script is let go; a validation may take as long as it likes."""

    def fail(_: Mapping[str, Any]) -> dict[str, Any]:
        raise ValueError("planted")

    server = Server(tmp_path / "tune", fail)
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(tmp_path / "tune"))
        asks = link.makefile("rw", encoding="utf-8")
        asks.write('{"what": "trial"}\n')
        asks.flush()
        with pytest.raises(ValueError, match="planted"):
            server.serve(1)
        assert not asks.readline()
    server.serve(0)
    server.close()
    assert Tuning(Asked(), within=0.1, seed=1, cores=2).answer({"what": "elsewhere"}) == {"do": "no"}


HELPED = """
from time import perf_counter
class Slow(Samples):
    def __getitem__(self, index):
        time.sleep(0.005)
        return super().__getitem__(index)
def make(samples):
    return DataLoader(samples, 4)
loader, check = make(Slow(400_000)), make(Samples(40))
counts = []
for count, batch in enumerate(loader):
    step(batch)
    if count % 40 == 20:
        counts.append(0)
        for _ in check:
            counts[-1] += 1
            time.sleep(0.02)
        print(counts[-1], flush=True)
"""


@slow
def test_a_validation_by_the_same_helper_is_left_alone(tmp_path: Path) -> None:
    """It ends where it ends, and does not count for the settings that are tried meanwhile."""
    place = Place(tmp_path)
    done = tune(place, sys.executable, place.script(HELPED), options=("--budget", "25s"))
    assert done.status == 0, done.err
    assert set(done.out.split()) == {b"10"}
    assert "far too long" not in done.err
    assert re.search(r"  set +num_workers=[1-9]", done.err), done.err


def test_batches_that_the_script_composes_are_left_alone(fake_script: ModuleType) -> None:
    """Other batch sizes of a loader with a batch sampler of its own are refused by name, and the script is ended."""
    tuning = Tuning(Asked(batch_sizes=(4, 8)), within=0.1, seed=1, cores=2)
    made = [["train.py", 7, "main"]]
    loader = {"pid": 1, "made": made, "key": [made, "R"], "settings": {}, "any": True, "batch_sampler": "Own"}
    assert tuning.answer({"what": "loader", "step_ns": 0, **loader}) == {"do": "stop"}
    refused = "--batch-size: the loader at train.py:7 has a batch sampler of its own, Own; .*: leave --batch-size out"
    with pytest.raises(InputError, match=refused):
        tuning.script_ended(fake_script.ended(fake_script.Script()))


def named(tuning: Tuning, folder: Path, **facts: Any) -> dict[str, Any]:
    """Have a process tell of its loader, which trains."""
    tuning.folder = folder
    made = [["train.py", 7, "main"]]
    arguments = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "pin_memory": False}
    loader = {"pid": 1, "made": made, "key": [made, "R"], "settings": arguments, "any": True, "batch_sampler": ""}
    return tuning.answer({"what": "loader", **loader, "epoch_steps": 100, "cuda": False, "step_ns": 0, **facts})


def test_slow_steps_and_a_slow_start_are_waited_for(tmp_path: Path) -> None:
    """The first trial may last as long as its steps do, and its time begins with it, not with the script."""
    tuning = Tuning(Asked(), within=0.1, seed=1, cores=2)
    tuning.budget_s = 60.0
    assert tuning.deadline == math.inf
    answer = named(tuning, tmp_path, step_ns=3 * 10**9)
    assert answer["do"] == "trial"
    assert 0 < tuning.deadline - time.monotonic() <= 60
    assert tuning._pulse is not None
    assert tuning._pulse.expected_s > 3 * (answer["warm_steps"] + answer["least_steps"])


def test_a_start_in_which_nothing_ran_fails_no_setting(tmp_path: Path, fake_script: ModuleType) -> None:
    """A script that cannot be started twice says nothing of its settings."""
    tuning = Tuning(Asked(), within=0.1, seed=1, cores=2)
    failed = replace(fake_script.ended(fake_script.Script()), returncode=1)
    named(tuning, tmp_path)
    for count in (1, 1):  # the second time it fails before it asks
        tuning._order.append(Setting(2, 2))
        tuning.script_ended(failed)
        tuning.died(failed)
        assert len(tuning.tried) == count


@pytest.mark.parametrize(
    ("setting", "present", "paste"),
    [
        (
            Setting(0),
            Setting(2, 4, persistent_workers=True),
            "DataLoader(..., num_workers=0); leave out prefetch_factor and persistent_workers",
        ),
        (Setting(4, 2), Setting(2, 2, pin_memory=True), "DataLoader(..., num_workers=4); leave out pin_memory"),
        (
            Setting(4, 2, persistent_workers=True),
            Setting(0),
            "DataLoader(..., num_workers=4, persistent_workers=True); make it once, before the loop over epochs",
        ),
        (
            Setting(4, 2, non_blocking=False),
            Setting(4, 2, non_blocking=True),
            "DataLoader(..., num_workers=4); batch.to(device, non_blocking=False)",
        ),
    ],
)
def test_what_to_paste_is_what_was_measured(setting: Setting, present: Setting, paste: str) -> None:
    """PyTorch takes it as it is, and no argument of the present loader changes it."""
    assert tune_report.snippet(setting, present) == paste


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The message says what was expected, and no run is left."""
    done = CliRunner().invoke(app, ["tune", "--results", str(tmp_path), "--", "nothing.py:make"])
    assert isinstance(done.exception, InputError)
    assert "nothing.py: no such file; expected FILE.py:FUNCTION" in str(done.exception)
    assert not list(tmp_path.iterdir())


@slow
def test_a_script_without_a_loader_ends_as_it_would(tmp_path: Path) -> None:
    """Its status is the command's, or 1 where it was 0, and nothing is recorded."""
    place = Place(tmp_path)
    done = tune(place, sys.executable, "-c", "import sys; sys.exit(7)")
    assert done.status == 7
    assert "nothing was tuned" in done.err
    assert not list(place.results.glob("*/2*"))


@slow
def test_what_trials_vary_by_is_said(fake_tuned: ModuleType) -> None:
    """Once settings have run again: a reader knows then why a search needs long, or ends too early."""

    def noise(blocks: int) -> str | None:
        session = fake_tuned._searched(fake_tuned.Search(blocks=blocks, most=1, steps=40))
        result = tune_report.result(session)
        said = dict(tune_report.text(session, result, "python train.py"))
        spread = tune_report.as_object(session, result)["spread_pct"]
        assert ("noise" in said) == (spread is not None)
        return said.get("noise")

    assert noise(1) is None
    assert re.fullmatch(r"measurements of one setting vary by \d+(\.\d)?\s% \(standard deviation\)", noise(4) or "")
