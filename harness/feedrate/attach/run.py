"""``feedrate run``: starts a training script as it is, watches it, and says what holds it back.

The script is a child with the terminal's own input, output and process group: what it prints, how it ends and what
signals do to it are its own. feedrate's hook comes in through ``PYTHONPATH`` (``hook/sitecustomize.py``), writes into a
folder of its own, and is read when the script has ended.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError

if TYPE_CHECKING:  # loaded while the script runs
    from feedrate.attach.facts import Outside
    from feedrate.attach.profiler import Profiler, Stack
    from feedrate.attach.records import Process, Records
    from feedrate.attach.report import Report
    from feedrate.machine.probes.host import TrialCounters
    from feedrate.machine.probes.procfs import Footprint

HOOK = Path(__file__).with_name("hook")
READS = "feedrate.attach.rows"
"""The module that loads all that reports and records a script."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (*_ENDING[1:], signal.SIGUSR1, signal.SIGUSR2)


@dataclass(slots=True)
class Watched:
    """A script that runs, and what was seen of it from outside."""

    command: Sequence[str]
    folder: Path
    """Where the hook writes."""
    process: subprocess.Popen[bytes]
    began_ns: int
    """Monotonic clock."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """Telemetry, ten a second at first."""
    counters: list[TrialCounters] = field(default_factory=list)
    """Counters of the machine and of the script's processes, two a second at first."""
    memory: list[tuple[int, dict[str, int | None]]] = field(default_factory=list)
    """(clock, columns of memory), now and then, as it takes milliseconds a process."""
    written: list[tuple[int, int]] = field(default_factory=list)
    """(clock, bytes that the script's processes have written to in memory of their own), as often."""
    footprints: dict[int, tuple[Footprint, Footprint]] = field(default_factory=dict)
    """Process to its memory as it was first and last seen."""
    interrupted: bool = False
    """Whether somebody wants it to end: Ctrl-C, or a signal that was handed on to it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A script that has ended, and what was seen of it."""

    watched: Watched
    report: Report
    returncode: int
    started_at: datetime
    parent_cpu_pct: float
    """CPU of this process while the script ran; 100 is one core."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Package to its version, of the script's own Python."""
    alone: Mapping[str, Records] = field(default_factory=dict)
    """``loop.alone`` of the loader that was reported."""
    processes: Sequence[Process] = ()
    """What the hook wrote."""
    stacks: Sequence[Stack] = ()
    """What py-spy saw."""


