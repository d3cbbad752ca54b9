"""What starts a sweep on a node: Slurm, or this machine, both through submitit.

Every node has a job of its own that names it: a job that is started anew, as its node died or was taken from it, goes
on where its journal lies, and no node is measured twice. (An array's tasks run on whatever node is free.)
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from feedrate.plan.options import SweepOptions
from feedrate.schema import words
from feedrate.schema.errors import EnvironmentFault, InputError, expected_one_of

_UP = ("idle", "mixed", "allocated", "completing")
"""States of nodes that run jobs, those first that can begin at once."""
_LEAVES_S = 2.0
"""How long a process of this machine has to end by itself."""


class Slurm:
    """Jobs of one exclusive node each."""

    def __init__(self, options: SweepOptions, minutes: int, jobs: Path) -> None:
        if not shutil.which("sinfo"):
            raise InputError("--on slurm: sinfo is not there; type the command on a node that submits jobs to Slurm")
        self._options = options
        self.host = socket.gethostname()
        """Under which nodes reach this machine."""
        given = {name: getattr(options, name) for name in ("partition", "constraint", "account")}
        asked = {f"slurm_{name}": value for name, value in given.items() if value}
        self._executor = _executor("slurm", jobs)
        self._executor.update_parameters(timeout_min=minutes, name="feedrate", slurm_exclusive=True, **asked)
        self._ids: list[str] = []
        self._states: dict[str, str] = {}

    def nodes(self) -> list[str]:
        """Choose the nodes that can begin first, by name.

        Raises:
            InputError: there are fewer than were asked for.
        """
        partition, constraint = self._options.partition, self._options.constraint
        wanted = {feature.strip() for feature in constraint.split("&")} - {""}
        able: dict[str, int] = {}
        where = ["-p", partition] if partition else []
        for line in _ask("sinfo", "-h", "-N", "-o", "%N %T %f", *where).splitlines():
            name, state, features = line.split()
            if state in _UP and wanted <= set(features.split(",")):
                able.setdefault(name, _UP.index(state))
        if len(able) < self._options.nodes:
            which = f" ({' '.join(filter(None, [partition, constraint]))})" if partition or constraint else ""
            there = f"Slurm has {words.plural(len(able), 'such node')} that can run jobs{which}"
            expected = "expected as many as are asked for: sinfo lists them"
            raise InputError(f"--nodes {self._options.nodes}: {there}; {expected}")
        return sorted(sorted(able, key=lambda name: able[name])[: self._options.nodes])

    def submit(self, name: str, call: Callable[[], object]) -> str:
        """Have a node call something: the job's id."""
        self._executor.update_parameters(slurm_additional_parameters={"nodelist": name, "requeue": True})
        try:
            self._ids.append(str(self._executor.submit(call).job_id))
        except Exception as error:  # submitit's own, of a version that may differ
            self.cancel()
            refused = f"Slurm refused a job for {name}: {error}"
            raise EnvironmentFault(f"{refused}; mend the options and try again") from error
        return self._ids[-1]

    def states(self) -> dict[str, str]:
        """Jobs that wait (PENDING) or run, by id, as squeue lists them or, where it does not answer, as it last did."""
        with suppress(EnvironmentFault):
            self._states = dict(line.split() for line in _ask("squeue", "--me", "-h", "-o", "%i %T").splitlines())
        return {job: self._states[job] for job in self._ids if job in self._states}

    def cancel(self) -> None:
        """Cancel the jobs that are left."""
        if self._ids:
            subprocess.run(["scancel", "-Q", *self._ids], check=False, capture_output=True)


class Local:
    """Processes of this machine in the place of nodes: they measure each other."""

    def __init__(self, options: SweepOptions, minutes: int, jobs: Path) -> None:
        self._count, self.host = options.nodes, "127.0.0.1"
        self._executor = _executor("local", jobs)
        self._executor.update_parameters(timeout_min=minutes)
        self._jobs: dict[str, Any] = {}

    def nodes(self) -> list[str]:
        """Name as many as were asked for."""
        return [f"local{number}" for number in range(self._count)]

    def submit(self, name: str, call: Callable[[], object]) -> str:  # noqa: ARG002 - every node is this machine
        """Start a process: its id."""
        job = self._executor.submit(call)
        self._jobs[str(job.job_id)] = job
        return str(job.job_id)

    def states(self) -> dict[str, str]:
        """Processes that have not ended."""
        return {name: "RUNNING" for name, job in self._jobs.items() if not job.done()}

    def cancel(self) -> None:
        """End the processes that are left; those that have just told that they ended are on their way out."""
        until = time.monotonic() + _LEAVES_S
        while self.states() and time.monotonic() < until:
            time.sleep(_LEAVES_S / 20)
        for job in self._jobs.values():
            if not job.done():
                job.cancel()


Engine = Slurm | Local
ENGINES: dict[str, Callable[[SweepOptions, int, Path], Engine]] = {"slurm": Slurm, "local": Local}


def make(options: SweepOptions, minutes: int, jobs: Path) -> Engine:
    """Make the engine that was asked for; what jobs run and print lies in a folder that all nodes see.

    Raises:
        InputError: there is no such engine, or it is not there.
    """
    if not options.on:
        raise InputError("--together: nodes of a cluster sweep together; expected --on slurm --nodes 4 beside it")
    if options.on not in ENGINES:
        raise InputError(f"--on: unknown engine '{options.on}'; {expected_one_of(options.on, ENGINES)}")
    if options.nodes < 1:
        raise InputError(f"--nodes {options.nodes}: expected one node or more")
    return ENGINES[options.on](options, minutes, jobs)


def _executor(engine: str, jobs: Path) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise InputError(f"--on {engine} needs submitit (pip install submitit)") from error
    return submitit.AutoExecutor(jobs, cluster=engine)


def _ask(*command: str) -> str:
    """What a command of Slurm's prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        ended = f"{command[0]} ended with status {done.returncode}: {done.stderr.strip()}"
        raise EnvironmentFault(f"{ended}; expected a Slurm that answers")
    return done.stdout
