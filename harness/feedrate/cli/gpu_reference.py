"""One command for a machine with a GPU, in steps that each fit ten minutes of a machine that is borrowed.

First a look at the device and its software, then what only CUDA can test, then a run of the profile gpu, then the
claims about transfer: all in a row, or one at a time. Each step leaves one archive of what it found; runs are held
against the rules first.

It takes the Python that is there, with the torch that drives the card: no ``.venv``, no network. What measuring needs
must be installed; storage formats whose packages are not are left out of the plan, which says so. Without a CUDA device
the same command is a rehearsal: the tests are skipped and the run is one of the CPU.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from feedrate.machine import linux
from feedrate.machine.probes import gpu
from feedrate.plan import request
from feedrate.questions.summary import terminal as summary_terminal
from feedrate.schema import words
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.schema.plugins import ROOT
from feedrate.share import terminal as share_terminal
from feedrate.store.runs import StoredRun
from feedrate.sweep import screen, sweep

STEPS = ("probe", "tests", "reference", "transfer")
"""In the order in which they tell most: each is worth little where one before it fails."""
SWEEPS = ("reference", "transfer")
"""Steps that sweep: the first the profile that is asked for, the other the profile of its name, which needs CUDA."""
TESTS = "tests/test_cuda.py"
FOUND = "probe.json"
"""A file beside the results: what the look at the device found. What a step printed is in one of its name."""
PROBE_S, TESTS_S = 60, 240
"""About how long a look and the tests take on a GPU, in seconds: most of the latter goes to their two sweeps."""
PACKING_S = 60
"""Allowed for importing torch and packing the samples, before the budget begins to run, in seconds."""
GRACE_S = 10.0
"""How long what the tests started may take to remove what it made, when they are interrupted."""
INTERRUPTED = 130
_PROBE = ("-m", "feedrate.trial.device_probe")
_PYTEST = (
    *("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"),
    # What another torch or pandas deprecates says nothing of CUDA, and a GPU that is slow fails no test.
    *("-W", "default", "-W", "ignore::pytest.PytestConfigWarning", "-o", "timeout=0"),
    TESTS,
)


def make(options: request.Options, out: Path, console: Console, step: str = "") -> int:
    """Do one step, or all that this machine can; what was mistyped is reported before the GPU's time is used.

    Returns:
        The exit status: 130 after an interrupt, 0 where something was measured and nothing failed, else 1.
    """
    if step and step not in STEPS:
        raise InputError(f"--step: got '{step}'; {expected_one_of(step, STEPS)}")
    cuda = gpu.device() == "cuda"
    steps = (step,) if step else STEPS if cuda else STEPS[:-1]
    plans = {name: _planned(options, name) for name in steps if name in SWEEPS}
    say = partial(console.print, markup=False, soft_wrap=True)
    if not cuda:
        say("No CUDA device here: this is a rehearsal on the CPU.")
    for local in plans.values():
        request.show(local, console)
    say(ahead(steps, plans, cuda=cuda))
    out.mkdir(parents=True, exist_ok=True)
    statuses = []
    for name in steps:
        statuses.append(_do(name, plans.get(name), out, console, say))
        if statuses[-1] == INTERRUPTED:
            return INTERRUPTED
    return max(statuses)


def _planned(options: request.Options, step: str) -> request.LocalPlan:
    """The plan of a step that sweeps."""
    local = request.make(options if step == SWEEPS[0] else replace(options, profile=step))
    sweep.require_a_block(local)
    return local


def _do(step: str, local: request.LocalPlan | None, out: Path, console: Console, say: Callable[[str], None]) -> int:
    """Do a step, and pack what it left."""
    if local:
        return _measure(step, local, out, console, say)
    if step == "tests" and importlib.util.find_spec("pytest") is None:
        say("The tests of the CUDA paths are not run: this Python has no pytest.")
        return 0
    printed, found = out / f"{step}.txt", out / FOUND
    if step == "tests":
        say(f"Testing the CUDA paths ({TESTS}) ...")
        status = run_command(printed, say, _PYTEST)
        archive = pack(out, step, printed)
    else:
        say("Looking at the device and its software ...")
        status = run_command(printed, say, (*_PROBE, str(found.resolve())))
        archive = pack(out, step, printed, *filter(Path.exists, (found,)))
    say(f"Kept in {archive}.")
    return int(bool(status))


def _measure(step: str, local: request.LocalPlan, out: Path, console: Console, say: Callable[[str], None]) -> int:
    """Sweep, hold the run against the rules, pack and show it."""
    with screen.TerminalScreen(console) as terminal:
        run = sweep.run(local, terminal)
    if run is None:
        say("Interrupted before a trial had ended: nothing was written.")
        return INTERRUPTED
    say("Held against the rules that every published run keeps to:")
    valid = all(one.valid for one in share_terminal.validate([run.folder], local.options.results, console))
    archive = pack(out, step, run.folder)
    try:
        summary_terminal.show(run, console)
    finally:  # a summary that fails takes nothing away from a run that is stored
        say(
            f"\nUnpack {archive} in a checkout (tar -xf): make site shows the run there, and make submit "
            f"RUN={run.manifest.run_id} publishes it."
        )
    return exit_status(run, valid=valid)


def exit_status(run: StoredRun, *, valid: bool) -> int:
    """What a sweep ends with: 130 for an interrupt, 0 where something was measured and all rules are kept, else 1."""
    if run.manifest.stop_reason == "interrupted":
        return INTERRUPTED
    return 0 if run.manifest.outcomes.get("ok") and valid else 1


def ahead(steps: Sequence[str], plans: dict[str, request.LocalPlan], *, cuda: bool) -> str:
    """Say how long each step takes, and all of them."""
    seconds = {name: step_s(name, plans.get(name)) if cuda or name in plans else 0.0 for name in steps}
    each = ", ".join(f"{name} {words.show(took)}" for name, took in seconds.items() if took)
    return f"Ahead, by estimate: {each or 'a rehearsal'}; about {words.show(sum(seconds.values()))} in all."


def step_s(step: str, local: request.LocalPlan | None) -> float:
    """Predict how long a step takes on a GPU, in seconds; a sweep with packing the samples."""
    if local is None:
        return TESTS_S if step == "tests" else PROBE_S
    plan = local.plan
    return PACKING_S + (plan.matrix.budget_s or plan.blocks * plan.block_s)


def pack(out: Path, step: str, *found: Path) -> Path:
    """Put what a step left into one archive, without who owns it; a run lies in it as in a checkout's ``results/``."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    archive = out / f"{step}.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for path in found:
            packed.add(path, path.relative_to(out), filter=anonymous)
    return archive


def run_command(printed: Path, say: Callable[[str], None], command: Sequence[str]) -> int:
    """Run a Python in a group of its own; keep what it prints and say its last line.

    However this process is made to stop, nothing that it started goes on.
    """
    linux.adopt_orphans()  # to see them end
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate()
        finally:
            _end(process.pid)
    printed.write_text(text, encoding="utf-8")
    last = next(filter(None, reversed(text.splitlines())), "nothing was printed")
    say(f"Done: {last}" if not process.returncode else f"FAILED: {last} (all of it: {printed})")
    return process.returncode


def _end(group: int) -> None:
    """Ask what is left of a process group to end, wait while it removes what it made, and kill it then."""
    with suppress(ProcessLookupError):
        try:
            os.killpg(group, signal.SIGTERM)
            until = time.monotonic() + GRACE_S
            while time.monotonic() < until:
                with suppress(ChildProcessError):
                    while os.waitpid(-group, os.WNOHANG)[0]:
                        pass  # who has ended belongs to the group until somebody asks
                os.killpg(group, 0)
                time.sleep(0.05)
        finally:
            os.killpg(group, signal.SIGKILL)
