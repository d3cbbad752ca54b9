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
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from feedrate import __version__
from feedrate.machine import linux
from feedrate.plan import report as plan_report
from feedrate.plan import request as plan_local
from feedrate.questions.summary import terminal as summary_terminal
from feedrate.schema import words
from feedrate.schema.plugins import ROOT
from feedrate.share import terminal as share_terminal
from feedrate.store.runs import StoredRun
from feedrate.sweep import screen, sweep

TESTS = "tests/test_cuda.py"
SAID = "tests.txt"
"""A file beside the results that holds what the tests printed, and in its last line for what they passed."""
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a reference run."""

    tests: int | None
    """Exit status of the tests; None where pytest is not installed."""
    run: StoredRun | None
    """None if it was interrupted before a trial had ended."""
    valid: bool
    """Whether it keeps to every rule."""

    @property
    def interrupted(self) -> bool:
        """Whether somebody stopped the sweep."""
        return self.run is None or self.run.manifest.stop_reason == "interrupted"

    @property
    def good(self) -> bool:
        """Whether something was measured and nothing failed; tests that could not be run are said, and no failure."""
        measured = self.run is not None and bool(self.run.manifest.outcomes.get("ok"))
        return not self.tests and measured and not self.interrupted and self.valid

    @property
    def exit_status(self) -> int:
        """What the command ends with."""
        return 130 if self.interrupted else 0 if self.good else 1


def make(options: plan_local.Options, out: Path, console: Console) -> Outcome:
    """Plan, test, sweep and validate; a mistake in what was typed is told before the GPU's time is used.

    Raises:
        InputError: the matrix or an option cannot be used.
        FeedrateError: the sweep cannot begin or go on.
    """
    planned = plan_local.make(options)
    sweep.require_a_block(planned)
    if planned.plan.place.device != "cuda":
        console.print("No CUDA device here: this is a rehearsal on the CPU.")
    plan_report.show(planned, console)
    out.mkdir(parents=True, exist_ok=True)
    tests = _tested(planned, out / SAID, lambda line: console.print(line, markup=False, soft_wrap=True))
    with screen.TerminalScreen(console) as terminal:
        run = sweep.run(planned, terminal)
    if run is None:
        console.print("Interrupted before a trial had ended: nothing was written.")
        return Outcome(tests, None, valid=False)
    console.print("Held against the rules that every published run keeps to:")
    valid = all(one.valid for one in share_terminal.validate([run.folder], options.results, console))
    try:
        summary_terminal.show(run, console)
    finally:  # a summary that fails takes nothing away from a run that is stored
        console.print(_next(run, out), markup=False, highlight=False, soft_wrap=True)
    return Outcome(tests, run, valid)


def _tested(planned: plan_local.LocalPlan, said: Path, tell: Callable[[str], None]) -> int | None:
    """Say how long it all takes, and test the CUDA paths unless they passed here before."""
    plan = planned.plan
    what = f"feedrate {__version__}, torch {planned.software.torch}, {planned.machine.machine_id}"
    passed = f"Passed: {what}" if plan.place.device == "cuda" else None
    before = passed is not None and passed_before(said, passed)
    tests_s = TESTS_S if passed and not before else 0
    sweep_s = plan.matrix.budget_s or plan.blocks * plan.block_s
    tell(
        f"Ahead: {f'tests of the CUDA paths ({words.show(tests_s)}), ' if tests_s else ''}packing the samples, "
        f"the sweep ({words.show(sweep_s)}): about {words.show(tests_s + PACKING_S + sweep_s)} in all."
    )
    if before:
        tell(f"The tests of the CUDA paths passed before ({what}): delete {said} to repeat them.")
        return 0
    return run_tests(said, tell, _PYTEST, passed)


def passed_before(said: Path, passed: str) -> bool:
    """Whether the last line of a file says that the tests passed."""
    with suppress(FileNotFoundError):
        return said.read_text(encoding="utf-8").splitlines()[-1:] == [passed]
    return False


def run_tests(said: Path, tell: Callable[[str], None], command: Sequence[str], passed: str | None = None) -> int | None:
    """Run what only CUDA can test; keep what it prints and tell its last line."""
    if importlib.util.find_spec("pytest") is None:
        tell("The tests of the CUDA paths are not run: this Python has no pytest.")
        return None
    tell(f"Testing the CUDA paths ({TESTS}) ...")
    status, printed = _printed([sys.executable, *command])
    said.write_text(printed + (f"{passed}\n" if passed and not status else ""), encoding="utf-8")
    last = next(filter(None, reversed(printed.splitlines())), "they printed nothing")
    tell(f"Tests: {last}" if not status else f"Tests FAILED: {last} (all of it: {said})")
    return status


def _printed(command: Sequence[str]) -> tuple[int, str]:
    """Run a command in a group of its own: however this process is made to stop, nothing that it started goes on."""
    linux.adopt_orphans()  # to see them end
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate()
        finally:
            _end(process)
    return process.returncode, printed


def _end(process: subprocess.Popen[str]) -> None:
    """Ask what is left of a process's group to end, wait while it removes what it made, and kill it then."""
    with suppress(ProcessLookupError):
        try:
            os.killpg(process.pid, signal.SIGTERM)
            until = time.monotonic() + GRACE_S
            while time.monotonic() < until:
                with suppress(ChildProcessError):
                    while os.waitpid(-process.pid, os.WNOHANG)[0]:
                        pass  # who has ended belongs to the group until somebody asks
                os.killpg(process.pid, 0)
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _next(run: StoredRun, out: Path) -> str:
    machine = run.manifest.machine.machine_id
    return (
        f"\nCopy {out}/results/{machine} into the results/ folder of a checkout: make site shows it there, and\n"
        f"make submit RUN={run.manifest.run_id} publishes it."
    )
