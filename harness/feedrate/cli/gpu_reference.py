"""One command for a machine with a GPU: what only CUDA can test, then a run, then the run held against the rules.

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
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from rich.console import Console

from feedrate.machine import linux
from feedrate.plan import request
from feedrate.questions.summary import terminal as summary_terminal
from feedrate.schema import words
from feedrate.schema.plugins import ROOT
from feedrate.share import terminal as share_terminal
from feedrate.store.runs import StoredRun
from feedrate.sweep import screen, sweep

TESTS = "tests/test_cuda.py"
PRINTED = "tests.txt"
"""A file beside the results: what the tests printed."""
TESTS_S = 240
"""About how long the tests take on a GPU, in seconds: most of it goes to their two sweeps."""
PACKING_S = 60
"""Allowed for importing torch and packing the samples, before the budget begins to run, in seconds."""
GRACE_S = 10.0
"""How long what the tests started may take to remove what it made, when they are interrupted."""
_PYTEST = (
    *("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"),
    # What another torch or pandas deprecates says nothing of CUDA, and a GPU that is slow fails no test.
    *("-W", "default", "-W", "ignore::pytest.PytestConfigWarning", "-o", "timeout=0"),
    TESTS,
)


def make(options: request.Options, out: Path, console: Console) -> int:
    """Plan, test, sweep and validate; a mistake in what was typed is reported before the GPU's time is used."""
    local = request.make(options)
    sweep.require_a_block(local)
    if local.plan.place.device != "cuda":
        console.print("No CUDA device here: this is a rehearsal on the CPU.")
    request.show(local, console)
    out.mkdir(parents=True, exist_ok=True)
    say = partial(console.print, markup=False, soft_wrap=True)
    tests = check_cuda(local, out / PRINTED, say)
    with screen.TerminalScreen(console) as terminal:
        run = sweep.run(local, terminal)
    if run is None:
        console.print("Interrupted before a trial had ended: nothing was written.")
        return exit_status(tests, None, valid=False)
    console.print("Held against the rules that every published run keeps to:")
    valid = all(one.valid for one in share_terminal.validate([run.folder], options.results, console))
    try:
        summary_terminal.show(run, console)
    finally:  # a summary that fails takes nothing away from a run that is stored
        say(
            f"\nCopy {out}/results/{run.manifest.machine.machine_id} into the results/ folder of a checkout: make site "
            f"shows it there, and\nmake submit RUN={run.manifest.run_id} publishes it.",
            highlight=False,
        )
    return exit_status(tests, run, valid=valid)


def exit_status(tests: int | None, run: StoredRun | None, *, valid: bool) -> int:
    """What the command ends with: 130 for an interrupt, 0 where something was measured and nothing failed, else 1.

    Tests that could not be run (None) are no failure.
    """
    if run is None or run.manifest.stop_reason == "interrupted":
        return 130
    return 0 if run.manifest.outcomes.get("ok") and valid and not tests else 1


def check_cuda(local: request.LocalPlan, printed: Path, say: Callable[[str], None]) -> int | None:
    """Say how long it all takes, and test the CUDA paths; the exit status of the tests, None without pytest."""
    plan = local.plan
    tests_s = TESTS_S if plan.place.device == "cuda" else 0
    sweep_s = plan.matrix.budget_s or plan.blocks * plan.block_s
    say(
        f"Ahead: {f'tests of the CUDA paths ({words.show(tests_s)}), ' if tests_s else ''}packing the samples, "
        f"the sweep ({words.show(sweep_s)}): about {words.show(tests_s + PACKING_S + sweep_s)} in all."
    )
    if importlib.util.find_spec("pytest") is None:
        say("The tests of the CUDA paths are not run: this Python has no pytest.")
        return None
    return run_tests(printed, say, _PYTEST)


def run_tests(printed: Path, say: Callable[[str], None], command: Sequence[str]) -> int:
    """Run what only CUDA can test; keep what it prints and say its last line.

    It runs in a group of its own: however this process is made to stop, nothing that it started goes on.
    """
    say(f"Testing the CUDA paths ({TESTS}) ...")
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
    last = next(filter(None, reversed(text.splitlines())), "they printed nothing")
    say(f"Tests: {last}" if not process.returncode else f"Tests FAILED: {last} (all of it: {printed})")
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
