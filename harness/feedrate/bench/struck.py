"""Scripts that are struck while ``feedrate run`` watches them: output, status and weights are those they have alone.

A script is killed, stopped or terminated; py-spy or feedrate is killed; feedrate's folder has no room; a function of
the hook raises; the script harms itself. What is compared is seen from outside, bit for bit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from feedrate.bench.ground import FEEDRATE, Ground, send
from feedrate.bench.session import Figure, Session

SHARE, STEPS = 0.5, 5_000
"""Faults of scripts, and steps of a long loop, for each kill that is asked for."""
SCRIPT = """
import hashlib, os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
SPOIL
torch.manual_seed(3)
torch.set_num_threads(1)
class Samples(Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        time.sleep(0.001)
        HARM
        return torch.full((4,), float(index)) + torch.rand(4)
def handle(number, frame):
    os.write(1, b"handled\\n")
    os._exit(11)
signal.signal(signal.SIGTERM, handle)
if __name__ == "__main__":
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    for epoch in range(2):
        for batch in DataLoader(Samples(), 4, shuffle=True, num_workers=WORKERS):
            optimizer.zero_grad()
            (batch @ weight).sum().backward()
            optimizer.step()
            if not os.path.exists("begun"): open("begun", "w").close()
    with open("weights.tmp", "wb") as file: file.write(weight.detach().numpy().tobytes())
    os.rename("weights.tmp", "weights")
    print(hashlib.sha256(weight.detach().numpy().tobytes()).hexdigest(), torch.rand(1), len(sys.path))
    sys.stderr.write("said on stderr\\n")
    sys.exit(3)
"""
"""A training that says what it came to, and how it takes a signal."""
HARM = {
    "out of memory": "torch.zeros(1 << 45) if index == 100 else None",
    "fork bomb": "[os.fork() or os._exit(0) for _ in range(20 if index == 100 else 0)]",
    "worker killed": "os.kill(os.getpid(), 9) if index == 100 else None",
}
"""What a script does to itself in reading a sample."""
FUNCTIONS = """
OUTSIDE = {"Collate.__call__", "Collate.__getattr__", "Indices.get", "Indices.__getattr__", "Loop.finish",
           "Guard.__enter__", "Guard.__exit__", "WatchedIterator.__next__", "WatchedIterator.__getattr__"}
def fail(*_, **__):
    raise ZeroDivisionError("planted")
def functions():
    names = "_feedrate_hook", "_feedrate_step", "_feedrate_worker", "_feedrate_log"
    owners = [sys.modules[name] for name in names if name in sys.modules]
    owners += [each for owner in owners for each in vars(owner).values() if isinstance(each, type)]
    return sorted({each.__qualname__: (owner, name) for owner in owners for name, each in vars(owner).items()
                   if type(each).__name__ == "function" and each.__module__ in names
                   and each.__qualname__ not in OUTSIDE}.items())
"""
"""The hook's functions, without a hook none. Those outside call the script's own, which may raise, or are the guard."""
RAISING = f"""{FUNCTIONS}
if functions():
    _, where = functions()[SEED % len(functions())]
    setattr(*where, fail)
"""
"""One of them, another with each seed, raises from then on."""


Running = subprocess.Popen[str]


class Outcome(NamedTuple):
    """What a script did, as far as others can see it."""

    status: int
    out: bytes
    weights: bytes


class Watched:
    """A script that runs below ``feedrate run``, or alone."""

    def __init__(self, folder: Path, name: str, seed: int = 0, *, alone: bool = False) -> None:
        path = f"{folder}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
        self.ground = Ground(folder, environment={"PYTHONPATH": path})
        self.folder = folder
        harms = {
            "HARM": HARM.get(name, "pass"),
            "WORKERS": "64" if name == "64 workers" else "1",
            "SPOIL": RAISING.replace("SEED", str(seed)) if name == "hook raises" else "",
        }
        text = SCRIPT
        for where, harm in harms.items():
            text = text.replace(where, harm)
        (folder / "train.py").write_text(text)
        run = [*FEEDRATE, "run", "--results", str(folder / "results"), "--"]
        self.words = [*([] if alone else run), sys.executable, "train.py"]
        if name == "disk full" and not os.geteuid():
            tiny = f'mount -t tmpfs -o size=8k none {self.ground.temporary} && exec "$@"'
            self.words = ["unshare", "-m", "bash", "-c", tiny, "bash", *self.words]

    def start(self) -> Running:
        """Start it, and wait until it trains."""
        process = self.ground.start(*self.words)
        until = time.monotonic() + 60
        while not (self.folder / "begun").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        return process

    def end(self, process: Running) -> Outcome:
        """Wait for its end, and for that of everything below it."""
        status = self.ground.done(process).status
        self.ground.left()
        weights = self.folder / "weights"
        out = (self.folder / "out").read_bytes()
        return Outcome(status if status >= 0 else 128 - status, out, weights.read_bytes() if weights.exists() else b"")

    def script(self, process: Running) -> list[psutil.Process]:
        """The script's own process, where it lives."""
        below = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        commands = [(child, child.cmdline()) for child in below]
        return [child for child, words in commands if words[-1:] == ["train.py"] and "feedrate" not in words][:1]


Strike = Callable[[Watched, Running], None]


def _on_script(number: signal.Signals) -> Strike:
    return lambda watched, process: send(number, watched.script(process))


def _pause(watched: Watched, process: Running) -> None:
    script = watched.script(process)
    send(signal.SIGSTOP, script)
    time.sleep(0.5)
    send(signal.SIGCONT, script)


def _kill_profiler(_: Watched, process: Running) -> None:
    below = psutil.Process(process.pid).children(recursive=True)
    send(signal.SIGKILL, [child for child in below if "py-spy" in " ".join(child.cmdline())])


def _kill_feedrate(watched: Watched, process: Running) -> None:
    process.kill()
    until = time.monotonic() + 30
    while watched.ground.processes() and time.monotonic() < until:
        time.sleep(0.05)


def _nothing(*_: object) -> None:
    """Strike nobody: the fault is in the script's surroundings."""


STRIKES: dict[str, Strike] = {
    "script killed": _on_script(signal.SIGKILL),
    "script terminated": _on_script(signal.SIGTERM),
    "script stopped": _pause,
    "py-spy killed": _kill_profiler,
    "feedrate killed": _kill_feedrate,
    "disk full": _nothing,
    "hook raises": _nothing,
    **dict.fromkeys(HARM, _nothing),
}
_ORDER = (*STRIKES, "hook raises")
"""The hook has more functions than there are faults of another kind."""
_STATUSES = {"script killed": 137, "script terminated": 11}


def measure(session: Session) -> Iterator[Figure]:
    """Strike scripts below ``feedrate run``, and hold their outcome against that of the script alone."""
    draw = random.Random(session.kills)
    count, problems, counts = max(len(_ORDER), round(SHARE * session.kills)), list[str](), Counter[str]()
    alone: dict[str, Outcome] = {}
    for at in range(count):
        name = "64 workers" if at == count - 1 else _ORDER[at % len(_ORDER)]
        counts[name] += 1
        harm = name if name in (*HARM, "64 workers") else ""
        if harm not in alone:
            script = Watched(session.folder / "alone" / harm, harm, alone=True)
            alone[harm] = script.end(script.start())
        watched = Watched(session.folder / "scripts" / str(at), name, counts[name])
        process = watched.start()
        time.sleep(draw.uniform(0.0, 0.8))
        with suppress(psutil.Error):
            STRIKES.get(name, _nothing)(watched, process)
        outcome = watched.end(process)
        if wrong := _differs(name, outcome, alone[harm], watched):
            problems.append(f"{name}: {wrong}")
        if at % 10 == 9:
            session.console.print(f"{at + 1} of {count} scripts struck, {len(problems)} problems ...")
    strikes = ", ".join(f"{number} × {name}" for name, number in counts.items())
    measured = f"{count} faults ({strikes}): {len(problems)} changes"
    what = "scripts under feedrate run: changes of status, output and weights by faults"
    yield Figure(what, "0", "; ".join([measured, *problems[:3]]), not problems)
    yield _long(session)


def _long(session: Session) -> Figure:
    """A loop of very many steps: the memory of feedrate and of the script; what the hook keeps is bounded by then."""
    count = STEPS * session.kills
    ground = Ground(session.folder / "long")
    (ground.folder / "train.py").write_text(f"import feedrate\nfor _ in feedrate.watch(range({count})): pass\n")
    words = [*FEEDRATE, "run", "--results", str(ground.results), "--"]
    process, seen = ground.start(*words, sys.executable, "train.py"), list[int]()
    while process.poll() is None:
        held: dict[str, int] = {}
        with suppress(psutil.Error):
            held = {" ".join(child.cmdline()): child.memory_info().rss for child in ground.processes()}
        if f"{sys.executable} train.py" in held:  # afterwards feedrate writes its report
            seen.append(sum(resident for words, resident in held.items() if "py-spy" not in words))
        time.sleep(0.1)
    quarter = len(seen) // 4
    growth_pct = (max(seen[3 * quarter : -1]) / max(seen[2 * quarter : 3 * quarter]) - 1) * 100 if quarter > 2 else 0.0
    what = f"memory of feedrate run and script, last quarter of {count:,} steps over the one before"
    return Figure(
        what, "≤ 2 %", f"{growth_pct:+.1f} % ({len(seen)} looks)", process.returncode == 0 and growth_pct <= 2
    )


def _differs(name: str, outcome: Outcome, whole: Outcome, watched: Watched) -> str:
    """How an outcome differs from the script's own: a struck script may have ended before it was struck."""
    err = (watched.folder / "err").read_text(errors="replace")
    if "_feedrate_" in err and "Traceback" in err:
        return f"a traceback of the hook: {err[-200:]}"
    if name != "feedrate killed" and (left := list(watched.ground.temporary.glob("feedrate-*"))):
        return f"left {left[0].name}"
    if name == "feedrate killed":  # nobody is left to say the script's status
        return "" if outcome.weights == whole.weights and outcome.out == whole.out else "other output or weights"
    if outcome == whole:
        return ""
    struck = _STATUSES.get(name)
    out = b"handled\n" if name == "script terminated" else b""
    if struck == outcome.status and outcome.out in (out, whole.out):
        return ""
    other = "other" if outcome.weights != whole.weights else "the same"
    return f"status {outcome.status}, output {outcome.out[-80:]!r}, {other} weights"
