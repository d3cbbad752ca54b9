"""Real scripts below ``feedrate run``, and what they leave behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from feedrate.attach.records import Process, read
from feedrate.attach.run import HOOK
from feedrate.schema.plugins import PACKAGE, ROOT

HARNESS = ROOT / "harness"
TRAINING = """
import os, signal, sys, threading, time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __init__(self, length=80, broken=-1):
        self.length, self.broken = length, broken
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        if index == self.broken:
            raise OSError("a planted error")
        return torch.full((4,), float(index)) + torch.rand(4)

weight = torch.nn.Parameter(torch.zeros(4))

def step(batch):
    (batch @ weight).sum().backward()
    weight.data -= 1e-6 * weight.grad
    weight.grad = None

def train(loader, stop=None):
    for place, batch in enumerate(loader):
        if place == stop:
            return
        step(batch)
"""
"""How the small scripts of tests begin; for an optimizer PyTorch imports its compiler, which takes 2 CPU seconds."""
PLAIN = "import os, signal, sys, time\nimport feedrate\n"
"""Those that need no torch: it takes seconds to import."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did."""

    status: int
    """As a shell would say it."""
    out: bytes
    err: str


class Place:
    """A folder for scripts, what is recorded of them, and their temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"
        self.temporary = Path(tempfile.mkdtemp(prefix="f-"))  # workers make sockets there, whose paths must be short
        weakref.finalize(self, shutil.rmtree, self.temporary, ignore_errors=True)

    def planted(self) -> str:
        """A copy of the planted script: modules beside it hide those of Python."""
        return str(shutil.copy(PACKAGE / "bench" / "planted.py", self.folder / "train.py"))

    def script(self, text: str, *, torch: bool = True) -> str:
        """A script that begins as all do."""
        path = self.folder / "train.py"
        path.write_text((TRAINING if torch else PLAIN) + text)
        return str(path)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a command in a process group of its own."""
        known = {**os.environ, "PYTHONPATH": str(HARNESS), "TMPDIR": str(self.temporary), "COLUMNS": "120"}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            words, cwd=self.folder, env=known | environment, stdout=pipe, stderr=pipe, start_new_session=True
        )

    def command(self, *words: str, options: tuple[str, ...] = ()) -> list[str]:
        """How a script is run below ``feedrate run``."""
        own = ("--results", str(self.results), "--json", str(self.folder / "report.json"), *options)
        return [sys.executable, "-m", "feedrate", "run", *own, "--", *words]

    def run(self, *words: str, options: tuple[str, ...] = (), **environment: str) -> Done:
        """Run a program below ``feedrate run``."""
        return ended(self.start(*self.command(*words, options=options), **environment))

    def python(self, *words: str, options: tuple[str, ...] = (), **environment: str) -> Done:
        """Run a script below ``feedrate run``, with this Python."""
        return self.run(sys.executable, *words, options=options, **environment)

    def hooked(self, text: str, *, torch: bool = True) -> tuple[Any, list[Process]]:
        """Run a script with the hook, and nothing around it: what it printed as JSON, and what the hook wrote."""
        folder = self.folder / "records"
        folder.mkdir()
        path = f"{HOOK}{os.pathsep}{HARNESS}"
        script = self.script(text, torch=torch)
        done = ended(self.start(sys.executable, script, FEEDRATE_RUN=str(folder), PYTHONPATH=path))
        assert done.status == 0, done.err
        return json.loads(done.out), read(folder)

    @property
    def report(self) -> Mapping[str, Any]:
        """The newest report."""
        return json.loads((self.folder / "report.json").read_text())

    def left(self) -> list[str]:
        """What is left behind once processes had a moment to go: folders of feedrate's, processes of this place."""
        until = time.monotonic() + 10
        while (found := self._processes()) and time.monotonic() < until:
            time.sleep(0.1)
        return [*found, *map(str, self.temporary.glob("feedrate-*"))]

    def _processes(self) -> list[str]:
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = " ".join(process.info["cmdline"] or ())
            if str(self.folder) in words and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(words)
        return found


def beside_the_hook(text: str) -> str:
    """What a program prints that finds the hook's modules, which are not installed: it starts without ``site``."""
    known = {**os.environ, "PYTHONPATH": str(HOOK)}
    done = subprocess.run([sys.executable, "-S", "-c", text], env=known, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


def preparing(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of a report that prepared batches."""
    return report["lines"].get("waiting") or report["lines"]["here"]


def between(process: Process, begun_ns: int, ended_ns: int) -> Process:
    """A process as if it had begun and ended then."""
    rows = process.records[(process.records[:, 1] >= begun_ns) & (process.records[:, 1] <= ended_ns)]
    said = (line for line in process.said if line["what"] != "process" and begun_ns <= line["t_ns"] <= ended_ns)
    return Process(process.pid, max(begun_ns, process.began_ns), rows, tuple(said))


def ended(process: subprocess.Popen[bytes]) -> Done:
    """Wait for the end of a command; where that does not come, say what it had printed."""
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"{process.args} did not end: {process.communicate()[1].decode()}")
    code = process.returncode
    return Done(code if code >= 0 else 128 - code, out, err.decode())


def wait_for(path: Path) -> None:
    """Wait until a script has made a file."""
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, f"no {path.name}"
        time.sleep(0.02)