def run(
    command: Sequence[str],
    *,
    steps: int = 0,
    headspace: int = 0,
    lines: bool = True,
    look: Callable[[Watched], None] = lambda _: None,
    prepare: Callable[[Path], Mapping[str, str]] = lambda _: {},
    wait: Callable[[Watched], None] | None = None,
) -> Ended:
    """Run a script to its end, whatever befalls those who look at it: their errors are notes.

    It ends after so many ``steps`` (0: by itself); with ``headspace`` so many follow without the loader, and so many
    batches without the step. ``look`` is called ten times a second. ``prepare`` is given the folder that the hook
    writes into, and gives what else the script's environment holds. ``wait`` lasts ``watch.EVERY_S``, or to the end.

    Raises:
        InputError: the program cannot be started.
        EnvironmentFault: there is no place for temporary files.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="feedrate-run-", ignore_cleanup_errors=True)
    except OSError as error:
        raise EnvironmentFault(
            f"run: {error}; nothing was started; expected a folder for temporary files: TMPDIR=FOLDER"
        ) from error
    with folder as name, _forwarding() as forward:
        more = {"FEEDRATE_STEPS": str(steps), "FEEDRATE_HEADSPACE": str(headspace), **prepare(Path(name))}
        process = _start(command, name, more)
        forward.append(watched := Watched(command, Path(name), process, time.perf_counter_ns()))
        started_at, cpu_ns = datetime.now(UTC), time.process_time_ns()
        # Nothing of this holds the script up: loading it takes as long as loading torch.
        from feedrate.attach.profiler import Profiler
        from feedrate.attach.watch import wait_for_end, watch

        reading = threading.Thread(target=_load, daemon=True)
        reading.start()
        profiler = Profiler(Path(name), lines)
        notes = profiler.problems
        with noted(notes, "not watched to its end"):
            watch(watched, profiler, look, wait or wait_for_end)
        while wait and process.poll() is None:  # whoever asks is answered, though nobody looks any more
            with noted([], ""):
                wait(watched)
        returncode = process.wait()
        took_ns = time.perf_counter_ns() - watched.began_ns
        cpu_pct = 100 * (time.process_time_ns() - cpu_ns) / took_ns
        reading.join()
        from feedrate.attach import report

        used = report.usage(watched.samples)
        seen = report.Report(shlex.join(command), _status(returncode), took_ns / 1e9, machine=used, notes=notes)
        ended = Ended(watched, seen, returncode, started_at, round(cpu_pct, 2))
        with noted(notes, "no report"):
            ended = _reported(ended, profiler)
    return ended


def _load() -> None:
    """Load what reads a run; what fails here fails again where it is needed."""
    with contextlib.suppress(Exception):
        import_module(READS)


def _reported(ended: Ended, profiler: Profiler) -> Ended:
    """Read what was recorded of a script that has ended, and report it."""
    from feedrate.attach import loop, records, report

    folder = ended.watched.folder
    stacks, processes = profiler.close(), records.read(folder)
    profiler.problems.extend(_notes(folder, processes))
    ended_ns = ended.watched.began_ns + round(ended.report.took_s * 1e9)
    made = report.make(ended.report, processes, stacks, _outside(ended.watched), ended_ns)
    if made.loader and made.loader.pid != ended.watched.process.pid:
        made = replace(made, machine=report.below(made.machine))
    alone = loop.alone(made.loader, processes) if made.loader else {}
    return replace(ended, report=made, versions=_versions(processes), alone=alone, processes=processes, stacks=stacks)


def _outside(watched: Watched) -> Outside:
    from feedrate.attach.facts import Outside
    from feedrate.machine import identity
    from feedrate.machine.probes import procfs

    given = len(identity.usable_cores())
    read = ((counter.machine.t_ns, counter.counts.get("read_bytes")) for counter in watched.counters)
    size = shutil.disk_usage(procfs.SHM).total if Path(procfs.SHM).is_dir() else 0
    return Outside(
        identity.cpu_quota() or given,
        watched.written,
        watched.footprints,
        [(at, count) for at, count in read if count is not None],
        size,
        given,
    )


@contextlib.contextmanager
def noted(notes: list[str], lost: str) -> Iterator[None]:
    """Turn an error of feedrate's own into a note on what is lost by it: the script's end is what counts."""
    try:
        yield
    except FeedrateError as error:
        notes.append(f"{lost}: {error}")
    except Exception as error:  # noqa: BLE001
        notes.append(f"{lost}: {type(error).__name__}: {error}")


def _start(command: Sequence[str], folder: str, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a script with the hook on its path, and with every file that is open to it here."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HOOK), os.environ.get("PYTHONPATH")))),
        "FEEDRATE_RUN": folder,
        "FEEDRATE_PID": str(os.getpid()),
        **more,
    }
    try:
        return subprocess.Popen(command, env=environment, close_fds=False)
    except OSError as error:
        raise InputError(
            f"run: {command[0]} cannot be started: {error.strerror}; expected a program and its arguments "
            "behind --, such as: feedrate run -- python train.py"
        ) from error


@contextlib.contextmanager
def _forwarding() -> Iterator[list[Watched]]:
    """Hand signals on to the script; Ctrl-C reaches it from the terminal, as it is in the same process group."""
    to: list[Watched] = []

    def hand_on(number: int, _: object) -> None:
        for watched in to:
            watched.interrupted |= number in _ENDING
            if number != signal.SIGINT:
                watched.process.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in _FORWARDED}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a signal that is ignored would be so in the script, too
        before[signal.SIGINT] = signal.signal(signal.SIGINT, hand_on)
    try:
        yield to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _notes(folder: Path, processes: Sequence[Process]) -> Iterator[str]:
    """What the hook could not do."""
    if not any(folder.glob("*.seen")):
        yield "no Python loaded feedrate's hook: python -I, -E and -S leave PYTHONPATH or sitecustomize out"
    for process in processes:
        for line in process.said:
            if line["what"] == "not hooked":
                yield f"{line['module']} of this PyTorch is not as expected, and was left alone: {line['error']}"
            if line["what"] == "full":
                yield f"the first {len(process.records):,} records of process {process.pid} count, and none after them"
    failed = {(line["at"], line["error"]) for process in processes for line in process.said if line["what"] == "failed"}
    for at, error in sorted(failed):
        yield f"feedrate itself failed at {at}, and the script went on: {error}"


def _versions(processes: Sequence[Process]) -> dict[str, str]:
    """What the first process that made an iterator had imported."""
    lines = (line for process in processes for line in process.said if line["what"] == "versions")
    return {name: text for name, text in next(lines, {}).items() if isinstance(text, str) and name != "what"} or {
        "python": platform.python_version()
    }


def _status(returncode: int) -> str:
    """How a script ended, in words."""
    if returncode >= 0:
        return f"ended with status {returncode}"
    return f"killed by {signal.Signals(-returncode).name}"
