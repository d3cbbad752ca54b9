"""A folder for real sweeps, and what they sweep."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import psutil

from feedrate import cli
from feedrate.schema.plugins import ROOT
from feedrate.sweep import launcher

if TYPE_CHECKING:
    from feedrate.sweep.launcher import Template

MATRIX = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.25, min_steps: 4, blocks: [1, 2], ci_target_pct: 0.001, control_every: 4,
           timeout_s: 30}
suites:
  loader:
    - {mode: [train, load], patch_size: 16, n_samples: 96, batch_size: 8, num_workers: [0, 2],
       pin_memory: [false, true]}
    - {mode: train, step: emulated, step_ms: 5, patch_size: 16, n_samples: 96, batch_size: 8, read_us: 2000}
    - {mode: compute, patch_size: 16, batch_size: 8}
profiles: {quick: {}}
"""


class Done(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str


def typed(*words: str, template: Template | None = None) -> Done:
    """Type a command in this process; a warm template spares each of its blocks the import of torch."""
    warm = {"Template": lambda: nullcontext(template)} if template else {}
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["feedrate", *words]),
        patch.dict(os.environ, COLUMNS="120"),
        patch.multiple(launcher, **warm) if warm else nullcontext(),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            status = cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return Done(status, out.getvalue(), err.getvalue())


class Place:
    """A folder to sweep in."""

    def __init__(self, folder: Path) -> None:
        self.results, self.data, self.matrix = folder / "results", folder / "data", folder / "matrix.yaml"
        self.matrix.write_text(MATRIX)

    def words(self, *more: str) -> list[str]:
        places = ["--matrix", str(self.matrix), "--results", str(self.results), "--data-root", str(self.data)]
        return ["sweep", *places, *more]

    def sweep(self, template: Template, *more: str, status: int = 0) -> str:
        """Sweep in this process: what was printed."""
        done = typed(*self.words(*more), template=template)
        assert done.status == status, done.out + done.err
        return done.out + done.err

    def start(self, *more: str) -> subprocess.Popen[str]:
        out = subprocess.PIPE
        command = [sys.executable, "-m", "feedrate", *self.words(*more)]
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, text=True)

    def journal(self) -> list[dict]:
        """What stands there; a line that is being written, or was when its writer was killed, has no end."""
        texts = [path.read_bytes().rpartition(b"\n")[0] for path in self.results.glob("*/*/journal.jsonl")]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def wait_for_trials(self, count: int) -> None:
        until(lambda: len(self.journal()) >= count)


def until(holds: Callable[[], bool], most_s: float = 240) -> None:
    """Wait for something."""
    end = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def family(process: subprocess.Popen[str]) -> dict[str, list[psutil.Process]]:
    """Processes below a sweep's parent by what they are."""
    processes: dict[str, list[psutil.Process]] = {"template": [], "trial": [], "worker": []}
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children():
            if "feedrate.trial.template" in child.cmdline():
                processes["template"].append(child)
                for trial in child.children():
                    processes["trial"].append(trial)
                    processes["worker"] += trial.children()
    return processes
