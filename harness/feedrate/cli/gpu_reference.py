"""Five steps for a machine with a GPU that is lent for minutes at a time: each fits ten and leaves an archive.

All take the Python that is there, with the torch that drives the card: no ``.venv``, no network. A sweep's archive is
whole after every trial, so that a step which is killed costs none that had ended. Without a CUDA device the same steps
are a rehearsal on the CPU, without transfer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from feedrate.machine import linux
from feedrate.machine.probes import gpu
from feedrate.plan import request
from feedrate.plan.options import SweepOptions
from feedrate.schema import words
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.schema.plugins import ROOT
from feedrate.store import archive
from feedrate.sweep import sweep

SECONDS = {"probe": 60.0, "tests": 240.0, "reference": 0.0, "transfer": 0.0, "hook": 150.0}
"""Steps in the order in which they tell most, and about how long each takes on a GPU; a sweep by its plan."""
PROFILES = {"reference": "gpu", "transfer": "transfer"}
PACKING_S = 60
"""Allowed for importing torch and packing the samples, before the budget begins to run, in seconds."""
GRACE_S = 15.0
"""How long a step may take to write and remove what it made, when it is interrupted."""
INTERRUPTED = 130
SCRIPT = "tests/attach/resnet_imagefolder.py"
FEW, MANY = 4, 16
"""Workers of the script's two runs."""
_PYTEST = (
    *("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-v"),
    # What another torch or pandas deprecates says nothing of CUDA, and a GPU that is slow fails no test.
    *("-W", "default", "-W", "ignore::pytest.PytestConfigWarning", "-o", "timeout=0"),
    "tests/test_cuda.py",
)


def make(options: SweepOptions, out: Path, console: Console, only: str = "") -> int:
    """Do one step, or all that this machine can: the worst exit status; 130 after an interrupt, which ends them."""
    if only and only not in SECONDS:
        raise InputError(f"--step: got '{only}'; {expected_one_of(only, SECONDS)}")
    cuda = gpu.device() == "cuda"
    steps = [only] if only else [step for step in SECONDS if cuda or step != "transfer"]
    took = {step: seconds(step, options) for step in steps}
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    if not cuda:
        say("No CUDA device here: this is a rehearsal on the CPU.")
    ahead = ", ".join(f"{step} {words.show(took[step])}" for step in steps)
    say(f"Ahead, by estimate: {ahead}; about {words.show(sum(took.values()))} in all.")
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    worst = 0
    for step in steps:
        if worst != INTERRUPTED:
            status = _do(step, options, out, console)
            say(f"{step}: {f'FAILED with status {status}' if status else 'done'}; kept in {out / step}.tar.gz")
            worst = max(worst, status)
    return worst


def seconds(step: str, options: SweepOptions) -> float:
    """Predict how long a step takes, in seconds; a sweep's plan is made, which refuses what was mistyped."""
    if step not in PROFILES:
        return SECONDS[step]
    local = request.make(replace(options, profile=PROFILES[step]))
    sweep.require_a_block(local)
    return PACKING_S + (local.plan.matrix.budget_s or local.plan.blocks * local.plan.block_s)


def commands(step: str, options: SweepOptions, out: Path) -> Iterator[tuple[str, ...]]:
    """What a step runs, one after the other: arguments of this Python."""
    if step == "probe":
        yield "-m", "feedrate.trial.device_probe", str(out / "probe.json")
    elif step == "tests":
        yield _PYTEST
    elif step == "hook":
        images = str(options.data_root.absolute() / "hook-images")
        yield SCRIPT, images, "--make"
        for workers in (FEW, MANY):
            kept = ("--results", str(out / "results"), "--json", str(out / f"hook-{workers}.json"))
            asked = ("-m", "feedrate", "run", "--headspace", "--name", f"resnet18-j{workers}")
            yield *asked, *kept, "--", sys.executable, SCRIPT, images, "-j", str(workers)
    else:
        sweeps = replace(options, profile=PROFILES[step], results=out / "results", archive=out / f"{step}.tar.gz")
        yield "-m", "feedrate", "sweep", *sweeps.arguments()
        yield "-m", "feedrate", "validate", str(out / "results")


def _do(step: str, options: SweepOptions, out: Path, console: Console) -> int:
    """Run a step's commands until one fails, and pack what it left, however it ends; a sweep packs its run itself."""
    printed = out / f"{step}.txt"
    printed.unlink(missing_ok=True)
    for command in commands(step, options, out):
        try:
            status = run_command(printed, command)
        finally:
            if step not in PROFILES:
                left = [*out.glob(f"{step}*.json"), printed, *([out / "results"] if step == "hook" else [])]
                archive.pack(out / f"{step}.tar.gz", {path.name: path for path in left if path.exists()})
        if status:
            return status
    if step == "hook":
        console.print(forecast(out), soft_wrap=True)
    return 0


def forecast(out: Path) -> str:
    """Hold what the run with few workers predicted for many against the run with many."""
    few, many = (json.loads((out / f"hook-{workers}.json").read_bytes()) for workers in (FEW, MANY))
    rates = {other["num_workers"]: other["steps_per_s"] for other in (few["predictions"] or {}).get("others", ())}
    if MANY not in rates or not many["pacing"]:
        return f"No forecast for {MANY} workers: too few steps were seen, or there are too few cores."
    forecast, ran = rates[MANY], many["pacing"]["steps_per_s"]["value"]
    low, value, high = (words.number(forecast[name]) for name in ("lo", "value", "hi"))
    return (
        f"From the run with {FEW} workers, {MANY} give {value} steps/s ({low}–{high}). "
        f"The run with {MANY} gave {words.number(ran)}: forecast ÷ run is {forecast['value'] / ran:.2f}."
    )


def run_command(printed: Path, command: tuple[str, ...]) -> int:
    """Run a Python; what it prints is shown and added to a file as it comes. Nothing that it started outlives this."""
    linux.adopt_orphans()  # to see them end
    with subprocess.Popen(["tee", "-a", printed], stdin=subprocess.PIPE, start_new_session=True) as tee:
        process = subprocess.Popen(
            [sys.executable, "-u", *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=tee.stdin,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(linux.die_with_parent, os.getpid()),  # noqa: PLW1509 - this process has one thread
        )
        try:
            status = process.wait()
        finally:
            _end(process)
    return INTERRUPTED if status < 0 else status


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask what is left of a process' group to end, wait while it writes and removes what it made, and kill it then."""
    until = time.monotonic() + GRACE_S
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < until:
            process.poll()
            with suppress(ChildProcessError):
                while os.waitpid(-process.pid, os.WNOHANG)[0]:
                    pass  # who has ended belongs to the group until somebody asks
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
