"""One command for a machine with a GPU: what only CUDA can test, then a run, then the run held against the rules.

It takes the Python that is there, with the torch that drives the card: no ``.venv``, no network. What measuring needs
must be installed; storage formats whose packages are not are left out of the plan, which says so. Without a CUDA device
the same command is a rehearsal: the tests are skipped and the run is one of the CPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console

from harness import here, plan_report, screen, sweep
from harness.errors import EnvironmentFault
from harness.registry import ROOT
from harness.store import StoredRun

TESTS = "tests/test_cuda.py"
SAID = "tests.txt"
"""A file beside the results that holds what the tests printed."""
NEEDED = {
    "torch": "torch",
    "torchvision": "torchvision",
    "numpy": "numpy",
    "PIL": "pillow",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "psutil": "psutil",
    "scipy": "scipy",
}
"""What measuring and checking import beyond this command itself: import name → name that pip installs."""
LEAST = {"torch": (2, 11)}
"""Package → the oldest version (major, minor) that feedrate works with."""
NVML = "libnvidia-ml.so.1"
"""The library of NVIDIA's driver that is asked for GPUs."""
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


def make(options: here.Options, out: Path, console: Console) -> Outcome:
    """Plan, test, sweep and validate; a mistake in what was typed is told before the GPU's time is used.

    Args:
        options: of the sweep; its results go below ``out``.
        out: gets ``results/`` and ``tests.txt``.
        console: where all is told.

    Raises:
        EnvironmentFault: this Python lacks what measuring needs, or has it too old.
        InputError: the matrix or an option cannot be used.
        FeedrateError: the sweep cannot begin or go on.
    """
    lacks_nothing(needed())
    new_enough(LEAST)
    from harness import report, report_validate  # which load packages that may have been lacking

    planned = here.make(options)
    sweep.has_room(planned)
    if planned.plan.place.device != "cuda":
        console.print("No CUDA device here: this is a rehearsal on the CPU.")
    plan_report.show(planned, console)
    out.mkdir(parents=True, exist_ok=True)
    tests = run_tests(out / SAID, console.print, _PYTEST)
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


def needed() -> dict[str, str]:
    """Say what must be installed here: ``NEEDED``, and what asks NVML where there is an NVIDIA driver.

    A machine with a driver and without pynvml would be taken, and recorded, for one without a GPU. Where there is no
    driver pynvml has nothing to ask, and a rehearsal does without it.

    Returns:
        Import name → name that pip installs.
    """
    try:
        ctypes.CDLL(NVML)
    except OSError:
        return NEEDED
    return NEEDED | {"pynvml": "nvidia-ml-py"}


def lacks_nothing(needed: Mapping[str, str]) -> None:
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


def new_enough(least: Mapping[str, tuple[int, int]]) -> None:
    """Look whether packages are as new as they must be, without loading them; one that names no version passes.

    Args:
        least: package → oldest version that will do, (major, minor).

    Raises:
        EnvironmentFault: one is older.
    """
    for name, (major, minor) in least.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        number = re.match(r"(\d+)\.(\d+)", found)
        if number and (int(number[1]), int(number[2])) < (major, minor):
            raise EnvironmentFault(
                f"{sys.executable}: has {name} {found}; expected {major}.{minor} or newer. Type: {sys.executable} -m "
                f"pip install '{name}>={major}.{minor}', or name another Python (PYTHON=)"
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
