"""Where faults are tried: a folder with sweeps of its own, whose processes can be told from all others."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from feedrate.machine.probes.procfs import semaphores, shm_segments
from feedrate.plan import request
from feedrate.plan.options import SweepOptions
from feedrate.share import validator
from feedrate.store import runs

FEEDRATE = (sys.executable, "-P", "-m", "feedrate")
"""How the command is started."""
MARK = "FEEDRATE_GROUND"
"""In the environment of every process that a ground starts, and of theirs."""
MATRIX = """
version: 1
protocol: {warmup_s: 0.02, window_s: 0.05, min_steps: 2, blocks: [BLOCKS, BLOCKS], ci_target_pct: 0.001, timeout_s: 20}
suites:
  loader:
    - {mode: load, patch_size: 16, n_samples: 96, storage_format: [png, lmdb], batch_size: [4, 8, 16],
       num_workers: [0, 2]}
profiles: {quick: {}}
"""
"""Twelve settings, of a fifth of a second a measurement."""
_GONE_S = 15.0
"""How long processes may take to end whose parent was killed."""


class Done(NamedTuple):
    """A command that has ended."""

    status: int
    text: str
    """What it printed, without breaks of lines."""

    def wrong(self, *statuses: int, says: str = "") -> str:
        """What is wrong with how it ended: another status, a traceback, or words that are missing; else nothing."""
        problems = [f"status {self.status}"] if self.status not in statuses else []
        problems += ["a traceback"] if "Traceback (most recent call last)" in self.text else []
        problems += [f"no word of {says!r}"] if says and not re.search(says, self.text) else []
        return f"{', '.join(problems)}: {self.text[-300:]}" if problems else ""


@dataclass
class Ground:
    """A folder for sweeps."""

    folder: Path
    matrix: str = MATRIX
    blocks: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    data: Path = field(init=False)
    results: Path = field(init=False)
    temporary: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data, self.results = self.folder / "data", self.folder / "results"
        # Workers make sockets there, whose paths must be short.
        self.temporary = Path(tempfile.mkdtemp(prefix="f-"))
        (self.folder / "matrix.yaml").write_text(self.matrix.replace("BLOCKS", str(self.blocks)))
        self._segments = shm_segments()

    @property
    def options(self) -> SweepOptions:
        """Of its sweeps."""
        return SweepOptions(matrix=self.folder / "matrix.yaml", results=self.results, data_root=self.data)

    def command(self) -> list[str]:
        """What is typed to sweep here."""
        options = {"--matrix": self.folder / "matrix.yaml", "--results": self.results, "--data-root": self.data}
        words = [str(word) for pair in options.items() for word in pair]
        return [*FEEDRATE, "sweep", *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in the folder, by default a sweep; what it prints goes into ``out`` and ``err``."""
        variables = {**os.environ, MARK: str(self.folder), "TMPDIR": str(self.temporary), "COLUMNS": "400"}
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            return subprocess.Popen(
                words or self.command(),
                cwd=self.folder,
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env={**variables, **self.environment},
                text=True,
                start_new_session=True,
            )

    def done(self, process: subprocess.Popen[str], seconds: float = 240.0) -> Done:
        """Wait for its end; what does not end is killed, and its status says so."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        text = "".join((self.folder / name).read_text(errors="replace") for name in ("out", "err"))
        return Done(process.returncode, " ".join(text.split()))

    def run(self, *words: str, seconds: float = 240.0) -> Done:
        """Run a command to its end."""
        return self.done(self.start(*words), seconds)

    def mounted(self, script: str) -> Done:
        """Run a shell script with mounts of its own, which end with it; ``$SWEEP`` is the sweep's command."""
        sweep = shlex.join(self.command())
        return self.run("unshare", "-m", "bash", "-c", script.replace("$SWEEP", sweep), seconds=400)

    def journal(self) -> dict[str, float | None]:
        """Measurements that have ended: id to speed; a line that is being written has no end yet."""
        ended: dict[str, float | None] = {}
        for path in self.results.glob("*/*/journal.jsonl"):
            with suppress(FileNotFoundError):
                for line in path.read_bytes().rpartition(b"\n")[0].splitlines():
                    trial = json.loads(line)["trial"]
                    ended[trial["trial_id"]] = trial.get("samples_per_s")
        return ended

    def wait_for(self, trials: int, process: subprocess.Popen[str]) -> None:
        """Wait until so many measurements have ended, or the sweep."""
        while len(self.journal()) < trials and process.poll() is None:
            time.sleep(0.02)

    def processes(self) -> list[psutil.Process]:
        """Every process that was started here and lives."""
        living, mark = [], f"{MARK}={self.folder}\0".encode()
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                if mark in Path(f"/proc/{pid}/environ").read_bytes() + b"\0":
                    process = psutil.Process(pid)
                    living += [process] if process.status() != psutil.STATUS_ZOMBIE else []
        return living

    def left(self) -> list[str]:
        """What outlives a command: processes, once they had time to end, and shared memory whose owner is gone."""
        until = time.monotonic() + _GONE_S
        while (living := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        lost = [f"process {process.pid}" for process in living]
        for process in living:
            with suppress(psutil.Error):
                process.kill()
        return lost + [f"segment {name}" for name in shm_segments() - self._segments if not _owned(name)]

    def faults(self, ended: Mapping[str, float | None]) -> list[str]:
        """What is wrong with the only run: measurements that had ended and are lost, settings that are missing, files.

        ``ended`` is what journals held.
        """
        written = runs.runs(self.results)
        if len(written) != 1:
            return [f"{len(written)} runs"]
        (run,) = written
        trials = run.table("trials").set_index("trial_id")
        speeds = trials["samples_per_s"].astype(object).where(trials["samples_per_s"].notna(), None).to_dict()
        lost = [f"lost {name}" for name, speed in ended.items() if speeds.get(name, "none") != speed]
        planned = {cell.cell_id for cell in request.make(self.options).plan.all_cells}
        missing = [f"no measurement of {cell}" for cell in sorted(planned - set(trials["cell_id"]))]
        damaged = [f"refused: {finding}" for finding in validator.check(run.folder, self.results).findings]
        return [*lost, *missing, *damaged, *(f"left {path.name}" for path in self.results.rglob("*.tmp"))]


def _owned(segment: str) -> bool:
    """Whether the process that made a segment lives, whose id stands in the name, or one that has it open."""
    if any(psutil.pid_exists(int(number)) for number in re.findall(r"\d{2,}", segment)):
        return True
    return any(path.name == segment for pid in psutil.pids() for path in semaphores(pid))


def family(process: subprocess.Popen[str]) -> dict[str, list[psutil.Process]]:
    """Processes of a sweep by what they are: parent, template, trial, worker."""
    processes: dict[str, list[psutil.Process]] = {"parent": [], "template": [], "trial": [], "worker": []}
    with suppress(psutil.Error):
        parent = psutil.Process(process.pid)
        processes["parent"] = [parent]
        for child in parent.children():
            if "feedrate.trial.template" in child.cmdline():
                processes["template"].append(child)
                for trial in child.children():
                    processes["trial"].append(trial)
                    processes["worker"] += trial.children()
    return processes


def send(number: signal.Signals, processes: Sequence[psutil.Process]) -> None:
    """Send a signal to processes, of which some may be gone."""
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
