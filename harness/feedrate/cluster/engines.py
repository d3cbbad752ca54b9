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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from feedrate.schema import words
from feedrate.schema.errors import EnvironmentFault, InputError, expected_one_of

_UP = ("idle", "mixed", "allocated", "completing")
"""States of nodes that run jobs, those first that can begin at once."""
_LEAVES_S = 2.0
"""How long a process of this machine has to end by itself."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks of a cluster."""

    engine: str
    """slurm or local."""
    nodes: int
    time: str = ""
    """Wall clock that a job may take, such as 2h; empty is as long as its sweep needs."""
    partition: str = ""
    constraint: str = ""
    """A feature of nodes, or several joined by ``&``."""
    account: str = ""
    together: bool = False
    """Whether trials run on several nodes at the same moment."""


class Engine(Protocol):
    """Starts jobs on nodes."""

    host: str
    """Under which nodes reach this machine."""
    one_machine: bool
    """Whether all nodes are this one."""

    def nodes(self) -> list[str]:
        """Choose the nodes, by name.

        Raises:
            InputError: there are fewer than were asked for.
        """

    def submit(self, name: str, call: Callable[[], object]) -> str:
        """Have a node call something: the job's id."""

    def states(self) -> dict[str, str]:
        """Jobs that wait (PENDING) or run, id to the engine's word for it; one that has ended is missing."""

    def cancel(self) -> None:
        """End all jobs that were submitted."""


class Slurm:
    """Jobs of one exclusive node each."""

    def __init__(self, asked: Asked, minutes: int, jobs: Path) -> None:
        if not shutil.which("sinfo"):
            raise InputError("--on slurm: sinfo is not there; type the command on a node that submits jobs to Slurm")
        self._asked = asked
        given = {"partition": asked.partition, "constraint": asked.constraint, "account": asked.account}
        options = {f"slurm_{name}": value for name, value in given.items() if value}
        self._executor = _executor("slurm", jobs)
        self._executor.update_parameters(timeout_min=minutes, name="feedrate", slurm_exclusive=True, **options)
        self.host, self.one_machine = socket.gethostname(), False
        self._ids: list[str] = []
        self._states: dict[str, str] = {}

    def nodes(self) -> list[str]:
        """Choose the nodes that can begin first."""
        where = ["-p", self._asked.partition] if self._asked.partition else []
        wanted = {feature.strip() for feature in self._asked.constraint.split("&")} - {""}
        found: dict[str, int] = {}
        for line in _told("sinfo", "-h", "-N", "-o", "%N %T %f", *where).splitlines():
            name, state, features = line.split()
            if state in _UP and wanted <= set(features.split(",")):
                found.setdefault(name, _UP.index(state))
        if len(found) < self._asked.nodes:
            which = " ".join(filter(None, [self._asked.partition, self._asked.constraint]))
            raise InputError(
                f"--nodes {self._asked.nodes}: Slurm has {words.plural(len(found), 'such node')} that can run jobs"
                f"{f' ({which})' if which else ''}; expected as many as are asked for: sinfo lists them"
            )
        return sorted(sorted(found, key=lambda name: found[name])[: self._asked.nodes])

    def submit(self, name: str, call: Callable[[], object]) -> str:
        """Submit a job for a node."""
        self._executor.update_parameters(slurm_additional_parameters={"nodelist": name, "requeue": True})
        try:
            self._ids.append(str(self._executor.submit(call).job_id))
        except Exception as error:  # submitit's own, of a version that may differ
            self.cancel()
            raise EnvironmentFault(
                f"Slurm refused a job for {name}: {error}; mend the options and try again"
            ) from error
        return self._ids[-1]

    def states(self) -> dict[str, str]:
        """Jobs that squeue lists; where it does not answer, those that it listed before."""
        with suppress(EnvironmentFault):
            self._states = dict(line.split() for line in _told("squeue", "--me", "-h", "-o", "%i %T").splitlines())
        return {job: self._states[job] for job in self._ids if job in self._states}

    def cancel(self) -> None:
        """Cancel the jobs that are left."""
        if self._ids:
            subprocess.run(["scancel", "-Q", *self._ids], check=False, capture_output=True)


class Local:
    """Processes of this machine in the place of nodes: they measure each other."""

    def __init__(self, asked: Asked, minutes: int, jobs: Path) -> None:
        self._asked, self.host, self.one_machine = asked, "127.0.0.1", True
        self._executor = _executor("local", jobs)
        self._executor.update_parameters(timeout_min=minutes)
        self._jobs: dict[str, Any] = {}

    def nodes(self) -> list[str]:
        """Name as many as were asked for."""
        return [f"local{number}" for number in range(self._asked.nodes)]

    def submit(self, name: str, call: Callable[[], object]) -> str:  # noqa: ARG002 - every node is this machine
        """Start a process."""
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


ENGINES: dict[str, Callable[[Asked, int, Path], Engine]] = {"slurm": Slurm, "local": Local}


def make(asked: Asked, minutes: int, jobs: Path) -> Engine:
    """Make the engine that was asked for.

    Args:
        asked: by the command line.
        minutes: that a job may take; one that is cut off is started anew and goes on.
        jobs: a folder that all nodes see, for what jobs run and print.

    Raises:
        InputError: there is no such engine, or it is not there.
    """
    if not asked.engine:
        raise InputError("--together: nodes of a cluster sweep together; expected --on slurm --nodes 4 beside it")
    if asked.engine not in ENGINES:
        raise InputError(f"--on: unknown engine '{asked.engine}'; {expected_one_of(asked.engine, ENGINES)}")
    if asked.nodes < 1:
        raise InputError(f"--nodes {asked.nodes}: expected one node or more")
    return ENGINES[asked.engine](asked, minutes, jobs)


def _executor(engine: str, jobs: Path) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise InputError(f"--on {engine} needs submitit (pip install submitit)") from error
    return submitit.AutoExecutor(jobs, cluster=engine)


def _told(*command: str) -> str:
    """What a command of Slurm's prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentFault(
            f"{command[0]} ended with status {done.returncode}: {done.stderr.strip()}; expected a Slurm that answers"
        )
    return done.stdout
