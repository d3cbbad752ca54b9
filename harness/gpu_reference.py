"""One command for a machine with a GPU: what only CUDA can test, then a run, then the run held against the rules.

It takes the Python that is there, with the torch that drives the card: no ``.venv``, no network. What measuring needs
must be installed; storage formats whose packages are not are left out of the plan, which says so. Without a CUDA device
the same command is a rehearsal: the tests are skipped and the run is one of the CPU.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness import here, plan_report, screen, sweep
from harness.errors import EnvironmentFault
from harness.probes import gpu
from harness.registry import ROOT
from harness.store import StoredRun

TESTS = "tests/test_cuda.py"
SAID = "tests.txt"
"""A file beside the results that holds what the tests printed."""
NEEDED = {
    "torch": "torch",
    "torchvision": "torchvision",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "psutil": "psutil",
    "scipy": "scipy",
}
"""What measuring and checking import beyond this command itself: import name → name that pip installs."""
_PYTEST = ("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestConfigWarning", TESTS)


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
    def good(self) -> bool:
        """Whether nothing failed; tests that could not be run are no failure, but are said."""
        finished = self.run is not None and self.run.manifest.stop_reason != "interrupted"
        return not self.tests and finished and self.valid


def make(options: here.Options, out: Path, console: Console) -> Outcome:
    """Test, sweep and validate.

    Args:
        options: of the sweep; its results go below ``out``.
        out: gets ``results/`` and ``tests.txt``.
        console: where all is told.

    Raises:
        EnvironmentFault: this Python lacks what measuring needs.
        FeedrateError: the sweep cannot begin or go on.
    """
    lacks_nothing(NEEDED)
    from harness import report, report_validate  # which load packages that may have been lacking

    if gpu.device() != "cuda":
        console.print("No CUDA device here: this is a rehearsal on the CPU.")
    out.mkdir(parents=True, exist_ok=True)
    tests = run_tests(out / SAID, console.print, _PYTEST)
    planned = here.make(options)
    plan_report.show(planned, console)
    with screen.TerminalScreen(console) as terminal:
        run = sweep.run(planned, terminal)
    if run is None:
        console.print("Interrupted before a trial had ended: nothing was written.")
        return Outcome(tests, None, valid=False)
    report.show(run, console)
    console.print("\nHeld against the rules that every published run keeps to:")
    valid = all(one.valid for one in report_validate.validate([run.folder], options.results, console))
    console.print(_next(run, out), markup=False, highlight=False, soft_wrap=True)
    return Outcome(tests, run, valid)


def lacks_nothing(needed: dict[str, str]) -> None:
    """Look whether packages are there, without loading them.

    Args:
        needed: import name → name that pip installs.

    Raises:
        EnvironmentFault: some are not.
    """
    lacking = [pip for module, pip in needed.items() if importlib.util.find_spec(module) is None]
    if lacking:
        raise EnvironmentFault(
            f"{sys.executable}: lacks {', '.join(lacking)}; expected a Python that can train with PyTorch and write "
            f"parquet. Type: {sys.executable} -m pip install {' '.join(lacking)}, or name another one (PYTHON=)"
        )


def run_tests(said: Path, tell: Callable[[str], None], command: Sequence[str]) -> int | None:
    """Run what only CUDA can test; keep what it prints and tell its last line.

    Args:
        said: a file that gets what it printed.
        tell: called with a line for the user.
        command: arguments for this Python.

    Returns:
        The exit status; None where pytest is not installed.
    """
    if importlib.util.find_spec("pytest") is None:
        tell("The tests of the CUDA paths are not run: this Python has no pytest.")
        return None
    tell(f"Testing the CUDA paths ({TESTS}) ...")
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    said.write_text(done.stdout, encoding="utf-8")
    last = next(filter(None, reversed(done.stdout.splitlines())), "they printed nothing")
    tell(f"Tests: {last}" if not done.returncode else f"Tests FAILED: {last} (all of it: {said})")
    return done.returncode


def _next(run: StoredRun, out: Path) -> str:
    machine = run.manifest.machine.machine_id
    return (
        f"\nCopy {out}/results/{machine} into the results/ folder of a checkout: make site shows it there, and\n"
        f"make submit RUN={run.manifest.run_id} publishes it."
    )
