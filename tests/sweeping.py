"""A folder for real sweeps, and what they sweep."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from feedrate.schema.plugins import ROOT

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


def printed_by(*command: str, status: int = 0) -> str:
    """What a command says that ends with a status."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


class Place:
    """A folder to sweep in."""

    def __init__(self, folder: Path) -> None:
        self.results, self.data, self.matrix = folder / "results", folder / "data", folder / "matrix.yaml"
        self.matrix.write_text(MATRIX)

    def command(self, *more: str) -> list[str]:
        places = ["--matrix", str(self.matrix), "--results", str(self.results), "--data-root", str(self.data)]
        return [sys.executable, "-m", "feedrate", "sweep", *places, *more]

    def start(self, *more: str) -> subprocess.Popen[str]:
        out = subprocess.PIPE
        return subprocess.Popen(self.command(*more), cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, text=True)

    def journal(self) -> list[dict]:
        """What stands there; a line that is being written, or was when its writer was killed, has no end."""
        texts = [path.read_bytes().rpartition(b"\n")[0] for path in self.results.glob("*/*/journal.jsonl")]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def wait_for_trials(self, count: int, seconds: float = 240) -> None:
        until = time.monotonic() + seconds
        while len(self.journal()) < count:
            assert time.monotonic() < until, "no trial ended in time"
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
